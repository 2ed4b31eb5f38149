"""Nothing that the shim started outlives it, however it ends.

A process is forked that does nothing but wait for the shim's end, which closes a pipe between them. Then it ends what
is left of the session: Ray's own processes, some of which would stay for minutes, and workers that are stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time


def watch_over_this_session() -> None:
    """Fork the watcher, if this process leads a session of its own; before there are threads."""
    session = os.getpid()
    if os.getsid(0) != session:
        return
    reader, writer = os.pipe()  # neither is inherited by programs that are started later
    if os.fork() > 0:
        os.close(reader)
        return
    os.setpgid(0, 0)
    os.closerange(0, reader)
    os.closerange(reader + 1, max(writer, 255) + 1)  # the pipes to the controller, too: nobody waits for this process
    os.read(reader, 1)
    if not os.path.isdir("/proc"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(session, signal.SIGKILL)
    for _ in range(50):  # what is just being started may come a moment later
        left = [pid for pid in _session(session) if pid != os.getpid()]
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    os._exit(0)


def _session(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{int(name)}/stat", encoding="utf-8") as file:
            state, _, _, own = file.read().rpartition(") ")[2].split()[:4]
            if int(own) == session and state != "Z":
                found.append(int(name))
    return found
