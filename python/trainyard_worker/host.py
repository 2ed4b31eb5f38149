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

CONCURRENCY_GROUPS = {"watch": 2}
"""Calls that are answered whatever the worker is doing."""


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
    try:
        from .worker import Worker
    except ImportError as error:
        where = socket.gethostname()
        raise Refusal(f"The Python of the Ray workers on {where} cannot load what they need: {error}.") from error
    return Worker()
