"""No process that the shim started outlives it, however the shim ends.

A forked process waits for the end of the shim, which closes a pipe between them. Then it kills what is left of the
session: Ray's own processes, some of which would stay for minutes, and stopped workers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from .processes import processes


def kill_session_on_exit() -> None:
    """Fork the process that cleans up, if this process leads a session. Call it before any thread is started."""
    session = os.getpid()
    if os.getsid(0) != session:
        return
    reader, writer = os.pipe()  # programs that are started later do not inherit it
    if os.fork() > 0:
        os.close(reader)
        return
    os.setpgid(0, 0)
    os.closerange(0, reader)
    os.closerange(reader + 1, max(writer, 255) + 1)  # the controller must not wait for its pipes
    os.read(reader, 1)
    if not os.path.isdir("/proc"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(session, signal.SIGKILL)
    for _ in range(50):  # a process that is just being started may appear a moment later
        members = [process for process in processes() if process.session == session and process.pid != os.getpid()]
        left = [process.pid for process in members if process.state != "Z"]
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    os._exit(0)
