"""Second moments of rows z, and of z with other rows r, around their means: mergeable, in fp64.

    count = Σ w,   mean = Σ w [z; r] / count,   products = Σ w (z − mean_z) ([z; r] − mean)ᵀ

Parts are merged as in Chan et al. 1979: with δ = mean_b − mean_a, the products of both are their sum + δ_z δᵀ a b /
(a + b) for the counts a and b. Around the means nothing cancels where z hardly varies; Σ w z zᵀ is the products +
count · mean meanᵀ.

>>> import torch
>>> from multihead.model.statistics.second_moments import CrossMoments
>>> z, r = torch.randn(7, 5, dtype=torch.float64), torch.randn(7, 2, dtype=torch.float64)
>>> moments, later = CrossMoments(), CrossMoments()
>>> moments.add(z[:3], r[:3])
>>> later.add(z[3:], r[3:])
>>> moments.merge(later)
>>> zz, zr = moments.sums()
>>> torch.allclose(zz, z.T @ z), torch.allclose(zr, z.T @ r)
(True, True)
>>> torch.allclose(moments.covariance(), z.T.cov(correction=0))
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from multihead._base.float64 import float64
from multihead.errors import SizeError

BLOCK = 256
"""Columns of a block: large enough for a fast product, small enough to skip most of the lower triangle."""

Square = Float64[Tensor, "column column"]
Crossed = Float64[Tensor, "column target"]


class CrossMoments:
    """The moments of rows z (`columns`) with themselves and with rows r (`targets`, maybe none)."""

    def __init__(self, *, fast: bool = False) -> None:
        """`fast`: the products of a batch of float32 rows are in float32, and only their sums over batches in fp64.

        That is twice as fast, and the error about 1e-6 of |z| |r|: too much for an inverse without a ridge.
        """
        self.fast = fast
        self.count = 0.0
        """the rows, or the sum of their weights"""
        self.columns = 0
        self._mean: Float64[Tensor, " column_and_target"] | None = None
        # Below the diagonal blocks of its first columns it is not summed: there it is symmetric.
        self._products: Float64[Tensor, "column column_and_target"] | None = None

    def add(
        self,
        z: Float[Tensor, "row column"],
        r: Float[Tensor, "row target"] | None = None,
        *,
        weight: Float[Tensor, " row"] | None = None,
    ) -> None:
        """Add rows to the second moments; a row of weight w counts w times."""
        self.add_joined(z.clone() if r is None else torch.cat([z, r], dim=1), z.shape[1], weight=weight)

    def add_joined(
        self,
        rows: Float[Tensor, "row column_and_target"],
        columns: int,
        *,
        weight: Float[Tensor, " row"] | None = None,
    ) -> None:
        """Add rows [z; r], of which the first `columns` are z, to the second moments. `rows` are overwritten."""
        if not (self.fast and rows.dtype == torch.float32 and weight is None):
            rows = float64(rows)
        weight = None if weight is None else float64(weight)
        count = float(len(rows)) if weight is None else float(weight.sum())
        # A sum of float32 over rows in fp64 takes as long as the products; a few rows at a time lose nothing.
        total = float64(torch.stack([x.sum(0) for x in rows.split(64)])).sum(0) if weight is None else weight @ rows
        mean = total / count if count else total
        deviation = rows.sub_(mean.to(rows))
        left = deviation[:, :columns] if weight is None else deviation[:, :columns] * weight[:, None]
        products = self._join(columns, count, mean)
        for start in range(0, columns, BLOCK):
            block = slice(start, start + BLOCK)
            if left.dtype == products.dtype:
                products[block, start:].addmm_(left[:, block].T, deviation[:, start:])
            else:
                products[block, start:] += left[:, block].T @ deviation[:, start:]

    def merge(self, other: CrossMoments) -> None:
        """Add the second moments of other rows."""
        if other._mean is not None and other._products is not None:
            products = self._join(other.columns, other.count, other._mean)
            products += other._products.to(products.device)

    def _join(self, columns: int, count: float, mean: Tensor) -> Tensor:
        """Join second moments: move the centre to the mean of these and `count` further rows; returns products"""
        if self._mean is None or self._products is None:
            self.columns, self.count, self._mean = columns, count, mean.clone()
            self._products = mean.new_zeros(columns, len(mean))
            return self._products
        if (columns, len(mean)) != self._products.shape:
            raise SizeError(
                f"moments of {tuple(self._products.shape)} and {(columns, len(mean))} (columns, columns + targets) "
                "cannot be added",
                hint="the rows of all parts must have the same width",
            )
        delta, share = mean.to(self._mean.device) - self._mean, count / ((self.count + count) or 1.0)
        self._products.addr_(delta[:columns], delta, alpha=self.count * share)
        self._mean += delta * share
        self.count += count
        return self._products

    def all_reduce(self, reduce: Callable[..., None]) -> None:
        """Turn the second moments of this rank into those of all; `reduce` sums tensors over ranks, in place."""
        mean, products = self._sums
        total = torch.tensor(self.count, dtype=torch.float64, device=mean.device)
        weighted = self.count * mean
        reduce(total, weighted)
        self._mean = weighted / total
        shift = mean - self._mean
        products.addr_(shift[: self.columns], shift, alpha=self.count)
        reduce(products)
        self.count = float(total)

    # ---- reading ------------------------------------------------------------------------------

    @property
    def _sums(self) -> tuple[Tensor, Tensor]:
        if self._mean is None or self._products is None:
            raise SizeError("no rows were added yet", hint="call add first")
        return self._mean, self._products

    @property
    def finite(self) -> bool:
        """Whether all rows were finite."""
        return all(bool(x.isfinite().all()) for x in self._sums)

    @property
    def mean(self) -> Float64[Tensor, " column"]:
        """E[z]"""
        return self._sums[0][: self.columns]

    @property
    def target_mean(self) -> Float64[Tensor, " target"]:
        """E[r]"""
        return self._sums[0][self.columns :]

    def covariance(self) -> Square:
        """E[(z − E z)(z − E z)ᵀ]"""
        return self._square() / self.count

    def cross_covariance(self) -> Crossed:
        """E[(z − E z)(r − E r)ᵀ]"""
        return self._sums[1][:, self.columns :] / self.count

    def sums(self, *, bias: bool = False) -> tuple[Square, Crossed]:
        """The second moments Σ w z zᵀ and Σ w z rᵀ; with `bias`, z has a last column of ones."""
        mean, products = self._sums
        columns = self.columns
        z, r = mean[:columns], mean[columns:]
        zz, zr = (products.new_empty(columns + bias, width) for width in (columns + bias, len(r)))
        zz[:columns, :columns] = self._square().addr_(z, z, alpha=self.count)
        zr[:columns] = products[:, columns:]
        zr[:columns].addr_(z, r, alpha=self.count)
        if bias:
            zz[columns] = zz[:, columns] = self.count * torch.cat([z, z.new_ones(1)])
            zr[columns] = self.count * r
        return zz, zr

    def _square(self) -> Square:
        upper = self._sums[1][:, : self.columns].triu()
        return upper.add_(upper.triu(1).T)

    # ---- state --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The second moments as plain data."""
        return {
            "count": self.count,
            "mean": None if self._mean is None else self._mean.clone(),
            "products": None if self._products is None else self._products.clone(),
        }

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> CrossMoments:
        """The second moments of `state`."""
        moments = CrossMoments()
        if state["products"] is not None:
            moments.count, moments.columns = float(state["count"]), len(state["products"])
            moments._mean, moments._products = state["mean"].clone(), state["products"].clone()
        return moments
