"""Batched sampling from a model whose parameters are all at hand: the rollout of groups that have no vLLM.

The controller sends, round by round, which sequences go on, what is new, and the random numbers; a sequence that it
does not name any more is gone. Rows of a batch are padded on the left, so that they can be joined and taken apart.
Where a rotary embedding changes past some length, longer sequences are a batch of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache

from .drawing import Drawn, Place, Rules, draw, scored
from .model import TokenModel


@dataclass(eq=False)
class Row:
    """A sequence as it grows."""

    key: int
    request: int
    ids: list[int]
    prompt: int
    limit: int
    rules: Rules
    drawn: list[Drawn] = field(default_factory=list)
    """This round's tokens."""
    is_done: bool = False


class Batch:
    """Rows that are decoded together: keys and values of all their tokens but the last."""

    def __init__(self, rows: list[Row], mask: Tensor, cache: DynamicCache) -> None:
        self.rows = rows
        self.mask = mask  # [rows, time]
        self.cache = cache

    def keep(self, indices: list[int]) -> None:
        """Only these rows, which may be repeated, without padding that none of them needs."""
        self.rows = [self.rows[i] for i in indices]
        mask = self.mask[indices]
        first = int(mask.any(0).int().argmax())
        self.mask = mask[:, first:]
        for layer in self.cache.layers:
            layer.keys = layer.keys[indices, :, first:]
            layer.values = layer.values[indices, :, first:]

    def join(self, other: Batch) -> None:
        time = max(self.mask.shape[1], other.mask.shape[1])

        def joined(a: Tensor, b: Tensor, after: int) -> Tensor:
            blank = (0, 0) * after
            return torch.cat([pad(x, (*blank, time - x.shape[-1 - after], 0)) for x in (a, b)])

        self.rows = self.rows + other.rows
        self.mask = joined(self.mask, other.mask, 0)
        for mine, theirs in zip(self.cache.layers, other.cache.layers, strict=True):
            mine.keys = joined(mine.keys, theirs.keys, 1)
            mine.values = joined(mine.values, theirs.values, 1)


class Sampler:
    """The sequences of one model on one worker."""

    def __init__(self, model: TokenModel, device: torch.device) -> None:
        self._model = model
        self._device = device
        self._rows: dict[int, Row] = {}
        self._batches: dict[bool, Batch] = {}

    def forget(self) -> None:
        """The weights changed: everything is read anew."""
        self._batches = {}

    @torch.no_grad()
    def go_on(self, a: dict[str, Any]) -> dict[str, Any]:
        """`steps` tokens more for each of the sequences `keys`; `add` says what the new ones are."""
        keys: list[int] = a["keys"].tolist()
        prompts = [self._add(new, a["maxBatchedTokens"]) for new in a["add"]]
        self._rows = {key: self._rows[key] for key in keys}
        uniforms = dict(zip(keys, a["uniforms"].reshape(len(keys), a["steps"]), strict=True))
        for row in self._rows.values():
            row.drawn, row.is_done = [], False
        for step in range(a["steps"]):
            for is_long, rows in self._regimes(a["regimeEnd"]).items():
                if rows:
                    self._grow(is_long, rows, [float(uniforms[row.key][step]) for row in rows], a["maxBatchedTokens"])
                else:
                    self._batches.pop(is_long, None)
        self._tidy()
        return _answer(list(self._rows.values()), prompts)

    def _add(self, new: dict[str, Any], most: int) -> list[Drawn]:
        """A new sequence; what it says of its prompt, if that is asked for."""
        ids: list[int] = new["prompt"].tolist()
        row = Row(new["key"], new["request"], ids, len(ids), new["limit"], Rules.of(new["rules"]))
        self._rows[row.key] = row
        return [] if new["promptLogprobs"] is None else self._read_aloud(ids, new["promptLogprobs"], most)

    def _regimes(self, end: int | None) -> dict[bool, list[Row]]:
        regimes: dict[bool, list[Row]] = {False: [], True: []}
        for row in self._rows.values():
            if not row.is_done:
                regimes[end is not None and len(row.ids) > end].append(row)
        return regimes

    def _grow(self, is_long: bool, rows: list[Row], uniforms: list[float], most: int) -> None:
        """One token more for each of the rows."""
        uniform_of = dict(zip((row.key for row in rows), uniforms, strict=True))
        batch, logits = self._decode(is_long, rows)
        known = set() if batch is None else {row.key for row in batch.rows}
        for part, read in self._read([row for row in rows if row.key not in known], most):
            if batch is None or logits is None:
                batch, logits = part, read
            else:
                batch.join(part)
                logits = torch.cat([logits, read])
        assert batch is not None
        assert logits is not None
        self._batches[is_long] = batch
        places = [Place(row.rules, row.ids, row.prompt, uniform_of[row.key]) for row in batch.rows]
        for row, drawn in zip(batch.rows, draw(logits, places), strict=True):
            row.ids.append(drawn[0])
            row.drawn.append(drawn)
            row.is_done = drawn[0] in row.rules.ends or len(row.ids) >= row.limit

    def _decode(self, is_long: bool, rows: list[Row]) -> tuple[Batch | None, Tensor | None]:
        """Logits after the last token of rows that were read before."""
        batch = self._batches.pop(is_long, None)
        if batch is None:
            return None, None
        live = {row.key for row in rows}
        stay = [i for i, row in enumerate(batch.rows) if row.key in live]
        if not stay:
            return None, None
        if len(stay) < len(batch.rows):
            batch.keep(stay)
        ids = self._tensor([[row.ids[-1]] for row in batch.rows])
        batch.mask = pad(batch.mask, (0, 1), value=1)
        positions = batch.mask.sum(1, keepdim=True) - 1
        flat = torch.arange(len(stay), device=self._device)
        return batch, self._run(ids, flat, mask=batch.mask, positions=positions, cache=batch.cache)

    def _read(self, rows: list[Row], most: int) -> list[tuple[Batch, Tensor]]:
        """Read rows from their beginning, in batches of like length; those that are still alike are read once."""
        alike: dict[tuple[int, int], list[Row]] = {}
        for row in rows:
            is_new = len(row.ids) == row.prompt
            alike.setdefault((row.request, -1 if is_new else row.key), []).append(row)
        groups = sorted(alike.values(), key=lambda group: len(group[0].ids))
        parts: list[list[list[Row]]] = []
        for group in groups:
            if not parts or len(group[0].ids) * (len(parts[-1]) + 1) > most:
                parts.append([])
            parts[-1].append(group)
        return [self._read_part(part) for part in parts]

    def _read_part(self, groups: list[list[Row]]) -> tuple[Batch, Tensor]:
        longest = len(groups[-1][0].ids)
        padded = [[0] * (longest - len(group[0].ids)) + group[0].ids for group in groups]
        mask = self._tensor([[0] * (longest - len(group[0].ids)) + [1] * len(group[0].ids) for group in groups])
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        flat = torch.arange(1, len(groups) + 1, device=self._device) * longest - 1
        cache = DynamicCache()
        logits = self._run(self._tensor(padded), flat, mask=mask, positions=positions, cache=cache)
        batch = Batch([group[0] for group in groups], mask, cache)
        owners = [i for i, group in enumerate(groups) for _ in group]
        if len(owners) > len(groups):
            batch.keep(owners)
            batch.rows = [row for group in groups for row in group]
        return batch, logits[owners]

    def _read_aloud(self, ids: list[int], count: int, most: int) -> list[Drawn]:
        """The log-prob of each prompt token after the first."""
        told: list[Drawn] = []
        all_ids = self._tensor([ids])
        chunk = max(1, min(most, 64))  # a row of the vocabulary's size for each
        for start in range(0, len(ids) - 1, chunk):
            flat = torch.arange(start, min(start + chunk, len(ids) - 1), device=self._device)
            logits = self._run(all_ids, flat)
            told += [scored(logits[i], ids[start + i + 1], count) for i in range(len(flat))]
        return told

    def _run(
        self,
        ids: Tensor,
        flat: Tensor,
        *,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: DynamicCache | None = None,
    ) -> Tensor:
        more = {} if cache is None else {"attention_mask": mask, "position_ids": positions, "past_key_values": cache}
        logits: Tensor = self._model(ids, flat, **more)
        return logits

    def _tidy(self) -> None:
        """Let go of what belongs to nobody any more."""
        for is_long, batch in list(self._batches.items()):
            stay = [i for i, row in enumerate(batch.rows) if row.key in self._rows and not row.is_done]
            if not stay:
                del self._batches[is_long]
            elif len(stay) < len(batch.rows):
                batch.keep(stay)

    def _tensor(self, values: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def _answer(rows: list[Row], prompts: list[list[Drawn]]) -> dict[str, Any]:
    tokens = [drawn for row in rows for drawn in row.drawn]
    return {
        "counts": np.array([len(row.drawn) for row in rows], dtype=np.int32),
        "ids": np.array([token for token, _, _ in tokens], dtype=np.int32),
        "logprobs": np.array([logprob for _, logprob, _ in tokens], dtype=np.float64),
        "top": [top for _, _, top in tokens],
        "prompts": prompts,
    }
