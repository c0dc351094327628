"""Spans of the rows of matrices, and the angles between them.

>>> import torch
>>> from multihead.statements.subspaces import principal_angles
>>> plane, other = torch.eye(5)[:2], torch.eye(5)[1:3]     # they share one direction
>>> principal_angles(plane, other).tolist()
[0.0, 90.0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from multihead.errors import SizeError

RANK = 1e-6
"""Singular values below this share of the largest do not count: weights are mostly of fp32."""

Rows = Float[Tensor, "_ width"]
Basis = Float[Tensor, "_ width"]


def numerical_rank(w: Rows, tolerance: float = RANK) -> int:
    """How many singular values of w are above `tolerance` times the largest; 0 for a matrix of zeros."""
    return _count(torch.linalg.svdvals(w.double()), tolerance)


def basis(w: Rows, tolerance: float = RANK) -> Basis:
    """Orthonormal rows that span the rows of w."""
    _, s, v = torch.linalg.svd(w.double(), full_matrices=False)
    return v[: _count(s, tolerance)]


def _count(s: Float[Tensor, " singular"], tolerance: float) -> int:
    return int((s > tolerance * s.max()).sum()) if s.numel() and float(s.max()) > 0 else 0


def principal_angles(a: Rows, b: Rows) -> Float[Tensor, " angle"]:
    """The principal angles between the spans of the rows of a and b, in degrees, smallest first.

    All 90°: the spans are orthogonal. The first is 0°: they share a direction (Björck and Golub 1973).
    """
    if a.shape[1] != b.shape[1]:
        raise SizeError(
            f"rows of two spans must have one width, got {a.shape[1]} and {b.shape[1]}",
            hint="compare heads that read the same stream",
        )
    one, two = basis(a), basis(b)
    if not len(one) or not len(two):
        return one.new_zeros(0)
    from scipy.linalg import subspace_angles  # pyright: ignore[reportMissingTypeStubs]  # slow to import

    return torch.from_numpy(np.rad2deg(cast(Any, subspace_angles)(one.T.numpy(), two.T.numpy()))).flip(0)


def largest_cosines(bases: Sequence[Basis]) -> Float[Tensor, "span span"]:
    """cos of the smallest principal angle between all pairs of spans; 0 for an empty one."""
    return _pairwise(bases, lambda product: float(torch.linalg.matrix_norm(product, 2)))


def overlaps(bases: Sequence[Basis]) -> Float[Tensor, "span span"]:
    """Mean cos² of the principal angles between all pairs of spans: 0 orthogonal, 1 one within the other."""
    return _pairwise(bases, lambda product: float(product.square().sum()) / min(product.shape))


def _pairwise(bases: Sequence[Basis], measure: Callable[[Tensor], float]) -> Float[Tensor, "span span"]:
    """The measure of every two subspaces, such as their angle."""
    matrix = torch.zeros(len(bases), len(bases), dtype=torch.float64)
    for i, a in enumerate(bases):
        for j, b in enumerate(bases[: i + 1]):
            if len(a) and len(b):
                matrix[i, j] = matrix[j, i] = measure(a @ b.T)
    return matrix


def random_overlap(rank: int, other: int, width: int) -> float:
    """max(rank, other) / width: the mean of `overlaps` for random spans of these sizes."""
    return max(rank, other) / width


def random_spans(sizes: Sequence[int], width: int, seed: int = 0) -> list[Basis]:
    """Spans in random directions, to compare with."""
    generator = torch.Generator().manual_seed(seed)
    return [basis(torch.randn(n, width, generator=generator, dtype=torch.float64)) for n in sizes]


def pairs(x: Float[Tensor, "head head"]) -> Float[Tensor, " pair"]:
    """The values of each pair i < j, once."""
    return x[tuple(torch.triu_indices(len(x), len(x), offset=1))]
