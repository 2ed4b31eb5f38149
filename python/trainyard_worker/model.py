"""A transformers model that tells per-token outputs from its own forward, so that FSDP gathers every part it needs.

Only positions that are asked for reach the head: a hook picks them before the head's product, and whatever a family
does to its logits afterwards (caps, scales) is its own code.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from .refusal import Refusal

_CLASSES: dict[str, Any] = {
    "lm": AutoModelForCausalLM,
    "value": AutoModelForTokenClassification,
    "score": AutoModelForSequenceClassification,
}


class TokenModel(nn.Module):
    """A model under one roof with its head, which is where FSDP's root is."""

    def __init__(self, module: Any, kind: str) -> None:
        super().__init__()
        self.module = module
        self.kind = kind
        self._positions: Tensor | None = None
        if kind == "lm":
            module.get_output_embeddings().register_forward_pre_hook(self._pick)

    def _pick(self, _: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return args if self._positions is None else (args[0].flatten(0, 1)[self._positions],)

    def forward(
        self, ids: Tensor, positions: Tensor, asked: Asked | None = None, **more: Any
    ) -> dict[str, Tensor] | Tensor:
        """What is asked of each of the flat `positions` of `ids` [batch, time]; their logits if nothing is."""
        if self.kind != "lm":
            hidden = self.module.base_model(input_ids=ids, use_cache=False, **more).last_hidden_state
            scores = self.module.score(hidden.flatten(0, 1)[positions]).float().sum(-1)  # one number each
            assert asked is not None
            return dict.fromkeys(asked.heads, scores)
        self._positions = positions
        try:
            logits = self.module(input_ids=ids, use_cache="past_key_values" in more, **more).logits.float()
        finally:
            self._positions = None
        return logits if asked is None else asked.of(logits)


@dataclass(frozen=True)
class Asked:
    """Heads wanted of some tokens, at a temperature."""

    heads: tuple[str, ...]
    targets: Tensor
    temperature: float

    def of(self, logits: Tensor) -> dict[str, Tensor]:
        logprobs = torch.log_softmax(logits / self.temperature, dim=-1)
        make = {
            "logprobs": lambda: logprobs[torch.arange(len(self.targets), device=logits.device), self.targets],
            "entropy": lambda: -(logprobs.exp() * logprobs).sum(-1),
            "sumPiSquared": lambda: (2 * logprobs).exp().sum(-1),
        }
        return {head: make[head]() for head in self.heads}


def read_module(folder: str, kind: str, new_head: NDArray[np.float32] | None = None) -> Any:
    """The model of a folder, in float32 on the CPU. A value or score head that the folder lacks is `new_head`."""
    if not os.path.exists(os.path.join(folder, "config.json")):
        raise Refusal(f"{folder} is not there on the machine {os.uname().nodename}, where a worker is to load it.")
    labels = {} if kind == "lm" else {"num_labels": 1}
    config = AutoConfig.from_pretrained(folder, **labels)
    # The fused kernels have no soft cap: with one, attention is computed as it is written.
    attention = "eager" if getattr(config, "attn_logit_softcapping", None) is not None else "sdpa"
    try:
        module, info = _CLASSES[kind].from_pretrained(
            folder, config=config, dtype=torch.float32, attn_implementation=attention, output_loading_info=True
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise Refusal(f"{folder} cannot be loaded by transformers: {' '.join(str(error).split())[:500]}") from error
    missing = set(info["missing_keys"])
    if kind != "lm" and new_head is not None:
        _fill_head(module, new_head, missing)
        missing -= {"score.weight", "score.bias"}
    if missing or info["mismatched_keys"]:
        wrong = sorted(missing) or sorted(str(key) for key in info["mismatched_keys"])
        raise Refusal(f"{folder} lacks weights of the model that its config.json describes, such as {wrong[0]}.")
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if hasattr(part, "attention_dropout"):
            part.attention_dropout = 0.0
        if isinstance(part, nn.Embedding):
            part.padding_idx = None  # a token of a sequence is learnt from, whatever else it may stand for
    module.eval()
    return module


def _fill_head(module: Any, weight: NDArray[np.float32], missing: set[str]) -> None:
    with torch.no_grad():
        if "score.weight" in missing:
            module.score.weight.copy_(torch.from_numpy(weight).view(1, -1))
        if "score.bias" in missing:
            module.score.bias.zero_()


@dataclass(frozen=True)
class Sharding:
    """How a model is divided and computed with; the numbers stay the same but for the precision of `dtype`."""

    replicas: int
    """Workers are so many groups, each of which holds the whole model (HSDP)."""
    reshards: bool
    """Layers are let go of after the forward pass, and gathered again for the backward pass."""
    dtype: str
    """What passes compute in; weights, gradients and moments are float32 in any case."""
    checkpointing: bool
    """Layers are computed again in the backward pass instead of kept."""


@cache
def _mesh(device: str, replicas: int) -> DeviceMesh:
    workers = dist.get_world_size()
    if workers % replicas != 0:
        raise Refusal(f"{workers} workers are no whole number of groups for {replicas} replicas of a model.")
    if replicas == 1:
        return init_device_mesh(device, (workers,), mesh_dim_names=("shards",))
    return init_device_mesh(device, (replicas, workers // replicas), mesh_dim_names=("replicas", "shards"))


def shard(module: Any, kind: str, sharding: Sharding, device: str) -> TokenModel:
    """Divide a model's parameters among the workers, layer by layer. Gradients are sums over the workers."""
    model = TokenModel(module, kind)
    mesh = _mesh(device, sharding.replicas)
    policy = MixedPrecisionPolicy(param_dtype=getattr(torch, sharding.dtype), reduce_dtype=torch.float32)
    for layer in layers_of(module):
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=sharding.reshards)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    if sharding.checkpointing:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for part in fsdp_modules(model):
        # The default is the mean; the controller's loss is divided by what it has to be divided by already.
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
        part.set_reduce_scatter_unused_params(True, recurse=False)  # experts that only some workers' tokens reach
    return model


def layers_of(module: Any) -> list[nn.Module]:
    """The parts that transformers never splits between devices: its decoder layers."""
    names = set(module._no_split_modules or [])
    return [part for part in module.modules() if type(part).__name__ in names]


def fsdp_modules(model: nn.Module) -> list[FSDPModule]:
    return [part for part in model.modules() if isinstance(part, FSDPModule)]
