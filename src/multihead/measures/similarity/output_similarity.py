"""Similarity of the outputs of heads: what they write into the residual stream, after W_O, over all tokens.

With õ_i = W_O,i (z_i − E z_i) the contribution of head i, and C_ij = E[õ_i õ_jᵀ]:

    correlation_ij = tr C_ij / √(tr C_ii · tr C_jj)            do they write the same vectors? −1 … 1
    CKA_ij         = ‖C_ij‖_F² / (‖C_ii‖_F · ‖C_jj‖_F)         up to a rotation? 0 … 1

The second is linear centred kernel alignment (Kornblith et al. 2019), which is the RV coefficient (Escoufier 1973).
Both follow from the covariance of the concatenated z, which is summed exactly. W_O is applied at the end, by
‖W_i C W_jᵀ‖_F² = tr(G_i C G_j Cᵀ), G = WᵀW.

>>> import torch
>>> from multihead.measures.similarity.output_similarity import OutputSimilarity
>>> z = torch.randn(50, 2, 5)
>>> sums = OutputSimilarity([5, 5, 5], [torch.eye(5)] * 3)
>>> sums.add([z[:, 0], z[:, 1], 2 * z[:, 0]])
>>> round(float(sums.correlation()[0, 2]), 6), round(float(sums.cka()[2, 0]), 6)
(1.0, 1.0)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from multihead.corpus.batch_generator import batch_generator
from multihead.errors import SizeError
from multihead.model.sites import Site
from multihead.model.statistics.second_moments import CrossMoments

LARGEST = 2 << 30
"""Default limit for the covariance, in bytes; above it, heads are sketched."""

LEAST = 4
"""The smallest useful sketch: dimensions per head."""

HeadPairs = Float[Tensor, "head other"]


class OutputSimilarity:
    """Sums over tokens, from which both measures of every pair of heads follow.

    It holds two square fp64 matrices of width Σ value_dim. If they would take more than `largest` bytes, CKA is
    estimated: the output of each head is projected to k random dimensions, independently of the others. ‖C_ij‖_F²
    of the projections is unbiased, with a relative standard deviation of at most √(4/k + 4/k²), `error`. ‖C_ii‖_F
    and the correlation remain exact.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        W_O: Sequence[Float[Tensor, "_ _"]],
        *,
        largest: int = LARGEST,
        seed: int = 0,
    ) -> None:
        """`sizes` are the value_dim of all heads, `W_O` their output projections."""
        self.sizes, self.weights = list(sizes), [w.detach().double().cpu() for w in W_O]
        max_width = math.isqrt(largest // 16)  # two fp64 matrices
        self.sketched = 0 if sum(sizes) <= max_width else max_width // len(sizes)
        if 0 < self.sketched < LEAST:
            raise SizeError(
                f"a sketch needs at least {LEAST} dimensions per head, but {largest / 2**30:.2g} GiB allow "
                f"{self.sketched} for {len(sizes)} heads",
                hint=f"raise the limit: largest={16 * (LEAST * len(sizes)) ** 2}, or choose layers: layers=['L0']",
            )
        self._all = CrossMoments()
        self._per_head = [CrossMoments() for _ in sizes] if self.sketched else []
        self._dots: HeadPairs = torch.zeros(len(sizes), len(sizes), dtype=torch.float64)
        self._projections = [self._projection(head, seed) for head in range(len(sizes))] if self.sketched else []

    def _projection(self, head: int, seed: int) -> Float[Tensor, "size sketch"]:
        """A random projection of a head's outputs: (S_h R_h)ᵀ, RᵀR = W_OᵀW_O, with random signs S / √k."""
        R = torch.linalg.qr(self.weights[head]).R
        draw = torch.randint(0, 2, (self.sketched, R.shape[0]), generator=batch_generator(seed, head))
        signs = draw.double() * 2 - 1
        return (signs @ R / math.sqrt(self.sketched)).T

    @property
    def error(self) -> float:
        """An upper bound of the relative standard deviation of CKA; 0 if it is exact."""
        k = self.sketched
        return math.sqrt(4 / k + 4 / k**2) if k else 0.0

    @property
    def tokens(self) -> int:
        return int(self._all.count)

    @property
    def chance(self) -> float:
        """The expected CKA of independent heads of size d over n tokens: about d / (d + n)."""
        size = max(self.sizes)
        return size / (size + self.tokens)

    def add(self, outputs: Sequence[Float[Tensor, "token _"]]) -> None:
        """Add the outputs of all heads at the same tokens."""
        rows = [z.detach().double().cpu() for z in outputs]
        if not self.sketched:
            self._all.add(torch.cat(rows, dim=1))
            return
        self._all.add(torch.cat([z @ p for z, p in zip(rows, self._projections, strict=True)], dim=1))
        for one, z in zip(self._per_head, rows, strict=True):
            one.add(z)
        for start in range(0, len(rows[0]), 64):
            written = torch.stack([z[start : start + 64] @ w.T for z, w in zip(rows, self.weights, strict=True)])
            flat = written.flatten(1)
            self._dots += flat @ flat.T

    def correlation(self) -> HeadPairs:
        """Correlation of the outputs, tr C_ij / √(tr C_ii tr C_jj); NaN for a head whose output does not vary."""
        count = len(self.sizes)
        if self.sketched:
            means = [one.mean @ w.T for one, w in zip(self._per_head, self.weights, strict=True)]
            mean = torch.stack(means)
            traces = self._dots / max(self.tokens, 1) - mean @ mean.T
        else:
            blocks, traces = self._blocks(), torch.zeros(count, count, dtype=torch.float64)
            for i in range(count):
                for j in range(i, count):
                    value = ((self.weights[i].T @ self.weights[j]) * blocks[i][j]).sum()
                    traces[i, j] = traces[j, i] = value
        variance = traces.diagonal().masked_fill(self.constant, torch.nan)
        return (traces / (variance[:, None] * variance).sqrt()).clamp(-1.0, 1.0)

    def cka(self) -> HeadPairs:
        """CKA of the outputs, ‖C_ij‖² / (‖C_ii‖ ‖C_jj‖); NaN for a head whose output does not vary."""
        count = len(self.sizes)
        blocks = self._blocks()
        grams = [w.T @ w for w in self.weights]
        squares = torch.zeros(count, count, dtype=torch.float64)
        for i in range(count):
            for j in range(i + 1 if self.sketched else i, count):
                C = blocks[i][j]
                value = C.square().sum() if self.sketched else ((grams[i] @ C) * (C @ grams[j])).sum()
                squares[i, j] = squares[j, i] = value
            if self.sketched:
                covariance = self._per_head[i].covariance()
                squares[i, i] = ((grams[i] @ covariance) * (covariance @ grams[i])).sum()
        size = squares.diagonal().masked_fill(self.constant, torch.nan)
        return (squares / (size[:, None] * size).sqrt()).clamp(0.0, 1.0)

    @property
    def constant(self) -> Bool[Tensor, " head"]:
        """Heads whose output is constant up to fp32 rounding: tr C_ii ≤ 1e-12 E‖W_O z‖².

        The bound is relative to the head's own output: a small output may still vary.
        """
        if self.sketched:
            covariances = [one.covariance() for one in self._per_head]
            means = [one.mean for one in self._per_head]
        else:
            blocks, means = self._blocks(), list(self._all.mean.split(self.sizes))
            covariances = [blocks[i][i] for i in range(len(self.sizes))]
        variance = torch.stack([((w.T @ w) * C).sum() for w, C in zip(self.weights, covariances, strict=True)])
        mean_square = torch.stack([(w @ m).square().sum() for w, m in zip(self.weights, means, strict=True)])
        return variance <= 1e-12 * (variance + mean_square)

    def _blocks(self) -> list[tuple[Float[Tensor, "_ _"], ...]]:
        sizes = [self.sketched] * len(self.sizes) if self.sketched else self.sizes
        return [rows.split(sizes, dim=1) for rows in self._all.covariance().split(sizes, dim=0)]

    def value_dims(self, sites: Sequence[Site]) -> list[int]:
        """The value_dim of each attention."""
        firsts = [sum(site.heads for site in sites[:i]) for i in range(len(sites))]
        return [self.sizes[first] for first in firsts]

    def merge(self, later: OutputSimilarity) -> None:
        """Add the sums behind the similarity of outputs, of later tokens."""
        self._all.merge(later._all)
        for one, other in zip(self._per_head, later._per_head, strict=True):
            one.merge(other)
        self._dots = self._dots + later._dots

    def state(self) -> dict[str, Any]:
        per_head = [one.state() for one in self._per_head]
        return {"all": self._all.state(), "own": per_head, "dots": self._dots.clone()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._all = CrossMoments.from_state(state["all"])
        self._per_head = [CrossMoments.from_state(one) for one in state["own"]]
        self._dots = state["dots"].clone()
