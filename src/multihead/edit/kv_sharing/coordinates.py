"""PrincipalCoordinates of a layer's input in which second moments of every head fit into memory.

A head's second moment of inputs of width d has d² values; 32 heads of width 4096 have 4 GB of them in fp64. So for
wide inputs, the full matrix is kept only for the leading principal components of the layer's input, and the
diagonal for the others:

    x̃ = [x_1 … x_n, 1, x_n+1 … x_d],   E_h[x̃ x̃ᵀ] ≈ full for x_1 … x_n, 1; diagonal for x_n+1 … x_d

The principal components of all tokens are uncorrelated, so those of the tokens that one head attends to nearly are,
and the last ones have the least variance. Where n = d, coordinates are the input itself, and nothing is neglected.

>>> import torch
>>> from multihead.edit.kv_sharing.coordinates import PrincipalCoordinates
>>> x = torch.randn(50, 7, dtype=torch.float64)
>>> coordinates = PrincipalCoordinates.principal(x.T @ x, 3)
>>> coordinates.of(x).shape                              # with the 1
torch.Size([50, 8])
>>> w = torch.randn(2, 7, dtype=torch.float64)
>>> torch.allclose(coordinates.of_maps(w) @ coordinates.of(x)[:, [0, 1, 2, 4, 5, 6, 7]].T, w @ x.T)
True
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from multihead._base.float64 import float64

HEAD_MOMENT_BYTES = 256 << 20
"""Bound of one second moment of all heads of a layer: 1024 leading components for 32 heads, 1672 for 12."""


def leading_count(heads: int, width: int) -> int:
    """How many components have full second moments."""
    return min(width, max(1, isqrt(HEAD_MOMENT_BYTES // (8 * heads)) - 1))


@dataclass(frozen=True)
class PrincipalCoordinates:
    """x U of an input x, U orthonormal; the first `leading` have full second moments."""

    width: int
    leading: int
    directions: Float64[Tensor, "width width"] | None = None
    """U; None is the identity"""

    @staticmethod
    def identity(width: int) -> PrincipalCoordinates:
        return PrincipalCoordinates(width, width)

    @staticmethod
    def principal(square: Float64[Tensor, "width width"], leading: int) -> PrincipalCoordinates:
        """Principal coordinates: eigenvectors of Σ x xᵀ, the largest first."""
        if leading >= len(square):
            return PrincipalCoordinates.identity(len(square))
        return PrincipalCoordinates(len(square), leading, torch.linalg.eigh(square).eigenvectors.flip(1))

    def of(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width_and_1"]:
        """x̃ in principal coordinates, with the 1 behind the leading ones."""
        if self.directions is not None:
            x = float64(x) @ self.directions
        return self._with(x, torch.ones_like(x[..., :1]))

    def of_maps(
        self, w: Float[Tensor, "*maps width"], bias: Float[Tensor, "*maps"] | None = None
    ) -> Float64[Tensor, "*maps _"]:
        """The maps in principal coordinates, W U; a bias becomes the column of the 1."""
        w = float64(w) if self.directions is None else float64(w) @ self.directions
        return w if bias is None else self._with(w, float64(bias)[..., None])

    def restored(
        self, maps: Float64[Tensor, "*maps _"]
    ) -> tuple[Float64[Tensor, "*maps width"], Float64[Tensor, "*maps"] | None]:
        """Maps of the input itself from those in principal coordinates, and the bias if they have its column."""
        bias = None
        if maps.shape[-1] > self.width:
            bias = maps[..., self.leading]
            maps = torch.cat([maps[..., : self.leading], maps[..., self.leading + 1 :]], dim=-1)
        return maps if self.directions is None else maps @ self.directions.mT, bias

    def _with(self, x: Tensor, column: Tensor) -> Tensor:
        return torch.cat([x[..., : self.leading], column, x[..., self.leading :]], dim=-1)
