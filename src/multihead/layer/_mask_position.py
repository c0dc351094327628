"""Position biases as a part of the mask: ALiBi and relative positions."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from multihead._base.shapes import Positions, ScoreBias
from multihead.layer._coordinates import Grid, Span
from multihead.layer._mask_algebra import EVERYTHING, Leaf, Mask
from multihead.layer.position import PositionBias

if TYPE_CHECKING:
    from multihead.layer._head_shard import HeadShard


class PositionScores(Leaf):
    """bias(query position, key position): ALiBi and relative positions, as part of the mask."""

    has_bias = True
    per_head = True
    diagonal_visible = True

    def __init__(
        self,
        position: PositionBias,
        positions: Tensor | None,
        dtype: torch.dtype,
        shard: HeadShard | None = None,
    ) -> None:
        self.position = position
        self._parameters: dict[str, Tensor] | None = None
        """replace the parameters of `position` if not None"""
        if shard is not None and isinstance(position, nn.Module):
            self._parameters = shard.parameters(position)
        self.dtype = torch.promote_types(dtype, torch.float32)
        self.positions: Positions | None = None if positions is None else torch.atleast_2d(positions)
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
        """Learned parameters of the position bias."""
        parameters = self.position.parameters() if isinstance(self.position, nn.Module) else ()
        if self._parameters is not None:
            parameters = self._parameters.values()
        return [p for p in parameters if p.requires_grad]

    def tensors(self) -> list[Tensor]:
        return [] if self.positions is None else [self.positions]

    def score_bias(self, grid: Grid) -> ScoreBias | None:
        """The position bias that the mask adds to scores, for the cells of a grid."""
        query, key = grid.query[:, 0, :, 0], grid.key[:, 0, 0, :]
        if self.positions is not None:
            positions = self.positions if self.positions.shape[0] == 1 else self.positions[grid.batches]
            query, key = positions[:, grid.rows], grid.take_columns(positions)
        return self._bias(query, key)[:, grid.head[0, :, 0, 0]]

    def _bias(
        self, query: Int[Tensor, "#batch query"], key: Int[Tensor, "#batch key"]
    ) -> Float[Tensor, "#batch head query key"]:
        """The position bias that the mask adds for these positions of queries and keys."""
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
