"""Σ z zᵀ over batches, half of the work: of a symmetric matrix the blocks on and above the diagonal are enough.

>>> import torch
>>> from multihead.edit.fitting.square import Square
>>> z = torch.randn(7, 5, dtype=torch.float64)
>>> sums = Square()
>>> sums.add(z[:3])
>>> sums.add(z[3:])
>>> torch.allclose(sums.whole(), z.T @ z)
True
"""

from __future__ import annotations

from jaxtyping import Float64
from torch import Tensor

BLOCK = 256
"""Columns of a block: large enough for a fast product, small enough to leave most of the lower half out."""


class Square:
    """Σ z zᵀ in fp64; below the diagonal blocks it is only there in `whole`."""

    def __init__(self) -> None:
        self._total: Tensor | None = None

    def add(self, z: Float64[Tensor, "token column"]) -> None:
        """The rows of one batch."""
        if self._total is None:
            self._total = z.new_zeros(z.shape[1], z.shape[1])
        for start in range(0, z.shape[1], BLOCK):
            rows = slice(start, start + BLOCK)
            self._total[rows, start:].addmm_(z[:, rows].T, z[:, start:])

    def whole(self) -> Float64[Tensor, "column column"] | None:
        """The sum; None if there was no batch."""
        return None if self._total is None else self._total.triu() + self._total.triu(1).T
