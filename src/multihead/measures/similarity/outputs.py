"""How alike are the outputs of heads: what they write into the residual stream, W_O included, over all tokens.

With õ_i = W_O,i (z_i − E z_i) the part of head i, C_ij = E[õ_i õ_jᵀ]:

    correlation_ij = tr C_ij / √(tr C_ii · tr C_jj)            do they write the same vectors? −1 … 1
    CKA_ij         = ‖C_ij‖_F² / (‖C_ii‖_F · ‖C_jj‖_F)         up to a rotation? 0 … 1

The second is linear centred kernel alignment (Kornblith et al. 2019), which is the RV coefficient (Escoufier 1973).
Both follow from the covariance of all z side by side, which is summed exactly; W_O comes in at the end, by
‖W_i C W_jᵀ‖_F² = tr(G_i C G_j Cᵀ), G = WᵀW.

>>> import torch
>>> from multihead.measures.similarity.outputs import OutputSimilarity
>>> z = torch.randn(50, 2, 5)
>>> both = OutputSimilarity([5, 5, 5], [torch.eye(5)] * 3)
>>> both.add([z[:, 0], z[:, 1], 2 * z[:, 0]])
>>> round(float(both.correlation()[0, 2]), 6), round(float(both.cka()[2, 0]), 6)
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
from multihead.model.statistics.output_moments import Outputs

LARGEST = 2 << 30
"""Bytes of covariance that are held at most; more heads than fit are sketched."""

LEAST = 4
"""Numbers per head below which a sketch says nothing."""

HeadPairs = Float[Tensor, "head other"]


class OutputSimilarity:
    """Sums over tokens, from which both measures of every pair of heads follow.

    Two squares of Σ value_dim numbers are held, in fp64. Where that would be more than `largest` bytes, CKA is
    estimated: each head's output is projected to k random numbers, independently, and ‖C_ij‖_F² of the projections
    is unbiased with a relative standard deviation of at most √(4/k + 4/k²), `error`. ‖C_ii‖_F and the correlation
    stay exact.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        W_O: Sequence[Float[Tensor, "_ _"]],
        *,
        largest: int = LARGEST,
        seed: int = 0,
    ) -> None:
        """`sizes` are the value_dim of all heads, `W_O` what each writes with."""
        self.sizes, self.weights = list(sizes), [w.detach().double().cpu() for w in W_O]
        room = math.isqrt(largest // 16)
        self.sketched = 0 if sum(sizes) <= room else room // len(sizes)
        if 0 < self.sketched < LEAST:
            raise SizeError(
                f"the covariance of {len(sizes)} heads does not fit into {largest / 2**30:.2g} GiB, and a sketch "
                f"of {self.sketched} numbers per head says nothing",
                hint=f"allow more: largest={16 * (LEAST * len(sizes)) ** 2}, or look at some layers: layers=['L0']",
            )
        self._all = Outputs(1, covariance=True)
        self._own = [Outputs(1, covariance=True) for _ in sizes] if self.sketched else []
        self._dots: HeadPairs = torch.zeros(len(sizes), len(sizes), dtype=torch.float64)
        self._signs = [self._projection(at, size, seed) for at, size in enumerate(sizes)] if self.sketched else []

    def _projection(self, at: int, size: int, seed: int) -> Float[Tensor, "size sketch"]:
        """(S_h R_h)ᵀ with RᵀR = W_OᵀW_O and random signs S / √k."""
        R = torch.linalg.qr(self.weights[at]).R
        signs = (
            torch.randint(0, 2, (self.sketched, R.shape[0]), generator=batch_generator(seed, at)).double() * 2 - 1
        )
        return (signs @ R / math.sqrt(self.sketched)).T

    @property
    def error(self) -> float:
        """The relative standard deviation of CKA at most; 0 where it is exact."""
        k = self.sketched
        return math.sqrt(4 / k + 4 / k**2) if k else 0.0

    @property
    def tokens(self) -> int:
        return self._all.joint

    @property
    def chance(self) -> float:
        """The CKA that heads without anything in common have over so many tokens: about d / (d + n)."""
        size = max(self.sizes)
        return size / (size + self.tokens)

    def add(self, outputs: Sequence[Float[Tensor, "token _"]]) -> None:
        """Take in what every head gave at the same tokens."""
        rows = [z.detach().double().cpu() for z in outputs]
        if not self.sketched:
            _take(self._all, torch.cat(rows, dim=1))
            return
        _take(self._all, torch.cat([z @ p for z, p in zip(rows, self._signs, strict=True)], dim=1))
        for own, z in zip(self._own, rows, strict=True):
            _take(own, z)
        for start in range(0, len(rows[0]), 64):
            written = torch.stack([z[start : start + 64] @ w.T for z, w in zip(rows, self.weights, strict=True)])
            flat = written.flatten(1)
            self._dots += flat @ flat.T

    def correlation(self) -> HeadPairs:
        """tr C_ij / √(tr C_ii tr C_jj); NaN for a head whose output does not vary."""
        count = len(self.sizes)
        if self.sketched:
            mean = [own.mean()[0] @ w.T for own, w in zip(self._own, self.weights, strict=True)]
            shift = torch.stack(mean)
            traces = self._dots / max(self.tokens, 1) - shift @ shift.T
        else:
            blocks, traces = self._blocks(), torch.zeros(count, count, dtype=torch.float64)
            for i in range(count):
                for j in range(i, count):
                    value = ((self.weights[i].T @ self.weights[j]) * blocks[i][j]).sum()
                    traces[i, j] = traces[j, i] = value
        own = traces.diagonal().masked_fill(self.still, torch.nan)
        return (traces / (own[:, None] * own).sqrt()).clamp(-1.0, 1.0)

    def cka(self) -> HeadPairs:
        """‖C_ij‖² / (‖C_ii‖ ‖C_jj‖); NaN for a head whose output does not vary."""
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
                own = self._own[i].second_moments()
                squares[i, i] = ((grams[i] @ own) * (own @ grams[i])).sum()
        size = squares.diagonal().masked_fill(self.still, torch.nan)
        return (squares / (size[:, None] * size).sqrt()).clamp(0.0, 1.0)

    @property
    def still(self) -> Bool[Tensor, " head"]:
        """Heads that always write the same, but for the rounding of fp32: tr C_ii ≤ 1e-12 E‖W_O z‖².

        Against its own size and not that of others: a head may be small and vary all the same.
        """
        if self.sketched:
            own, means = [one.second_moments() for one in self._own], [one.mean()[0] for one in self._own]
        else:
            blocks, means = self._blocks(), list(self._all.mean()[0].split(self.sizes))
            own = [blocks[i][i] for i in range(len(self.sizes))]
        varies = torch.stack([((w.T @ w) * c).sum() for w, c in zip(self.weights, own, strict=True)])
        always = torch.stack([(w @ m).square().sum() for w, m in zip(self.weights, means, strict=True)])
        return varies <= 1e-12 * (varies + always)

    def _blocks(self) -> list[tuple[Float[Tensor, "_ _"], ...]]:
        sizes = [self.sketched] * len(self.sizes) if self.sketched else self.sizes
        return [rows.split(sizes, dim=1) for rows in self._all.second_moments().split(sizes, dim=0)]

    def value_dims(self, sites: Sequence[Site]) -> list[int]:
        """Of each attention, the size of its heads."""
        firsts = [sum(site.heads for site in sites[:i]) for i in range(len(sites))]
        return [self.sizes[first] for first in firsts]

    def merge(self, later: OutputSimilarity) -> None:
        """Add the sums over later tokens."""
        self._all.merge(later._all)
        for own, other in zip(self._own, later._own, strict=True):
            own.merge(other)
        self._dots = self._dots + later._dots

    def state(self) -> dict[str, Any]:
        return {"all": self._all.state(), "own": [one.state() for one in self._own], "dots": self._dots.clone()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._all.load(state["all"])
        for one, kept in zip(self._own, state["own"], strict=True):
            one.load(kept)
        self._dots = state["dots"].clone()


def _take(outputs: Outputs, rows: Float[Tensor, "token width"]) -> None:
    outputs.add(rows[None, None], torch.ones(1, 1, len(rows), dtype=torch.bool))
