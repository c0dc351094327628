"""The numbers of every query row of one block, from the explicit weights of its complete rows.

With s_j the scores of the visible keys, m their maximum and p = softmax(s):

    lse = m − log max p,   entropy = −log max p + Σ p (m − s)

Both terms of the entropy are sums of what is never negative, so near one-hot rows lose nothing to cancellation.
The scores are shifted to mean 0 before their standard deviation, which the softmax does not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from multihead.layer.problem import Problem
from multihead.measures.blocks import RowBlock
from multihead.measures.features import Pairs
from multihead.measures.keys import KeySide
from multihead.measures.meaning import SATURATED
from multihead.measures.scratch import Memory
from multihead.shapes import HeadOutputs, Weights

FAR = -1e4
"""A score so far below the maximum that its weight is 0 in any precision."""

Rows = Float[Tensor, "batch head query"]
Kept = tuple[slice, Float[Tensor, "#batch #head #query _"]]  # columns of a block, 1 where a key may be seen


@dataclass(frozen=True)
class Measured:
    """Statistics by name, each (batch, head, query) of the block, and which rows count."""

    numbers: dict[str, Rows]
    near: (
        Float[Tensor, "offset batch head query"] | None
    )  # masses on offsets, where queries and keys are one sequence
    empty: Bool[Tensor, "batch head query"]  # the mask lets them see nothing
    broken: Bool[Tensor, "batch head query"]  # NaN or inf in what they are computed from


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

    def measure(self, block: RowBlock) -> Measured:
        self.scratch.clear()
        if self.side is None or not self.side.serves(block):
            self.side = None  # free it first
            self.side = KeySide(self.problem, block, self.pairs.marks, self.memory.keys)
        keep = self._keep(block)
        visible = self._visible(block, keep)
        s, p, numbers = self._weights(block, self.side, keep, visible)
        lse, largest = numbers.pop("lse"), numbers.pop("max_weight")

        numbers["relative_entropy"] = (numbers["entropy"] / visible.log()).masked_fill_(visible < 2, torch.nan)
        numbers["perplexity"] = numbers["entropy"].exp()
        numbers["effective_keys"] = torch.linalg.vector_norm(p, dim=-1).square_().reciprocal_()
        numbers["visible"] = visible.expand(lse.shape)
        query = _of_rows(self.pairs.query_place, block)[:, block.queries]
        key = block.take_keys(_of_rows(self.pairs.key_place, block))
        masses, near = self._masses(block, self.side, p, query, key)
        masses["max_weight"] = largest
        numbers |= self._shape(masses, p, query, key, s)
        sinks = self.problem.scores.sinks
        if sinks is not None:
            # The sink leaves σ(lse − sink) to the keys, and σ(sink − lse) is its own mass.
            sink = sinks.detach().to(self.exact)[block.heads, None]
            share = torch.sigmoid(lse - sink)
            masses = {name: mass * share for name, mass in masses.items()}
            near = None if near is None else near * share
            numbers["sink"] = torch.sigmoid(sink - lse)
            lse = torch.logaddexp(lse, sink)
        numbers |= masses
        numbers["lse"] = lse
        numbers["saturated"] = (numbers["max_weight"] > SATURATED).to(self.exact)
        numbers["output_norm"] = torch.linalg.vector_norm(self._queries(self.out, block), dim=-1, dtype=self.exact)

        empty = (visible == 0).expand(lse.shape)
        broken = ~(torch.isfinite(lse) & torch.isfinite(numbers["output_norm"]))
        if self.side.bad is not None:
            broken |= _reach(block, keep, self.side.bad)
        return Measured(numbers, near, empty, broken & ~empty)

    def _weights(
        self, block: RowBlock, side: KeySide, keep: Sequence[Kept], visible: Float[Tensor, "#batch #head #query"]
    ) -> tuple[Weights, Weights, dict[str, Rows]]:
        """(scores − their maximum, times p), p, and what was learnt on the way."""
        mask, s = self.problem.mask, self._scores(block, side)
        for at, shown in keep:
            s[..., at].mul_(shown)
        mean = s.sum(-1, keepdim=True).div_(visible.unsqueeze(-1))
        s.sub_(mean)
        for at, shown in keep:
            s[..., at].mul_(shown)
        scale = torch.linalg.vector_norm(s, dim=-1) / visible.sqrt()
        grid = self.problem.frame.grid(block.batch, block.queries, block.keys, block.heads) if mask.adds else None
        added = None if grid is None else mask.added(grid)
        if added is not None:
            s.add_(added.detach().to(self.exact))
            for at, shown in keep:
                s[..., at].masked_fill_(shown == 0, -torch.inf)
        # Without `added`, hidden cells are 0 now, and no mean is above its maximum.
        top = s.amax(-1, keepdim=True)
        s.sub_(top)
        for at, shown in keep:
            # exp(FAR) is 0, and unlike -inf it stays 0 in p · s.
            s[..., at].clamp_(min=FAR) if added is not None else s[..., at].add_(shown - 1, alpha=-FAR)
        p = torch.softmax(s, dim=-1, out=self.scratch.take(self.like, *s.shape))
        largest = p.amax(-1)
        rest = -largest.log()
        entropy = rest - torch.mul(p, s, out=s).sum(-1)
        lse = (mean + top).squeeze(-1) + rest
        return s, p, {"entropy": entropy, "lse": lse, "logit_scale": scale, "max_weight": largest}

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

    def _masses(
        self, block: RowBlock, side: KeySide, p: Weights, query: Tensor, key: Tensor
    ) -> tuple[dict[str, Rows], Float[Tensor, "offset batch head query"] | None]:
        """Σ p x for every feature x, and the single cells of p that are asked for."""
        pairs, (batch, heads, rows, width) = self.pairs, block.shape
        x = self.scratch.take(self.like, batch, rows, pairs.count, width)
        pairs.fill(block, query, key, x)
        # Transposed products, with the features as rows: the other way round takes several times as long.
        sums = torch.stack([torch.bmm(x[b, :, :-1], p[b].permute(1, 2, 0)) for b in range(batch)])
        sums = sums.permute(2, 0, 3, 1)  # feature, batch, head, query
        alone = torch.bmm(block.take_keys(side.sums).flatten(0, 1), p.flatten(0, 1).mT)
        found = dict(zip(pairs.names, sums, strict=False))
        found |= zip(side.names, alone.view(batch, heads, -1, rows).unbind(2), strict=True)
        if pairs.cross:
            return found, None
        near = sums[len(pairs.names) :] if pairs.offsets else self._near(p, query, key).permute(3, 0, 1, 2)
        middle = len(self.offsets) // 2
        found |= {"previous": near[middle - 1], "self": near[middle], "next": near[middle + 1]}
        if "ahead" not in found:
            found["before"] = (1 - found["self"]).clamp_(min=0)
            found["after"] = torch.zeros_like(found["before"])
        return found, near

    def _shape(
        self, masses: dict[str, Rows], p: Weights, query: Tensor, key: Tensor, work: Weights
    ) -> dict[str, Rows]:
        """Distances, and √(Σ p (place − its mean)²): around the mean itself nothing cancels."""
        found: dict[str, Rows] = {}
        if self.pairs.cross:
            place = masses.pop("place")
        else:
            behind, ahead = masses.pop("behind"), masses.pop("ahead", None)
            found["distance"] = behind if ahead is None else behind + ahead
            found["signed_distance"] = behind if ahead is None else behind - ahead
            place = query.unsqueeze(1) - found["signed_distance"]
        torch.sub(key[:, None, None, :], place.unsqueeze(-1), out=work)
        found["spread"] = work.square_().mul_(p).sum(-1).sqrt_()
        return found

    def _near(self, p: Weights, query: Tensor, key: Tensor) -> Float[Tensor, "batch head query offset"]:
        """p at place(query) + offset, 0 where no key stands there. Keys must all stand at different places."""
        batch = max(query.shape[0], key.shape[0])
        wanted = (query.unsqueeze(-1) + self.offsets).expand(batch, -1, -1)
        order = None
        if not self.problem.frame.aligned:
            key, order = key.sort(-1)
        key = key.expand(batch, -1).contiguous()
        at = torch.searchsorted(key, wanted.flatten(1)).clamp_(max=key.shape[1] - 1)
        there = (key.gather(-1, at) == wanted.flatten(1)).view(batch, 1, *wanted.shape[1:])
        at = at if order is None else order.expand(batch, -1).gather(-1, at)
        at = at.view(batch, 1, *wanted.shape[1:])
        return p.gather(-1, at.expand(*p.shape[:3], -1)).mul_(there)


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
