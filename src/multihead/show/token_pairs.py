"""The pairs of tokens that each head connects over a corpus: every token with the token it attends to most.

Special tokens and the token itself are excluded. The accumulator sums weights by pair of tokens. It keeps a bounded
number of pairs per head, and drops those with the least weight. If a dropped pair comes back, it lacks its earlier
weight; `missing` is the most that a pair may lack.

>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.corpus.documents import Corpus
>>> from multihead.corpus.run import run
>>> from multihead.show.token_pairs import TokenPairs
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
from multihead.layer import weights_of
from multihead.layer.outputs import Cells
from multihead.model.call import Call
from multihead.model.sites import Site, find

HELD = 2048
"""Pairs held per head."""

BLOCK = 4_000_000
"""Attention weights computed at a time."""

_BITS = 21
"""Bits of a token id: vocabularies have fewer than 2 million tokens."""


@dataclass(frozen=True)
class Pair:
    """`query` attended to `key` more than to any other token, `times` times, with the mean weight `weight`."""

    query: int
    key: int
    times: int
    weight: float


@dataclass
class PairSums:
    """Sums by (head, query token, key token), packed into one integer; at most `held` pairs per head."""

    heads: int
    held: int
    codes: Int[Tensor, " pair"]
    weights: Float[Tensor, " pair"]
    times: Int[Tensor, " pair"]
    missing: Float[Tensor, " head"]

    @staticmethod
    def empty(heads: int, held: int) -> PairSums:
        no_pairs = torch.empty(0, dtype=torch.long)
        weights, missing = (torch.zeros(size, dtype=torch.double) for size in (0, heads))
        return PairSums(heads, held, no_pairs, weights, no_pairs.clone(), missing)

    def add(self, codes: Int[Tensor, " new"], weights: Float[Tensor, " new"], times: Int[Tensor, " new"]) -> None:
        """Add the weights of token pairs, equal pairs together."""
        times = torch.cat([self.times, times])
        self.codes, index = torch.cat([self.codes, codes]).unique(return_inverse=True)
        mass = torch.cat([self.weights, weights.double()])
        self.weights = torch.zeros(len(self.codes), dtype=torch.double).index_add_(0, index, mass)
        self.times = torch.zeros(len(self.codes), dtype=torch.long).index_add_(0, index, times)
        self._drop_lightest()

    def merge(self, other: PairSums) -> None:
        """Add the pairs of later text. Both may have dropped the same pair, so `missing` adds up."""
        self.missing = self.missing + other.missing
        self.add(other.codes, other.weights, other.times)

    def state(self) -> dict[str, Any]:
        return vars(self).copy()

    def _drop_lightest(self) -> None:
        """Keep the `held` heaviest token pairs of each head."""
        if int(torch.bincount(self.codes >> (2 * _BITS), minlength=self.heads).max()) <= self.held:
            return
        order = self.weights.argsort(descending=True)
        order = order[(self.codes[order] >> (2 * _BITS)).argsort(stable=True)]
        head = self.codes[order] >> (2 * _BITS)
        counts = torch.bincount(head, minlength=self.heads)
        rank = torch.arange(len(order)) - (counts.cumsum(0) - counts)[head]
        dropped = order[rank == self.held]  # the heaviest dropped pair of each head
        self.missing = self.missing.index_add(0, self.codes[dropped] >> (2 * _BITS), self.weights[dropped])
        heaviest = order[rank < self.held].sort().values
        self.codes, self.weights, self.times = self.codes[heaviest], self.weights[heaviest], self.times[heaviest]


class TokenPairs(PerSite[PairSums]):
    """The pairs of tokens that each head connects; see above."""

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
        """Add the strongest token pairs of an attention call."""
        sums = self.of_call(call)
        for codes, weights in _strongest(call, self.special):
            sums.add(codes, weights, torch.ones_like(codes))

    def top(self, head: str, count: int = 10) -> list[Pair]:
        """The token pairs of a head with the most weight, heaviest first."""
        site, index = find(head, self.sites)
        sums = self.of[site.key]
        of_head = ((sums.codes >> (2 * _BITS)) == index).nonzero()[:, 0]
        best = of_head[sums.weights[of_head].argsort(descending=True, stable=True)][:count]
        id_mask = (1 << _BITS) - 1
        return [
            Pair(code >> _BITS & id_mask, code & id_mask, times, mass / times)
            for code, times, mass in zip(
                sums.codes[best].tolist(), sums.times[best].tolist(), sums.weights[best].tolist(), strict=True
            )
        ]

    def missing(self, head: str) -> float:
        """The most weight that a pair of this head may lack."""
        site, index = find(head, self.sites)
        return float(self.of[site.key].missing[index])


def _strongest(call: Call, special: Tensor) -> Iterator[tuple[Int[Tensor, " found"], Float[Tensor, " found"]]]:
    """The strongest token pair of every row of every head, (code, weight), in blocks of rows."""
    problem, coordinates = call.problem, call.problem.coordinates
    query_ids, key_ids = call.queries.ids, call.keys.ids
    if query_ids is None or key_ids is None:
        return
    query_ids, key_ids = query_ids.cpu(), key_ids.cpu()
    hidden = torch.isin(key_ids, special)
    counted = ~torch.isin(query_ids, special)
    if call.queries.valid is not None:
        counted &= call.queries.valid.cpu()
    size = max(1, BLOCK // max(1, coordinates.batch * coordinates.heads * coordinates.keys))
    for start in range(0, coordinates.queries, size):
        rows = range(start, min(coordinates.queries, start + size))
        weights = weights_of(problem, Cells(None, list(rows))).float().cpu()
        weights = weights.masked_fill(hidden[:, None, None], 0.0)
        if not call.cross:
            weights = weights.masked_fill(_diagonal(rows, coordinates.queries, coordinates.keys), 0.0)
        best, key = weights.max(3)  # (batch, head, row)
        query_id = query_ids[:, None, rows.start : rows.stop].expand_as(key)
        key_id = key_ids[:, None].expand(-1, coordinates.heads, -1).gather(2, key)
        head = torch.arange(coordinates.heads)[:, None].expand_as(key)
        used = counted[:, None, rows.start : rows.stop].expand_as(key) & (best > 0)
        used &= (query_id >= 0) & (key_id >= 0)
        yield (head << 2 * _BITS | query_id << _BITS | key_id)[used], best[used]


def _diagonal(rows: range, queries: int, keys: int) -> Bool[Tensor, "row key"]:
    """Where a token attends to itself."""
    return torch.arange(keys) == torch.arange(rows.start, rows.stop)[:, None] + keys - queries
