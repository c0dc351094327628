"""min over T, B of Σ_h tr N_h (W_h − T_h B) C_h (W_h − T_h B)ᵀ: one basis B of few rows for the maps of many heads.

Values: W_h = W_V,h, and W_O,h takes T_h up (W_O,h ← W_O,h T_h); N_h = W_O,hᵀ W_O,h. Keys without rotation:
W_h = W_K,h, and W_Q,h takes T_h up (W_Q,h ← T_hᵀ W_Q,h); N_h = E[q qᵀ]. C_h is the second moment of what head h
applies its map to. Any invertible change of basis is free, so that rotations alone (Procrustes) would be needlessly
narrow. With one C for all heads the answer is a singular value decomposition; else alternating least squares start
from it.

>>> import torch
>>> from multihead.edit.sharing.factor import shared
>>> w = torch.randn(2, 3, 7, dtype=torch.float64)
>>> w[1] = torch.randn(3, 3, dtype=torch.float64) @ w[0]          # two heads that read the same space
>>> eye = lambda n: torch.eye(n, dtype=torch.float64).expand(2, n, n)
>>> found = shared(w, eye(3), eye(7), 3)
>>> torch.allclose(found.mixes @ found.basis, w)
True
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Maps = Float[Tensor, "head dim width"]
Squares = Float[Tensor, "head dim dim"]
Metrics = Float[Tensor, "head width width"]


@dataclass(frozen=True)
class Shared:
    """W_h ≈ mixes[h] basis, and what is lost by it."""

    basis: Float[Tensor, "rank width"]
    mixes: Float[Tensor, "head dim rank"]
    loss: float


def shared(maps: Maps, weights: Squares, metrics: Metrics, rank: int, *, rounds: int = 6) -> Shared:
    """The basis that all maps share, with the best mix for each; alternating least squares from the joint SVD."""
    pooled = pool(weights, maps, metrics)
    basis = _joint(maps, weights, pooled, rank)
    alike = bool((metrics == metrics[:1]).all())
    mixes = best_mixes(basis, maps, metrics)
    for _ in range(0 if alike else rounds):
        basis = _basis(basis, mixes, maps, weights, metrics)
        basis = _normed(basis, pooled)
        mixes = best_mixes(basis, maps, metrics)
    return Shared(basis, mixes, loss(basis, mixes, maps, weights, metrics))


def pool(weights: Squares, maps: Maps, metrics: Metrics) -> Float[Tensor, "width width"]:
    """The mean of the metrics, heads weighed by what they say in their own."""
    said = said_by(maps, weights, metrics).clamp_min(0)
    said = said / said.sum().clamp_min(torch.finfo(said.dtype).tiny)
    flat = torch.full_like(said, 1 / len(said))
    return torch.einsum("h,hwx->wx", (said + 1e-3 * flat) / 1.001, metrics)


def loss(
    basis: Float[Tensor, "rank width"],
    mixes: Float[Tensor, "head dim rank"],
    maps: Maps,
    weights: Squares,
    metrics: Metrics,
) -> float:
    """Σ_h tr N_h (W_h − T_h B) C_h (W_h − T_h B)ᵀ."""
    off = maps - mixes @ basis
    return float(said_by(off, weights, metrics).sum().clamp_min(0))


def said_by(maps: Maps, weights: Squares, metrics: Metrics) -> Float[Tensor, " head"]:
    """tr N_h W_h C_h W_hᵀ: what each head says."""
    return ((weights @ maps) * (maps @ metrics)).sum((1, 2))


def gram(maps: Maps, weights: Squares, metric: Float[Tensor, "width width"]) -> Float[Tensor, "head dim other dim"]:
    """N_h^½ W_h C W_jᵀ N_j^½ of every pair: the eigenvalues of a part tell the least loss of its heads."""
    scaled = root(weights) @ maps
    return torch.einsum("hiw,jkw->hijk", scaled @ metric, scaled)


def root(square: Float[Tensor, "*batch dim dim"]) -> Float[Tensor, "*batch dim dim"]:
    """The symmetric root of a positive semidefinite matrix."""
    values, vectors = torch.linalg.eigh((square + square.mT) / 2)
    return (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)) @ vectors.mT


def _joint(maps: Maps, weights: Squares, metric: Float[Tensor, "width width"], rank: int) -> Tensor:
    """The best basis in one metric: eigenvectors of the Gram matrix of all heads, as mixes of their maps."""
    heads, dim, _ = maps.shape
    scaled = (root(weights) @ maps).flatten(0, 1)
    values, vectors = torch.linalg.eigh(scaled @ metric @ scaled.mT)
    best = vectors[:, -rank:].flip(1)
    norm = values[-rank:].flip(0).clamp_min(values[-1].clamp_min(1e-300) * 1e-12).sqrt()
    rows = (best / norm).mT @ scaled  # B C Bᵀ = 1
    if rank > heads * dim:
        rows = torch.cat([rows, rows.new_zeros(rank - heads * dim, rows.shape[1])])
    return rows


def _normed(basis: Tensor, metric: Tensor) -> Tensor:
    """The same row space with B C Bᵀ = 1."""
    square = basis @ metric @ basis.mT
    values, vectors = torch.linalg.eigh((square + square.mT) / 2)
    safe = values.clamp_min(values[-1].clamp_min(1e-300) * 1e-12)
    return (vectors / safe.sqrt()).mT @ basis


def best_mixes(basis: Tensor, maps: Maps, metrics: Metrics) -> Tensor:
    """T_h = W_h C_h Bᵀ (B C_h Bᵀ)⁻¹: the best mix for each head, whatever its weights are."""
    right = metrics @ basis.mT  # head, width, rank
    square = basis @ right
    slack = 1e-9 * square.diagonal(dim1=1, dim2=2).mean(1)
    square = square + torch.diag_embed(slack[:, None].clamp_min(1e-300).expand(-1, len(basis)))
    return torch.linalg.solve(square, (maps @ right).mT).mT


def _basis(basis: Tensor, mixes: Tensor, maps: Maps, weights: Squares, metrics: Metrics, steps: int = 6) -> Tensor:
    """A few steps of conjugate gradients on Σ T_hᵀ N_h T_h B C_h = Σ T_hᵀ N_h W_h C_h, from the basis that was."""
    left = mixes.mT @ weights  # head, rank, dim
    square = left @ mixes
    off = (left @ (maps - mixes @ basis) @ metrics).sum(0)
    # Preconditioned by the mean of each side.
    near = torch.linalg.pinv(square.mean(0), hermitian=True, rtol=1e-10)
    values, vectors = torch.linalg.eigh(metrics.mean(0))
    far = (vectors / values.clamp_min(1e-7 * values[-1].clamp_min(1e-300))) @ vectors.mT
    found, step = basis.clone(), near @ off @ far
    size = start = (off * step).sum()
    for _ in range(steps):
        if not bool(size > 1e-16 * start) or not bool(start > 0):
            break
        pushed = ((square @ step) @ metrics).sum(0)
        far_enough = size / (step * pushed).sum()
        found = found + far_enough * step
        off = off - far_enough * pushed
        turned = near @ off @ far
        size, old = (off * turned).sum(), size
        step = turned + (size / old) * step
    return found
