"""Features of (query, key) pairs, shared by all heads, that the weights of a block are summed against.

Σ_j p_hij x_ijm for all heads h and features m is one matrix product per query: (features × keys) (keys × heads).
Distances are computed as differences of positions, never as i² − 2ij + j², which would cancel.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead.layer import Problem
from multihead.layer._mask_structured import Causal
from multihead.model.call import Tokens
from multihead.model.statistics.split_rows import RowBlock
from multihead.model.statistics.statistics_options import Statistics

NO_TOKEN = -1
"""Marks a position without a token."""

EXACT_IDS = 1 << 24
"""fp32 represents integers exactly up to here; larger ids are renumbered."""


@dataclass(frozen=True)
class PairFeatures:
    """Positions, token ids and marks of the queries and keys of one problem."""

    query_place: Float[Tensor, "query_rows query"]  # rows: 1 or batch
    key_place: Float[Tensor, "key_rows key"]
    real: Bool[Tensor, "batch query"]
    query_id: Float[Tensor, "batch query"] | None  # as floats, which are much faster to compare
    key_id: Float[Tensor, "batch key"] | None
    before_id: Float[Tensor, "batch key"] | None  # of the token one position before each key
    marks: dict[str, Float[Tensor, "batch key"]]  # 1 if the key is the first real token, special, or in a class
    names: tuple[str, ...]  # of the features, in order
    offsets: tuple[int, ...]  # as features, if several keys may share a position
    cross: bool

    @staticmethod
    def of(problem: Problem, queries: Tokens, keys: Tokens, options: Statistics, cross: bool) -> PairFeatures:
        """The features of all (query, key) pairs of an attention call."""
        size, position = problem.coordinates, problem.coordinates.all_keys()
        exact = torch.promote_types(problem.q.dtype, torch.float32)
        real_key = _real(problem, keys, size.keys)
        key_id = _ids(problem, keys, size.keys)
        query_id = None if cross or key_id is None else _ids(problem, queries, size.queries)
        before_id, marks = None, dict[str, Tensor]()
        marks["first"] = ((real_key.cumsum(-1) == 1) & real_key & (not keys.dropped)).to(exact)
        if key_id is not None:
            listed = {"special": options.special, **{f"class:{name}": i for name, i in options.classes.items()}}
            for name, ids in listed.items():
                marks[name] = torch.isin(key_id, torch.tensor(list(ids), dtype=torch.long, device=size.device)).to(
                    exact
                )
        if key_id is not None and query_id is not None:
            if key_id.numel() and int(torch.maximum(key_id.max(), query_id.max())) >= EXACT_IDS:
                compact = torch.cat([query_id, key_id], dim=1).unique(return_inverse=True)[1]
                query_id, key_id = compact.split([size.queries, size.keys], dim=1)
            before_id = _previous_ids(key_id, real_key, position).to(exact)
        shared_positions = not size.aligned and bool((position.sort(-1).values.diff(dim=-1) == 0).any())
        offsets = tuple(range(-options.offsets, options.offsets + 1)) if shared_positions and not cross else ()
        sees_ahead = not any(isinstance(part, Causal) for part in problem.mask.parts())
        names = ["place"] if cross else ["behind"] + ["before", "ahead", "after"] * sees_ahead
        names += ["same_token", "induction"] * (query_id is not None)
        return PairFeatures(
            size.all_queries().to(exact),
            position.to(exact),
            _real(problem, queries, size.queries),
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
        """Values per (query, key) pair: the features and one column of scratch."""
        return len(self.names) + len(self.offsets) + 1

    def fill(
        self,
        block: RowBlock,
        query: Float[Tensor, "query_rows query"],
        key: Float[Tensor, "key_rows key"],
        x: Float[Tensor, "batch query feature key"],
    ) -> None:
        """Write features x_ijm of a block with these query and key positions; the last column is scratch."""
        features = dict(zip(self.names, x.unbind(2), strict=False))
        if self.cross:
            features["place"].copy_(key.unsqueeze(1))
            return
        # Write comparisons directly as floats: converting from bool takes ten times as long.
        distance, scratch = features["behind"], x[:, :, -1]
        torch.sub(query.unsqueeze(-1), key.unsqueeze(1).expand(distance.shape[0], -1, -1), out=distance)
        for feature, offset in enumerate(self.offsets, len(self.names)):
            torch.eq(distance, -offset, out=x[:, :, feature])
        if self.query_id is not None and self.key_id is not None and self.before_id is not None:
            query_id = self.query_id[block.batch, block.queries].unsqueeze(-1)
            torch.eq(query_id, block.take_keys(self.key_id[block.batch]).unsqueeze(1), out=features["same_token"])
            features["same_token"].mul_(torch.ne(distance, 0, out=scratch))
            torch.eq(query_id, block.take_keys(self.before_id[block.batch]).unsqueeze(1), out=features["induction"])
            if "ahead" in features:  # otherwise later keys are hidden
                features["induction"].mul_(torch.ge(distance, 0, out=scratch))
        if "ahead" in features:
            torch.gt(distance, 0, out=features["before"])
            torch.lt(distance, 0, out=features["after"])
            torch.neg(distance, out=features["ahead"]).clamp_(min=0)
            distance.clamp_(min=0)


def _real(problem: Problem, tokens: Tokens, length: int) -> Bool[Tensor, "batch token"]:
    """Which tokens are real, as a feature."""
    size = problem.coordinates
    if tokens.valid is None:
        return torch.ones(size.batch, length, dtype=torch.bool, device=size.device)
    return tokens.valid.to(size.device).expand(size.batch, length)


def _ids(problem: Problem, tokens: Tokens, length: int) -> Int[Tensor, "batch token"] | None:
    size = problem.coordinates
    return None if tokens.ids is None else tokens.ids.to(size.device).expand(size.batch, length)


def _previous_ids(ids: Tensor, real: Tensor, position: Tensor) -> Int[Tensor, "batch key"]:
    """The feature of a key's previous token: the id of the real token one position before."""
    if ids.shape[1] == 0:
        return ids
    order = position.argsort(dim=-1, stable=True)
    before = order.roll(1, -1)
    follows = position.gather(-1, order) - position.gather(-1, before) == 1
    order, before, follows = (t.expand(ids.shape) for t in (order, before, follows))
    previous = ids.gather(-1, before).masked_fill(~(follows & real.gather(-1, before)), NO_TOKEN)
    return torch.empty_like(ids).scatter_(-1, order, previous)
