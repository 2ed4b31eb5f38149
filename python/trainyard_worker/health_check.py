"""Detects a frozen vLLM server: one that is stopped, or waits for something that never comes.

A busy server may take minutes to answer, but it computes meanwhile, so slowness alone is not a fault. A server is
frozen if it neither answers nor computes in a dozen checks in a row. `/health` is answered by the process that serves
HTTP, `/is_paused` only by the engine behind it, between two of its passes. A process computes if it has used a
processor, waits for one, or waits for a disk. Where there is no /proc, no server counts as frozen.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request

from .processes import Process, processes, threads_of

CHECKS = 12
"""Failed checks in a row after which a server counts as frozen."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The server is on this machine, so no proxy of the environment is used."""
_ENGINE = ("VLLM::Engine", "VLLM::Worker")
_IDLE_SHARE = 0.05
"""Of one processor's time: an idle process of vLLM polls now and then, which takes one or two percent."""


class ServerLost(Exception):  # noqa: N818 - named like EngineLost of the controller
    """Says in a sentence what happened to a server."""


class HealthCheck:
    """Checks the server that a supervisor process runs."""

    def __init__(self, address: str, key: str, supervisor: int, silence: float) -> None:
        self._address = address
        self._key = key
        self._supervisor = supervisor
        self._silence = silence
        self._failures = 0

    @property
    def pause(self) -> float:
        """How long to wait before the next check; 0 after a failed check, which has already taken its time."""
        return 0.0 if self._failures > 0 else self._silence / CHECKS

    def check(self) -> str | None:
        """Check once more; returns what is wrong after too many failures in a row."""
        frozen = self._find_frozen()
        self._failures = 0 if frozen is None else self._failures + 1
        if self._failures < CHECKS:
            return None
        return f"{frozen} does not answer, and has computed nothing for {self._silence:.0f} s"

    def _find_frozen(self) -> str | None:
        """The part that neither answers nor computes."""
        for path, name, is_engine in (("/health", "it", False), ("/is_paused", "its engine", True)):
            before = self._processes(is_engine)
            if not self._answers(path):
                return None if self._has_computed(before, self._processes(is_engine)) else name
        return None

    def _has_computed(self, before: dict[int, Process], after: dict[int, Process]) -> bool:
        """Whether any of the processes has computed since, or is ready to. True if no process can be seen."""
        if not before or before.keys() != after.keys():
            return True
        least = _IDLE_SHARE * self._silence / CHECKS
        used_time = any(after[pid].seconds - process.seconds > least for pid, process in before.items())
        return used_time or _is_ready_to_compute(list(after))

    def _answers(self, path: str) -> bool:
        """Whether any answer comes, even an error. True if the server is gone: its exit is noticed elsewhere."""
        request = urllib.request.Request(self._address + path, headers={"authorization": f"Bearer {self._key}"})
        try:
            with DIRECT.open(request, timeout=self._silence / CHECKS):
                return True
        except urllib.error.URLError as error:
            return not isinstance(error.reason, TimeoutError)
        except TimeoutError:
            return False
        except OSError:
            return True

    def _processes(self, is_engine: bool) -> dict[int, Process]:
        """The processes of the engine and all that they started, or the other processes of the server."""
        everyone = processes()
        groups = {process.group for process in everyone if process.parent == self._supervisor}
        server = {process.pid: process for process in everyone if process.group in groups and process.state != "Z"}
        engine = {pid for pid, process in server.items() if process.name.startswith(_ENGINE)}
        while more := {pid for pid, process in server.items() if process.parent in engine} - engine:
            engine |= more
        return {pid: process for pid, process in server.items() if (pid in engine) == is_engine}


def _is_ready_to_compute(pids: list[int]) -> bool:
    """Whether a thread waits for a processor or a disk in three looks in a row: in a single look an idle thread may."""
    waiting: set[int] | None = None
    for _ in range(3):
        now = {thread.pid for pid in pids for thread in threads_of(pid) if thread.state in "RD"}
        waiting = now if waiting is None else waiting & now
        if not waiting:
            return False
        time.sleep(0.1)
    return True
