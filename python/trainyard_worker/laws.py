"""What has to hold of a model before it is learnt from and drawn from, tried on the model itself: transformers has more
families than a list of them could keep up with.

A model that is learnt from does not see later tokens. One that is drawn from by means of a cache gives rows that join
and leave a batch the probabilities that a plain pass gives each of them; where it does not, tokens are drawn from plain
passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .cache import CacheKind, cache_kind, is_filled, sizes
from .drawing import Rules
from .model import TokenModel
from .reading import Batch, Reader, Row
from .refusal import Refusal

_ROUNDING = {"float32": 1e-3}
_COARSE_ROUNDING = 0.05
"""How far apart two distributions can be by rounding: half the sum of the differences."""


@dataclass(frozen=True)
class Memory:
    """How a model is drawn from."""

    kind: CacheKind | None
    """None where tokens are drawn from plain passes."""
    per_token: int = 0
    """Numbers that a cache holds of each token."""
    per_row: int = 0
    """Numbers that it holds of a row, however long that is."""
    why: str = ""
    """What speaks against a cache."""


@torch.no_grad()
def check_causal(model: TokenModel, device: torch.device, dtype: str) -> None:
    """Refuse a model whose predictions change with what comes later."""
    one, other = _ids(model, 0), _ids(model, 1)
    seen = len(one) // 2
    places = [(row, t) for row in range(2) for t in range(seen)]
    logits = Reader(model, device).plain([one, one[:seen] + other[seen:]], places)
    if _distance(logits[:seen], logits[seen:]) > _ROUNDING.get(dtype, _COARSE_ROUNDING):
        raise Refusal(
            f"This model of the family {model.module.config.model_type} sees the tokens that it is to predict: it "
            "cannot be trained as a language model."
        )


@torch.no_grad()
def find_memory(model: TokenModel, device: torch.device, dtype: str) -> Memory:
    """How a model can be drawn from."""
    kind = cache_kind(model.module)
    if isinstance(kind, str):
        return Memory(None, why=kind)
    reader = Reader(model, device)
    try:
        distance = _distance_with_cache(model, reader, kind)
        batch, _ = reader.go_on(kind, None, [_row(model, 0, 1)], 1)
    except Exception as error:  # a cache that is not what a family takes fails in the family's own way
        return Memory(None, why=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    if not distance <= _ROUNDING.get(dtype, _COARSE_ROUNDING):
        return Memory(None, why=f"with a cache its probabilities are {distance:.2g} off")
    if not kind.has_states and not is_filled(batch.cache):
        return Memory(None, why="some of its layers keep what they remember elsewhere")
    per_token, per_row = sizes(batch.cache)
    return Memory(kind, per_token, per_row)


def _distance_with_cache(model: TokenModel, reader: Reader, kind: CacheKind) -> float:
    """How far probabilities with a cache are from those of a plain pass, while rows of several lengths come and go."""
    rows = [_row(model, key, length) for key, length in enumerate((1, 5, 3, 5))]
    found: list[tuple[int, int, Tensor]] = []
    batch: Batch | None = None
    for live in (rows[:3], rows[:3], rows[1:], rows[1:]):
        batch, logits = reader.go_on(kind, batch, live, 64)
        found += [(row.key, len(row.ids) - 1, logits[i]) for i, row in enumerate(batch.rows)]
        for row in live:
            row.ids.append(_ids(model, row.key)[len(row.ids)])
    plain = reader.plain([_ids(model, row.key) for row in rows], [(key, t) for key, t, _ in found])
    return _distance(plain, torch.stack([logits for _, _, logits in found]))


def _distance(one: Tensor, other: Tensor) -> float:
    """Half the sum of the differences of two distributions' probabilities, the mean over all given."""
    return float((one.softmax(-1) - other.softmax(-1)).abs().sum(-1).mean() / 2)


def _row(model: TokenModel, key: int, length: int) -> Row:
    return Row(key, key, _ids(model, key)[:length], length, length, Rules())


def _ids(model: TokenModel, key: int) -> list[int]:
    """Some tokens; the first of a vocabulary are of text."""
    count = min(256, model.module.config.get_text_config().vocab_size)
    return [(5 + 31 * key + 17 * t + 7 * t * t * (key + 1)) % count for t in range(9)]
