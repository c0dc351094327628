"""One attention call: the kernel's inputs, and where in the model it happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.layer import Problem
from multihead.layer._head_shard import HeadShard
from multihead.layer._mask_structured import ragged_lengths
from multihead.model.sites import Key, Site


@dataclass(frozen=True)
class Tokens:
    """The tokens on one axis of a call, queries or keys, as far as they are known."""

    ids: Int[Tensor, "batch token"] | None = None
    """vocabulary ids, if the model was called with any"""
    valid: Bool[Tensor, "batch token"] | None = None
    """False marks padding; if None, all tokens are real"""
    dropped: bool = False
    """True if a sliding window has discarded earlier tokens of the sequence"""


@dataclass(frozen=True)
class Call:
    """softmax(scores) v of one attention module: q, k, v after rotation and norms, mask, scale, softcap, sinks.

    `module` called the kernel. If `head_shard` is set, the problem holds only the heads on this rank;
    `head_shard.heads` are their indices in the whole layer.
    """

    site: Site
    module: nn.Module
    problem: Problem
    queries: Tokens
    keys: Tokens
    head_shard: HeadShard | None = None

    @property
    def key(self) -> Key:
        return self.site.key

    @property
    def path(self) -> str:
        return self.site.path

    @property
    def cross(self) -> bool:
        """Whether the keys come from a different sequence than the queries."""
        return self.site.cross

    @property
    def heads(self) -> int:
        """The number of heads in the layer, over all ranks."""
        return self.site.heads

    @property
    def real_rows(self) -> Bool[Tensor, "batch query"]:
        """The queries of the call that are not padding."""
        if self.queries.valid is not None:
            return self.queries.valid
        size = self.problem.coordinates
        return torch.ones(size.batch, size.queries, dtype=torch.bool, device=size.device)

    def here(self, heads: Sequence[int]) -> list[int]:
        """The given heads that are on this rank, as indices into the problem."""
        return list(heads) if self.head_shard is None else self.head_shard.indices(heads)

    def among(self, heads: Sequence[int]) -> list[int]:
        """The given heads that are on this rank, as positions in `heads`."""
        return [position for position, head in enumerate(heads) if self.here([head])]


def ragged_rows(problem: Problem) -> Bool[Tensor, "batch query"] | None:
    """The real tokens of a call under mask.ragged, the first lengths[b] of row b; None under other masks.

    Without a cache, the projections of the layer read only these tokens, one row after the other.
    """
    size = problem.coordinates
    lengths = ragged_lengths(problem.mask, size.batch, size.device)
    if lengths is None:
        return None
    positions = torch.arange(size.queries, device=size.device)
    return (positions < lengths.tensor(size.device).unsqueeze(1)).expand(size.batch, -1)


Compute = Callable[[], HeadOutputs]
Listener = Callable[[Call, Compute], HeadOutputs]
"""Takes a call and a function that computes it; returns the head outputs, (batch, head, query, value_dim)."""
