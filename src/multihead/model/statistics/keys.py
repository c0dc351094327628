"""The keys of some batch rows and heads, laid out for the matrix products of many blocks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from multihead.layer import Problem
from multihead.model.statistics.arena import Scratch
from multihead.model.statistics.split_rows import RowBlock


class KeySide:
    """kᵀ in the precision of the scores, and the per-key features: ‖v‖ and token marks.

    A transposed copy makes the product with the queries 25 % faster; its memory is linear in tokens.
    """

    def __init__(
        self, problem: Problem, block: RowBlock, marks: Mapping[str, Float[Tensor, "batch key"]], scratch: Scratch
    ) -> None:
        scratch.clear()
        exact = torch.promote_types(problem.q.dtype, torch.float32)
        self.batch, self.heads = block.batch, block.heads
        kv_of_head = problem.groups.kv_of_head[block.heads]
        kv = slice(min(kv_of_head), max(kv_of_head) + 1)
        k, v = problem.k[block.batch, kv], problem.v[block.batch, kv]
        self.kv_of_head = [h - kv.start for h in kv_of_head]
        norms = torch.linalg.vector_norm(v, dim=-1, dtype=exact)
        like = norms.new_empty(0)
        self.k: Float[Tensor, "batch kv_head key_dim key"] = scratch.take(like, *k.mT.shape).copy_(k.mT)
        bad = ~(torch.isfinite(self.k.sum(2)) & torch.isfinite(norms))
        self.bad: Bool[Tensor, "batch head key"] | None = None
        if bool(bad.any()):
            # Zeroed, or they would reach rows that cannot see them (0 · NaN); `bad` marks rows that can.
            self.bad = bad[:, self.kv_of_head]
            self.k, norms = self.k.masked_fill(bad.unsqueeze(2), 0.0), norms.masked_fill(bad, 0.0)
        self.names = ("value_norm", *marks)
        marked = [mark[block.batch, None].expand(-1, norms.shape[1], -1) for mark in marks.values()]
        self.sums: Float[Tensor, "batch head feature key"] = torch.stack([norms, *marked], dim=2)[
            :, self.kv_of_head
        ]

    def serves(self, block: RowBlock) -> bool:
        return self.batch == block.batch and self.heads == block.heads
