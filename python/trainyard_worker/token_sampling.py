"""From logits to a token, in the same way as `src/rollout/draw.ts`: bias and banned tokens, penalties, temperature,
min-p, top-k and top-p, then one uniform number over the tokens in the order of their ids.

The controller gives the uniform number, so that the same request samples the same tokens on every engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

GREEDY_BELOW = 1e-5

SampledToken = tuple[int, float, list[tuple[int, float]]]
"""A token, its log-prob, and the likeliest tokens at its position with their log-probs."""


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of one sample are drawn; the names are vLLM's."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int = 0
    """How many of the likeliest tokens to report."""
    min_tokens: int = 0
    """None of `stop_token_ids` is sampled before the sample has this many tokens."""
    stop_token_ids: frozenset[int] = field(default_factory=frozenset)

    @staticmethod
    def of(given: dict[str, Any]) -> SamplingParams:
        bias = tuple((int(token), float(value)) for token, value in given.get("logit_bias", {}).items())
        stop_ids = frozenset(given.get("stop_token_ids", ()))
        return SamplingParams(**{**given, "logit_bias": bias, "stop_token_ids": stop_ids})

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def scale(self) -> float:
        """The temperature of the distribution whose log-probs are reported."""
        return 1.0 if self.is_greedy else self.temperature

    @property
    def has_truncation(self) -> bool:
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    def needs_logits(self, new_tokens: int) -> bool:
        has_penalty = self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0
        return has_penalty or len(self.logit_bias) > 0 or self.bans_stop_tokens(new_tokens)

    def bans_stop_tokens(self, new_tokens: int) -> bool:
        return new_tokens < self.min_tokens and len(self.stop_token_ids) > 0


@dataclass(frozen=True)
class SamplingInput:
    """What one token is sampled with. It follows `ids`, of which the first `prompt_length` are the prompt."""

    params: SamplingParams
    ids: Sequence[int]
    prompt_length: int
    uniform: float

    @property
    def new_tokens(self) -> int:
        return len(self.ids) - self.prompt_length


def sample_tokens(logits: Tensor, inputs: Sequence[SamplingInput]) -> list[SampledToken]:
    """A token for each row of logits [rows, vocabulary]."""
    scales = torch.tensor([one.params.scale for one in inputs], device=logits.device)
    logprobs = torch.log_softmax(logits / scales[:, None], dim=-1)
    plain = [i for i, one in enumerate(inputs) if _is_plain(one)]
    chosen = dict(zip(plain, _sample_plain(logprobs, inputs, plain), strict=True))
    results: list[SampledToken] = []
    for i, one in enumerate(inputs):
        if i in chosen:
            top = _likeliest(logprobs[i].double(), one.params.logprobs)
            results.append((chosen[i], float(logprobs[i, chosen[i]]), top))
        else:
            results.append(_sample_row(logits[i], logprobs[i], one))
    return results


def _is_plain(one: SamplingInput) -> bool:
    """Whether the softmax alone decides: such rows are sampled together."""
    params = one.params
    is_truncated = params.has_truncation and not params.is_greedy
    return not is_truncated and not params.needs_logits(one.new_tokens)


def _sample_plain(logprobs: Tensor, inputs: Sequence[SamplingInput], rows: list[int]) -> list[int]:
    if not rows:
        return []
    chosen = logprobs[rows]
    uniforms = torch.tensor([[inputs[i].uniform] for i in rows], dtype=torch.float64, device=logprobs.device)
    sampled = _inverse_cdf(chosen.exp().double(), uniforms)
    greedy = torch.tensor([inputs[i].params.is_greedy for i in rows], device=logprobs.device)
    tokens: list[int] = torch.where(greedy, chosen.argmax(dim=-1), sampled).tolist()
    return tokens


def _sample_row(logits: Tensor, logprobs: Tensor, one: SamplingInput) -> SampledToken:
    params = one.params
    row = logprobs.double()
    if params.needs_logits(one.new_tokens):
        row = torch.log_softmax(_adjusted(logits.double(), one) / params.scale, dim=-1)
    if params.is_greedy:
        token = int(row.argmax())
    else:
        kept = _kept(row.exp(), params)
        row = torch.where(kept, row, -torch.inf)
        row = row - torch.logsumexp(row, dim=-1)
        uniform = torch.tensor([[one.uniform]], dtype=torch.float64, device=row.device)
        token = int(_inverse_cdf(row.exp()[None], uniform))
    return token, float(row[token]), _likeliest(row, params.logprobs)


def _adjusted(logits: Tensor, one: SamplingInput) -> Tensor:
    """The logits after bias, banned tokens and penalties."""
    params = one.params
    for token, value in params.logit_bias:
        logits[token] += value
    # Where every token is banned, the ban is ignored: some token must be sampled.
    if params.bans_stop_tokens(one.new_tokens) and len(params.stop_token_ids) < len(logits):
        logits[list(params.stop_token_ids)] = -torch.inf
    if params.repetition_penalty != 1:
        penalty = params.repetition_penalty
        seen = torch.tensor(sorted(set(one.ids)), device=logits.device)
        values = logits[seen]
        logits[seen] = torch.where(values > 0, values / penalty, values * penalty)
    if params.presence_penalty != 0 or params.frequency_penalty != 0:
        for token, count in Counter(one.ids[one.prompt_length :]).items():
            logits[token] -= params.presence_penalty + params.frequency_penalty * count
    return logits


def _kept(probs: Tensor, params: SamplingParams) -> Tensor:
    """The tokens that min-p, top-k and top-p keep. Of equally likely ones top-k keeps all, top-p the lowest ids."""
    least = params.min_p * probs.max()
    if 0 < params.top_k < len(probs):
        least = torch.maximum(least, probs.topk(params.top_k).values[-1])
    kept = probs >= least
    if params.top_p == 1:
        return kept
    inside = torch.where(kept, probs, 0.0)
    values, order = inside.sort(descending=True, stable=True)
    before = values.cumsum(0) - values
    covering = torch.zeros_like(kept)
    covering[order] = (before < params.top_p * inside.sum()) & (values > 0)
    return covering


def _inverse_cdf(probs: Tensor, uniforms: Tensor) -> Tensor:
    """The first token at which the cumulative probability exceeds the number."""
    sums = probs.cumsum(-1)
    found = torch.searchsorted(sums, uniforms, right=True).squeeze(-1)
    ids = torch.arange(probs.shape[-1], device=probs.device)
    last = torch.where(probs > 0, ids, 0).amax(-1)  # rounding may leave the sum a little below 1
    return torch.minimum(found, last)


def _likeliest(logprobs: Tensor, count: int) -> list[tuple[int, float]]:
    if count <= 0:
        return []
    values, order = logprobs.sort(descending=True, stable=True)
    top = zip(order[:count].tolist(), values[:count].tolist(), strict=True)
    return [(token, value) for token, value in top if value > -torch.inf]


def score_token(logits: Tensor, token: int, count: int) -> SampledToken:
    """The log-prob of a given token, and the likeliest tokens at its position."""
    logprobs = torch.log_softmax(logits.double(), dim=-1)
    return token, float(logprobs[token]), _likeliest(logprobs, count)
