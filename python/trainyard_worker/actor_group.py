"""Ray actors of one engine: the workers of a pool, or the vLLM servers. A group is complete or lost as a whole.

The group creates its actors in placement groups, passes the controller's calls on to them, and watches them: an actor
that dies or does not answer is reported to the controller.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any, Protocol

from . import frames
from .errors import NETWORK, NotEnoughResources, UserError, WorkersUnreachable
from .health_check import ServerLost

Request = dict[str, Any]
Spec = dict[str, Any]
"""What a group asks for: `nodes`, `perNode`, the `bundle` of resources of each actor, and the name of its `pool`."""
_OTHER_ERRORS_SECONDS = 2.0
"""How long after the error of one worker the death of another may be noticed."""


class Controller(Protocol):
    """What a group reports to."""

    def send(self, message: dict[str, Any]) -> None:
        """Send an event."""

    def answer(self, request: Request, value: Any) -> None:
        """Answer a request."""

    def fail(self, request: Request, error: BaseException, source: dict[str, Any] | None = None) -> None:
        """Answer a request with an error."""


SERVER_NAMES = ("The vLLM server", "vLLM servers")


def worker_names(pool: str | None) -> tuple[str, str]:
    """One worker of a pool and several, as messages name them; None is the pool of the models that are trained."""
    return ("Worker", "workers") if pool is None else (f"The {pool}'s worker", f"workers of the {pool}")


class ActorGroup:
    """The workers of a pool, or the servers; `names` are those of one and of several in messages."""

    def __init__(self, controller: Controller, names: tuple[str, str]) -> None:
        self._controller = controller
        self._kind, self._plural = names
        self._actors: list[Any] = []
        self._placements: list[Any] = []
        self._members: list[dict[str, Any]] = []
        self._lost: set[int] = set()
        self._is_stopping = False

    @property
    def members(self) -> list[dict[str, Any]]:
        """Where each actor runs, by rank."""
        return self._members

    def start_workers(self, a: Request, spec: Spec, others: list[Spec], deadline: float) -> None:
        """Place the workers and let them join one process group; `others` are groups that need resources too."""
        from .worker_actor import WorkerActor, as_actor

        self._place(spec, others, deadline, as_actor(WorkerActor))
        self._start_watching(a["silence"], deadline)
        self._join(a, deadline)

    def start_servers(
        self, a: Request, workers: ActorGroup, others: list[Spec], is_local: bool, deadline: float
    ) -> None:
        """Place the servers, on the nodes of the workers or with resources of their own, beside those of `others`. The
        answer is null if the Python of a node has no vLLM."""
        from .vllm_server import VllmServerActor, create_beside
        from .worker_actor import as_actor

        actor_class = as_actor(VllmServerActor)
        arguments = (a["python"], is_local)
        if a["own"] is None:
            self._actors = create_beside(workers.members, a["parallel"], actor_class, *arguments)
        else:
            self._place(a["own"], others, deadline, actor_class, *arguments)
        if all(self._get_all([actor.has_vllm.remote() for actor in self._actors], deadline)):
            self._start_watching(a["silence"], deadline)
            self._controller.answer(a, {"servers": self._members})
        else:
            self.stop()
            self._actors = []
            self._controller.answer(a, {"servers": None})

    def call(self, a: Request) -> None:
        """Call a method of every actor; the answer is theirs in order, or the first error at once."""
        from ray.exceptions import RayActorError

        answers: list[bytes | None] = [None] * len(self._actors)
        left = [len(self._actors)]
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
                self._controller.fail(a, error, self._describe(rank))
            elif is_last:
                self._controller.answer(a, answers)

        for rank, (actor, data) in enumerate(zip(self._actors, a["args"], strict=True)):
            named = actor.call.options(name=a["method"])  # a category in Ray's timeline
            future = named.remote(a["method"], data).future()
            future.add_done_callback(lambda done, rank=rank: on_done(rank, done))

    def stop(self) -> None:
        """End every actor, stopped processes too."""
        import ray

        self._is_stopping = True
        for actor in self._actors:
            ray.kill(actor)
        for placement in self._placements:
            ray.util.remove_placement_group(placement)
        here = ray.get_runtime_context().get_node_id()
        for member in self._members:
            if member["node"] == here:
                _kill(member["pid"])

    # ------------------------------------------------------------ starting

    def _place(self, spec: Spec, others: list[Spec], deadline: float, actor_class: Any, *arguments: Any) -> None:
        """Create `perNode` actors on each of `nodes` nodes; `others` are groups that need resources too."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundle = spec["bundle"]
        self._check_resources(spec, others)
        for _ in range(spec["nodes"]):
            placement = ray.util.placement_group([bundle] * spec["perNode"], strategy="STRICT_PACK")
            self._placements.append(placement)
            if not placement.wait(max(1.0, deadline - time.monotonic())):
                raise UserError(
                    f"Ray found no room for {spec['perNode']} {self._plural} on one node in time; each takes "
                    f"{_resources(bundle)}. Free some, or ask for fewer."
                )
            for index in range(spec["perNode"]):
                strategy = PlacementGroupSchedulingStrategy(placement, placement_group_bundle_index=index)
                options = {"num_cpus": bundle.get("CPU", 0), "num_gpus": bundle.get("GPU", 0)}
                self._actors.append(actor_class.options(scheduling_strategy=strategy, **options).remote(*arguments))

    def _check_resources(self, spec: Spec, others: list[Spec]) -> None:
        import ray

        total = ray.cluster_resources()
        for name, each in spec["bundle"].items():
            has, needs = total.get(name, 0), _amount(spec, name)
            taken = [(worker_names(other["pool"])[1], _amount(other, name)) for other in others]
            if has < needs + sum(amount for _, amount in taken):
                listed = " and ".join(f"{amount:g} for the {plural}" for plural, amount in taken)
                besides = f", beside {listed}" if listed else ""
                raise NotEnoughResources(
                    f"The Ray cluster has {has:g} {name} in all, and {needs:g} are asked for{besides}: {each:g} for "
                    f"each of the {self._plural}. Ask for fewer, or add nodes{_without(name)}."
                )

    def _join(self, a: Request, deadline: float) -> None:
        """Let the workers join one process group."""
        import ray

        (address,) = self._get_all([self._actors[0].free_address.remote()], deadline)
        joins = []
        for rank, actor in enumerate(self._actors):
            join = {"rank": rank, "world": len(self._actors), "address": address, "device": a["device"]}
            joins.append(actor.call.remote("join", frames.pack({**join, "timeout": a["collectiveTimeout"]})))
        where = ", ".join(dict.fromkeys(member["host"] for member in self._members))
        while joins:
            # The first one with an answer: a worker that cannot join keeps the others waiting.
            done, joins = ray.wait(joins, timeout=max(1.0, deadline - time.monotonic()))
            if not done:
                raise WorkersUnreachable(
                    f"The {self._plural} (on {where}) have not found each other in time. They meet at {address}. "
                    f"{NETWORK}"
                )
            if "error" in (answer := frames.unpack(ray.get(done[0]))):
                with contextlib.suppress(ray.exceptions.GetTimeoutError):
                    ray.get(joins, timeout=_OTHER_ERRORS_SECONDS)  # raises the death of another, if that was the cause
                raise WorkersUnreachable(answer["error"])

    def _get_all(self, refs: list[Any], deadline: float) -> list[Any]:
        import ray

        try:
            results: list[Any] = ray.get(refs, timeout=max(1.0, deadline - time.monotonic()))
        except ray.exceptions.GetTimeoutError as error:
            late = f"The {self._plural} were placed and did not start in time. Look at Ray's logs for why."
            raise UserError(late) from error
        return results

    # ------------------------------------------------------------ watching

    def _start_watching(self, silence: float, deadline: float) -> None:
        """Ask the actors where they run, and notice when one dies or does not answer."""
        self._members = self._get_all([actor.describe.remote() for actor in self._actors], deadline)
        for rank, actor in enumerate(self._actors):
            waiting = actor.wait_until_exit.options(concurrency_group="watch").remote()
            waiting.future().add_done_callback(lambda done, rank=rank: self._on_death(rank, done.exception()))
        threading.Thread(target=self._watch, args=(silence,), daemon=True).start()

    def _watch(self, silence: float) -> None:
        """Report actors that exist and do not answer."""
        import ray

        pings = {rank: self._ping(rank) for rank in range(len(self._actors))}
        since = dict.fromkeys(pings, time.monotonic())
        while not self._is_stopping and not self._lost:
            time.sleep(min(1.0, silence / 4))
            for rank, ping in pings.items():
                if ray.wait([ping], timeout=0)[0]:
                    pings[rank], since[rank] = self._ping(rank), time.monotonic()
                elif time.monotonic() - since[rank] > silence:
                    self._report_lost(rank, f"it has not answered for {silence:.0f} s")

    def _ping(self, rank: int) -> Any:
        return self._actors[rank].ping.options(concurrency_group="watch").remote()

    def _on_death(self, rank: int, error: BaseException | None) -> None:
        cause = getattr(error, "cause", None)  # an error of the actor itself
        if isinstance(cause, ServerLost):
            self._report_lost(rank, str(cause))
            return
        message = " ".join(str(cause if isinstance(cause, BaseException) else error).split())
        _, _, node = message.partition("because its node has died. Node Id: ")
        if node:
            self._report_lost(rank, f"its node has died: {node.partition(' ')[2].rstrip('.')[:400]}.")
            return
        _, _, detail = message.partition("Worker exit detail: ")
        detail, _, _ = (detail or message).partition(" Some common causes")  # a list that fits any death
        detail, _, _ = detail.partition(" Object store memory usage")
        self._report_lost(rank, f"its process ended. {detail}"[:400])

    def _report_lost(self, rank: int, reason: str) -> None:
        if self._is_stopping or rank in self._lost:
            return
        self._lost.add(rank)
        self._controller.send({"event": "lost", **self._describe(rank), "reason": reason})

    def _describe(self, rank: int) -> dict[str, Any]:
        """An actor as the controller names it."""
        return {"kind": self._kind, "rank": rank, **self._members[rank]}


def _amount(spec: Spec, resource: str) -> float:
    """What a group needs of a resource in all."""
    amount: float = spec["bundle"].get(resource, 0) * spec["nodes"] * spec["perNode"]
    return amount


def _resources(bundle: dict[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in bundle.items())


def _without(resource: str) -> str:
    return "; trainer.device=cpu needs no GPU" if resource == "GPU" else ""


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
