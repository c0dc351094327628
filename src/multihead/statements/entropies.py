"""Information of Gaussian signals seen through noise, in nats: every number is ½ log det of a covariance.

Outputs of heads follow from the input without chance: their information about it is infinite until noise is added.
Here a signal z of covariance Σ is seen as z + 𝒩(0, noise · I), and Σ may be singular.

>>> import torch
>>> twins = torch.ones(2, 2)                              # two heads of one number each, always the same
>>> information(twins, 0.5), total_correlation(with_noise(twins, 0.5), [1, 1])
(0.8047..., 0.2938...)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.errors import SizeError

TOKENS_PER_NUMBER = 5
"""Tokens for each number of a vector, below which its covariance is too rough for a log det."""

Covariance = Float[Tensor, "width width"]


def covariance(x: Float[Tensor, "token width"]) -> Covariance:
    """E[(x − E x)(x − E x)ᵀ] over the rows of x."""
    off = x.double() - x.double().mean(0)
    return off.T @ off / max(len(x), 1)


def information(signal: Covariance, noise: float) -> float:
    """I(z; z + n) = ½ log det(1 + Σ / noise)."""
    _check(noise)
    return 0.5 * _log_det(torch.eye(len(signal), dtype=torch.float64) + signal.double() / noise)


def with_noise(signal: Covariance, noise: float) -> Covariance:
    """Σ + noise · I: the covariance of what is seen."""
    _check(noise)
    return signal.double() + noise * torch.eye(len(signal), dtype=torch.float64)


def total_correlation(seen: Covariance, sizes: Sequence[int]) -> float:
    """Σ_i h(y_i) − h(y_1, …, y_n) = ½ Σ log det C_ii − ½ log det C, 0 if parts are independent (Watanabe 1960)."""
    blocks = [seen[a:b, a:b] for a, b in _parts(seen, sizes)]
    apart, whole = sum(_log_det(block) for block in blocks), _log_det(seen)
    return 0.5 * (apart - whole)


def _log_det(matrix: Covariance) -> float:
    return float(torch.linalg.slogdet(matrix.double()).logabsdet)


def part_information(signal: Covariance, sizes: Sequence[int], noise: float) -> list[float]:
    """I(z_i; z_i + n_i) of each part, a part being `sizes[i]` numbers of z in order."""
    return [information(signal[a:b, a:b], noise) for a, b in _parts(signal, sizes)]


def _parts(matrix: Covariance, sizes: Sequence[int]) -> list[tuple[int, int]]:
    if sum(sizes) != len(matrix):
        raise SizeError(
            f"parts of {list(sizes)} numbers are {sum(sizes)}, the covariance is of {len(matrix)}",
            hint="sizes are those of the heads' outputs, in order",
        )
    return list(pairwise(torch.tensor([0, *sizes]).cumsum(0).tolist()))


def projected_information(signal: Covariance, noise: float, w: Float[Tensor, "out width"]) -> float:
    """I(z; W (z + n)): the noise is added before W, so that what W loses is lost, and nothing else.

    = I of the part of z that W does not map to 0: its projection on the rows of W.
    """
    _, s, v = torch.linalg.svd(w.double(), full_matrices=False)
    kept = v[s > 1e-9 * s.max()] if s.numel() and float(s.max()) > 0 else v[:0]
    return information(kept @ signal.double() @ kept.T, noise)


def tokens_needed(width: int) -> int:
    """Tokens that a log det of a covariance of `width` numbers needs."""
    return TOKENS_PER_NUMBER * width


def _check(noise: float) -> None:
    if not noise > 0:
        raise SizeError(
            f"noise={noise} is not above 0: without noise the information is infinite",
            hint="take a share of the signal's variance, such as 1 %",
        )
