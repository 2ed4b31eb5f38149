"""Whether a server of vLLM is frozen: stopped, or waiting for what never comes.

A busy server may take minutes over an answer, but it computes meanwhile; so slowness is never held against it. Frozen
is one that is asked and neither answers nor computes, a dozen times in a row. `/health` is answered by the process that
speaks HTTP, `/is_paused` only by the engine behind it, between two of its passes. A process computes if it has used a
processor, wants one, or waits for a disk. Where /proc does not tell, no server is ever called frozen.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request

from .processes import Process, processes, threads_of

BEATS = 12
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The server is on this machine, whatever proxy the environment names for others."""
_ENGINE = ("VLLM::Engine", "VLLM::Worker")
_NEXT_TO_NOTHING = 0.05
"""Of one processor's time: an idle process of vLLM looks around now and then, and takes a hundredth or two."""


class ServerLost(Exception):  # noqa: N818 - it is no error of ours
    """Says in a sentence what became of a server."""


class Pulse:
    """Asks the server that a keeper runs."""

    def __init__(self, address: str, key: str, keeper: int, silence: float) -> None:
        self._address = address
        self._key = key
        self._keeper = keeper
        self._silence = silence
        self._missed = 0

    @property
    def pause(self) -> float:
        """How long to wait before it is asked again: not at all while it is silent."""
        return 0.0 if self._missed > 0 else self._silence / BEATS

    def feel(self) -> str | None:
        """Ask once more; what is the matter, once it was silent for too long."""
        still = self._find_still()
        self._missed = 0 if still is None else self._missed + 1
        if self._missed < BEATS:
            return None
        return f"{still} does not answer, and has computed nothing for {self._silence:.0f} s"

    def _find_still(self) -> str | None:
        """What does not answer and does not compute."""
        for path, name, is_engine in (("/health", "it", False), ("/is_paused", "its engine", True)):
            before = self._parts(is_engine)
            if not self._answers(path):
                return None if self._compute(before, self._parts(is_engine)) else name
        return None

    def _compute(self, before: dict[int, Process], after: dict[int, Process]) -> bool:
        """Whether any of the processes has computed since, or would if it could. If none can be seen, they may have."""
        if not before or before.keys() != after.keys():
            return True
        least = _NEXT_TO_NOTHING * self._silence / BEATS
        has_computed = any(after[pid].seconds - process.seconds > least for pid, process in before.items())
        return has_computed or _would_compute(list(after))

    def _answers(self, path: str) -> bool:
        """Whether anything comes back, be it a refusal; one that is gone is for others to notice."""
        request = urllib.request.Request(self._address + path, headers={"authorization": f"Bearer {self._key}"})
        try:
            with DIRECT.open(request, timeout=self._silence / BEATS):
                return True
        except urllib.error.URLError as error:
            return not isinstance(error.reason, TimeoutError)
        except TimeoutError:
            return False
        except OSError:
            return True

    def _parts(self, is_engine: bool) -> dict[int, Process]:
        """The engine's processes with all that they started, or the others of the server."""
        everyone = processes()
        groups = {process.group for process in everyone if process.parent == self._keeper}
        server = {process.pid: process for process in everyone if process.group in groups and process.state != "Z"}
        engine = {pid for pid, process in server.items() if process.name.startswith(_ENGINE)}
        while more := {pid for pid, process in server.items() if process.parent in engine} - engine:
            engine |= more
        return {pid: process for pid, process in server.items() if (pid in engine) == is_engine}


def _would_compute(pids: list[int]) -> bool:
    """Whether a thread wants a processor, or waits for a disk, at look after look: at a single one an idle one may."""
    waiting: set[int] | None = None
    for _ in range(3):
        now = {thread.pid for pid in pids for thread in threads_of(pid) if thread.state in "RD"}
        waiting = now if waiting is None else waiting & now
        if not waiting:
            return False
        time.sleep(0.1)
    return True
