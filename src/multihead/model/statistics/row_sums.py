"""The numbers of every query row of some blocks, from the explicit weights of their complete rows.

With s_j the scores of the visible keys, m their maximum and p = softmax(s):

    lse = m − log max p,   entropy = −log max p + Σ p (m − s)

Both terms of the entropy are sums of what is never negative, so near one-hot rows lose nothing to cancellation.
Each block leaves sums over its keys in a `Sheet`; what follows from them row by row is computed for many blocks at
once, because a call on a few rows costs as much as one on a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from multihead._base.shapes import HeadOutputs, Weights
from multihead.layer.problem import Problem
from multihead.model.statistics.arena import Memory
from multihead.model.statistics.blocks import RowBlock
from multihead.model.statistics.features import Pairs
from multihead.model.statistics.keys import KeySide
from multihead.model.statistics.row_means import Measured, Sheet

FAR = -1e4
"""A score so far below the maximum that its weight is 0 in any precision."""

BELOW_ALL = -1e38
"""What a hidden cell holds while the maximum is looked for."""

Kept = tuple[slice, Float[Tensor, "#batch #head #query _"]]  # columns of a block, 1 where a key may be seen


class BlockRows:
    """Measures the blocks of one problem."""

    def __init__(
        self, problem: Problem, out: HeadOutputs, pairs: Pairs, offsets: int, memory: Memory | None = None
    ) -> None:
        self.problem, self.out, self.pairs = problem, out, pairs
        self.exact = torch.promote_types(problem.q.dtype, torch.float32)
        self.like = problem.q.new_empty(0, dtype=self.exact)
        self.memory = memory or Memory()
        self.scratch = self.memory.scratch
        self.offsets = torch.arange(-offsets, offsets + 1, device=problem.q.device)
        self.side: KeySide | None = None

    def measure(self, block: RowBlock, *following: RowBlock) -> Measured:
        """The rows of a block, and of those that follow it with the same batch rows and heads."""
        if self.side is None or not self.side.serves(block):
            self.side = None  # free it first
            self.side = KeySide(self.problem, block, self.pairs.marks, self.memory.keys)
        side, blocks, first = self.side, (block, *following), block.queries.start
        whole = replace(block, queries=slice(first, blocks[-1].queries.stop))
        sheet = self._sheet(whole, side)
        bad = None if side.bad is None else torch.zeros(whole.shape[:3], dtype=torch.bool, device=side.bad.device)
        for part in blocks:
            rows, keep = slice(part.queries.start - first, part.queries.stop - first), self._keep(part)
            self._sum_up(part, side, keep, sheet.of(rows))
            if bad is not None and side.bad is not None:
                bad[..., rows] = _reach(part, keep, side.bad)
        query = _of_rows(self.pairs.query_place, whole)[:, whole.queries]
        sinks = self.problem.scores.sinks
        sink = None if sinks is None else sinks.detach().to(self.exact)[block.heads, None]
        output = torch.linalg.vector_norm(self._queries(self.out, whole), dim=-1, dtype=self.exact)
        return sheet.finish(query, sink, output, bad)

    def _sheet(self, block: RowBlock, side: KeySide) -> Sheet:
        room, near = self.memory.rows, 0 if self.pairs.cross else len(self.offsets)
        room.clear()
        batch, heads, rows, _ = block.shape
        features = (*self.pairs.names, *side.names)
        sums = room.take(self.like, Sheet.height(features, near), batch, heads, rows)
        return Sheet.over(sums, features, near)

    def _sum_up(self, block: RowBlock, side: KeySide, keep: Sequence[Kept], sheet: Sheet) -> None:
        """Write the sums of the block's rows into its part of the sheet."""
        self.scratch.clear()
        sheet["visible"].copy_(self._visible(block, keep))
        s = self._shifted(block, side, keep, sheet)
        p = torch.softmax(s, dim=-1, out=self.scratch.take(self.like, *s.shape))
        torch.amax(p, -1, out=sheet["max_weight"])
        torch.sum(torch.mul(p, s, out=s), -1, out=sheet["surprise"])
        torch.linalg.vector_norm(p, dim=-1, out=sheet["weight_norm"])
        query = _of_rows(self.pairs.query_place, block)[:, block.queries]
        key = block.take_keys(_of_rows(self.pairs.key_place, block))
        self._masses(block, side, p, query, key, sheet)
        # √(Σ p (place − its mean)²): around the mean itself nothing cancels.
        torch.sub(key[:, None, None, :], sheet.mean_place(query).unsqueeze(-1), out=s)
        torch.sum(s.square_().mul_(p), -1, out=sheet["variance"])

    def _shifted(self, block: RowBlock, side: KeySide, keep: Sequence[Kept], sheet: Sheet) -> Weights:
        """Scores − their maximum, FAR where hidden; the moments of the visible ones go to the sheet."""
        mask, s = self.problem.mask, self._scores(block, side)
        hide = [(s[..., at], shown, shown - 1) for at, shown in keep]
        for cells, shown, hidden in hide:
            cells.mul_(shown).add_(hidden, alpha=-BELOW_ALL)
        top = s.amax(-1, keepdim=True)
        s.sub_(top)
        for cells, shown, _ in hide:
            cells.mul_(shown)
        torch.sum(s, -1, out=sheet["below"])
        torch.linalg.vector_norm(s, dim=-1, out=sheet["below_norm"])
        grid = self.problem.frame.grid(block.batch, block.queries, block.keys, block.heads) if mask.adds else None
        added = None if grid is None else mask.added(grid)
        if added is None:
            for cells, _, hidden in hide:
                cells.add_(hidden, alpha=-FAR)  # exp(FAR) is 0, and unlike -inf it stays 0 in p · s
        else:
            s.add_(added.detach().to(self.exact))
            for cells, shown, _ in hide:
                cells.masked_fill_(shown == 0, -torch.inf)
            highest = s.amax(-1, keepdim=True)
            s.sub_(highest)
            for cells, _, _ in hide:
                cells.clamp_(min=FAR)
            top += highest
        sheet["top"].copy_(top.squeeze(-1))
        return s

    # ---- the block ----------------------------------------------------------------------------

    def _queries(self, x: Tensor, block: RowBlock) -> Float[Tensor, "batch head query dim"]:
        """The block's part of q or of the output, which are packed together or not at all."""
        packing = self.problem.packing
        if packing is None:
            return x[block.batch, block.heads, block.queries]
        base = packing[block.batch.start]
        stop = min(base + block.queries.stop, packing[block.batch.start + 1])
        taken = x[:, block.heads, base + block.queries.start : stop]
        return F.pad(taken, (0, 0, 0, block.shape[2] - taken.shape[2]))

    def _keep(self, block: RowBlock) -> list[Kept]:
        """The mask of the keys where it has to be written: numbers are far cheaper to apply than bools."""
        found: list[Kept] = []
        for part in block.written:
            grid = self.problem.frame.grid(block.batch, block.queries, (part,), block.heads)
            allowed = self.problem.mask.allowed(grid)
            if allowed is not None:
                at = block.column(part.start)
                found.append((slice(at, at + part.stop - part.start), allowed.to(self.exact)))
        return found

    def _visible(self, block: RowBlock, keep: Sequence[Kept]) -> Float[Tensor, "#batch #head #query"]:
        rows, width = block.shape[2:]
        count = self.like.new_full((1, 1, rows), width)
        for at, shown in keep:
            hidden = at.stop - at.start - shown.expand(*shown.shape[:3], at.stop - at.start).sum(-1)
            count = count - hidden
        return count

    def _scores(self, block: RowBlock, side: KeySide) -> Weights:
        """softcap(q kᵀ scale); query heads that read one kv head are rows of one product."""
        scores, (batch, heads, rows, width) = self.problem.scores, block.shape
        s = self.scratch.take(self.like, *block.shape)
        scale = scores.scale if scores.softcap is None else scores.scale / scores.softcap
        q, k = self._queries(self.problem.q, block).to(self.exact) * scale, block.take_keys(side.k)
        size = max(heads // k.shape[1], 1)
        if side.kv_of_head == [h // size for h in range(k.shape[1] * size)]:  # even groups, in order
            asked = q.reshape(batch * k.shape[1], size * rows, -1)
            torch.bmm(asked, k.flatten(0, 1), out=s.view(batch * k.shape[1], -1, width))
        else:
            for b in range(batch):
                for h in range(heads):
                    torch.mm(q[b, h], k[b, side.kv_of_head[h]], out=s[b, h])
        if scores.softcap is not None:
            s.tanh_().mul_(scores.softcap)
        return s

    # ---- sums over the weights ----------------------------------------------------------------

    def _masses(self, block: RowBlock, side: KeySide, p: Weights, query: Tensor, key: Tensor, sheet: Sheet) -> None:
        """Σ p x for every feature x, and the single cells of p that are asked for."""
        pairs, (batch, heads, rows, width) = self.pairs, block.shape
        x = self.scratch.take(self.like, batch, rows, pairs.count, width)
        pairs.fill(block, query, key, x)
        # Transposed products, with the features as rows: the other way round takes several times as long.
        sums = torch.stack([torch.bmm(x[b, :, :-1], p[b].permute(1, 2, 0)) for b in range(batch)])
        sums = sums.permute(2, 0, 3, 1)  # feature, batch, head, query
        alone = torch.bmm(block.take_keys(side.sums).flatten(0, 1), p.flatten(0, 1).mT)
        sheet.put(pairs.names, sums[: len(pairs.names)])
        sheet.put(side.names, alone.view(batch, heads, -1, rows).permute(2, 0, 1, 3))
        if sheet.near is not None:
            if pairs.offsets:
                sheet.near.copy_(sums[len(pairs.names) :])
            else:
                sheet.near.copy_(self._near(p, query, key, len(block.keys) == 1).permute(3, 0, 1, 2))

    def _near(
        self, p: Weights, query: Float[Tensor, "query_rows query"], key: Float[Tensor, "key_rows key"], joined: bool
    ) -> Float[Tensor, "batch head query offset"]:
        """p at place(query) + offset, 0 where no key stands there. Keys must all stand at different places.

        `joined`: the keys follow each other without a gap.
        """
        rows, (batch, heads, queries, width) = max(query.shape[0], key.shape[0]), p.shape
        wanted = (query.unsqueeze(-1) + self.offsets).expand(rows, -1, -1)
        if joined and self.problem.frame.aligned:
            at = wanted - key[:, :1, None]
            there = (at >= 0) & (at < width)
            at = at.clamp_(0, width - 1).long()
        else:
            key, order = key.expand(rows, -1).sort(-1)
            at = torch.searchsorted(key, wanted.flatten(1)).clamp_(max=width - 1)
            there = (key.gather(-1, at) == wanted.flatten(1)).view(wanted.shape)
            at = order.gather(-1, at).view(wanted.shape)
        at, there = (x.unsqueeze(1).expand(batch, heads, queries, -1) for x in (at, there))
        return p.gather(-1, at).mul_(there)


def _of_rows(x: Tensor, block: RowBlock) -> Tensor:
    return x if x.shape[0] == 1 else x[block.batch]


def _reach(
    block: RowBlock, keep: Sequence[Kept], bad: Bool[Tensor, "batch head key"]
) -> Bool[Tensor, "batch head query"]:
    """Rows that may see a key or value that is not finite."""
    seen = block.take_keys(bad).unsqueeze(2).expand(block.shape).clone()
    for at, shown in keep:
        seen[..., at] &= shown > 0
    return seen.any(-1)
