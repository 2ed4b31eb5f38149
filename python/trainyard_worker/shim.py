"""The controller's process in a Ray cluster: a child process that exchanges frames over stdin and stdout.

    python -m trainyard_worker.shim

Requests are `{id, op, ...}`, answers `{id, ok}` or `{id, error}`, events `{event, ...}`. The shim joins a cluster or
starts one, creates the workers of each pool, passes calls on to them, and reports when one dies. When the controller is
gone (stdin ends) it ends the workers, and the cluster if it started it. If the shim itself is killed,
`session_cleanup.py` ends the processes that it leaves.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

# Before anything else is imported: nothing that a library prints may come between the frames.
_IN = os.fdopen(os.dup(0), "rb")
_OUT = os.dup(1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)

from . import cluster, frames  # noqa: E402
from .actor_group import SERVER_NAMES, ActorGroup, Request, Spec, worker_names  # noqa: E402
from .errors import NotEnoughResources, UserError, WorkersUnreachable  # noqa: E402
from .session_cleanup import kill_session_on_exit  # noqa: E402

STOP_SECONDS = 10.0
_REPORT_SECONDS = 2.0
"""Ray's processes report what they did once a second."""


class Controller:
    """The other end of the pipe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. If the controller is gone, the end of stdin shows that."""
        data = memoryview(frames.framed(message))
        with self._lock, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(_OUT, data) :]

    def answer(self, request: Request, value: Any) -> None:
        """Answer a request."""
        self.send({"id": request["id"], "ok": value})

    def fail(self, request: Request, error: BaseException, source: dict[str, Any] | None = None) -> None:
        """Answer a request with an error; `source` is the worker or server that it comes from."""
        self.send({"id": request["id"], "error": {**_described(error), "source": source}})


class Shim:
    """Handles requests in order, on the main thread: Ray's own processes end with the thread that started them."""

    def __init__(self) -> None:
        self._controller = Controller()
        self._specs: list[Spec] = []
        self._pools: list[ActorGroup] = []  # the first one trains
        self._servers = ActorGroup(self._controller, SERVER_NAMES)
        self._requests: queue.Queue[Request | None] = queue.Queue()
        self._is_local = False

    def run(self) -> None:
        """Handle requests until stdin ends."""
        threading.Thread(target=self._read, daemon=True).start()
        ops: dict[str, Callable[[Request], None]] = {
            "start": self._start,
            "call": lambda a: self._pools[a["pool"]].call(a),
            "serve": self._serve,
            "call_servers": lambda a: self._servers.call(a),
            "timeline": self._write_timeline,
        }
        while (request := self._requests.get()) is not None:
            try:
                ops[request["op"]](request)
            except Exception as error:
                self._controller.fail(request, error)
        self._end()

    def _read(self) -> None:
        while (request := frames.read_frame(_IN.read)) is not None:
            self._requests.put(request)
        self._requests.put(None)
        # The main thread may be blocked, for example by a cluster that does not answer. The process must end anyway.
        threading.Timer(STOP_SECONDS, self._exit).start()

    def _start(self, a: Request) -> None:
        # `ray job submit` sets this variable to the address of its cluster.
        address = a["address"] or os.environ.get("RAY_ADDRESS")
        self._is_local = address is None
        deadline = time.monotonic() + a["timeout"]
        self._open_cluster(a, address)
        import ray

        self._specs = [{**pool, "bundle": a["bundle"]} for pool in a["pools"]]
        for spec in self._specs:
            self._pools.append(self._start_workers(a, spec, deadline))
        address = ray.get_runtime_context().gcs_address
        self._controller.answer(a, {"pools": [group.members for group in self._pools], "address": address})

    def _start_workers(self, a: Request, spec: Spec, deadline: float) -> ActorGroup:
        others = [other for other in self._specs if other is not spec]
        return self._create(
            a,
            deadline,
            worker_names(spec["pool"]),
            lambda group: group.start_workers(a, spec, others, deadline),
        )

    def _open_cluster(self, a: Request, address: str | None) -> None:
        where = f"A Ray cluster could not be {'started here' if address is None else f'reached at {address}'}"
        reached = f"Check that it runs, that it can be reached from here, and that {_JOINED}."
        hint = "The machine may be too busy: try again when it is not." if address is None else reached
        late = UserError(f"{where} within {a['timeout']:.0f} s. {hint}")
        # Ray keeps trying for minutes and ignores signals.
        alarm = threading.Timer(a["timeout"], self._give_up, (a, late))
        alarm.start()
        try:
            if address is None:
                cluster.start(a["local"], a["init"], a["env"], a["timeout"])
            else:
                cluster.join(address, a["init"], a["env"])
        except Exception as error:
            message = f"{where}: {' '.join(str(error).split())[:500]}."
            trace = "".join(traceback.format_exception(error))
            if "InvalidAuthToken" in trace:
                message += " It needs a token: set RAY_AUTH_TOKEN, or RAY_AUTH_MODE=token if a file has it."
            if "No node info found" in trace:
                message += f" Check that {_JOINED}."
            if "Version mismatch" in str(error):
                message += " Start the cluster with the same Python and Ray as this process."
            raise UserError(message) from error
        finally:
            alarm.cancel()

    def _serve(self, a: Request) -> None:
        deadline = time.monotonic() + a["timeout"]
        self._servers = self._create(
            a,
            deadline,
            SERVER_NAMES,
            lambda group: group.start_servers(a, self._pools[0], self._specs, self._is_local, deadline),
        )

    def _write_timeline(self, a: Request) -> None:
        """Write what Ray has recorded of its tasks as a file of Chrome's tracing format."""
        import ray

        time.sleep(_REPORT_SECONDS)
        ray.timeline(a["file"])
        self._controller.answer(a, None)

    def _create(
        self, a: Request, deadline: float, names: tuple[str, str], start: Callable[[ActorGroup], None]
    ) -> ActorGroup:
        """Start a group. If it replaces a group that was lost, wait until another node replaces the lost one, and until
        Ray notices that the lost node is gone."""
        from ray.exceptions import RayActorError

        while True:
            group = ActorGroup(self._controller, names)
            try:
                start(group)
                return group
            except Exception as error:
                with contextlib.suppress(Exception):  # the first error is the one to report
                    group.stop()
                can_wait = isinstance(error, NotEnoughResources | WorkersUnreachable | RayActorError)
                if not a["isReplacing"] or not can_wait or time.monotonic() > deadline:
                    raise
                time.sleep(1.0)

    def _give_up(self, a: Request, late: UserError) -> None:
        self._controller.fail(a, late)
        self._exit()

    def _end(self) -> None:
        try:
            if "ray" in sys.modules:
                import ray

                if ray.is_initialized():
                    for group in [self._servers, *self._pools]:
                        group.stop()
                    ray.shutdown()
        finally:
            self._exit()

    def _exit(self) -> None:
        """End this process whatever its threads are doing; `session_cleanup.py` ends the others."""
        os._exit(0)


def _described(error: BaseException) -> dict[str, Any]:
    """An error for the controller: its type, message and trace."""
    cause = getattr(error, "cause", None)
    root = cause if isinstance(cause, BaseException) else error
    return {
        "type": "UserError" if isinstance(root, UserError) else type(root).__name__,
        "message": str(root),
        "trace": "".join(traceback.format_exception(error))[-4000:],
    }


_JOINED = "this machine is one of its nodes: `ray start --address=...`, with --num-cpus=0 if it is to run no worker"


if __name__ == "__main__":
    kill_session_on_exit()  # before any thread is started
    Shim().run()
