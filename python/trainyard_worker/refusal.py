"""What the user can put right, in a sentence for them."""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818 - it is no error of ours
    """Becomes a message without a trace; nothing was changed on the worker."""


class NoRoom(Refusal):
    """The cluster is too small, which a node that joins may change."""
