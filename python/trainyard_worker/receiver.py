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
        weights = _line(self.rank, self.device).receive()
        if self.device.type != "cpu":
            self.reload_weights(weights_iterator=weights)
            return
        # On a CPU layers compute with weights in another layout, and vLLM 0.32 forgets to lay out some of them again.
        _forget_experts(self.get_model())
        self.reload_weights(weights_iterator=weights)
        _lay_out_heads(self.get_model())


def _forget_experts(model: torch.nn.Module) -> None:
    """Let kernels of mixtures of experts be made anew: only that lays out their weights."""
    for part in model.modules():
        method: Any = getattr(part, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def _lay_out_heads(model: torch.nn.Module) -> None:
    """Also of a head that is the embedding, of which nothing says that it has new weights."""
    part: Any
    for part in model.modules():
        if type(part).__name__ == "ParallelLMHead":
            part.quant_method.process_weights_after_loading(part)


@functools.cache
def _line(rank: int, device: torch.device) -> Line:
    """To the first worker; `rank` is this one's among those of its server."""
    way = json.loads(os.environ["TRAINYARD_LINE"])
    where = device if way["device"] == "cuda" else torch.device("cpu")
    return Line(find_store(way["address"], way["timeout"]), way["first"] + rank, way["world"], where, way["timeout"])
