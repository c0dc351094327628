"""What the weights of a block are summed against: numbers of a (query, key) pair that all heads share.

Σ_j p_hij x_ijm for all heads h and features m is one matrix product per query: (features × keys) (keys × heads).
Distances are written as differences of places, never as i² − 2ij + j², so that nothing cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead.layer.mask_kinds import Causal
from multihead.layer.problem import Problem
from multihead.model.call import Tokens
from multihead.model.statistics.blocks import RowBlock
from multihead.model.statistics.options import Statistics

NOTHING = -1
"""The id of no token."""

EXACT_IDS = 1 << 24
"""Up to here fp32 tells whole numbers apart; ids beyond are numbered anew."""


@dataclass(frozen=True)
class Pairs:
    """What is known of the queries and keys of one problem, beside q, k and v."""

    query_place: Float[Tensor, "query_rows query"]  # rows: 1 or batch
    key_place: Float[Tensor, "key_rows key"]
    real: Bool[Tensor, "batch query"]
    query_id: Float[Tensor, "batch query"] | None  # as numbers, which are far quicker to compare
    key_id: Float[Tensor, "batch key"] | None
    before_id: Float[Tensor, "batch key"] | None  # of the token one place before each key
    marks: dict[str, Float[Tensor, "batch key"]]  # 1 where the key is the first real one, special, in a class
    names: tuple[str, ...]  # of the features, in order
    offsets: tuple[int, ...]  # measured as features, where several keys may stand at one place
    cross: bool

    @staticmethod
    def of(problem: Problem, queries: Tokens, keys: Tokens, options: Statistics, cross: bool) -> Pairs:
        frame, place = problem.frame, problem.frame.keys_at()
        exact = torch.promote_types(problem.q.dtype, torch.float32)
        real_key = _real(problem, keys, frame.keys)
        key_id = _unpacked(problem, keys.ids, frame.keys)
        query_id = None if cross or key_id is None else _unpacked(problem, queries.ids, frame.queries)
        before_id, marks = None, dict[str, Tensor]()
        marks["first"] = ((real_key.cumsum(-1) == 1) & real_key & (not keys.dropped)).to(exact)
        if key_id is not None:
            listed = {"special": options.special, **{f"class:{name}": i for name, i in options.classes.items()}}
            for name, ids in listed.items():
                marks[name] = torch.isin(key_id, torch.tensor(list(ids), dtype=torch.long, device=frame.device)).to(
                    exact
                )
        if key_id is not None and query_id is not None:
            if key_id.numel() and int(torch.maximum(key_id.max(), query_id.max())) >= EXACT_IDS:
                both = torch.cat([query_id, key_id], dim=1).unique(return_inverse=True)[1]
                query_id, key_id = both.split([frame.queries, frame.keys], dim=1)
            before_id = _before(key_id, real_key, place).to(exact)
        twice = not frame.aligned and bool((place.sort(-1).values.diff(dim=-1) == 0).any())
        offsets = tuple(range(-options.offsets, options.offsets + 1)) if twice and not cross else ()
        ahead = not any(isinstance(part, Causal) for part in problem.mask.parts())
        names = ["place"] if cross else ["behind"] + ["before", "ahead", "after"] * ahead
        names += ["same_token", "induction"] * (query_id is not None)
        return Pairs(
            frame.queries_at().to(exact),
            place.to(exact),
            _real(problem, queries, frame.queries),
            None if query_id is None else query_id.to(exact),
            None if key_id is None else key_id.to(exact),
            before_id,
            marks,
            tuple(names),
            offsets,
            cross,
        )

    @property
    def count(self) -> int:
        """Numbers that a (query, key) pair takes, beside those of the heads."""
        return len(self.names) + len(self.offsets) + 1

    def fill(
        self,
        block: RowBlock,
        query: Float[Tensor, "query_rows query"],
        key: Float[Tensor, "key_rows key"],
        x: Float[Tensor, "batch query feature key"],
    ) -> None:
        """Write x_ijm of the block, whose queries and keys stand at these places; the last feature is for work."""
        row = dict(zip(self.names, x.unbind(2), strict=False))
        if self.cross:
            row["place"].copy_(key.unsqueeze(1))
            return
        # Comparisons are written as numbers at once: bool first and then converted takes ten times as long.
        away, work = row["behind"], x[:, :, -1]
        torch.sub(query.unsqueeze(-1), key.unsqueeze(1).expand(away.shape[0], -1, -1), out=away)
        for at, offset in enumerate(self.offsets, len(self.names)):
            torch.eq(away, -offset, out=x[:, :, at])
        if self.query_id is not None and self.key_id is not None and self.before_id is not None:
            mine = self.query_id[block.batch, block.queries].unsqueeze(-1)
            torch.eq(mine, block.take_keys(self.key_id[block.batch]).unsqueeze(1), out=row["same_token"])
            row["same_token"].mul_(torch.ne(away, 0, out=work))
            torch.eq(mine, block.take_keys(self.before_id[block.batch]).unsqueeze(1), out=row["induction"])
            if "ahead" in row:  # else nobody looks there
                row["induction"].mul_(torch.ge(away, 0, out=work))
        if "ahead" in row:
            torch.gt(away, 0, out=row["before"])
            torch.lt(away, 0, out=row["after"])
            torch.neg(away, out=row["ahead"]).clamp_(min=0)
            away.clamp_(min=0)


def _real(problem: Problem, tokens: Tokens, length: int) -> Bool[Tensor, "batch token"]:
    frame = problem.frame
    valid = _unpacked(problem, tokens.valid, length)
    if valid is None:
        valid = torch.ones(frame.batch, length, dtype=torch.bool, device=frame.device)
    if problem.packing is None:
        return valid
    ends = torch.tensor([stop - start for start, stop in pairwise(problem.packing)])
    return valid & (torch.arange(length) < ends.unsqueeze(-1)).to(frame.device)


def _unpacked(problem: Problem, x: Tensor | None, length: int) -> Tensor | None:
    """(batch, token), also of tokens that were given packed into one row."""
    frame, packing = problem.frame, problem.packing
    if x is None:
        return None
    x = x.to(frame.device)
    if packing is None or x.shape == (frame.batch, length):
        return x.expand(frame.batch, length)
    rows = x.new_full((frame.batch, length), False if x.dtype == torch.bool else NOTHING)
    for b, (start, stop) in enumerate(pairwise(packing)):
        rows[b, : stop - start] = x[0, start:stop]
    return rows


def _before(ids: Tensor, real: Tensor, place: Tensor) -> Int[Tensor, "batch key"]:
    """The id of the real token that stands one place before each key."""
    if ids.shape[1] == 0:
        return ids
    order = place.argsort(dim=-1, stable=True)
    back = order.roll(1, -1)
    follows = place.gather(-1, order) - place.gather(-1, back) == 1
    order, back, follows = (t.expand(ids.shape) for t in (order, back, follows))
    found = ids.gather(-1, back).masked_fill(~(follows & real.gather(-1, back)), NOTHING)
    return torch.empty_like(ids).scatter_(-1, order, found)
