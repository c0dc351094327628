"""Information of Gaussian signals seen through noise, in nats: every value is ½ log det of a covariance.

The outputs of heads are a function of the input: their information about it is infinite until noise is added. Here
a signal z of covariance Σ is seen as z + 𝒩(0, noise · I), and Σ may be singular.

>>> import torch
>>> from multihead.statements.gaussian import information, total_correlation, with_noise
>>> twins = torch.ones(2, 2)                              # two heads of one dimension, always equal
>>> information(twins, 0.5), total_correlation(with_noise(twins, 0.5), [1, 1])
(0.8047..., 0.2938...)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.arguments import check_number
from multihead.errors import SizeError

Covariance = Float[Tensor, "width width"]


def covariance(x: Float[Tensor, "token width"]) -> Covariance:
    """E[(x − E x)(x − E x)ᵀ] over the rows of x."""
    deviations = x.double() - x.double().mean(0)
    return deviations.T @ deviations / max(len(x), 1)


def information(signal: Covariance, noise: float) -> float:
    """I(z; z + n) = ½ log det(1 + Σ / noise)."""
    check_number("noise", noise, above=0)  # without noise the information is infinite
    return 0.5 * _log_det(torch.eye(len(signal), dtype=torch.float64) + signal.double() / noise)


def with_noise(signal: Covariance, noise: float) -> Covariance:
    """Σ + noise · I: the covariance of the signal as it is seen."""
    check_number("noise", noise, above=0)
    return signal.double() + noise * torch.eye(len(signal), dtype=torch.float64)


def total_correlation(seen: Covariance, sizes: Sequence[int]) -> float:
    """Σ_i h(y_i) − h(y_1, …, y_n) = ½ Σ log det C_ii − ½ log det C, 0 if parts are independent (Watanabe 1960)."""
    return 0.5 * (sum(_log_det(block) for block in blocks(seen, sizes)) - _log_det(seen))


def part_information(signal: Covariance, sizes: Sequence[int], noise: float) -> list[float]:
    """I(z_i; z_i + n_i) of each part; part i has the next `sizes[i]` dimensions of z."""
    return [information(block, noise) for block in blocks(signal, sizes)]


def projected_information(signal: Covariance, noise: float, w: Float[Tensor, "out width"]) -> float:
    """I(z; W (z + n)): the noise is added before W, so W can only lose information.

    It is I of the part of z that W does not map to 0: of its projection on the rows of W.
    """
    _, s, v = torch.linalg.svd(w.double(), full_matrices=False)
    rows = v[s > 1e-9 * s.max()] if s.numel() else v
    return information(rows @ signal.double() @ rows.T, noise)


def _log_det(matrix: Covariance) -> float:
    return float(torch.linalg.slogdet(matrix.double()).logabsdet)


def blocks(matrix: Covariance, sizes: Sequence[int]) -> list[Tensor]:
    """The Gaussian covariance of each part."""
    if sum(sizes) != len(matrix):
        raise SizeError(
            f"sizes must add up to the width {len(matrix)} of the covariance, got {list(sizes)}",
            hint="sizes are those of the heads' outputs, in order",
        )
    ends = pairwise(torch.tensor([0, *sizes]).cumsum(0).tolist())
    return [matrix[a:b, a:b] for a, b in ends]
