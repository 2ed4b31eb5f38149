"""A transformers model whose forward returns outputs per token, so that FSDP gathers every part that it needs.

Only the requested positions reach the head: a hook selects them before the head's product. What a family does to its
logits afterwards (caps, scales) is its own code.
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

from .errors import UserError

_CLASSES: dict[str, Any] = {
    "lm": MODEL_FOR_CAUSAL_LM_MAPPING,
    "value": MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    "score": MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
}
_HEADS = {"lm": "a language model's head", "value": "a head for each token", "score": "a head for each sequence"}


class TokenModel(nn.Module):
    """A model with its head; the root module of FSDP."""

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
        self, ids: Tensor, positions: Tensor, outputs: OutputRequest | None = None, **more: Any
    ) -> dict[str, Tensor] | Tensor:
        """Outputs at the flat `positions` of `ids` [batch, time]; logits if no outputs are requested."""
        if self.kind != "lm":
            hidden = self.module.base_model(input_ids=ids, use_cache=False, **more).last_hidden_state
            head = self.module.score if hasattr(self.module, "score") else self.module.classifier
            scores = head(hidden.flatten(0, 1)[positions]).float().sum(-1)  # one number each
            assert outputs is not None
            return dict.fromkeys(outputs.heads, scores)
        self._positions = positions
        try:
            has_cache = "past_key_values" in more or "cache_params" in more
            logits = self.module(input_ids=ids, use_cache=has_cache, **more).logits.float()
        finally:
            self._positions = None
        return logits if outputs is None else outputs.compute(logits)


@dataclass(frozen=True)
class OutputRequest:
    """Requested outputs of some tokens, at a temperature."""

    heads: tuple[str, ...]
    targets: Tensor
    temperature: float

    def compute(self, logits: Tensor) -> dict[str, Tensor]:
        """Each output for each row of logits."""
        logprobs = torch.log_softmax(logits / self.temperature, dim=-1)
        make = {
            "logprobs": lambda: logprobs[torch.arange(len(self.targets), device=logits.device), self.targets],
            "entropy": lambda: -(logprobs.exp() * logprobs).sum(-1),
            "sumPiSquared": lambda: (2 * logprobs).exp().sum(-1),
        }
        return {head: make[head]() for head in self.heads}


def describe(folder: str) -> dict[str, Any]:
    """What the controller needs to know about a model of any family."""
    config = _read_config(folder).get_text_config()
    for name in ("vocab_size", "hidden_size"):
        if not isinstance(getattr(config, name, None), int):
            raise UserError(
                f"{folder} is a model of the family {config.model_type}, which has no `{name}`: it cannot be trained."
            )
    return {
        "vocabSize": config.vocab_size,
        "width": config.hidden_size,
        "maxPositions": getattr(config, "max_position_embeddings", None),
        "initializerRange": getattr(config, "initializer_range", 0.02),
        "regime": _regime(config),
    }


def _regime(config: Any) -> dict[str, Any] | None:
    """How, and above which length, the rotary embedding depends on the length of a sequence; None if it does not."""
    rope = getattr(config, "rope_parameters", None) or {}
    for one in (rope, *(part for part in rope.values() if isinstance(part, dict))):
        if one.get("rope_type") == "dynamic":
            return {"type": "dynamic", "end": config.max_position_embeddings}
        if one.get("rope_type") == "longrope":
            return {"type": "longrope", "end": one["original_max_position_embeddings"]}
    return None


def _read_config(folder: str, **more: Any) -> Any:
    if not os.path.exists(os.path.join(folder, "config.json")):
        raise UserError(
            f"{folder} does not exist on the machine {os.uname().nodename}, where a worker loads it. Put it under "
            "the same path on every machine, on a shared mount for instance."
        )
    try:
        return AutoConfig.from_pretrained(folder, **more)
    except (KeyError, OSError, ValueError) as error:
        raise UserError(f"{folder} cannot be read by transformers: {' '.join(str(error).split())[:500]}") from error


def load_model(
    folder: str, kind: str, sharding: Sharding, device: torch.device, new_head: NDArray[np.float32] | None = None
) -> TokenModel:
    """Load the model of a folder in float32; each worker reads its own shards only. A value or score head that the
    folder does not have is `new_head`."""
    config = _read_config(folder, **({} if kind == "lm" else {"num_labels": 1}))
    family = _CLASSES[kind].get(type(config), None)
    if family is None:
        raise UserError(f"transformers has no model of the family {config.model_type} with {_HEADS[kind]}.")
    # The fused kernels have no soft cap: a model with one needs the eager implementation.
    has_cap = getattr(config, "attn_logit_softcapping", None) is not None
    settings = {"config": config, **({"attn_implementation": "eager"} if has_cap else {})}

    def shard_early(module: Any) -> TokenModel | None:
        is_possible = _can_read_shards(module, max(1, dist.get_world_size() // sharding.replicas))
        return shard(module, kind, sharding, device) if is_possible else None

    try:
        module, info, model = _read(family, folder, settings, shard_early)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"{folder} cannot be loaded by transformers: {' '.join(str(error).split())[:500]}") from error
    missing = set(info["missing_keys"])
    if kind != "lm" and new_head is not None:
        _fill_head(module, new_head, missing)
    if missing or info["mismatched_keys"]:
        wrong = sorted(missing) or sorted(str(key) for key in info["mismatched_keys"])
        raise UserError(f"{folder} lacks weights of the model that its config.json describes, such as {wrong[0]}.")
    _disable_randomness(module)
    model = model or shard(module.to(device), kind, sharding, device)
    _place(model, sharding, device)
    return model


def _read(
    family: Any, folder: str, settings: dict[str, Any], shard_early: Callable[[Any], TokenModel | None]
) -> tuple[Any, Any, TokenModel | None]:
    """The model of a folder, the keys that it lacks, and the sharded model if it was sharded before it was read."""
    sharded: TokenModel | None = None

    def on_built(_: Any, module: Any, *__: Any) -> Any:
        """transformers calls this when the model is built and has no weights yet."""
        nonlocal sharded
        sharded = shard_early(module)
        return module

    # The subclass has the same name, because transformers uses it to find out how to read the checkpoint.
    own = {"__module__": family.__module__, "maybe_distribute_model": classmethod(on_built)}
    reader: Any = type(family.__name__, (family,), own)
    settings = {**settings, "dtype": torch.float32, "output_loading_info": True}
    try:
        module, info = reader.from_pretrained(folder, distributed_config={}, **settings)
        return module, info, sharded
    except RuntimeError:
        if sharded is None:
            raise
        # The family's own code does not work with sharded parameters.
        return *family.from_pretrained(folder, **settings), None


def _can_read_shards(module: Any, workers: int) -> bool:
    """Whether each worker can read its shards alone. It cannot if transformers splits tensors of the files, or if a
    worker has none of a layer's experts."""
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
            parameter.copy_(shard_like(values[key], parameter))
    missing.difference_update(values)


def shard_like(value: Tensor, like: Tensor) -> Tensor:
    """This worker's shard of a value that all workers have, sharded like `like`."""
    value = value.to(like.device)
    if not isinstance(like, DTensor):
        return value
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


def _disable_randomness(module: Any) -> None:
    """Turn off all randomness in training: no dropout, no noise in the choice of experts."""
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if isinstance(part, nn.Embedding):
            part.padding_idx = None  # its embedding is trained like that of any other token
        for holder in (part, getattr(part, "config", None)):
            for name, value in list(vars(holder).items()) if holder is not None else []:
                if isinstance(value, float) and ("drop" in name or "jitter" in name):
                    setattr(holder, name, 0.0)
                if name == "rescale_every":  # RWKV halves its weights in place for inference
                    setattr(holder, name, 0)
    module.eval()


@dataclass(frozen=True)
class Sharding:
    """How a model is sharded and computed; results stay the same, except for the precision of `dtype`."""

    replicas: int
    """The number of groups of workers that each hold the whole model (HSDP)."""
    reshards: bool
    """Layers are freed after the forward pass and gathered again for the backward pass."""
    dtype: str
    """The dtype of passes; weights, gradients and moments are always float32."""
    checkpointing: bool
    """Activation checkpointing: layers are computed again in the backward pass."""
    offloads: bool
    """Weights, gradients and moments stay in CPU memory while no pass on the GPU uses them."""


@cache
def _mesh(device: str, replicas: int) -> DeviceMesh:
    workers = dist.get_world_size()
    if workers % replicas != 0:
        raise UserError(f"{workers} workers cannot be divided into {replicas} equal groups (replicas of a model).")
    if replicas == 1:
        return init_device_mesh(device, (workers,), mesh_dim_names=("shards",))
    return init_device_mesh(device, (replicas, workers // replicas), mesh_dim_names=("replicas", "shards"))


def shard(module: Any, kind: str, sharding: Sharding, device: torch.device) -> TokenModel:
    """Shard a model's parameters over the workers, layer by layer. Gradients are sums over the workers."""
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
        # The default is the mean, but the controller's loss already has the right denominator.
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
        part.set_reduce_scatter_unused_params(True, recurse=False)  # experts that get tokens of some workers only
    return model


def _place(model: TokenModel, sharding: Sharding, device: torch.device) -> None:
    """Move parameters, which were read into CPU memory, to the device, unless they are offloaded."""
    if device.type == "cpu":
        # The parameters are views of the file, which may change.
        model._apply(torch.clone)  # type: ignore[no-untyped-call]
        return
    model.to("cpu" if sharding.offloads else device)
    for part in model.modules():
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, buffer.to(device))


def layers_of(module: Any) -> list[nn.Module]:
    """The outermost modules that transformers never splits between devices: its decoder layers."""
    names = set(module._no_split_modules or [])
    # A sharded module has a new class, which `fully_shard` names after the old one.
    layers = {path: part for path, part in module.named_modules() if type(part).__name__.removeprefix("FSDP") in names}
    return [part for path, part in layers.items() if not any(path.startswith(f"{other}.") for other in layers)]


def fsdp_modules(model: nn.Module) -> list[FSDPModule]:
    return [part for part in model.modules() if isinstance(part, FSDPModule)]
