"""min over T, B of Σ_h tr N_h (W_h − T_h B) C_h (W_h − T_h B)ᵀ: one basis B of few rows for the maps of many heads.

Values: W_h = W_V,h, and W_O,h takes T_h up (W_O,h ← W_O,h T_h); N_h = W_O,hᵀ W_O,h. Keys without rotation:
W_h = W_K,h, and W_Q,h takes T_h up (W_Q,h ← T_hᵀ W_Q,h); N_h = E[q qᵀ]. C_h is the second moment of the inputs that
head h applies its map to. Any invertible change of basis is free, so orthogonal T (Procrustes) would be needlessly
narrow. With one C for all heads the solution is a singular value decomposition; otherwise alternating least squares
start from it.

>>> import torch
>>> from multihead.edit.kv_sharing.low_rank import Metrics, joint_low_rank
>>> w = torch.randn(2, 3, 7, dtype=torch.float64)
>>> w[1] = torch.randn(3, 3, dtype=torch.float64) @ w[0]          # two heads that read the same space
>>> eye = lambda n: torch.eye(n, dtype=torch.float64).expand(2, n, n)
>>> solution = joint_low_rank(w, eye(3), Metrics.full(eye(7)), 3)
>>> torch.allclose(solution.coefficients @ solution.basis, w)
True
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Maps = Float[Tensor, "head dim width"]
Squares = Float[Tensor, "head dim dim"]
Basis = Float[Tensor, "rank width"]
Coefficients = Float[Tensor, "head dim rank"]


@dataclass(frozen=True)
class Metrics:
    """C_h of every head, or their mean: a full block of the first coordinates, then a diagonal of the others."""

    block: Float[Tensor, "*head leading leading"]
    diagonal: Float[Tensor, "*head rest"]

    @staticmethod
    def full(block: Float[Tensor, "*head width width"]) -> Metrics:
        return Metrics(block, block.new_zeros(*block.shape[:-1])[..., :0])

    @property
    def width(self) -> int:
        return self.block.shape[-1] + self.diagonal.shape[-1]

    @property
    def trace(self) -> Float[Tensor, "*head"]:
        return self.block.diagonal(dim1=-2, dim2=-1).sum(-1) + self.diagonal.sum(-1)

    @property
    def equal(self) -> bool:
        """Whether all heads have the same."""
        first, *others = zip(self.block, self.diagonal, strict=True)
        return all(torch.equal(a, first[0]) and torch.equal(b, first[1]) for a, b in others)

    def times(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows_of_head width"]:
        """x C_h, the low-rank problem's metric; x is of one head, or the same for all."""
        leading = self.block.shape[-1]
        product = x[..., :leading] @ self.block
        if not self.diagonal.shape[-1]:
            return product
        return torch.cat([product, x[..., leading:] * self.diagonal.unsqueeze(-2)], dim=-1)

    def mean(self, weights: Float[Tensor, " head"] | None = None) -> Metrics:
        """The mean of the low-rank problem's metrics, each head counted by its weight; the weights sum to 1."""
        if weights is None:
            return Metrics(self.block.mean(0), self.diagonal.mean(0))
        return Metrics(torch.einsum("h,hwx->wx", weights, self.block), weights @ self.diagonal)

    def inverse(self, floor: float) -> Metrics:
        """Inverse of the low-rank problem's mean; variances below `floor` of the largest count as that much."""
        values, vectors = torch.linalg.eigh(self.block)
        least = floor * values[-1].clamp_min(1e-300)
        return Metrics((vectors / values.clamp_min(least)) @ vectors.mT, 1 / self.diagonal.clamp_min(least))


@dataclass(frozen=True)
class JointLowRank:
    """W_h ≈ coefficients[h] basis, and the loss."""

    basis: Basis
    coefficients: Coefficients
    loss: float


def joint_low_rank(maps: Maps, weights: Squares, metrics: Metrics, rank: int, *, rounds: int = 6) -> JointLowRank:
    """The best low-rank basis of all maps, and the coefficients of each; alternating least squares."""
    pooled = pooled_metric(maps, weights, metrics)
    basis = _principal_basis(maps, weights, pooled, rank)
    coefficients = _best_coefficients(basis, maps, metrics)
    for _ in range(0 if metrics.equal else rounds):
        basis = _improved_basis(basis, coefficients, maps, weights, metrics)
        basis = _orthonormal(basis, pooled)
        coefficients = _best_coefficients(basis, maps, metrics)
    return JointLowRank(basis, coefficients, loss(basis, coefficients, maps, weights, metrics))


def pooled_metric(maps: Maps, weights: Squares, metrics: Metrics) -> Metrics:
    """The mean of the low-rank problem's metrics, heads weighted by the energy of their outputs."""
    share = energy(maps, weights, metrics).clamp_min(0)
    share = share / share.sum().clamp_min(torch.finfo(share.dtype).tiny)
    uniform = torch.full_like(share, 1 / len(share))
    return metrics.mean((share + 1e-3 * uniform) / 1.001)


def loss(basis: Basis, coefficients: Coefficients, maps: Maps, weights: Squares, metrics: Metrics) -> float:
    """Σ_h tr N_h (W_h − T_h B) C_h (W_h − T_h B)ᵀ."""
    return float(energy(maps - coefficients @ basis, weights, metrics).sum().clamp_min(0))


def energy(maps: Maps, weights: Squares, metrics: Metrics) -> Float[Tensor, " head"]:
    """tr N_h W_h C_h W_hᵀ: the mean square of each head's output."""
    return ((weights @ maps) * metrics.times(maps)).sum((1, 2))


def gram(maps: Maps, weights: Squares, metric: Metrics) -> Float[Tensor, "head dim other dim"]:
    """N_h^½ W_h C W_jᵀ N_j^½ of all pairs; the smallest eigenvalues of a part are the loss of its heads."""
    scaled = root(weights) @ maps
    return torch.einsum("hiw,jkw->hijk", metric.times(scaled), scaled)


def root(square: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch dim dim"]:
    """The symmetric root of a positive semidefinite matrix."""
    values, vectors = torch.linalg.eigh((square + square.mT) / 2)
    return (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)) @ vectors.mT


def _principal_basis(maps: Maps, weights: Squares, metric: Metrics, rank: int) -> Basis:
    """The best basis in one metric: eigenvectors of the Gram matrix of all heads, as combinations of their maps."""
    heads, dim, _ = maps.shape
    scaled = (root(weights) @ maps).flatten(0, 1)
    values, vectors = torch.linalg.eigh(metric.times(scaled) @ scaled.mT)
    leading = vectors[:, -rank:].flip(1)
    norm = values[-rank:].flip(0).clamp_min(values[-1].clamp_min(1e-300) * 1e-12).sqrt()
    rows = (leading / norm).mT @ scaled  # B C Bᵀ = 1
    if rank > heads * dim:
        rows = torch.cat([rows, rows.new_zeros(rank - heads * dim, rows.shape[1])])
    return rows


def _orthonormal(basis: Basis, metric: Metrics) -> Basis:
    """The low-rank basis with the same row space and B C Bᵀ = 1."""
    square = metric.times(basis) @ basis.mT
    values, vectors = torch.linalg.eigh((square + square.mT) / 2)
    safe = values.clamp_min(values[-1].clamp_min(1e-300) * 1e-12)
    return (vectors / safe.sqrt()).mT @ basis


def _best_coefficients(basis: Basis, maps: Maps, metrics: Metrics) -> Coefficients:
    """The best T_h of the low-rank problem for each head, whatever its weights are: W_h C_h Bᵀ (B C_h Bᵀ)⁻¹."""
    right = metrics.times(basis).mT  # head, width, rank
    square = basis @ right
    slack = 1e-9 * square.diagonal(dim1=1, dim2=2).mean(1)
    square = square + torch.diag_embed(slack[:, None].clamp_min(1e-300).expand(-1, len(basis)))
    return torch.linalg.solve(square, (maps @ right).mT).mT


def _improved_basis(
    basis: Basis, coefficients: Coefficients, maps: Maps, weights: Squares, metrics: Metrics, steps: int = 6
) -> Basis:
    """A few steps of conjugate gradients on Σ T_hᵀ N_h T_h B C_h = Σ T_hᵀ N_h W_h C_h, from the current basis."""
    left = coefficients.mT @ weights  # head, rank, dim
    square = left @ coefficients
    residual = metrics.times(left @ (maps - coefficients @ basis)).sum(0)
    # Preconditioned by the mean of each side.
    of_rows = torch.linalg.pinv(square.mean(0), hermitian=True, rtol=1e-10)
    of_columns = metrics.mean().inverse(1e-7)
    step = of_columns.times(of_rows @ residual)
    size = start = (residual * step).sum()
    for _ in range(steps):
        if not bool(size > 1e-16 * start) or not bool(start > 0):
            break
        image = metrics.times(square @ step).sum(0)
        length = size / (step * image).sum()
        basis = basis + length * step
        residual = residual - length * image
        direction = of_columns.times(of_rows @ residual)
        size, before = (residual * direction).sum(), size
        step = direction + (size / before) * step
    return basis
