"""Nothing that the shim started outlives it, however it ends.

A process is forked that does nothing but wait for the shim's end, which closes a pipe between them. Then it ends what
is left of the session: Ray's own processes, some of which would stay for minutes, and workers that are stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from .processes import processes


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
        members = [one for one in processes() if one.session == session and one.pid != os.getpid()]
        left = [one.pid for one in members if one.state != "Z"]
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    os._exit(0)
