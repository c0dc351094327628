"""Which tokens each head ties together over a corpus: of every token the one other token that it looks at most.

Special tokens and the token itself are left out. What is kept are sums of weights by pair of tokens, of a bounded
number of pairs per head: where there are more, those with the least weight are forgotten; `missing` says how much
a pair that was forgotten and met again may lack.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.corpus.documents import Corpus
>>> from multihead.corpus.run import run
>>> from multihead.page.pairs import TokenPairs
>>> model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> pairs = TokenPairs()
>>> _ = run(model, Corpus(model, [[7, 8], [7, 8]]), [pairs])  # a causal model: 7 sees nothing but itself
>>> [(pair.query, pair.key, pair.times) for pair in pairs.top("L0H1")]
[(8, 7, 2)]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import PerSite, State
from multihead.layer.ask import Cells, weights_of
from multihead.model.call import Call
from multihead.model.sites import Site, find

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
class PairSums:
    """Sums by (head, query token, key token), coded in one number; at most `held` pairs of each head."""

    heads: int
    held: int
    codes: Int[Tensor, " pair"]
    weights: Float[Tensor, " pair"]
    times: Int[Tensor, " pair"]
    missing: Float[Tensor, " head"]

    @staticmethod
    def empty(heads: int, held: int) -> PairSums:
        none = torch.empty(0, dtype=torch.long)
        weights, missing = (torch.zeros(size, dtype=torch.double) for size in (0, heads))
        return PairSums(heads, held, none, weights, none.clone(), missing)

    def add(self, codes: Int[Tensor, " new"], weights: Float[Tensor, " new"], times: Int[Tensor, " new"]) -> None:
        times = torch.cat([self.times, times])
        self.codes, index = torch.cat([self.codes, codes]).unique(return_inverse=True)
        mass = torch.cat([self.weights, weights.double()])
        self.weights = torch.zeros(len(self.codes), dtype=torch.double).index_add_(0, index, mass)
        self.times = torch.zeros(len(self.codes), dtype=torch.long).index_add_(0, index, times)
        self._forget(self.held)

    def merge(self, other: PairSums) -> None:
        """Add the pairs of later text. What both have forgotten may be of one pair, so it adds up."""
        self.missing = self.missing + other.missing
        self.add(other.codes, other.weights, other.times)

    def state(self) -> dict[str, Any]:
        return vars(self).copy()

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
        self.missing = self.missing.index_add(0, self.codes[gone] >> (2 * _BITS), self.weights[gone])
        kept = order[place < held].sort().values
        self.codes, self.weights, self.times = self.codes[kept], self.weights[kept], self.times[kept]


class TokenPairs(PerSite[PairSums]):
    """The pairs of tokens that each head ties together; see above."""

    name = "pairs"
    forwards = 3.0

    def __init__(self, special: Collection[int] = (), held: int = HELD) -> None:
        super().__init__()
        self.held = held
        self.special = torch.tensor(sorted(special), dtype=torch.long)

    def make(self, site: Site) -> PairSums:
        return PairSums.empty(site.heads, self.held)

    def restore(self, site: Site, state: State) -> PairSums:
        return PairSums(**state)

    def add(self, call: Call, out: HeadOutputs) -> None:
        sums = self.of_call(call)
        for codes, weights in _strongest(call, self.special):
            sums.add(codes, weights, torch.ones_like(codes))

    def top(self, head: str, count: int = 10) -> list[Pair]:
        """The pairs of a head with most weight, the heaviest first."""
        site, index = find(head, self.sites)
        sums = self.of[site.key]
        mine = ((sums.codes >> (2 * _BITS)) == index).nonzero()[:, 0]
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
        site, index = find(head, self.sites)
        return float(self.of[site.key].missing[index])


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
