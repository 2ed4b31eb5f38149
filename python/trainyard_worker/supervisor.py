"""Runs a command that ends when the process that started it ends.

    python supervisor.py COMMAND...

The command and everything that it starts are one process group. The group is ended when stdin of this process ends,
that is, when the process at the other end of the pipe is gone. Ray may kill this process together with that one, so a
third process leads the group and ends it when this process is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

_GRACE_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1


def _lead_group() -> int:
    """Fork the leader of a process group that ends with this process; returns the group."""
    reader, writer = os.pipe()  # programs that are started later do not inherit it
    leader = os.fork()
    if leader > 0:
        os.close(reader)
        with contextlib.suppress(PermissionError):
            os.setpgid(leader, leader)  # both processes do it, because either may be first
        return leader
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.close(writer)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.read(reader, 1)
    os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_stdin(group: int) -> None:
    while os.read(0, 1024):
        pass
    os.killpg(group, signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


def main() -> int:
    """Run the command to its end; returns its exit code, as a shell reports it."""
    group = _lead_group()
    # Started by the main thread: the death of the thread that starts a process counts as the death of its parent.
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, process_group=group, preexec_fn=_die_with_parent)
    threading.Thread(target=_end_with_stdin, args=(group,), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
