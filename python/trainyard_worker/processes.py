"""The processes of this machine, read from /proc of Linux. On other systems the list is empty."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    """The state of one process."""

    pid: int
    name: str
    state: str
    """Z: ended, T: stopped, R: computes, D: waits for a disk, S: waits for anything else."""
    parent: int
    group: int
    session: int
    seconds: float
    """CPU time that it has used so far."""


def processes() -> list[Process]:
    """All processes."""
    names = os.listdir("/proc") if os.path.isdir("/proc") else []
    found = [_read(f"/proc/{name}/stat") for name in names if name.isdigit()]
    return [process for process in found if process is not None]


def threads_of(pid: int) -> list[Process]:
    """The threads of a process; none if it has ended."""
    folder = f"/proc/{pid}/task"
    with contextlib.suppress(OSError):
        found = [_read(f"{folder}/{name}/stat") for name in os.listdir(folder)]
        return [thread for thread in found if thread is not None]
    return []


def _read(path: str) -> Process | None:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        head, _, tail = file.read().rpartition(") ")  # the name may hold anything
        pid, _, name = head.partition(" (")
        fields = tail.split()
        parent, group, session = (int(field) for field in fields[1:4])
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return Process(int(pid), name, fields[0], parent, group, session, seconds)
    return None
