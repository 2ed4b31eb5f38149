"""What the user can put right, in a sentence for them."""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818 - it is no error of ours
    """Becomes a message without a trace; nothing was changed on the worker."""


class NoRoom(Refusal):
    """The cluster is too small, which a node that joins may change."""


class Apart(Refusal):
    """The workers do not reach each other, which a node that takes the place of another may change."""


NETWORK = (
    "Nodes must reach each other on all ports. Where they have several networks, the address that `ray start` is given "
    "as --node-ip-address says which one is used."
)
"""What to do about workers that do not."""
