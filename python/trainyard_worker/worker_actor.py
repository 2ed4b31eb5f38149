"""A Ray actor around a worker. It imports torch when it is first used, so that the shim does not have to."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import ray

from . import frames
from .errors import UserError

if TYPE_CHECKING:
    from .worker import Worker


def as_actor(kind: type) -> Any:
    """An actor class whose processes are not restarted. Two calls of the concurrency group `watch` run beside any other
    call."""
    options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0, "concurrency_groups": {"watch": 2}}
    return ray.remote(**options)(kind)


class WorkerActor:
    """What runs in a worker's process."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def describe(self) -> dict[str, Any]:
        """The process, machine and node of the actor."""
        context = ray.get_runtime_context()
        gpus = context.get_accelerator_ids().get("GPU", [])
        return {"pid": os.getpid(), "host": socket.gethostname(), "node": context.get_node_id(), "gpus": gpus}

    def free_address(self) -> str:
        """An address of this machine at which nothing listens yet."""
        host: str = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            return f"{host}:{probe.getsockname()[1]}"

    def call(self, method: str, data: bytes) -> bytes:
        """Call a method of the worker. An error that the user can fix is returned as `error`."""
        try:
            if self._worker is None:
                self._worker = _make_worker()
            return frames.pack({"ok": getattr(self._worker, method)(frames.unpack(data))})
        except UserError as error:
            return frames.pack({"error": str(error)})

    def wait_until_exit(self) -> None:
        """Never returns: the call fails when the process ends."""
        threading.Event().wait()

    def ping(self) -> None:
        """Returns at once, unless the process is stopped."""


def _make_worker() -> Worker:
    # Otherwise gloo uses the address of the hostname, which on many machines no other machine reaches.
    if (interface := interface_of(ray.util.get_node_ip_address())) is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    try:
        from .worker import Worker
    except ImportError as error:
        where = socket.gethostname()
        raise UserError(f"The Python of the Ray workers on {where} cannot load what they need: {error}.") from error
    return Worker()


def interface_of(address: str) -> str | None:
    """The network interface of this machine that has an address."""
    import psutil  # comes with Ray

    interfaces = psutil.net_if_addrs().items()
    return next((name for name, addresses in interfaces if any(one.address == address for one in addresses)), None)
