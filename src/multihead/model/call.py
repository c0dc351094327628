"""One attention as the kernel saw it, with its place in the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.layer.problem import Problem
from multihead.layer.share import Share


@dataclass(frozen=True)
class Tokens:
    """What is known of the tokens on one axis of a call: those that ask, or those that are asked."""

    ids: Int[Tensor, "batch token"] | None = None
    """ids of the vocabulary, where the model was given some"""
    valid: Bool[Tensor, "batch token"] | None = None
    """False marks padding; None: all are real"""
    dropped: bool = False
    """the sequence began before these: a window that slides has let its first tokens go"""


@dataclass(frozen=True)
class Call:
    """softmax(scores) v of one attention module: q, k, v after rotation and norms, mask, scale, softcap, sinks.

    `path` is the module that called the kernel. `call_index` counts the calls of that module within one forward of
    the model: 0, 1, 2, … where one module is several layers, else 0. With `cross` the keys come from another
    sequence than the queries. With `share` the problem is that of the heads on this rank, and `share.heads` are
    their numbers in the whole layer.
    """

    path: str
    module: nn.Module
    call_index: int
    problem: Problem
    queries: Tokens
    keys: Tokens
    cross: bool
    share: Share | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.path, self.call_index

    @property
    def heads(self) -> int:
        """How many heads the layer has, on all ranks."""
        return self.problem.frame.heads if self.share is None else self.share.of

    @property
    def real_rows(self) -> Bool[Tensor, "batch query"]:
        """The queries that are not padding."""
        shape = self.problem.q.shape[0], self.problem.q.shape[2]
        valid = self.queries.valid
        if valid is None or valid.shape != shape:  # packed rows have no padding
            return torch.ones(shape, dtype=torch.bool, device=self.problem.q.device)
        return valid

    def here(self, heads: Sequence[int]) -> list[int]:
        """Those of some heads that are on this rank, by their place in the problem."""
        return list(heads) if self.share is None else self.share.here(heads)

    def among(self, heads: Sequence[int]) -> list[int]:
        """Which of some heads are on this rank, by their place among these."""
        return [at for at, head in enumerate(heads) if self.here([head])]


Compute = Callable[[], HeadOutputs]
Listener = Callable[[Call, Compute], HeadOutputs]
"""Gets a call and what would compute it; returns the outputs of the heads, (batch, head, query, value_dim)."""
