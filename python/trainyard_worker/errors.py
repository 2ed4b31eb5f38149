"""Errors that the user can fix. Each message is a sentence for the user."""

from __future__ import annotations


class UserError(Exception):
    """Is shown as a message without a trace. Nothing was changed on the worker."""


class NotEnoughResources(UserError):  # noqa: N818 - the message is for the user
    """The cluster is too small. A node that joins may change that."""


class WorkersUnreachable(UserError):  # noqa: N818 - the message is for the user
    """The workers cannot reach each other. A node that replaces another may change that."""


NETWORK = (
    "Nodes must reach each other on all ports. Where they have several networks, the address that `ray start` is given "
    "as --node-ip-address says which one is used."
)
"""What to do about workers that cannot reach each other."""
