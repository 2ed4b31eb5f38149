"""A Ray actor around a worker. It imports torch when it is first used, so that the shim need not."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import ray

from . import frames
from .refusal import Refusal

if TYPE_CHECKING:
    from .worker import Worker


def as_actor(kind: type) -> Any:
    """A class whose objects live in processes that are not started again. Two calls of the group `watch` are answered
    whatever else one of them is doing."""
    lasting: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0, "concurrency_groups": {"watch": 2}}
    return ray.remote(**lasting)(kind)


class Host:
    """What runs in a worker's process."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def describe(self) -> dict[str, Any]:
        """Who and where it is."""
        context = ray.get_runtime_context()
        gpus = context.get_accelerator_ids().get("GPU", [])
        return {"pid": os.getpid(), "host": socket.gethostname(), "node": context.get_node_id(), "gpus": gpus}

    def meeting_place(self) -> str:
        """An address of this machine at which nobody listens yet."""
        host: str = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            return f"{host}:{probe.getsockname()[1]}"

    def call(self, verb: str, data: bytes) -> bytes:
        """Do what a message asks; what the user can put right comes back as `refused`."""
        try:
            if self._worker is None:
                self._worker = _make_worker()
            return frames.pack({"ok": getattr(self._worker, verb)(frames.unpack(data))})
        except Refusal as refusal:
            return frames.pack({"refused": str(refusal)})

    def park(self) -> None:
        """Never returns: that it ends tells that the process has."""
        threading.Event().wait()

    def ping(self) -> None:
        """Returns at once, unless the process is stopped."""


def _make_worker() -> Worker:
    # Otherwise gloo takes the address that the hostname stands for, which on many machines no other one reaches.
    if (interface := interface_of(ray.util.get_node_ip_address())) is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    try:
        from .worker import Worker
    except ImportError as error:
        where = socket.gethostname()
        raise Refusal(f"The Python of the Ray workers on {where} cannot load what they need: {error}.") from error
    return Worker()


def interface_of(address: str) -> str | None:
    """The network interface of this machine that has an address."""
    import psutil  # comes with Ray

    interfaces = psutil.net_if_addrs().items()
    return next((name for name, all_of_it in interfaces if any(one.address == address for one in all_of_it)), None)
