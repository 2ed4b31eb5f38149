"""The controller's hand in a Ray cluster: a child process that speaks frames over stdin and stdout.

    python -m trainyard_worker.shim

Requests are `{id, op, ...}`, answers `{id, ok}` or `{id, error}`, events `{event, ...}`. It joins a cluster or starts
one, places the workers, relays verbs to them, and tells of their deaths. When the controller is gone (stdin ends) it
ends the workers, and the cluster if it started it. Should it be killed itself, `afterlife.py` ends what it leaves.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
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
from .afterlife import watch_over_this_session  # noqa: E402
from .pulse import ServerLost  # noqa: E402
from .refusal import NETWORK, Apart, NoRoom, Refusal  # noqa: E402

Request = dict[str, Any]
STOP_SECONDS = 10.0
LAST_WORDS_SECONDS = 2.0


class Controller:
    """The other end of the pipe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def say(self, message: dict[str, Any]) -> None:
        """Send; a controller that is gone is noticed by the end of stdin."""
        data = memoryview(frames.framed(message))
        with self._lock, contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(_OUT, data) :]

    def answer(self, request: Request, value: Any) -> None:
        self.say({"id": request["id"], "ok": value})

    def refuse(self, request: Request, error: BaseException, whose: dict[str, Any] | None = None) -> None:
        self.say({"id": request["id"], "error": {**described(error), "whose": whose}})


class Group:
    """The workers of one engine, or the servers beside them: all that is there, or nothing."""

    def __init__(self, controller: Controller, kind: str) -> None:
        self._controller = controller
        self._kind = kind
        self._hosts: list[Any] = []
        self._placements: list[Any] = []
        self._who: list[dict[str, Any]] = []
        self._lost: set[int] = set()
        self._takes: dict[str, float] = {}
        self._is_stopping = False

    def start(self, a: Request, deadline: float) -> None:
        """Place the workers, and let them find each other."""
        import ray

        from .host import Host, as_actor

        self._place(a, deadline, as_actor(Host))
        self._attend(a["silence"], deadline)
        self._meet(a, deadline)
        self._controller.answer(a, {"workers": self._who, "address": ray.get_runtime_context().gcs_address})

    def _place(self, a: Request, deadline: float, make: Any, *given: Any, beside: Group | None = None) -> None:
        """Find room on `nodes` nodes for `perNode` hosts each, which `make` makes of what they are given."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundle = a["bundle"]
        self._takes = {name: each * a["nodes"] * a["perNode"] for name, each in bundle.items()}
        self._check_resources(bundle, {} if beside is None else beside._takes)
        for _ in range(a["nodes"]):
            placement = ray.util.placement_group([bundle] * a["perNode"], strategy="STRICT_PACK")
            self._placements.append(placement)
            if not placement.wait(max(1.0, deadline - time.monotonic())):
                raise Refusal(
                    f"Ray found no room for {a['perNode']} {self._everyone} on one node in time; each takes "
                    f"{_resources(bundle)}. Free some, or ask for fewer."
                )
            for index in range(a["perNode"]):
                strategy = PlacementGroupSchedulingStrategy(placement, placement_group_bundle_index=index)
                options = {"num_cpus": bundle.get("CPU", 0), "num_gpus": bundle.get("GPU", 0)}
                self._hosts.append(make.options(scheduling_strategy=strategy, **options).remote(*given))

    def _meet(self, a: Request, deadline: float) -> None:
        """Let the workers find each other."""
        import ray

        (address,) = self._all([self._hosts[0].meeting_place.remote()], deadline)
        joins = []
        for rank, host in enumerate(self._hosts):
            join = {"rank": rank, "world": len(self._hosts), "address": address, "device": a["device"]}
            joins.append(host.call.remote("join", frames.pack({**join, "timeout": a["collectiveTimeout"]})))
        where = ", ".join(dict.fromkeys(who["host"] for who in self._who))
        late = Apart(f"The workers (on {where}) have not found each other in time. They meet at {address}. {NETWORK}")
        while joins:
            # The first that has an answer, since one that cannot join keeps the others waiting.
            done, joins = ray.wait(joins, timeout=max(1.0, deadline - time.monotonic()))
            if not done:
                raise late
            if "refused" in (answer := frames.unpack(ray.get(done[0]))):
                with contextlib.suppress(ray.exceptions.GetTimeoutError):
                    ray.get(joins, timeout=LAST_WORDS_SECONDS)  # raises the death of another, if that was why
                raise Apart(answer["refused"])

    def serve(self, a: Request, beside: Group, is_local: bool, deadline: float) -> None:
        """Find places for servers, on the nodes of the workers or of their own; none where a node has no vLLM."""
        from .host import as_actor
        from .vllm_server import VllmHost, place_beside

        make = as_actor(VllmHost)
        given = (a["python"], is_local)
        if a["own"] is None:
            self._hosts = place_beside(beside._who, a["parallel"], make, *given)
        else:
            self._place(a["own"], deadline, make, *given, beside=beside)
        if all(self._all([host.has_vllm.remote() for host in self._hosts], deadline)):
            self._attend(a["silence"], deadline)
            self._controller.answer(a, {"servers": self._who})
        else:
            self.stop()
            self._hosts = []
            self._controller.answer(a, {"servers": None})

    def _attend(self, silence: float, deadline: float) -> None:
        """Learn who the hosts are, and be told of their deaths."""
        self._who = self._all([host.describe.remote() for host in self._hosts], deadline)
        for rank, host in enumerate(self._hosts):
            parked = host.park.options(concurrency_group="watch").remote()
            parked.future().add_done_callback(lambda done, rank=rank: self._on_death(rank, done.exception()))
        threading.Thread(target=self._watch, args=(silence,), daemon=True).start()

    def _all(self, refs: list[Any], deadline: float) -> list[Any]:
        import ray

        try:
            results: list[Any] = ray.get(refs, timeout=max(1.0, deadline - time.monotonic()))
        except ray.exceptions.GetTimeoutError as error:
            late = f"The {self._everyone} were placed and did not start in time. Look at Ray's logs for why."
            raise Refusal(late) from error
        return results

    def call(self, a: Request) -> None:
        """Send a verb to every worker; the answer is theirs in order, or the first error at once."""
        from ray.exceptions import RayActorError

        answers: list[bytes | None] = [None] * len(self._hosts)
        left = [len(self._hosts)]
        lock = threading.Lock()

        def on_done(rank: int, done: Any) -> None:
            error = done.exception()
            with lock:
                if left[0] <= 0:
                    return
                if error is None:
                    answers[rank] = done.result()
                left[0] = left[0] - 1 if error is None else 0
                is_last = left[0] == 0
            if isinstance(error, RayActorError):
                self._on_death(rank, error)  # before the answer, because it says more
            if error is not None:
                self._controller.refuse(a, error, self._name(rank))
            elif is_last:
                self._controller.answer(a, answers)

        for rank, (host, data) in enumerate(zip(self._hosts, a["args"], strict=True)):
            future = host.call.remote(a["verb"], data).future()
            future.add_done_callback(lambda done, rank=rank: on_done(rank, done))

    def stop(self) -> None:
        """End every worker, the stopped ones too."""
        import ray

        self._is_stopping = True
        for host in self._hosts:
            ray.kill(host)
        for placement in self._placements:
            ray.util.remove_placement_group(placement)
        here = ray.get_runtime_context().get_node_id()
        for who in self._who:
            if who["node"] == here:
                _kill(who["pid"])

    def _check_resources(self, bundle: dict[str, float], taken: dict[str, float]) -> None:
        import ray

        total = ray.cluster_resources()
        for name, each in bundle.items():
            has, others, needs = total.get(name, 0), taken.get(name, 0), self._takes[name]
            if has < others + needs:
                besides = f", beside {others:g} for the workers" if others > 0 else ""
                raise NoRoom(
                    f"The Ray cluster has {has:g} {name} in all, and {needs:g} are asked for{besides}: {each:g} for "
                    f"each of the {self._everyone}. Ask for fewer, or add nodes{_without(name)}."
                )

    @property
    def _everyone(self) -> str:
        return "workers" if self._kind == "Worker" else "vLLM servers"

    def _on_death(self, rank: int, error: BaseException | None) -> None:
        cause = getattr(error, "cause", None)  # what a host has said itself
        if isinstance(cause, ServerLost):
            self._tell_lost(rank, str(cause))
            return
        told = " ".join(str(cause if isinstance(cause, BaseException) else error).split())
        _, _, node = told.partition("because its node has died. Node Id: ")
        if node:
            self._tell_lost(rank, f"its node has died: {node.partition(' ')[2].rstrip('.')[:400]}.")
            return
        _, _, detail = told.partition("Worker exit detail: ")
        detail, _, _ = (detail or told).partition(" Some common causes")  # a list that fits any death
        detail, _, _ = detail.partition(" Object store memory usage")
        self._tell_lost(rank, f"its process ended. {detail}"[:400])

    def _tell_lost(self, rank: int, why: str) -> None:
        if self._is_stopping or rank in self._lost:
            return
        self._lost.add(rank)
        self._controller.say({"event": "lost", **self._name(rank), "why": why})

    def _name(self, rank: int) -> dict[str, Any]:
        """Whom the controller is to name."""
        return {"kind": self._kind, "rank": rank, **self._who[rank]}

    def _watch(self, silence: float) -> None:
        """Notice workers that exist and do not answer."""
        import ray

        pings = {rank: self._ping(rank) for rank in range(len(self._hosts))}
        since = dict.fromkeys(pings, time.monotonic())
        while not self._is_stopping and not self._lost:
            time.sleep(min(1.0, silence / 4))
            for rank, ping in pings.items():
                if ray.wait([ping], timeout=0)[0]:
                    pings[rank], since[rank] = self._ping(rank), time.monotonic()
                elif time.monotonic() - since[rank] > silence:
                    self._tell_lost(rank, f"it has not answered for {silence:.0f} s")

    def _ping(self, rank: int) -> Any:
        return self._hosts[rank].ping.options(concurrency_group="watch").remote()


class Shim:
    """Does what is asked, in order, on the main thread: Ray's own processes end with the thread that started them."""

    def __init__(self) -> None:
        self._controller = Controller()
        self._group = Group(self._controller, "Worker")
        self._servers = Group(self._controller, "The vLLM server")
        self._requests: queue.Queue[Request | None] = queue.Queue()
        self._is_local = False

    def run(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()
        ops: dict[str, Callable[[Request], None]] = {
            "start": self._start,
            "call": lambda a: self._group.call(a),
            "serve": self._serve,
            "call_servers": lambda a: self._servers.call(a),
        }
        while (request := self._requests.get()) is not None:
            try:
                ops[request["op"]](request)
            except Exception as error:
                self._controller.refuse(request, error)
        self._end()

    def _read(self) -> None:
        while (request := frames.read_frame(_IN.read)) is not None:
            self._requests.put(request)
        self._requests.put(None)
        # If the main thread is held up, in a cluster that does not answer for instance, it ends all the same.
        threading.Timer(STOP_SECONDS, self._leave).start()

    def _start(self, a: Request) -> None:
        # Whoever is run by `ray job submit` is told of its cluster this way.
        address = a["address"] or os.environ.get("RAY_ADDRESS")
        self._is_local = address is None
        where = f"A Ray cluster could not be {'started here' if address is None else f'reached at {address}'}"
        reached = f"Check that it runs, that it can be reached from here, and that {_JOINED}."
        hint = "The machine may be too busy: try again when it is not." if address is None else reached
        late = Refusal(f"{where} within {a['timeout']:.0f} s. {hint}")
        deadline = time.monotonic() + a["timeout"]
        # Ray goes on trying for minutes, deaf to signals.
        alarm = threading.Timer(a["timeout"], self._give_up, (a, late))
        alarm.start()
        try:
            if address is None:
                cluster.start(a["local"], a["init"], a["env"], a["timeout"])
            else:
                cluster.join(address, a["init"], a["env"])
        except Exception as error:
            message = f"{where}: {' '.join(str(error).split())[:500]}."
            told = "".join(traceback.format_exception(error))
            if "InvalidAuthToken" in told:
                message += " It asks for a token: set RAY_AUTH_TOKEN, or RAY_AUTH_MODE=token if a file has it."
            if "No node info found" in told:
                message += f" Check that {_JOINED}."
            if "Version mismatch" in str(error):
                message += " Start the cluster with the same Python and Ray as this process."
            raise Refusal(message) from error
        finally:
            alarm.cancel()
        self._group = self._settle(a, deadline, "Worker", lambda group: group.start(a, deadline))

    def _serve(self, a: Request) -> None:
        deadline = time.monotonic() + a["timeout"]
        self._servers = self._settle(
            a, deadline, "The vLLM server", lambda group: group.serve(a, self._group, self._is_local, deadline)
        )

    def _settle(self, a: Request, deadline: float, kind: str, start: Callable[[Group], None]) -> Group:
        """Start a group. Where it takes the place of another that was lost, wait for what takes the place of its
        node, and for Ray to notice that it is gone."""
        from ray.exceptions import RayActorError

        while True:
            group = Group(self._controller, kind)
            try:
                start(group)
                return group
            except Exception as error:
                with contextlib.suppress(Exception):  # never hide what was wrong
                    group.stop()
                can_wait = a["isReplacing"] and isinstance(error, NoRoom | Apart | RayActorError)
                if not can_wait or time.monotonic() > deadline:
                    raise
                time.sleep(1.0)

    def _give_up(self, a: Request, late: Refusal) -> None:
        self._controller.refuse(a, late)
        self._leave()

    def _end(self) -> None:
        try:
            if "ray" in sys.modules:
                import ray

                if ray.is_initialized():
                    self._servers.stop()
                    self._group.stop()
                    ray.shutdown()
        finally:
            self._leave()

    def _leave(self) -> None:
        """End this process whatever its threads are doing; the rest is for `afterlife.py`."""
        os._exit(0)


def described(error: BaseException) -> dict[str, Any]:
    """An error for the controller: its kind, what it says, and where it came from."""
    cause = getattr(error, "cause", None)
    told = cause if isinstance(cause, BaseException) else error
    return {
        "type": "Refusal" if isinstance(told, Refusal) else type(told).__name__,
        "message": str(told),
        "trace": "".join(traceback.format_exception(error))[-4000:],
    }


_JOINED = "this machine is one of its nodes: `ray start --address=...`, with --num-cpus=0 if it is to run no worker"


def _resources(bundle: dict[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in bundle.items())


def _without(resource: str) -> str:
    return "; trainer.device=cpu needs no GPU" if resource == "GPU" else ""


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    watch_over_this_session()  # while there are no threads yet
    Shim().run()
