"""Batched sampling from a model whose parameters are all at hand: the rollout of groups that have no vLLM.

The controller sends, round by round, which sequences go on, what is new, and the random numbers; a sequence that it
does not name any more is gone. Where a rotary embedding changes past some length, longer sequences are a batch of their
own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .cache import CacheKind
from .drawing import Drawn, Place, Rules, draw, scored
from .reading import Batch, Reader, Row


class Sampler:
    """The sequences of one model on one worker."""

    def __init__(self, reader: Reader, kind: CacheKind | None) -> None:
        self._reader = reader
        self._kind = kind
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
                    self._grow(is_long, rows, {row.key: float(uniforms[row.key][step]) for row in rows}, a)
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

    def _grow(self, is_long: bool, rows: list[Row], uniforms: dict[int, float], a: dict[str, Any]) -> None:
        """One token more for each of the rows."""
        if self._kind is None:
            grown, logits = self._reader.read_anew(rows, a["maxBatchedTokens"])
        else:
            before = self._batches.pop(is_long, None)
            batch, logits = self._reader.go_on(self._kind, before, rows, a["maxBatchedTokens"])
            self._batches[is_long] = batch
            grown = batch.rows
        places = [Place(row.rules, row.ids, row.prompt, uniforms[row.key]) for row in grown]
        for row, drawn in zip(grown, draw(logits, places), strict=True):
            row.ids.append(drawn[0])
            row.drawn.append(drawn)
            row.is_done = drawn[0] in row.rules.ends or len(row.ids) >= row.limit

    def _read_aloud(self, ids: list[int], count: int, most: int) -> list[Drawn]:
        """The log-prob of each prompt token after the first."""
        told: list[Drawn] = []
        chunk = max(1, min(most, 64))  # a row of the vocabulary's size for each
        for start in range(0, len(ids) - 1, chunk):
            places = range(start, min(start + chunk, len(ids) - 1))
            logits = self._reader.plain([ids], [(0, t) for t in places])
            told += [scored(logits[i], ids[t + 1], count) for i, t in enumerate(places)]
        return told

    def _tidy(self) -> None:
        """Let go of what belongs to nobody any more."""
        for is_long, batch in list(self._batches.items()):
            stay = [i for i, row in enumerate(batch.rows) if row.key in self._rows and not row.is_done]
            if not stay:
                del self._batches[is_long]
            elif len(stay) < len(batch.rows):
                batch.keep(stay)


def _answer(rows: list[Row], prompts: list[list[Drawn]]) -> dict[str, Any]:
    tokens = [drawn for row in rows for drawn in row.drawn]
    return {
        "counts": np.array([len(row.drawn) for row in rows], dtype=np.int32),
        "ids": np.array([token for token, _, _ in tokens], dtype=np.int32),
        "logprobs": np.array([logprob for _, logprob, _ in tokens], dtype=np.float64),
        "top": [top for _, _, top in tokens],
        "prompts": prompts,
    }
