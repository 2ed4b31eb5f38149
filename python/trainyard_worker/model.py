"""A transformers model that tells per-token outputs from its own forward, so that FSDP gathers every part it needs.

Only positions that are asked for reach the head: a hook picks them before the head's product, and whatever a family
does to its logits afterwards (caps, scales) is its own code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    AutoConfig,
)
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import Concatenate, MergeModulelist, WeightConverter

from .refusal import Refusal

_CLASSES: dict[str, Any] = {
    "lm": MODEL_FOR_CAUSAL_LM_MAPPING,
    "value": MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    "score": MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
}
_HEADS = {"lm": "a language model's head", "value": "a head for each token", "score": "a head for each sequence"}


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
            head = self.module.score if hasattr(self.module, "score") else self.module.classifier
            scores = head(hidden.flatten(0, 1)[positions]).float().sum(-1)  # one number each
            assert asked is not None
            return dict.fromkeys(asked.heads, scores)
        self._positions = positions
        try:
            has_cache = "past_key_values" in more or "cache_params" in more
            logits = self.module(input_ids=ids, use_cache=has_cache, **more).logits.float()
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


def describe(folder: str) -> dict[str, Any]:
    """What the controller has to know of a model, whatever its family."""
    config = _read_config(folder).get_text_config()
    for name in ("vocab_size", "hidden_size"):
        if not isinstance(getattr(config, name, None), int):
            raise Refusal(
                f"{folder} is of the family {config.model_type}, which has no `{name}`: it cannot be trained."
            )
    return {
        "vocabSize": config.vocab_size,
        "width": config.hidden_size,
        "maxPositions": getattr(config, "max_position_embeddings", None),
        "spread": getattr(config, "initializer_range", 0.02),
        "regime": _regime(config),
    }


def _regime(config: Any) -> dict[str, Any] | None:
    """Where a rotary embedding depends on the length of a sequence: how, and past which length."""
    rope = getattr(config, "rope_parameters", None) or {}
    for one in (rope, *(part for part in rope.values() if isinstance(part, dict))):
        if one.get("rope_type") == "dynamic":
            return {"type": "dynamic", "end": config.max_position_embeddings}
        if one.get("rope_type") == "longrope":
            return {"type": "longrope", "end": one["original_max_position_embeddings"]}
    return None


def _read_config(folder: str, **more: Any) -> Any:
    if not os.path.exists(os.path.join(folder, "config.json")):
        raise Refusal(
            f"{folder} is not there on the machine {os.uname().nodename}, where a worker is to load it. Put it under "
            "the same path on every machine, on a shared mount for instance."
        )
    try:
        return AutoConfig.from_pretrained(folder, **more)
    except (KeyError, OSError, ValueError) as error:
        raise Refusal(f"{folder} cannot be read by transformers: {' '.join(str(error).split())[:500]}") from error


def load_model(
    folder: str, kind: str, sharding: Sharding, device: torch.device, new_head: NDArray[np.float32] | None = None
) -> TokenModel:
    """The model of a folder in float32, of which each worker reads its own part only. A value or score head that the
    folder lacks is `new_head`."""
    config = _read_config(folder, **({} if kind == "lm" else {"num_labels": 1}))
    family = _CLASSES[kind].get(type(config), None)
    if family is None:
        raise Refusal(f"transformers has no model of the family {config.model_type} with {_HEADS[kind]}.")
    # The fused kernels have no soft cap: with one, attention is computed as it is written.
    has_cap = getattr(config, "attn_logit_softcapping", None) is not None
    settings = {"config": config, **({"attn_implementation": "eager"} if has_cap else {})}

    def divide(module: Any) -> TokenModel | None:
        is_possible = _is_read_in_parts(module, max(1, dist.get_world_size() // sharding.replicas))
        return shard(module, kind, sharding, device) if is_possible else None

    try:
        module, info, model = _read(family, folder, settings, divide)
    except (OSError, RuntimeError, ValueError) as error:
        raise Refusal(f"{folder} cannot be loaded by transformers: {' '.join(str(error).split())[:500]}") from error
    missing = set(info["missing_keys"])
    if kind != "lm" and new_head is not None:
        _fill_head(module, new_head, missing)
    if missing or info["mismatched_keys"]:
        wrong = sorted(missing) or sorted(str(key) for key in info["mismatched_keys"])
        raise Refusal(f"{folder} lacks weights of the model that its config.json describes, such as {wrong[0]}.")
    _make_exact(module)
    model = model or shard(module.to(device), kind, sharding, device)
    _place(model, sharding, device)
    return model


def _read(
    family: Any, folder: str, settings: dict[str, Any], divide: Callable[[Any], TokenModel | None]
) -> tuple[Any, Any, TokenModel | None]:
    """The model of a folder, what is missing there, and the model divided, where it was before it was read."""
    divided: TokenModel | None = None

    def on_made(_: Any, module: Any, *__: Any) -> Any:
        """What transformers calls once the model is there without its weights."""
        nonlocal divided
        divided = divide(module)
        return module

    # Under the name of the class itself, by which transformers finds how to read its checkpoints.
    own = {"__module__": family.__module__, "maybe_distribute_model": classmethod(on_made)}
    reader: Any = type(family.__name__, (family,), own)
    settings = {**settings, "dtype": torch.float32, "output_loading_info": True}
    try:
        module, info = reader.from_pretrained(folder, distributed_config={}, **settings)
        return module, info, divided
    except RuntimeError:
        if divided is None:
            raise
        # The family's own code does not do with parts of parameters.
        return *family.from_pretrained(folder, **settings), None


def _is_read_in_parts(module: Any, workers: int) -> bool:
    """Whether a worker's part of each parameter can be made of parts of what the files hold. Where transformers cuts
    tensors of the files into several, or a worker has none of a layer's experts, it cannot."""
    converters = [entry for entry in get_model_conversion_mapping(module) if isinstance(entry, WeightConverter)]
    for converter in converters:
        for operation in converter.operations:
            is_joined = isinstance(operation, Concatenate) and operation.dim > 0
            if not is_joined and not isinstance(operation, MergeModulelist):
                return False
    experts = {parameter.shape[0] for parameter in module.parameters() if parameter.ndim > 2}
    return not converters or all(-(-count // workers) * (workers - 1) < count for count in experts)


def _fill_head(module: Any, weight: NDArray[np.float32], missing: set[str]) -> None:
    name = "score" if hasattr(module, "score") else "classifier"
    values = {f"{name}.weight": torch.from_numpy(weight).view(1, -1), f"{name}.bias": torch.zeros(1)}
    for key in missing & values.keys():
        parameter = module.get_parameter(key)
        with torch.no_grad():
            parameter.copy_(divided_like(values[key], parameter))
    missing.difference_update(values)


def divided_like(value: Tensor, like: Tensor) -> Tensor:
    """Each worker's part of a value that all have."""
    value = value.to(like.device)
    if not isinstance(like, DTensor):
        return value
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


def _make_exact(module: Any) -> None:
    """Nothing is left to chance in training: no dropout, no noise in the choice of experts."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if isinstance(part, nn.Embedding):
            part.padding_idx = None  # a token of a sequence is learnt from, whatever else it may stand for
        for holder in (part, getattr(part, "config", None)):
            for name, value in list(vars(holder).items()) if holder is not None else []:
                if isinstance(value, float) and ("drop" in name or "jitter" in name):
                    setattr(holder, name, 0.0)
                if name == "rescale_every":  # by which RWKV halves weights in place where it does not learn
                    setattr(holder, name, 0)
    module.eval()


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
    offloads: bool
    """Weights, gradients and moments are in the CPU's memory while no pass uses them, where passes run on a GPU."""


@cache
def _mesh(device: str, replicas: int) -> DeviceMesh:
    workers = dist.get_world_size()
    if workers % replicas != 0:
        raise Refusal(f"{workers} workers are no whole number of groups for {replicas} replicas of a model.")
    if replicas == 1:
        return init_device_mesh(device, (workers,), mesh_dim_names=("shards",))
    return init_device_mesh(device, (replicas, workers // replicas), mesh_dim_names=("replicas", "shards"))


def shard(module: Any, kind: str, sharding: Sharding, device: torch.device) -> TokenModel:
    """Divide a model's parameters among the workers, layer by layer. Gradients are sums over the workers."""
    model = TokenModel(module, kind)
    offloads = sharding.offloads and device.type != "cpu"
    policies: dict[str, Any] = {
        "mesh": _mesh(device.type, sharding.replicas),
        "mp_policy": MixedPrecisionPolicy(param_dtype=getattr(torch, sharding.dtype), reduce_dtype=torch.float32),
        "offload_policy": CPUOffloadPolicy() if offloads else OffloadPolicy(),
    }
    for layer in layers_of(module):
        fully_shard(layer, reshard_after_forward=sharding.reshards, **policies)
    fully_shard(model, reshard_after_forward=False, **policies)
    if sharding.checkpointing:
        module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for part in fsdp_modules(model):
        # The default is the mean; the controller's loss is divided by what it has to be divided by already.
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
        part.set_reduce_scatter_unused_params(True, recurse=False)  # experts that only some workers' tokens reach
    return model


def _place(model: TokenModel, sharding: Sharding, device: torch.device) -> None:
    """Parameters were read into the CPU's memory, which is where they stay if it takes the load off the device."""
    if device.type == "cpu":
        # What was read is a view of the file, which may change.
        model._apply(torch.clone)  # type: ignore[no-untyped-call]
        return
    model.to("cpu" if sharding.offloads else device)
    for part in model.modules():
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, buffer.to(device))


def layers_of(module: Any) -> list[nn.Module]:
    """The parts that transformers never splits between devices, without their own parts: its decoder layers."""
    names = set(module._no_split_modules or [])
    # A part that is divided is of a new class, which `fully_shard` names after the old one.
    layers = {path: part for path, part in module.named_modules() if type(part).__name__.removeprefix("FSDP") in names}
    return [part for path, part in layers.items() if not any(path.startswith(f"{other}.") for other in layers)]


def fsdp_modules(model: nn.Module) -> list[FSDPModule]:
    return [part for part in model.modules() if isinstance(part, FSDPModule)]
