"""Which tokens each head ties together over a corpus: of every token the one other token that it looks at most.

Special tokens and the token itself are left out. What is kept are sums of weights by pair of tokens, of a bounded
number of pairs per head: where there are more, those with the least weight are forgotten; `missing` says how much
a pair that was forgotten and met again may lack.

>>> import torch
>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.page.pairs import PairsStage
>>> model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> stage = PairsStage(model)
>>> stage.step({"input_ids": torch.tensor([[7, 8], [7, 8]])})  # a causal model: 7 sees nothing but itself
>>> [(pair.query, pair.key, pair.times) for pair in stage.top("L0H1")]
[(8, 7, 2)]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from multihead.corpus.accumulator import Batch
from multihead.layer.ask import Cells, weights_of
from multihead.model.call import Call
from multihead.model.sites import Site
from multihead.page.passing import passing

HELD = 2048
"""Pairs of a head that are held."""

BLOCK = 4_000_000
"""Weights that are looked at at a time."""

_BITS = 21
"""of a token id: vocabularies are smaller than 2 million"""


@dataclass(frozen=True)
class Pair:
    """`query` looked at `key` more than at any other token, so many times, with this weight on average."""

    query: int
    key: int
    times: int
    weight: float


@dataclass
class _Sums:
    """Sums by (head, query token, key token), coded in one number."""

    heads: int
    codes: Int[Tensor, " pair"]
    weights: Float[Tensor, " pair"]
    times: Int[Tensor, " pair"]
    missing: Float[Tensor, " head"]

    @staticmethod
    def none(heads: int) -> _Sums:
        empty = torch.empty(0, dtype=torch.long)
        return _Sums(
            heads, empty, torch.empty(0, dtype=torch.double), empty, torch.zeros(heads, dtype=torch.double)
        )

    def add(self, codes: Int[Tensor, " new"], weights: Float[Tensor, " new"], held: int) -> None:
        every = torch.cat([self.codes, codes])
        times = torch.cat([self.times, torch.ones_like(codes)])
        self.codes, at = every.unique(return_inverse=True)
        mass = torch.cat([self.weights, weights.double()])
        self.weights = torch.zeros(len(self.codes), dtype=torch.double).index_add_(0, at, mass)
        self.times = torch.zeros(len(self.codes), dtype=torch.long).index_add_(0, at, times)
        self._forget(held)

    def _forget(self, held: int) -> None:
        """The pairs of each head that have most weight stay."""
        if int(torch.bincount(self.codes >> (2 * _BITS), minlength=self.heads).max()) <= held:
            return
        order = self.weights.argsort(descending=True)
        order = order[(self.codes[order] >> (2 * _BITS)).argsort(stable=True)]
        head = self.codes[order] >> (2 * _BITS)
        counts = torch.bincount(head, minlength=self.heads)
        place = torch.arange(len(order)) - (counts.cumsum(0) - counts)[head]
        gone = order[place == held]  # the heaviest that goes, of each head
        self.missing.index_add_(0, self.codes[gone] >> (2 * _BITS), self.weights[gone])
        kept = order[place < held].sort().values
        self.codes, self.weights, self.times = self.codes[kept], self.weights[kept], self.times[kept]


class PairsStage:
    """A pass over batches; see above."""

    name = "pairs"

    def __init__(self, model: nn.Module, special: Collection[int] = (), held: int = HELD) -> None:
        self.model, self.held = model, held
        self.special = torch.tensor(sorted(special), dtype=torch.long)
        self._sums: dict[str, _Sums] = {}

    def step(self, batch: Batch) -> None:
        def take(site: Site, call: Call) -> bool:
            sums = self._sums.setdefault(site.label, _Sums.none(site.heads))
            for codes, weights in _strongest(call, self.special):
                sums.add(codes, weights, self.held)
            return True

        passing(self.model, batch, take)

    def top(self, head: str, count: int = 10) -> list[Pair]:
        """The pairs of a head with most weight, the heaviest first."""
        label, _, number = head.rpartition("H")
        sums = self._sums[label]
        mine = ((sums.codes >> (2 * _BITS)) == int(number)).nonzero()[:, 0]
        best = mine[sums.weights[mine].argsort(descending=True, stable=True)][:count]
        low = (1 << _BITS) - 1
        return [
            Pair(code >> _BITS & low, code & low, times, mass / times)
            for code, times, mass in zip(
                sums.codes[best].tolist(), sums.times[best].tolist(), sums.weights[best].tolist(), strict=True
            )
        ]

    def missing(self, head: str) -> float:
        """The most that the weight of a pair may lack."""
        label, _, number = head.rpartition("H")
        return float(self._sums[label].missing[int(number)])

    def state(self) -> dict[str, Any]:
        return {label: vars(sums).copy() for label, sums in self._sums.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._sums = {label: _Sums(**sums) for label, sums in state.items()}


def _strongest(call: Call, special: Tensor) -> Iterator[tuple[Int[Tensor, " found"], Float[Tensor, " found"]]]:
    """(code, weight) of the strongest key of every row of every head, some rows at a time."""
    problem, frame = call.problem, call.problem.frame
    asks, asked = call.queries.ids, call.keys.ids
    if asks is None or asked is None or problem.packing is not None:
        return
    asks, asked = asks.cpu(), asked.cpu()
    hidden = torch.isin(asked, special)
    counts = ~torch.isin(asks, special)
    if call.queries.valid is not None:
        counts &= call.queries.valid.cpu()
    size = max(1, BLOCK // max(1, frame.batch * frame.heads * frame.keys))
    for start in range(0, frame.queries, size):
        rows = range(start, min(frame.queries, start + size))
        weights = weights_of(problem, Cells(None, list(rows))).float().cpu()
        weights = weights.masked_fill(hidden[:, None, None], 0.0)
        if not call.cross:
            weights = weights.masked_fill(_own(rows, frame.queries, frame.keys), 0.0)
        best, key = weights.max(3)  # (batch, head, row)
        query = asks[:, None, rows.start : rows.stop].expand_as(key)
        seen = asked[:, None].expand(-1, frame.heads, -1).gather(2, key)
        head = torch.arange(frame.heads)[:, None].expand_as(key)
        wanted = counts[:, None, rows.start : rows.stop].expand_as(key) & (best > 0) & (query >= 0) & (seen >= 0)
        yield (head << 2 * _BITS | query << _BITS | seen)[wanted], best[wanted]


def _own(rows: range, queries: int, keys: int) -> Bool[Tensor, "row key"]:
    """Where a token looks at itself."""
    return torch.arange(keys) == torch.arange(rows.start, rows.stop)[:, None] + keys - queries
