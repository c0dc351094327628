"""Statistics of every query row of a block, from the explicit weights of complete rows.

With s_j the scores of the visible keys, m their maximum and p = softmax(s):

    lse = m − log max p,   entropy = −log max p + Σ p (m − s)

Both terms of the entropy are sums of non-negative values, so nearly one-hot rows lose nothing to cancellation. Each
block writes sums over its keys to `RowSums`; the statistics are then computed from them for many blocks at once,
because a call on a few rows costs as much as one on a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from multihead._base.shapes import HeadOutputs, Weights
from multihead.layer import Problem
from multihead.model.statistics.arena import Memory
from multihead.model.statistics.features import PairFeatures
from multihead.model.statistics.keys import KeySide
from multihead.model.statistics.meanings import SATURATED
from multihead.model.statistics.split_rows import RowBlock

Rows = Float[Tensor, "batch head query"]

SUMS = ("visible", "top", "below", "below_norm", "max_weight", "surprise", "weight_norm", "variance")
"""Per row: visible keys, the maximum m of the scores, Σ (s − m), √Σ (s − m)², max p, Σ p (s − m), √Σ p², and the
variance of the key position under p. Only m, p and the surprise include additive masks and biases."""

FAR = -1e4
"""A score so far below the maximum that its weight is 0 in any precision."""

BELOW_ALL = -1e38
"""Score of a hidden cell while computing the maximum."""

ColumnMask = tuple[slice, Float[Tensor, "#batch #head #query _"]]  # columns of a block, 1 where a key is visible


@dataclass(frozen=True)
class Measured:
    """Statistics by name, each (batch, head, query), and the rows to exclude."""

    numbers: dict[str, Rows]
    near: Float[Tensor, "offset batch head query"] | None  # masses on offsets, in self-attention
    empty: Bool[Tensor, "batch head query"]  # rows without a visible key
    broken: Bool[Tensor, "batch head query"]  # rows computed from NaN or inf


@dataclass(frozen=True)
class RowSums:
    """Sums by name, such as `sums["max_weight"]`: first SUMS, then Σ p x for each feature x."""

    names: tuple[str, ...]
    sums: Float[Tensor, "name batch head query"]
    near: Float[Tensor, "offset batch head query"] | None  # p at query + offset, in self-attention

    @staticmethod
    def height(features: Sequence[str], offsets: int) -> int:
        return len(SUMS) + len(features) + offsets

    @staticmethod
    def over(memory: Float[Tensor, "height batch head query"], features: Sequence[str], offsets: int) -> RowSums:
        """Uninitialized sums in this memory."""
        names = (*SUMS, *features)
        return RowSums(names, memory[: len(names)], memory[len(names) :] if offsets else None)

    def of(self, queries: slice) -> RowSums:
        """The sums of some queries."""
        near = None if self.near is None else self.near[..., queries]
        return RowSums(self.names, self.sums[..., queries], near)

    def __getitem__(self, name: str) -> Rows:
        return self.sums[self.names.index(name)]

    def put(self, names: Sequence[str], sums: Float[Tensor, "some_name batch head query"]) -> None:
        """Write sums of rows whose names are consecutive."""
        if names:
            start = self.names.index(names[0])
            self.sums[start : start + len(names)] = sums

    def mean_place(self, query: Float[Tensor, "query_rows query"]) -> Rows:
        """Σ p position: summed directly in cross-attention, otherwise from the distances to the query."""
        return self["place"] if "place" in self.names else query.unsqueeze(1) - self._signed_distance()

    def _signed_distance(self) -> Rows:
        return self["behind"] - self["ahead"] if "ahead" in self.names else self["behind"]

    def finish(
        self,
        query: Float[Tensor, "query_rows query"],
        sink: Float[Tensor, "head 1"] | None,
        output_norm: Rows,
        bad: Bool[Tensor, "batch head query"] | None,
    ) -> Measured:
        """The statistics of the rows; every sum must be written. `bad` rows see a non-finite key or value."""
        visible, log_inverse_max = self["visible"], -self["max_weight"].log()
        entropy, lse = log_inverse_max - self["surprise"], self["top"] + log_inverse_max
        mean_shifted = self["below"] / visible
        numbers: dict[str, Rows] = {
            "entropy": entropy,
            "relative_entropy": (entropy / visible.log()).masked_fill_(visible < 2, torch.nan),
            "perplexity": entropy.exp(),
            "effective_keys": self["weight_norm"].square().reciprocal_(),
            "position_std": self["variance"].sqrt(),
            "logit_scale": (self["below_norm"].square() / visible - mean_shifted.square()).clamp_(min=0).sqrt_(),
            "output_norm": output_norm,
            "visible": visible,
        }
        masses = {name: self[name] for name in self.names if name not in SUMS} | {"max_weight": self["max_weight"]}
        near, empty = self.near, visible == 0
        if near is not None:
            numbers["signed_distance"] = self._signed_distance()
            behind, ahead = masses.pop("behind"), masses.pop("ahead", None)
            numbers["distance"] = behind if ahead is None else behind + ahead
            centre = near.shape[0] // 2
            masses |= {"previous": near[centre - 1], "self": near[centre], "next": near[centre + 1]}
            if ahead is None:
                masses["before"] = (1 - masses["self"]).clamp_(min=0)
                masses["after"] = torch.zeros_like(masses["before"])
        else:
            masses.pop("place")
        if sink is not None:
            # The keys keep the mass σ(lse − sink); the sink has σ(sink − lse).
            key_mass = torch.sigmoid(lse - sink)
            masses = {name: mass * key_mass for name, mass in masses.items()}
            near = None if near is None else near * key_mass
            numbers["sink"] = torch.sigmoid(sink - lse)
            lse = torch.logaddexp(lse, sink)
        numbers |= masses
        numbers["lse"] = lse
        numbers["saturated"] = (numbers["max_weight"] > SATURATED).to(lse.dtype)
        broken = ~(torch.isfinite(lse) & torch.isfinite(output_norm))
        if bad is not None:
            broken |= bad
        return Measured(numbers, near, empty, broken & ~empty)


class BlockRows:
    """Measure the blocks of one problem."""

    def __init__(
        self, problem: Problem, out: HeadOutputs, pairs: PairFeatures, offsets: int, memory: Memory | None = None
    ) -> None:
        self.problem, self.out, self.pairs = problem, out, pairs
        self.exact = torch.promote_types(problem.q.dtype, torch.float32)
        self.like = problem.q.new_empty(0, dtype=self.exact)
        self.memory = memory or Memory()
        self.scratch = self.memory.scratch
        self.offsets = torch.arange(-offsets, offsets + 1, device=problem.q.device)
        self.side: KeySide | None = None

    def measure(self, block: RowBlock, *following: RowBlock) -> Measured:
        """The row statistics of a block and of consecutive blocks with the same batch rows and heads."""
        if self.side is None or not self.side.serves(block):
            self.side = None  # free it first
            self.side = KeySide(self.problem, block, self.pairs.marks, self.memory.keys)
        side, blocks, first = self.side, (block, *following), block.queries.start
        merged = replace(block, queries=slice(first, blocks[-1].queries.stop))
        sums = self._allocate(merged, side)
        bad = None if side.bad is None else torch.zeros(merged.shape[:3], dtype=torch.bool, device=side.bad.device)
        for part in blocks:
            rows, masks = slice(part.queries.start - first, part.queries.stop - first), self._column_masks(part)
            self._write_sums(part, side, masks, sums.of(rows))
            if bad is not None and side.bad is not None:
                bad[..., rows] = _sees_bad(part, masks, side.bad)
        query = _batch_rows(self.pairs.query_place, merged)[:, merged.queries]
        sinks = self.problem.scores.sinks
        sink = None if sinks is None else sinks.detach().to(self.exact)[block.heads, None]
        output = torch.linalg.vector_norm(merged.take_queries(self.out), dim=-1, dtype=self.exact)
        return sums.finish(query, sink, output, bad)

    def _allocate(self, block: RowBlock, side: KeySide) -> RowSums:
        """Working memory for the `RowSums` of a block."""
        room, near = self.memory.rows, 0 if self.pairs.cross else len(self.offsets)
        room.clear()
        batch, heads, rows, _ = block.shape
        features = (*self.pairs.names, *side.names)
        sums = room.take(self.like, RowSums.height(features, near), batch, heads, rows)
        return RowSums.over(sums, features, near)

    def _write_sums(self, block: RowBlock, side: KeySide, masks: Sequence[ColumnMask], sums: RowSums) -> None:
        """Write the `RowSums` of a block."""
        self.scratch.clear()
        sums["visible"].copy_(self._count_visible(block, masks))
        s = self._shifted_scores(block, side, masks, sums)
        p = torch.softmax(s, dim=-1, out=self.scratch.take(self.like, *s.shape))
        torch.amax(p, -1, out=sums["max_weight"])
        torch.sum(torch.mul(p, s, out=s), -1, out=sums["surprise"])
        torch.linalg.vector_norm(p, dim=-1, out=sums["weight_norm"])
        query = _batch_rows(self.pairs.query_place, block)[:, block.queries]
        key = block.take_keys(_batch_rows(self.pairs.key_place, block))
        self._write_masses(block, side, p, query, key, sums)
        # Σ p (position − mean)²: around the mean, nothing cancels.
        torch.sub(key[:, None, None, :], sums.mean_place(query).unsqueeze(-1), out=s)
        torch.sum(s.square_().mul_(p), -1, out=sums["variance"])

    def _shifted_scores(
        self, block: RowBlock, side: KeySide, masks: Sequence[ColumnMask], sums: RowSums
    ) -> Weights:
        """Scores of the rows − their maximum, FAR where hidden; writes moments of the visible scores to `sums`."""
        mask, s = self.problem.mask, self._scores(block, side)
        masked = [(s[..., columns], visible, visible - 1) for columns, visible in masks]
        for cells, visible, hidden in masked:
            cells.mul_(visible).add_(hidden, alpha=-BELOW_ALL)
        top = s.amax(-1, keepdim=True)
        s.sub_(top)
        for cells, visible, _ in masked:
            cells.mul_(visible)
        torch.sum(s, -1, out=sums["below"])
        torch.linalg.vector_norm(s, dim=-1, out=sums["below_norm"])
        grid = (
            self.problem.coordinates.grid(block.batch, block.queries, block.keys, block.heads)
            if mask.has_bias
            else None
        )
        added = None if grid is None else mask.score_bias(grid)
        if added is None:
            for cells, _, hidden in masked:
                cells.add_(hidden, alpha=-FAR)  # exp(FAR) is 0, and unlike -inf, p · s is 0 too
        else:
            s.add_(added.detach().to(self.exact))
            for cells, visible, _ in masked:
                cells.masked_fill_(visible == 0, -torch.inf)
            highest = s.amax(-1, keepdim=True)
            s.sub_(highest)
            for cells, _, _ in masked:
                cells.clamp_(min=FAR)
            top += highest
        sums["top"].copy_(top.squeeze(-1))
        return s

    # ---- block inputs -------------------------------------------------------------------------

    def _column_masks(self, block: RowBlock) -> list[ColumnMask]:
        """For row statistics: the mask of keys that rows may not see as floats, far cheaper to apply than bools."""
        masks: list[ColumnMask] = []
        for part in block.written:
            grid = self.problem.coordinates.grid(block.batch, block.queries, (part,), block.heads)
            allowed = self.problem.mask.allowed(grid)
            if allowed is not None:
                start = block.column(part.start)
                masks.append((slice(start, start + part.stop - part.start), allowed.to(self.exact)))
        return masks

    def _count_visible(self, block: RowBlock, masks: Sequence[ColumnMask]) -> Float[Tensor, "#batch #head #query"]:
        """For row statistics: how many keys each row of a block sees."""
        rows, width = block.shape[2:]
        count = self.like.new_full((1, 1, rows), width)
        for columns, visible in masks:
            size = columns.stop - columns.start
            hidden = size - visible.expand(*visible.shape[:3], size).sum(-1)
            count = count - hidden
        return count

    def _scores(self, block: RowBlock, side: KeySide) -> Weights:
        """The scores of a block's rows, softcap(q kᵀ scale); heads that share a kv head are rows of one product."""
        scores, (batch, heads, rows, width) = self.problem.scores, block.shape
        s = self.scratch.take(self.like, *block.shape)
        scale = scores.scale if scores.softcap is None else scores.scale / scores.softcap
        q, k = block.take_queries(self.problem.q).to(self.exact) * scale, block.take_keys(side.k)
        size = max(heads // k.shape[1], 1)
        if side.kv_of_head == [h // size for h in range(k.shape[1] * size)]:  # even groups, in order
            grouped = q.reshape(batch * k.shape[1], size * rows, -1)
            torch.bmm(grouped, k.flatten(0, 1), out=s.view(batch * k.shape[1], -1, width))
        else:
            for b in range(batch):
                for h in range(heads):
                    torch.mm(q[b, h], k[b, side.kv_of_head[h]], out=s[b, h])
        if scores.softcap is not None:
            s.tanh_().mul_(scores.softcap)
        return s

    # ---- sums over the weights ----------------------------------------------------------------

    def _write_masses(
        self, block: RowBlock, side: KeySide, p: Weights, query: Tensor, key: Tensor, row_sums: RowSums
    ) -> None:
        """Write row sums Σ p x for every feature x, and p at each offset."""
        pairs, (batch, heads, rows, width) = self.pairs, block.shape
        x = self.scratch.take(self.like, batch, rows, pairs.count, width)
        pairs.fill(block, query, key, x)
        # Features as rows: the transposed product takes several times as long.
        pair_sums = torch.stack([torch.bmm(x[b, :, :-1], p[b].permute(1, 2, 0)) for b in range(batch)])
        pair_sums = pair_sums.permute(2, 0, 3, 1)  # feature, batch, head, query
        key_sums = torch.bmm(block.take_keys(side.sums).flatten(0, 1), p.flatten(0, 1).mT)
        row_sums.put(pairs.names, pair_sums[: len(pairs.names)])
        row_sums.put(side.names, key_sums.view(batch, heads, -1, rows).permute(2, 0, 1, 3))
        if row_sums.near is not None:
            if pairs.offsets:
                row_sums.near.copy_(pair_sums[len(pairs.names) :])
            else:
                row_sums.near.copy_(self._offset_masses(p, query, key, len(block.keys) == 1).permute(3, 0, 1, 2))

    def _offset_masses(
        self, p: Weights, query: Float[Tensor, "query_rows query"], key: Float[Tensor, "key_rows key"], joined: bool
    ) -> Float[Tensor, "batch head query offset"]:
        """For row statistics: p at position(query) + offset, 0 if no key has that position; positions are distinct.

        `joined`: the keys are contiguous.
        """
        rows, (batch, heads, queries, width) = max(query.shape[0], key.shape[0]), p.shape
        positions = (query.unsqueeze(-1) + self.offsets).expand(rows, -1, -1)
        if joined and self.problem.coordinates.aligned:
            index = positions - key[:, :1, None]
            exists = (index >= 0) & (index < width)
            index = index.clamp_(0, width - 1).long()
        else:
            key, order = key.expand(rows, -1).sort(-1)
            index = torch.searchsorted(key, positions.flatten(1)).clamp_(max=width - 1)
            exists = (key.gather(-1, index) == positions.flatten(1)).view(positions.shape)
            index = order.gather(-1, index).view(positions.shape)
        index, exists = (x.unsqueeze(1).expand(batch, heads, queries, -1) for x in (index, exists))
        return p.gather(-1, index).mul_(exists)


def _batch_rows(x: Tensor, block: RowBlock) -> Tensor:
    return x if x.shape[0] == 1 else x[block.batch]


def _sees_bad(
    block: RowBlock, masks: Sequence[ColumnMask], bad: Bool[Tensor, "batch head key"]
) -> Bool[Tensor, "batch head query"]:
    """Rows that may see a non-finite key or value."""
    visible_bad = block.take_keys(bad).unsqueeze(2).expand(block.shape).clone()
    for columns, visible in masks:
        visible_bad[..., columns] &= visible > 0
    return visible_bad.any(-1)
