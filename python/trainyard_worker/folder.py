"""Whether a folder that machines are to share is the same one on all of them."""

from __future__ import annotations

import os

from .refusal import Refusal


def check_shared(folder: str, mark: str, rank: int) -> None:
    """Refuse a folder in which the controller's mark is not seen here, or that nothing can be written to."""
    here = f"on the machine {os.uname().nodename}, where a worker is to write its part of a checkpoint"
    path = os.path.join(folder, mark)
    if not os.path.exists(path):
        what = "is another folder" if os.path.isdir(folder) else "is not there"
        raise Refusal(
            f"{folder} {what} {here}. Put the run folder on a disk that all machines share, at the same path."
        )
    try:
        with open(f"{path}.{rank}", "x", encoding="utf-8"):
            pass
        os.remove(f"{path}.{rank}")
    except OSError as error:
        raise Refusal(
            f"{folder} cannot be written to {here}: {error.strerror}. Let all machines write there."
        ) from error
