"""What weights say of the spaces that heads read and write: spans, angles between them, direct sums, diversity.

A head is a matrix whose rows are the directions it reads; its span is the space of these rows.

>>> import torch
>>> plane, other = torch.eye(5)[:2], torch.eye(5)[1:3]     # they share one direction
>>> principal_angles(plane, other).tolist()
[0.0, 90.0]
>>> direct_sum([plane, other])
DirectSum(rank=3, ranks=(2, 2), width=5, condition=inf)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from multihead.errors import SizeError

RANK = 1e-6
"""Directions with a singular value below this share of the largest do not count: weights are mostly of fp32."""

Rows = Float[Tensor, "_ width"]
Basis = Float[Tensor, "_ width"]


def numerical_rank(w: Rows, tolerance: float = RANK) -> int:
    """How many singular values of w are above `tolerance` times the largest; 0 for a matrix of zeros."""
    s = torch.linalg.svdvals(w.double())
    return int((s > tolerance * s.max()).sum()) if s.numel() and float(s.max()) > 0 else 0


def basis(w: Rows, tolerance: float = RANK) -> Basis:
    """Orthonormal rows that span the rows of w."""
    _, s, v = torch.linalg.svd(w.double(), full_matrices=False)
    return v[: int((s > tolerance * s.max()).sum()) if s.numel() and float(s.max()) > 0 else 0]


def principal_angles(a: Rows, b: Rows) -> Float[Tensor, " angle"]:
    """The principal angles between the spans of the rows of a and b, in degrees, smallest first.

    90° throughout: the spans are orthogonal; the first is 0°: they share a direction (Björck and Golub 1973).
    """
    if a.shape[1] != b.shape[1]:
        raise SizeError(
            f"rows of {a.shape[1]} and {b.shape[1]} numbers span parts of different spaces",
            hint="compare heads that read the same stream",
        )
    one, two = basis(a), basis(b)
    if not len(one) or not len(two):
        return one.new_zeros(0)
    from scipy.linalg import subspace_angles  # pyright: ignore[reportMissingTypeStubs]

    found = cast(Any, subspace_angles)(one.T.numpy(), two.T.numpy())
    return torch.from_numpy(np.rad2deg(found)).flip(0)


def largest_cosines(bases: Sequence[Basis]) -> Float[Tensor, "span span"]:
    """cos of the smallest principal angle between all pairs of spans; 0 beside an empty one."""
    return _pairwise(bases, lambda product: float(torch.linalg.matrix_norm(product, 2)))


def overlaps(bases: Sequence[Basis]) -> Float[Tensor, "span span"]:
    """Mean cos² of the principal angles between all pairs of spans: 0 orthogonal, 1 one within the other."""
    return _pairwise(bases, lambda product: float(product.square().sum()) / min(product.shape))


def _pairwise(bases: Sequence[Basis], measure: Callable[[Tensor], float]) -> Float[Tensor, "span span"]:
    found = torch.zeros(len(bases), len(bases), dtype=torch.float64)
    for i, a in enumerate(bases):
        for j, b in enumerate(bases[: i + 1]):
            if len(a) and len(b):
                found[i, j] = found[j, i] = measure(a @ b.T)
    return found


def random_overlap(rank: int, other: int, width: int) -> float:
    """max(rank, other) / width: the mean of `overlaps` for random spans of these sizes."""
    return max(rank, other) / width


def random_spans(sizes: Sequence[int], width: int, seed: int = 0) -> list[Basis]:
    """Spans in random directions, to compare with."""
    drawn = torch.Generator().manual_seed(seed)
    spans = [torch.randn(n, width, generator=drawn, dtype=torch.float64) for n in sizes]
    return [basis(span) for span in spans]


@dataclass(frozen=True)
class DirectSum:
    """Spans side by side: their sum is direct where ranks add up, and whole where that is the width."""

    rank: int
    ranks: tuple[int, ...]
    width: int
    condition: float
    """largest over smallest singular value of orthonormal bases of all spans together: 1 where the spans are
    orthogonal, however long their rows are; inf where the sum is not direct"""

    @property
    def direct(self) -> bool:
        return self.rank == sum(self.ranks)

    @property
    def whole(self) -> bool:
        return self.rank == self.width


def direct_sum(spans: Sequence[Rows], tolerance: float = RANK) -> DirectSum:
    """Whether the spans of several matrices make up the whole space, each direction once."""
    # Bases and not rows: a head of small weights has a span like any other.
    bases = [basis(span, tolerance) for span in spans]
    stacked = torch.cat(bases)
    rank = numerical_rank(stacked, tolerance)
    s = torch.linalg.svdvals(stacked)
    condition = float(s.max() / s.min()) if rank and rank == len(stacked) else math.inf
    return DirectSum(rank, tuple(len(b) for b in bases), stacked.shape[1], condition)


# ---- one number for two matrices ----------------------------------------------------------------


def flat_cosines(w: Float[Tensor, "head row width"]) -> Float[Tensor, "head head"]:
    """⟨W_i, W_j⟩ / (‖W_i‖ ‖W_j‖), matrices taken as long vectors; 0 beside a matrix of zeros."""
    flat = w.double().flatten(1)
    unit = flat / flat.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    return unit @ unit.T


def turned_cosines(w: Float[Tensor, "head row width"]) -> Float[Tensor, "head head"]:
    """max over orthogonal R of ⟨W_i, R W_j⟩ / (‖W_i‖ ‖W_j‖) = ‖W_i W_jᵀ‖_* / (‖W_i‖ ‖W_j‖).

    A head's coordinates have no meaning of their own: W_Q and W_K turned by the same R give the same scores. This
    is the cosine that does not depend on them (the orthogonal Procrustes problem, Schönemann 1966).
    """
    products = torch.einsum("ird,jsd->ijrs", w.double(), w.double())
    sizes = w.double().flatten(1).norm(dim=1).clamp_min(torch.finfo(torch.float64).tiny)
    return torch.linalg.svdvals(products).sum(-1) / (sizes[:, None] * sizes[None])


def diversity(cosines: Float[Tensor, "head head"]) -> float:
    """1/(h(h−1)) Σ_{i≠j} (1 − |cos θ_ij|); NaN for fewer than two heads."""
    return float(1 - pairs(cosines).abs().mean()) if len(cosines) > 1 else math.nan


def random_diversity(numbers: int) -> float:
    """1 − Γ(n/2) / (√π Γ((n+1)/2)): the mean of `diversity` for random matrices of so many numbers."""
    return 1 - math.exp(math.lgamma(numbers / 2) - math.lgamma((numbers + 1) / 2)) / math.sqrt(math.pi)


def pairs(x: Float[Tensor, "head head"]) -> Float[Tensor, " pair"]:
    """The numbers of each pair i < j, once."""
    return x[tuple(torch.triu_indices(len(x), len(x), offset=1))]
