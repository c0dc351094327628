"""One attention problem: q, k, v, the mask, and how scores become weights."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from multihead._base.shapes import Keys, Positions, Queries, ScoreBias, Values
from multihead.errors import SizeError
from multihead.layer._coordinates import Coordinates, Grid, Span
from multihead.layer._mask_algebra import EVERYTHING, Leaf, Mask
from multihead.layer._packing import Packing
from multihead.layer.position import PositionBias


def autocast_enabled(device: torch.device) -> bool:
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def autocast_disabled(device: torch.device) -> AbstractContextManager[object]:
    """Disables autocast, which would round the scores of some routes; kernels choose their precision."""
    return torch.autocast(device.type, enabled=False) if autocast_enabled(device) else nullcontext()


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
    see padded tensors and `packing` None (see `_packing.py`).
    """

    q: Queries
    k: Keys
    v: Values
    groups: Groups
    mask: Mask
    coordinates: Coordinates
    scores: ScoreConfig
    cross: bool = False
    packing: Packing | None = None

    @property
    def needs_grad(self) -> bool:
        """Whether the attention problem needs a gradient."""
        if not torch.is_grad_enabled():
            return False
        sinks = self.scores.sinks
        tensors = self.q.requires_grad or self.k.requires_grad or self.v.requires_grad
        return tensors or (sinks is not None and sinks.requires_grad)


class PositionScores(Leaf):
    """bias(query position, key position): ALiBi and relative positions, as part of the mask."""

    has_bias = True
    per_head = True
    diagonal_visible = True

    def __init__(
        self,
        position: PositionBias,
        positions: Positions | None,
        dtype: torch.dtype,
        parameters: dict[str, Tensor] | None = None,
    ) -> None:
        self.position = position
        self._parameters = parameters
        """replace the parameters of `position` if not None"""
        self.dtype = torch.promote_types(dtype, torch.float32)
        self.positions = positions
        """explicit positions of queries and keys; if None, those of the coordinates"""
        self.name = f"{type(position).__name__}"

    @property
    def key(self) -> Hashable:
        return self.name, self._constant, self.dtype, self.positions is None, bool(self.bias_params())

    @property
    def pure(self) -> bool:
        return self.positions is None and self._constant is not None

    @property
    def _constant(self) -> Hashable:
        """A hashable that determines a bias without parameters, such as the fixed slopes of `ALiBi`; or None."""
        return getattr(self.position, "constant", None)

    def bias_params(self) -> list[Tensor]:
        """Learned parameters of the position bias in the problem."""
        parameters = self.position.parameters() if isinstance(self.position, nn.Module) else ()
        if self._parameters is not None:
            parameters = self._parameters.values()
        return [p for p in parameters if p.requires_grad]

    def tensors(self) -> list[Tensor]:
        return [] if self.positions is None else [self.positions]

    def score_bias(self, grid: Grid) -> ScoreBias | None:
        """The position bias on the problem's scores, for the cells of a grid."""
        query, key = grid.query[:, 0, :, 0], grid.key[:, 0, 0, :]
        if self.positions is not None:
            positions = self.positions if self.positions.shape[0] == 1 else self.positions[grid.batches]
            query, key = positions[:, grid.rows], grid.take_columns(positions)
        return self._bias(query, key)[:, grid.head[0, :, 0, 0]]

    def _bias(
        self, query: Int[Tensor, "#batch query"], key: Int[Tensor, "#batch key"]
    ) -> Float[Tensor, "#batch head query key"]:
        """The position bias of the problem for some queries and keys."""
        if not self._parameters or not isinstance(self.position, nn.Module):
            return self.position.bias(query, key, self.dtype)
        parameters = {f"position.{name}": p for name, p in self._parameters.items()}
        return functional_call(_Biased(self.position), parameters, (query, key, self.dtype))

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        return False

    def without_bias(self) -> Mask:
        return EVERYTHING


class _Biased(nn.Module):
    """A module whose forward is `bias`, for functional_call."""

    def __init__(self, position: nn.Module) -> None:
        super().__init__()
        self.position = position

    def forward(self, query: Tensor, key: Tensor, dtype: torch.dtype) -> Tensor:
        return cast(PositionBias, self.position).bias(query, key, dtype)
