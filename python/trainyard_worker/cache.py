"""What a model remembers of rows that it has read: keys and values of every token, states of a fixed size, or both.

Keys and values are padded on the left, so that rows of any length can be joined and taken apart. States have no place
for padding: rows of a model that has them are joined after they were read, and never read with padding between them.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)

_LAYERS: dict[type, type[DynamicLayer] | type[LinearAttentionLayer]] = {
    DynamicLayer: DynamicLayer,
    DynamicSlidingWindowLayer: DynamicLayer,  # the mask says how far a token sees
    LinearAttentionLayer: LinearAttentionLayer,
    LinearAttentionAndFullAttentionLayer: LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer: LinearAttentionAndFullAttentionLayer,
}


@dataclass(frozen=True)
class CacheKind:
    """What the caches of a model are made of."""

    argument: str
    """Under this name the model takes one."""
    layers: tuple[tuple[type[DynamicLayer] | type[LinearAttentionLayer], int], ...]
    """Layers with the number of their states; none where all are of attention, and are made as they are needed."""
    has_attention: bool

    @property
    def has_states(self) -> bool:
        return len(self.layers) > 0

    def new(self) -> DynamicCache:
        """An empty one."""
        cache = DynamicCache()
        if self.has_states:
            cache.layers = [make(number_of_states=states) for make, states in self.layers]
        return cache


def cache_kind(module: Any) -> CacheKind | str:
    """The kind of a model, or what speaks against a cache."""
    limits = [part.time_step_limit for part in module.modules() if hasattr(part, "time_step_limit")]
    if any(tuple(limit) != (0.0, math.inf) for limit in limits):
        return "transformers keeps its time steps within a range in a pass, and not with a cache"
    taken = inspect.signature(module.forward).parameters
    argument = next((name for name in ("past_key_values", "cache_params") if name in taken), None)
    if argument is None:
        return "it takes none"
    layers = DynamicCache(config=module.config).layers
    if others := [type(layer).__name__ for layer in layers if type(layer) not in _LAYERS]:
        return f"rows cannot share a {others[0]}"
    kinds = tuple((_LAYERS[type(layer)], getattr(layer, "number_of_states", 1)) for layer in layers)
    has_states = any(issubclass(kind, LinearAttentionLayer) for kind, _ in kinds)
    has_attention = any(issubclass(kind, DynamicLayer) for kind, _ in kinds)
    return CacheKind(argument, kinds if has_states else (), has_attention)


def keep_rows(cache: DynamicCache, indices: list[int], first: int) -> None:
    """Only these rows, which may be repeated, and of their tokens those from `first` on."""
    for layer in _attention(cache):
        layer.keys = layer.keys[indices, :, first:]
        layer.values = layer.values[indices, :, first:]
    for states, i in _states(cache):
        states[i] = states[i][indices]


def join_rows(cache: DynamicCache, other: DynamicCache, time: int) -> None:
    """The rows of the other after those of the first, padded to `time` tokens."""

    def joined(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([pad(x, (0, 0, time - x.shape[-2], 0)) for x in (a, b)])

    for mine, theirs in zip(_attention(cache), _attention(other), strict=True):
        mine.keys = joined(mine.keys, theirs.keys)
        mine.values = joined(mine.values, theirs.values)
    for (own, i), (others, _) in zip(_states(cache), _states(other), strict=True):
        own[i] = torch.cat([own[i], others[i]])


def sizes(cache: DynamicCache) -> tuple[int, int]:
    """How many numbers a cache of one row holds of each token, and of the row however long it is."""
    tokens = [part[:, :, :1] for layer in _attention(cache) for part in (layer.keys, layer.values)]
    states = [states[i] for states, i in _states(cache)]
    return sum(part.numel() for part in tokens), sum(part.numel() for part in states)


def is_filled(cache: DynamicCache) -> bool:
    """Whether every layer of attention holds something."""
    return len(_attention(cache)) == len(cache.layers)


def _attention(cache: DynamicCache) -> list[Any]:
    """The layers that hold keys and values."""
    return [layer for layer in cache.layers if isinstance(layer, DynamicLayer) and layer.keys is not None]


def _states(cache: DynamicCache) -> list[tuple[dict[int, Any], int]]:
    """Where the layers hold states."""
    layers = [layer for layer in cache.layers if isinstance(layer, LinearAttentionCacheLayerMixin)]
    kinds = [states for layer in layers for states in (layer.conv_states, layer.recurrent_states)]
    return [(states, i) for states in kinds for i, state in states.items() if state is not None]
