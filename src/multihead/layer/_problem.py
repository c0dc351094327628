"""One attention problem: q, k, v, the mask, and how scores become weights."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.shapes import Keys, Queries, Values
from multihead.errors import SizeError
from multihead.layer._coordinates import Coordinates
from multihead.layer._mask_algebra import Mask
from multihead.layer._packed_batch import PackedBatch


def _autocast_enabled(device: torch.device) -> bool:
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def autocast_disabled(device: torch.device) -> AbstractContextManager[object]:
    """Disables autocast, which would round the scores of some routes; kernels choose their precision."""
    return torch.autocast(device.type, enabled=False) if _autocast_enabled(device) else nullcontext()


@dataclass(frozen=True)
class Groups:
    """The kv head that each query head reads: kv_of_head[h]. In even groups that is h // size, as in torch.

    >>> from multihead.layer import Groups
    >>> Groups((0, 0, 1, 1), kv_heads=2).size
    2
    """

    kv_of_head: tuple[int, ...]
    kv_heads: int
    size: int | None = field(init=False)
    """Query heads per kv head if the groups are even and in order, else None."""

    def __post_init__(self) -> None:
        heads = len(self.kv_of_head)
        size = heads // self.kv_heads if self.kv_heads and heads % self.kv_heads == 0 else None
        if size is not None and any(kv != h // size for h, kv in enumerate(self.kv_of_head)):
            size = None
        object.__setattr__(self, "size", size)

    @staticmethod
    def even(heads: int, kv_heads: int) -> Groups:
        """Groups of equal size for an attention problem; raises if kv heads do not divide heads."""
        if kv_heads < 1 or heads % kv_heads:
            divisors = [n for n in range(1, heads + 1) if heads % n == 0]
            raise SizeError(
                f"num_kv_heads={kv_heads} does not divide num_heads={heads}",
                hint=f"choose one of {', '.join(map(str, divisors))}, or pass kv_of_head for uneven groups",
            )
        return Groups(tuple(h // (heads // kv_heads) for h in range(heads)), kv_heads)

    def expand(self, x: Float[Tensor, "batch kv_head key dim"]) -> Float[Tensor, "batch head key dim"]:
        """The problem's kv heads copied per query head; x itself if groups have one query head."""
        if self.size == 1:
            return x
        if self.size is not None:
            return x.repeat_interleave(self.size, dim=1)
        return x.index_select(1, torch.tensor(self.kv_of_head, dtype=torch.long, device=x.device))


@dataclass(slots=True)
class ScoreConfig:
    """weights = dropout(softmax([softcap(q·k·scale) + bias, sink]) without the sink's column)."""

    scale: float
    softcap: float | None = None
    sinks: Float[Tensor, " head"] | None = None
    dropout: float = 0.0
    rng_offset: int = 0
    """added to dropout's seed, so ranks with equal seeds draw different masks for their heads"""


@dataclass(slots=True)
class Problem:
    """The inputs of a route.

    With `cross`, keys come from a different sequence than queries; routes ignore it, observers need it. Observers
    see padded tensors and `packed` None (see `_packed_batch.py`).
    """

    q: Queries
    k: Keys
    v: Values
    groups: Groups
    mask: Mask
    coordinates: Coordinates
    scores: ScoreConfig
    cross: bool = False
    packed: PackedBatch | None = None

    @property
    def needs_grad(self) -> bool:
        """Whether the attention problem needs a gradient."""
        if not torch.is_grad_enabled():
            return False
        sinks = self.scores.sinks
        tensors = self.q.requires_grad or self.k.requires_grad or self.v.requires_grad
        return tensors or (sinks is not None and sinks.requires_grad)
