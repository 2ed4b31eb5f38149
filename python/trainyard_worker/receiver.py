"""What vLLM's workers can do besides, in servers that an engine starts: take weights from the workers that train.

vllm serve ... --worker-extension-cls trainyard_worker.receiver.Receiver     with the way to them in TRAINYARD_LINE
"""

from __future__ import annotations

import functools
import json
import os
from typing import Any

import torch

from .transfer import Line, find_store


class Receiver:
    """Mixed into vLLM's class for workers, which calls it by `/collective_rpc`."""

    def receive_weights(self: Any) -> None:
        """Take the weights that are being sent in place of those that are there."""
        if self.device.type == "cpu":
            _forget_kernels(self.get_model())
        self.reload_weights(weights_iterator=_line(self.rank, self.device).receive())


def _forget_kernels(model: torch.nn.Module) -> None:
    """Let kernels of mixtures of experts be made anew: on a CPU vLLM lays out their weights only when it makes one, and
    would take new weights as they come for weights in that layout."""
    for part in model.modules():
        method: Any = getattr(part, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


@functools.cache
def _line(rank: int, device: torch.device) -> Line:
    """To the first worker; `rank` is this one's among those of its server."""
    way = json.loads(os.environ["TRAINYARD_LINE"])
    where = device if way["device"] == "cuda" else torch.device("cpu")
    return Line(find_store(way["address"], way["timeout"]), way["first"] + rank, way["world"], where, way["timeout"])
