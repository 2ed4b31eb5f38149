"""Batched sampling by a worker, for groups without vLLM. The parameters of the model must be unsharded.

In every round the controller sends which sequences continue, which are new, and the random numbers. Sequences that it
does not name any more are dropped. If a rotary embedding changes above some length, longer sequences are a batch of
their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .cache import CacheKind
from .model_runner import Batch, ModelRunner, Row
from .token_sampling import SampledToken, SamplingInput, SamplingParams, sample_tokens, score_token


class Sampler:
    """The sequences of one model on one worker."""

    def __init__(self, runner: ModelRunner, kind: CacheKind | None) -> None:
        self._runner = runner
        self._kind = kind
        self._rows: dict[int, Row] = {}
        self._batches: dict[bool, Batch] = {}

    def clear_cache(self) -> None:
        """The weights changed: all sequences are prefilled again."""
        self._batches = {}

    @torch.no_grad()
    def run_round(self, a: dict[str, Any]) -> dict[str, Any]:
        """Up to `steps` tokens more for each of the sequences `keys`; `add` describes the new ones."""
        keys: list[int] = a["keys"].tolist()
        prompts = [self._add(new, a["maxBatchedTokens"]) for new in a["add"]]
        self._rows = {key: self._rows[key] for key in keys}
        uniforms = dict(zip(keys, a["uniforms"].reshape(len(keys), a["steps"]), strict=True))
        for row in self._rows.values():
            row.new_tokens, row.is_done = [], False
        for step in range(a["steps"]):
            for is_long, rows in self._regimes(a["regimeEnd"]).items():
                if rows:
                    self._step(is_long, rows, {row.key: float(uniforms[row.key][step]) for row in rows}, a)
                else:
                    self._batches.pop(is_long, None)
        self._remove_finished()
        return _answer(list(self._rows.values()), prompts)

    def _add(self, new: dict[str, Any], max_tokens: int) -> list[SampledToken]:
        """Add a sequence; returns the log-probs of its prompt, if they are asked for."""
        ids: list[int] = new["prompt"].tolist()
        row = Row(new["key"], new["request"], ids, len(ids), new["limit"], SamplingParams.of(new["params"]))
        self._rows[row.key] = row
        return [] if new["promptLogprobs"] is None else self._prompt_logprobs(ids, new["promptLogprobs"], max_tokens)

    def _regimes(self, end: int | None) -> dict[bool, list[Row]]:
        regimes: dict[bool, list[Row]] = {False: [], True: []}
        for row in self._rows.values():
            if not row.is_done:
                regimes[end is not None and len(row.ids) > end].append(row)
        return regimes

    def _step(self, is_long: bool, rows: list[Row], uniforms: dict[int, float], a: dict[str, Any]) -> None:
        """One token more for each of the rows."""
        if self._kind is None:
            order, logits = self._runner.decode_without_cache(rows, a["maxBatchedTokens"])
        else:
            before = self._batches.pop(is_long, None)
            batch, logits = self._runner.decode(self._kind, before, rows, a["maxBatchedTokens"])
            self._batches[is_long] = batch
            order = batch.rows
        inputs = [SamplingInput(row.params, row.ids, row.prompt_length, uniforms[row.key]) for row in order]
        for row, sampled in zip(order, sample_tokens(logits, inputs), strict=True):
            row.ids.append(sampled[0])
            row.new_tokens.append(sampled)
            row.is_done = sampled[0] in row.params.stop_token_ids or len(row.ids) >= row.limit

    def _prompt_logprobs(self, ids: list[int], count: int, max_tokens: int) -> list[SampledToken]:
        """The log-prob of each prompt token after the first."""
        found: list[SampledToken] = []
        chunk = max(1, min(max_tokens, 64))  # each token takes a row of the vocabulary's size
        for start in range(0, len(ids) - 1, chunk):
            places = range(start, min(start + chunk, len(ids) - 1))
            logits = self._runner.logits([ids], [(0, t) for t in places])
            found += [score_token(logits[i], ids[t + 1], count) for i, t in enumerate(places)]
        return found

    def _remove_finished(self) -> None:
        """Free the cache of rows that are finished or dropped."""
        for is_long, batch in list(self._batches.items()):
            stay = [i for i, row in enumerate(batch.rows) if row.key in self._rows and not row.is_done]
            if not stay:
                del self._batches[is_long]
            elif len(stay) < len(batch.rows):
                batch.keep(stay)


def _answer(rows: list[Row], prompts: list[list[SampledToken]]) -> dict[str, Any]:
    tokens = [sampled for row in rows for sampled in row.new_tokens]
    return {
        "counts": np.array([len(row.new_tokens) for row in rows], dtype=np.int32),
        "ids": np.array([token for token, _, _ in tokens], dtype=np.int32),
        "logprobs": np.array([logprob for _, logprob, _ in tokens], dtype=np.float64),
        "top": [top for _, _, top in tokens],
        "prompts": prompts,
    }
