"""Runs a model for sampling: logits after the last token of many sequences at once.

With a cache a sequence is prefilled once, and decoded one token at a time in a batch that others join and leave.
Without a cache every pass reads the whole sequence again. Rows of a batch are padded on the left; if the cache has
states, only after they were prefilled. A pass without a cache pads on the right, where no earlier token sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache

from .cache import CacheKind, join_rows, keep_rows
from .model import TokenModel
from .token_sampling import SampledToken, SamplingParams


@dataclass(eq=False)
class Row:
    """A sequence as it grows."""

    key: int
    request: int
    ids: list[int]
    prompt_length: int
    limit: int
    params: SamplingParams
    new_tokens: list[SampledToken] = field(default_factory=list)
    """The tokens of this round."""
    is_done: bool = False


class Batch:
    """Rows that are decoded together. The cache holds all their tokens but the last."""

    def __init__(self, rows: list[Row], mask: Tensor, cache: DynamicCache) -> None:
        self.rows = rows
        self.mask = mask  # [rows, time]
        self.cache = cache

    def keep(self, indices: list[int]) -> None:
        """Keep these rows, which may be repeated, without padding that none of them needs."""
        self.rows = [self.rows[i] for i in indices]
        mask = self.mask[indices]
        first = int(mask.any(0).int().argmax())
        self.mask = mask[:, first:]
        keep_rows(self.cache, indices, first)

    def join(self, other: Batch) -> None:
        """Append the rows of another batch."""
        time = max(self.mask.shape[1], other.mask.shape[1])
        self.rows = self.rows + other.rows
        self.mask = torch.cat([pad(mask, (time - mask.shape[1], 0)) for mask in (self.mask, other.mask)])
        join_rows(self.cache, other.cache, time)


class ModelRunner:
    """Runs one model, whose parameters are all unsharded."""

    def __init__(self, model: TokenModel, device: torch.device) -> None:
        self._model = model
        self._device = device

    def decode(self, kind: CacheKind, batch: Batch | None, rows: list[Row], max_tokens: int) -> tuple[Batch, Tensor]:
        """A batch of these rows, and the logits after the last token of each. Rows that the batch does not have are
        prefilled, at most `max_tokens` tokens at a time."""
        parts: list[tuple[Batch, Tensor]] = []
        live = {row.key for row in rows}
        if batch is not None and (stay := [i for i, row in enumerate(batch.rows) if row.key in live]):
            if len(stay) < len(batch.rows):
                batch.keep(stay)
            parts.append((batch, self._decode_batch(kind, batch)))
        known = {row.key for part, _ in parts for row in part.rows}
        new = [row for row in rows if row.key not in known]
        parts += [self._prefill(kind, groups) for groups in _prefill_batches(new, max_tokens, is_even=kind.has_states)]
        (joined, _), *others = parts
        for part, _ in others:
            joined.join(part)
        return joined, torch.cat([logits for _, logits in parts])

    def decode_without_cache(self, rows: list[Row], max_tokens: int) -> tuple[list[Row], Tensor]:
        """The same without a cache: the rows in the order in which they were computed, and the logits after each."""
        order: list[Row] = []
        logits: list[Tensor] = []
        for groups in _prefill_batches(rows, max_tokens, is_even=False):
            places = [(i, len(group[0].ids) - 1) for i, group in enumerate(groups)]
            found = self.logits([group[0].ids for group in groups], places)
            order += [row for group in groups for row in group]
            logits.append(found[[i for i, group in enumerate(groups) for _ in group]])
        return order, torch.cat(logits)

    def logits(self, rows: Sequence[list[int]], places: Sequence[tuple[int, int]]) -> Tensor:
        """Logits at places (row, token) of a pass without a cache, as in training."""
        longest = max(len(ids) for ids in rows)
        padded = self._tensor([ids + [0] * (longest - len(ids)) for ids in rows])
        return self._run(padded, torch.tensor([i * longest + t for i, t in places], device=self._device))

    def _decode_batch(self, kind: CacheKind, batch: Batch) -> Tensor:
        """Logits after the last token of rows whose other tokens are in the cache."""
        ids = self._tensor([[row.ids[-1]] for row in batch.rows])
        batch.mask = pad(batch.mask, (0, 1), value=1)
        more: dict[str, Any] = {kind.argument: batch.cache}
        if kind.has_attention:
            more |= {"attention_mask": batch.mask, "position_ids": batch.mask.sum(1, keepdim=True) - 1}
        return self._run(ids, torch.arange(len(batch.rows), device=self._device), **more)

    def _prefill(self, kind: CacheKind, groups: list[list[Row]]) -> tuple[Batch, Tensor]:
        """Compute rows from their start; the rows of a group are the same and are computed once."""
        longest = len(groups[-1][0].ids)
        blanks = [longest - len(group[0].ids) for group in groups]
        mask = self._tensor([[0] * blank + [1] * (longest - blank) for blank in blanks])
        more: dict[str, Any] = {kind.argument: kind.new()}
        if not kind.has_states:
            more |= {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
        padded = self._tensor([[0] * blank + group[0].ids for blank, group in zip(blanks, groups, strict=True)])
        last = torch.arange(1, len(groups) + 1, device=self._device) * longest - 1
        logits = self._run(padded, last, **more)
        batch = Batch([group[0] for group in groups], mask, more[kind.argument])
        owners = [i for i, group in enumerate(groups) for _ in group]
        if len(owners) > len(groups):
            batch.keep(owners)
            batch.rows = [row for group in groups for row in group]
        return batch, logits[owners]

    def _run(self, ids: Tensor, places: Tensor, **more: Any) -> Tensor:
        logits: Tensor = self._model(ids, places, **more)
        return logits

    def _tensor(self, values: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def _prefill_batches(rows: list[Row], max_tokens: int, *, is_even: bool) -> list[list[list[Row]]]:
    """Rows in batches of similar length, or of one length. Within a batch, rows with the same tokens are a group."""
    alike: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        is_new = len(row.ids) == row.prompt_length
        alike.setdefault((row.request, -1 if is_new else row.key), []).append(row)
    batches: list[list[list[Row]]] = []
    for group in sorted(alike.values(), key=lambda group: len(group[0].ids)):
        length = len(group[0].ids)
        is_full = not batches or length * (len(batches[-1]) + 1) > max_tokens
        if is_full or (is_even and length != len(batches[-1][0][0].ids)):
            batches.append([])
        batches[-1].append(group)
    return batches
