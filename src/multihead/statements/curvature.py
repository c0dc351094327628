"""The smallest and largest curvature of a loss, without its Hessian matrix.

>>> import torch
>>> from multihead.statements.curvature import curvature
>>> loss = lambda w: (5 * w[0].square().sum() + w[1].square().sum() - w[2].square().sum() + w[3].square().sum()) / 2
>>> at, first = torch.zeros(4, 10, dtype=torch.float64), torch.randn(4, 10, dtype=torch.float64)
>>> lowest, largest = curvature(loss, tuple(at), tuple(first))
>>> round(lowest), round(largest)
(-1, 5)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from multihead.statements.toy_layer import Loss, Weights

Vector = NDArray[np.float64]
Times = Callable[[Vector], Vector]


def curvature(loss: Loss, weights: Weights, first: Weights, *, lowest: bool = True) -> tuple[float, float]:
    """Smallest and largest eigenvalue of ∂²L/∂W², by Lanczos on Hessian–vector products (Pearlmutter 1994).

    Lanczos begins at `first`, any random weights.
    The smallest is the top of λ_max − H: its tolerance is relative to the largest, and zeros cannot stall it.
    """
    flat = torch.cat([w.detach().flatten() for w in weights]).requires_grad_()
    sizes = [w.numel() for w in weights]
    parts = [p.view(w.shape) for p, w in zip(flat.split(sizes), weights, strict=True)]
    slope = torch.autograd.grad(loss(cast(Weights, tuple(parts))), flat, create_graph=True)[0]

    def times(v: Vector) -> Vector:
        vector = torch.from_numpy(np.ascontiguousarray(v, dtype=np.float64).reshape(-1))
        return torch.autograd.grad(slope, flat, vector, retain_graph=True)[0].numpy()

    start = torch.cat([w.flatten() for w in first]).numpy()
    largest = _top(times, start, (1e-2, 1e-1))
    if not lowest:
        return math.nan, largest
    flipped: Times = lambda v: largest * v.reshape(-1) - times(v)
    return largest - _top(flipped, start, (1e-3, 1e-2, 1e-1)), largest


def _top(times: Times, start: Vector, tolerances: Sequence[float]) -> float:
    """The largest eigenvalue of a symmetric map, to the first tolerance that is reached; NaN if none is."""
    from scipy.sparse import linalg  # pyright: ignore[reportMissingTypeStubs]  # slow to import

    if not times(start).any():
        return 0.0  # only the map 0 maps a random vector to 0, and ARPACK does not take it
    lanczos, n = cast(Any, linalg), len(start)
    operator = lanczos.LinearOperator((n, n), matvec=times, dtype=np.float64)
    for tolerance in tolerances:
        try:
            values = lanczos.eigsh(
                operator, k=1, which="LA", tol=tolerance, v0=start, ncv=min(32, n), maxiter=8,
                return_eigenvectors=False,
            )  # fmt: skip
            return float(values[0])
        except linalg.ArpackError:  # mostly that it does not converge
            continue
    return math.nan
