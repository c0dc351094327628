"""ΔW = (ZᵀZ + λ·mean(diag)·I)⁻¹ ZᵀR: ridge regression towards the weights as they are, from sums over batches.

z is what a linear map reads, R what is missing of its output. The ridge pulls towards ΔW = 0 and leaves the bias
alone. λ is the one of `RIDGES` that is best on held-out rows.

>>> import torch
>>> from multihead.edit.least_squares import NormalEquations
>>> z, change = torch.randn(97, 5), torch.randn(5, 3)
>>> sums = NormalEquations(bias=False)
>>> sums.add(z, z @ change, size=1.0)
>>> ((_, solution),) = sums.solutions([1e-9])
>>> torch.allclose(solution.float(), change, atol=1e-4), sums.error(solution) < 1e-6 * sums.missing
(True, True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.errors import MultiheadError
from multihead.model.statistics.second_moments import Crossed, CrossMoments, Square

ROWS = 4096
"""Rows that are collected before their products are added: one pass over the sums for several batches."""
RIDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""λ, relative to the mean of diag(ZᵀZ)."""


def sum_of_squares(x: Tensor) -> float:
    """Σ x², summed in fp64 without a copy of x."""
    return float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2


class NormalEquations:
    """ZᵀZ and ZᵀR over rows, Σ‖R‖² (`missing`) and the size of what R is missing from (`size`)."""

    def __init__(self, *, bias: bool) -> None:
        self.bias = bias
        """whether the map has a bias: then z has a last column of ones"""
        self.moments = CrossMoments(fast=True)  # the smallest ridge is far above the error of its products
        self.missing = self.size = 0.0
        self._columns = 0
        self._waiting: list[Float[Tensor, "row column_and_target"]] = []

    @property
    def rows(self) -> int:
        self._add_waiting()
        return int(self.moments.count)

    @property
    def columns(self) -> int:
        """Columns of z, without that of the bias."""
        self._add_waiting()
        return self.moments.columns

    def add(self, z: Float[Tensor, "row column"], missing: Float[Tensor, "row target"], size: float) -> None:
        """Add the rows of one batch to the normal equations of the least squares."""
        self.missing += sum_of_squares(missing)
        self.size += size
        wide = torch.promote_types(z.dtype, torch.float32)
        self._columns = z.shape[1]
        self._waiting.append(torch.cat([z.to(wide), missing.to(wide)], dim=1))
        if sum(map(len, self._waiting)) >= ROWS:
            self._add_waiting()

    def _add_waiting(self) -> None:
        """Add the rows that wait to the normal equations."""
        if self._waiting:
            rows = torch.cat(self._waiting)
            self._waiting = []
            self._forget()
            self.moments.add_joined(rows, self._columns)

    def all_reduce(self, reduce: Callable[..., None]) -> None:
        """Turn the least-squares sums of this rank into those of all."""
        self._add_waiting()
        self._forget()
        sums = torch.tensor([self.missing, self.size], dtype=torch.float64)
        self.moments.all_reduce(reduce)
        reduce(sums)
        self.missing, self.size = map(float, sums)

    def check(self, where: str) -> None:
        """Refuse least squares without rows, or with sums that are not finite: Cholesky would only fail."""
        if not self.rows:
            raise MultiheadError(f"no batch reached {where}", hint="the calibration text is empty")
        if not self.moments.finite:
            raise MultiheadError(
                f"{where} reads or writes values that are not finite on the calibration text",
                hint="load the model in float32; a model that returns NaN cannot be fitted",
            )

    def merge(self, other: NormalEquations) -> None:
        """Add the rows of other normal equations."""
        self._add_waiting()
        other._add_waiting()
        self._forget()
        self.moments.merge(other.moments)
        self.missing, self.size = self.missing + other.missing, self.size + other.size

    def _forget(self) -> None:
        """Drop the sums of earlier rows."""
        self.__dict__.pop("_sums", None)

    @property
    def zz(self) -> Square:
        """Σ z zᵀ"""
        return self._sums[0]

    @property
    def zr(self) -> Crossed:
        """Σ z Rᵀ"""
        return self._sums[1]

    @cached_property
    def _sums(self) -> tuple[Square, Crossed]:
        self._add_waiting()
        return self.moments.sums(bias=self.bias)

    def error(self, change: Crossed) -> float:
        """The held-out error of the least squares with ridge number `index`."""
        return self.missing + float((change * (self.zz @ change - 2 * self.zr)).sum())

    def solutions(self, ridges: Sequence[float] = RIDGES) -> Iterator[tuple[float, Crossed]]:
        """(λ, change of [W; b]) of the least squares for each ridge; without columns, only the bias."""
        if not len(self.zz):
            return
        mean = float(self.zz.diagonal()[: self.columns].mean()) if self.columns else 0.0
        for ridge in ridges if self.columns else ridges[:1]:
            zz = self.zz.clone()
            zz.diagonal()[: self.columns] += ridge * mean
            factor, failed = torch.linalg.cholesky_ex(zz)
            if not int(failed):
                yield ridge, torch.cholesky_solve(self.zr, factor)


def best_ridge(fit: NormalEquations, held_out: NormalEquations) -> tuple[float, Crossed | None, float]:
    """(λ, change, held-out error) of the ridge that is best on held-out rows; λ = 0 if none improves them.

    The error falls and then rises with λ: from the middle of `RIDGES` it is followed downhill.
    """
    tried: dict[int, tuple[float, Crossed | None, float]] = {}

    def error(index: int) -> float:
        """The held-out error of ridge number `index`."""
        if not 0 <= index < len(RIDGES):
            return float("inf")
        if index not in tried:
            tried[index] = RIDGES[index], None, float("inf")
            for ridge, change in fit.solutions([RIDGES[index]]):
                tried[index] = ridge, change, held_out.error(change)
        return tried[index][2]

    best = len(RIDGES) // 2 if fit.columns else 0
    for step in (-1, 1) if fit.columns else ():
        while error(best + step) < error(best):
            best += step
    return tried[best] if error(best) < held_out.missing * (1 - 1e-9) else (0.0, None, held_out.missing)
