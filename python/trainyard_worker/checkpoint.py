"""Weights and optimizer state on disk.

Weights are the files of a Hugging Face folder. The workers gather them, and the first worker writes them, a shard at a
time. The optimizer's state is torch's distributed checkpoint: every worker writes its part, and any number of workers
can read it. The single file of the embedded engine can be read too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor
from transformers.core_model_loading import revert_weight_conversion

from .errors import UserError
from .model import TokenModel, layers_of, shard_like

SHARD_BYTES = 5_000_000_000
_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}
_EMBEDDED_FILE = "optimizer.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq")
Named = list[tuple[str, nn.Parameter]]


def save_weights(model: TokenModel, folder: str, dtype: str, is_writer: bool, unties: bool = False) -> None:
    """Write `model.safetensors`, or shards and their index, into an existing folder. All workers call it.

    With `unties`, a parameter that has two names is written under both.
    """
    kind = _DTYPES[dtype]
    shards = _shards(model.module, kind.itemsize)
    places: dict[str, str] = {}
    total = 0
    for index, parameters in enumerate(shards):
        tensors = _gather(model, parameters, (torch.device("cpu"), kind) if is_writer else None, unties)
        if not is_writer:
            continue
        file = "model.safetensors" if len(shards) == 1 else f"model-{index + 1:05}-of-{len(shards):05}.safetensors"
        path = os.path.join(folder, file)
        save_file(tensors, path, metadata={"format": "pt"})
        _apply_umask(path)
        _flush(path)
        places |= dict.fromkeys(tensors, file)
        total += sum(tensor.numel() for tensor in tensors.values())
    if is_writer and len(shards) > 1:
        metadata = {"total_parameters": total, "total_size": total * kind.itemsize}
        path = os.path.join(folder, "model.safetensors.index.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"metadata": metadata, "weight_map": dict(sorted(places.items()))}, out, indent=2)
        _flush(path)


def stream_weights(model: TokenModel, dtype: str, device: torch.device, is_wanted: bool) -> Iterator[dict[str, Tensor]]:
    """The weights as `save_weights` writes them, a layer at a time; empty where they are not wanted. All workers must
    iterate over it."""
    for parameters in _units(model.module):
        yield _gather(model, parameters, (device, _DTYPES[dtype]) if is_wanted else None, unties=False)


def _gather(
    model: TokenModel, parameters: Named, wanted: tuple[torch.device, torch.dtype] | None, unties: bool
) -> dict[str, Tensor]:
    """All-gather parameters: whole tensors under the names of a checkpoint, on the wanted device and in the wanted
    dtype; empty if nothing is wanted."""
    whole: dict[str, Tensor] = {}
    for name, parameter in parameters:
        value = _whole(parameter)  # all workers take part
        if wanted is not None:
            whole[name] = value.to(*wanted)
    if wanted is None:
        return {}
    twins: dict[str, str] = model.module.all_tied_weights_keys if unties else {}
    whole |= {twin: whole[name].clone() for twin, name in twins.items() if name in whole}
    # transformers has other names and layouts in memory (the experts of a layer are one tensor): back to the file's.
    return {name: tensor.contiguous() for name, tensor in revert_weight_conversion(model.module, whole).items()}


def read_config(folder: str) -> dict[str, Any]:
    """config.json as it is, with numbers as they are written."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config: dict[str, Any] = json.load(file)
    return config


def save_config(model: TokenModel, config: dict[str, Any], folder: str, dtype: str, unties: bool) -> None:
    """Write a model's config.json with the head and dtype of the saved weights."""
    name = "float32" if dtype == "F32" else "bfloat16"
    changed = {**config, "architectures": [type(model.module).__name__], "dtype": name, "torch_dtype": name}
    if model.kind != "lm":
        changed |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    if unties:
        changed["tie_word_embeddings"] = False
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(changed, out, indent=2)
    _flush(path)


def _units(module: Any) -> list[Named]:
    """Parameters in order; the parameters of one layer are together."""
    owners = {id(parameter): index for index, layer in enumerate(layers_of(module)) for parameter in layer.parameters()}
    units: dict[int | str, Named] = {}
    for name, parameter in module.named_parameters():
        units.setdefault(owners.get(id(parameter), name), []).append((name, parameter))
    return list(units.values())


def _shards(module: Any, item_bytes: int) -> list[Named]:
    """Parameters in order, split where a shard is full."""
    shards: list[Named] = [[]]
    used = 0
    for unit in _units(module):
        size = sum(parameter.numel() for _, parameter in unit) * item_bytes
        if used + size > SHARD_BYTES and shards[-1]:
            shards.append([])
            used = 0
        shards[-1] += unit
        used += size
    return shards


def copy_weights(model: TokenModel, other: TokenModel) -> None:
    """Copy the parameters of a model that is sharded in the same way."""
    theirs = dict(other.module.named_parameters())
    with torch.no_grad():
        for name, parameter in model.module.named_parameters():
            parameter.copy_(theirs[name])


def save_optimizer(model: TokenModel, optimizer: torch.optim.Optimizer, folder: str) -> None:
    """Write the optimizer's state; all workers call it."""
    save({"optimizer": get_optimizer_state_dict(model, optimizer)}, checkpoint_id=folder)


def load_optimizer(model: TokenModel, optimizer: torch.optim.Optimizer, folder: str) -> None:
    """Read the optimizer's state of any number of workers, or of the embedded engine."""
    if os.path.exists(os.path.join(folder, ".metadata")):
        state = {"optimizer": get_optimizer_state_dict(model, optimizer)}
        load(state, checkpoint_id=folder)
        set_optimizer_state_dict(model, optimizer, state["optimizer"])
    elif os.path.exists(os.path.join(folder, _EMBEDDED_FILE)):
        _load_embedded(model, optimizer, os.path.join(folder, _EMBEDDED_FILE))
    else:
        raise UserError(f"{folder} has no optimizer state; use another checkpoint.")


def _load_embedded(model: TokenModel, optimizer: torch.optim.Optimizer, path: str) -> None:
    with safe_open(path, framework="pt") as file:
        step = float(file.metadata()["step"])
        known = set(file.keys())
        for name, parameter in model.module.named_parameters():
            state = optimizer.state[parameter]
            state["step"] = torch.tensor(step)
            for moment in _MOMENTS:
                if f"{moment}.{name}" not in known:
                    raise UserError(f"{path} has no tensor `{moment}.{name}`; it belongs to another model.")
                state[moment] = shard_like(file.get_tensor(f"{moment}.{name}"), parameter)


def _whole(parameter: Tensor) -> Tensor:
    value = parameter.detach()
    return value.full_tensor() if isinstance(value, DTensor) else value


def _apply_umask(path: str) -> None:
    """Apply the usual permissions to a file: safetensors makes it readable for its owner only."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)


def _flush(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
