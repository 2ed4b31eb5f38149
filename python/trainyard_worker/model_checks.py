"""Checks of a loaded model before it is trained or sampled from: transformers has more families than a list of them
could keep up with.

A model that is trained must not see later tokens. A model that is sampled from with a cache must give rows that join
and leave a batch the same probabilities as a pass without a cache; if it does not, it is sampled from without one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .cache import CacheKind, cache_kind, is_filled, sizes
from .errors import UserError
from .model import TokenModel
from .model_runner import Batch, ModelRunner, Row
from .token_sampling import SamplingParams

_TOLERANCE = {"float32": 1e-3}
_LOW_PRECISION_TOLERANCE = 0.05
"""How far apart two distributions can be because of rounding: half the sum of the differences."""


@dataclass(frozen=True)
class SamplingCache:
    """The cache with which a model is sampled from."""

    kind: CacheKind | None
    """None: it is sampled from without a cache."""
    per_token: int = 0
    """Numbers that the cache holds for each token."""
    per_row: int = 0
    """Numbers that it holds for a row, whatever its length."""
    reason: str = ""
    """Why no cache can be used."""


@torch.no_grad()
def check_causal(model: TokenModel, device: torch.device, dtype: str) -> None:
    """Raise an error for a model whose predictions depend on later tokens."""
    one, other = _ids(model, 0), _ids(model, 1)
    seen = len(one) // 2
    places = [(row, t) for row in range(2) for t in range(seen)]
    logits = ModelRunner(model, device).logits([one, one[:seen] + other[seen:]], places)
    if _distance(logits[:seen], logits[seen:]) > _TOLERANCE.get(dtype, _LOW_PRECISION_TOLERANCE):
        raise UserError(
            f"This model of the family {model.module.config.model_type} sees the tokens that it is to predict: it "
            "cannot be trained as a language model."
        )


@torch.no_grad()
def choose_cache(model: TokenModel, device: torch.device, dtype: str) -> SamplingCache:
    """Try the cache of the model's family; without a cache if the results differ."""
    kind = cache_kind(model.module)
    if isinstance(kind, str):
        return SamplingCache(None, reason=kind)
    runner = ModelRunner(model, device)
    try:
        distance = _distance_with_cache(model, runner, kind)
        batch, _ = runner.decode(kind, None, [_row(model, 0, 1)], 1)
    except Exception as error:  # a family that does not support this cache fails in its own way
        return SamplingCache(None, reason=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    if not distance <= _TOLERANCE.get(dtype, _LOW_PRECISION_TOLERANCE):
        return SamplingCache(None, reason=f"with a cache its probabilities differ by {distance:.2g}")
    if not kind.has_states and not is_filled(batch.cache):
        return SamplingCache(None, reason="some of its layers do not use the cache")
    per_token, per_row = sizes(batch.cache)
    return SamplingCache(kind, per_token, per_row)


def _distance_with_cache(model: TokenModel, runner: ModelRunner, kind: CacheKind) -> float:
    """How far probabilities with a cache are from those without, while rows of several lengths come and go."""
    rows = [_row(model, key, length) for key, length in enumerate((1, 5, 3, 5))]
    found: list[tuple[int, int, Tensor]] = []
    batch: Batch | None = None
    for live in (rows[:3], rows[:3], rows[1:], rows[1:]):
        batch, logits = runner.decode(kind, batch, live, 64)
        found += [(row.key, len(row.ids) - 1, logits[i]) for i, row in enumerate(batch.rows)]
        for row in live:
            row.ids.append(_ids(model, row.key)[len(row.ids)])
    without = runner.logits([_ids(model, row.key) for row in rows], [(key, t) for key, t, _ in found])
    return _distance(without, torch.stack([logits for _, _, logits in found]))


def _distance(one: Tensor, other: Tensor) -> float:
    """Half the sum of the differences of two distributions' probabilities, averaged over all distributions."""
    return float((one.softmax(-1) - other.softmax(-1)).abs().sum(-1).mean() / 2)


def _row(model: TokenModel, key: int, length: int) -> Row:
    return Row(key, key, _ids(model, key)[:length], length, length, SamplingParams())


def _ids(model: TokenModel, key: int) -> list[int]:
    """Some tokens; the first ones of a vocabulary are text."""
    count = min(256, model.module.config.get_text_config().vocab_size)
    return [(5 + 31 * key + 17 * t + 7 * t * t * (key + 1)) % count for t in range(9)]
