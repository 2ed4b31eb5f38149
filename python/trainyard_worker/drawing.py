"""From logits to a token, as `src/rollout/draw.ts` does it: bias and bans, penalties, temperature, the cuts of min-p,
top-k and top-p, then one uniform number over the tokens in the order of their ids.

The uniform number is given, so that the same request draws the same tokens on every engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

GREEDY_BELOW = 1e-5

Drawn = tuple[int, float, list[tuple[int, float]]]
"""A token, its log-prob, and the likeliest tokens in its place with theirs."""


@dataclass(frozen=True)
class Rules:
    """How the tokens of one sample are drawn."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()
    top: int = 0
    least: int = 0
    """Until so many tokens were drawn, none of `ends` is."""
    ends: frozenset[int] = field(default_factory=frozenset)

    @staticmethod
    def of(given: dict[str, Any]) -> Rules:
        bias = tuple((int(token), float(value)) for token, value in given.get("bias", {}).items())
        return Rules(**{**given, "bias": bias, "ends": frozenset(given.get("ends", ()))})

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def scale(self) -> float:
        """The temperature of the distribution that log-probs are told of."""
        return 1.0 if self.is_greedy else self.temperature

    @property
    def has_cuts(self) -> bool:
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    def needs_logits(self, drawn: int) -> bool:
        has_penalty = self.repetition != 1 or self.presence != 0 or self.frequency != 0
        return has_penalty or len(self.bias) > 0 or self.is_banning(drawn)

    def is_banning(self, drawn: int) -> bool:
        return drawn < self.least and len(self.ends) > 0


@dataclass(frozen=True)
class Place:
    """Where a token is drawn: after `ids`, of which the first `prompt` were given."""

    rules: Rules
    ids: Sequence[int]
    prompt: int
    uniform: float


def draw(logits: Tensor, places: Sequence[Place]) -> list[Drawn]:
    """A token for each row of logits [rows, vocabulary]."""
    scales = torch.tensor([place.rules.scale for place in places], device=logits.device)
    logprobs = torch.log_softmax(logits / scales[:, None], dim=-1)
    plain = [i for i, place in enumerate(places) if _is_plain(place)]
    chosen = dict(zip(plain, _draw_plain(logprobs, places, plain), strict=True))
    results: list[Drawn] = []
    for i, place in enumerate(places):
        if i in chosen:
            top = _likeliest(logprobs[i].double(), place.rules.top)
            results.append((chosen[i], float(logprobs[i, chosen[i]]), top))
        else:
            results.append(_draw_with_care(logits[i], logprobs[i], place))
    return results


def _is_plain(place: Place) -> bool:
    rules = place.rules
    is_cut = rules.has_cuts and not rules.is_greedy
    return not is_cut and not rules.needs_logits(len(place.ids) - place.prompt)


def _draw_plain(logprobs: Tensor, places: Sequence[Place], rows: list[int]) -> list[int]:
    if not rows:
        return []
    chosen = logprobs[rows]
    uniforms = torch.tensor([[places[i].uniform] for i in rows], dtype=torch.float64, device=logprobs.device)
    drawn = _passing(chosen.exp().double(), uniforms)
    greedy = torch.tensor([places[i].rules.is_greedy for i in rows], device=logprobs.device)
    tokens: list[int] = torch.where(greedy, chosen.argmax(dim=-1), drawn).tolist()
    return tokens


def _draw_with_care(logits: Tensor, logprobs: Tensor, place: Place) -> Drawn:
    rules = place.rules
    row = logprobs.double()
    if rules.needs_logits(len(place.ids) - place.prompt):
        row = torch.log_softmax(_adjusted(logits.double(), place) / rules.scale, dim=-1)
    if rules.is_greedy:
        token = int(row.argmax())
    else:
        kept = _kept(row.exp(), rules)
        row = torch.where(kept, row, -torch.inf)
        row = row - torch.logsumexp(row, dim=-1)
        uniform = torch.tensor([[place.uniform]], dtype=torch.float64, device=row.device)
        token = int(_passing(row.exp()[None], uniform))
    return token, float(row[token]), _likeliest(row, rules.top)


def _adjusted(logits: Tensor, place: Place) -> Tensor:
    rules = place.rules
    for token, value in rules.bias:
        logits[token] += value
    # Where every token is banned something must be drawn all the same.
    if rules.is_banning(len(place.ids) - place.prompt) and len(rules.ends) < len(logits):
        logits[list(rules.ends)] = -torch.inf
    if rules.repetition != 1:
        seen = torch.tensor(sorted(set(place.ids)), device=logits.device)
        values = logits[seen]
        logits[seen] = torch.where(values > 0, values / rules.repetition, values * rules.repetition)
    if rules.presence != 0 or rules.frequency != 0:
        for token, count in Counter(place.ids[place.prompt :]).items():
            logits[token] -= rules.presence + rules.frequency * count
    return logits


def _kept(probs: Tensor, rules: Rules) -> Tensor:
    """Which tokens the cuts leave. Of equally likely ones top-k leaves all, top-p those of the lowest ids."""
    least = rules.min_p * probs.max()
    if 0 < rules.top_k < len(probs):
        least = torch.maximum(least, probs.topk(rules.top_k).values[-1])
    kept = probs >= least
    if rules.top_p == 1:
        return kept
    inside = torch.where(kept, probs, 0.0)
    values, order = inside.sort(descending=True, stable=True)
    before = values.cumsum(0) - values
    covering = torch.zeros_like(kept)
    covering[order] = (before < rules.top_p * inside.sum()) & (values > 0)
    return covering


def _passing(probs: Tensor, uniforms: Tensor) -> Tensor:
    """The first token at which the sum of probabilities passes the number."""
    sums = probs.cumsum(-1)
    found = torch.searchsorted(sums, uniforms, right=True).squeeze(-1)
    ids = torch.arange(probs.shape[-1], device=probs.device)
    last = torch.where(probs > 0, ids, 0).amax(-1)  # for where rounding left the sum a little short
    return torch.minimum(found, last)


def _likeliest(logprobs: Tensor, count: int) -> list[tuple[int, float]]:
    if count <= 0:
        return []
    values, order = logprobs.sort(descending=True, stable=True)
    top = zip(order[:count].tolist(), values[:count].tolist(), strict=True)
    return [(token, value) for token, value in top if value > -torch.inf]


def scored(logits: Tensor, token: int, count: int) -> Drawn:
    """The log-prob of a given token, and the likeliest ones in its place."""
    logprobs = torch.log_softmax(logits.double(), dim=-1)
    return token, float(logprobs[token]), _likeliest(logprobs, count)
