"""The cache of a model: keys and values of every token, states of a fixed size, or both.

Keys and values are padded on the left, so that rows of any length can be joined and separated. States do not allow
padding: rows of a model with states are prefilled without padding, and joined afterwards.
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
    DynamicSlidingWindowLayer: DynamicLayer,  # the mask limits how far a token sees
    LinearAttentionLayer: LinearAttentionLayer,
    LinearAttentionAndFullAttentionLayer: LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer: LinearAttentionAndFullAttentionLayer,
}


@dataclass(frozen=True)
class CacheKind:
    """The kind of cache that a model uses."""

    argument: str
    """The argument of the model's forward that takes the cache."""
    layers: tuple[tuple[type[DynamicLayer] | type[LinearAttentionLayer], int], ...]
    """The class of each layer and the number of its states; empty if all are attention and are made when needed."""
    has_attention: bool

    @property
    def has_states(self) -> bool:
        return len(self.layers) > 0

    def new(self) -> DynamicCache:
        """An empty cache."""
        cache = DynamicCache()
        if self.has_states:
            cache.layers = [make(number_of_states=states) for make, states in self.layers]
        return cache


def cache_kind(module: Any) -> CacheKind | str:
    """The kind of cache of a model, or the reason why it cannot be used."""
    limits = [part.time_step_limit for part in module.modules() if hasattr(part, "time_step_limit")]
    if any(tuple(limit) != (0.0, math.inf) for limit in limits):
        return "transformers limits its time steps in a pass without a cache, but not with one"
    parameters = inspect.signature(module.forward).parameters
    argument = next((name for name in ("past_key_values", "cache_params") if name in parameters), None)
    if argument is None:
        return "its forward takes no cache"
    layers = DynamicCache(config=module.config).layers
    if others := [type(layer).__name__ for layer in layers if type(layer) not in _LAYERS]:
        return f"rows of different lengths cannot share a {others[0]}"
    kinds = tuple((_LAYERS[type(layer)], getattr(layer, "number_of_states", 1)) for layer in layers)
    has_states = any(issubclass(kind, LinearAttentionLayer) for kind, _ in kinds)
    has_attention = any(issubclass(kind, DynamicLayer) for kind, _ in kinds)
    return CacheKind(argument, kinds if has_states else (), has_attention)


def keep_rows(cache: DynamicCache, indices: list[int], first: int) -> None:
    """Keep these rows, which may be repeated, and their tokens from `first` on."""
    for layer in _attention(cache):
        layer.keys = layer.keys[indices, :, first:]
        layer.values = layer.values[indices, :, first:]
    for states, i in _states(cache):
        states[i] = states[i][indices]


def join_rows(cache: DynamicCache, other: DynamicCache, time: int) -> None:
    """Append the rows of another cache; both are padded to `time` tokens."""

    def joined(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([pad(x, (0, 0, time - x.shape[-2], 0)) for x in (a, b)])

    for mine, theirs in zip(_attention(cache), _attention(other), strict=True):
        mine.keys = joined(mine.keys, theirs.keys)
        mine.values = joined(mine.values, theirs.values)
    for (own, i), (others, _) in zip(_states(cache), _states(other), strict=True):
        own[i] = torch.cat([own[i], others[i]])


def sizes(cache: DynamicCache) -> tuple[int, int]:
    """How many numbers a cache of one row holds for each token, and for the row whatever its length."""
    tokens = [part[:, :, :1] for layer in _attention(cache) for part in (layer.keys, layer.values)]
    states = [states[i] for states, i in _states(cache)]
    return sum(part.numel() for part in tokens), sum(part.numel() for part in states)


def is_filled(cache: DynamicCache) -> bool:
    """Whether every layer holds keys and values."""
    return len(_attention(cache)) == len(cache.layers)


def _attention(cache: DynamicCache) -> list[Any]:
    """The layers that hold keys and values."""
    return [layer for layer in cache.layers if isinstance(layer, DynamicLayer) and layer.keys is not None]


def _states(cache: DynamicCache) -> list[tuple[dict[int, Any], int]]:
    """The states of the layers, as containers and keys."""
    layers = [layer for layer in cache.layers if isinstance(layer, LinearAttentionCacheLayerMixin)]
    kinds = [states for layer in layers for states in (layer.conv_states, layer.recurrent_states)]
    return [(states, i) for states in kinds for i, state in states.items() if state is not None]
