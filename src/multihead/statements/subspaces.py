"""Spans of the rows of matrices, and the angles between them.

>>> import torch
>>> from multihead.statements.subspaces import basis, largest_cosines, pairs
>>> plane, other = torch.eye(5)[:2], torch.eye(5)[1:3]     # they share one direction
>>> pairs(largest_cosines([basis(plane), basis(other)])).tolist()
[1.0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

RANK = 1e-6
"""Singular values below this share of the largest do not count: weights are mostly of fp32."""

Rows = Float[Tensor, "_ width"]
Basis = Float[Tensor, "_ width"]


def rank_of(singular_values: Float[Tensor, " singular"]) -> int:
    """How many singular values are above `RANK` times the largest; 0 for a matrix of zeros."""
    return int((singular_values > RANK * singular_values.max()).sum()) if singular_values.numel() else 0


def basis(w: Rows) -> Basis:
    """Orthonormal rows that span the rows of w."""
    _, s, v = torch.linalg.svd(w.double(), full_matrices=False)
    return v[: rank_of(s)]


def largest_cosines(bases: Sequence[Basis]) -> Float[Tensor, "span span"]:
    """cos of the smallest principal angle of all pairs of spans (Björck and Golub 1973); 0 for an empty one."""
    return _pairwise(bases, lambda product: float(torch.linalg.matrix_norm(product, 2)))


def overlaps(bases: Sequence[Basis]) -> Float[Tensor, "span span"]:
    """Mean cos² of the principal angles between all pairs of spans: 0 orthogonal, 1 one within the other.

    For random spans it is the larger rank / width.
    """
    return _pairwise(bases, lambda product: float(product.square().sum()) / min(product.shape))


def _pairwise(bases: Sequence[Basis], measure: Callable[[Tensor], float]) -> Float[Tensor, "span span"]:
    """The measure of every two subspaces, such as their angle."""
    matrix = torch.zeros(len(bases), len(bases), dtype=torch.float64)
    for i, a in enumerate(bases):
        for j, b in enumerate(bases[: i + 1]):
            if len(a) and len(b):
                matrix[i, j] = matrix[j, i] = measure(a @ b.T)
    return matrix


def random_spans(sizes: Sequence[int], width: int, seed: int = 0) -> list[Basis]:
    """Spans in random directions, to compare with."""
    generator = torch.Generator().manual_seed(seed)
    return [basis(torch.randn(n, width, generator=generator, dtype=torch.float64)) for n in sizes]


def pairs(x: Float[Tensor, "head head"]) -> Float[Tensor, " pair"]:
    """The values of each pair i < j, once."""
    return x[tuple(torch.triu_indices(len(x), len(x), offset=1))]
