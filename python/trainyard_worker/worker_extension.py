"""A method that vLLM's workers get in servers started by the engine: it receives weights from the training workers.

vllm serve ... --worker-extension-cls trainyard_worker.worker_extension.WorkerExtension
    the address of the training workers is in TRAINYARD_WEIGHT_TRANSFER
"""

from __future__ import annotations

import functools
import json
import os
from typing import Any

import torch

from .weight_transfer import WeightTransferGroup, connect_store


class WorkerExtension:
    """Mixed into vLLM's worker class, which calls it by `/collective_rpc`."""

    def receive_weights(self: Any) -> None:
        """Replace the weights by those that are being sent."""
        weights = _transfer_group(self.rank, self.device).receive()
        if self.device.type != "cpu":
            self.reload_weights(weights_iterator=weights)
            return
        # On a CPU, layers compute with weights in another layout, and vLLM 0.32 does not update all of these layouts.
        _reset_expert_kernels(self.get_model())
        self.reload_weights(weights_iterator=weights)
        _update_head_layouts(self.get_model())


def _reset_expert_kernels(model: torch.nn.Module) -> None:
    """Let the kernels of mixtures of experts be created again: only that updates the layout of their weights."""
    for part in model.modules():
        method: Any = getattr(part, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def _update_head_layouts(model: torch.nn.Module) -> None:
    """Also for a head that is tied to the embedding: vLLM does not notice that such a head has new weights."""
    part: Any
    for part in model.modules():
        if type(part).__name__ == "ParallelLMHead":
            part.quant_method.process_weights_after_loading(part)


@functools.cache
def _transfer_group(rank: int, device: torch.device) -> WeightTransferGroup:
    """The group with the first training worker; `rank` is the rank of this worker in its server."""
    a = json.loads(os.environ["TRAINYARD_WEIGHT_TRANSFER"])
    where = device if a["device"] == "cuda" else torch.device("cpu")
    store = connect_store(a["address"], a["timeout"])
    return WeightTransferGroup(store, a["first"] + rank, a["world"], where, a["timeout"])
