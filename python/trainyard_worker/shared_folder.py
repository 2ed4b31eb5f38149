"""Checks that a folder is the same one on all machines."""

from __future__ import annotations

import os

from .errors import UserError


def check_shared(folder: str, marker: str, rank: int) -> None:
    """Raise an error if the controller's marker file is not in the folder here, or if the folder is not writable."""
    here = f"on the machine {os.uname().nodename}, where a worker writes its part of a checkpoint"
    path = os.path.join(folder, marker)
    if not os.path.exists(path):
        what = "is another folder" if os.path.isdir(folder) else "does not exist"
        raise UserError(
            f"{folder} {what} {here}. Put the run folder on a disk that all machines share, at the same path."
        )
    try:
        with open(f"{path}.{rank}", "x", encoding="utf-8"):
            pass
        os.remove(f"{path}.{rank}")
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written to {here}: {error.strerror}. Let all machines write there."
        ) from error
