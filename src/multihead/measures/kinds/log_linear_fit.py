"""How much of an attention map its positions explain, and how much the popularity of its keys.

The model of row i of piece p over its keys j is log-linear, with an intensity t of each offset bin, shared by the
pieces, and an intensity a of each key of each piece:

    q_pij = t_bin(i,j) a_pj / Z_pi

The maximum-likelihood fit (the I-projection) matches the marginals: the weight on every bin and on every key. It is
found by iterative proportional fitting, and needs nothing else of the map, so a map is read once and only its
marginals are held. A pseudo-weight α keeps an intensity near 1 where few rows see a bin or a key:

    t_b ← (T_b + α) / (F_b + α)        a_pj ← (S_pj + α) / (E_pj + α)

with T and S the marginals of the map, F and E those of the model with that intensity left out. α = 0 is maximum
likelihood; otherwise the fit maximises Σ w p log q + α Σ (log x − x) over the intensities x.

**The trap.** With a parameter per key the fit explains matches too: keys that few queries see are "popular" with
the one that chose them, and in a causal model every late key is such a key. So the fit of a model is measured on
rows that it was not fitted to: even rows by a fit to odd ones and the reverse. A choice that no other row repeats
then explains nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

SWEEPS = 6
"""Sweeps over the bins and the keys. On heads built by hand, shares then differ by less than 0.01 from the limit.
Their sum is exact after any number."""


@dataclass(frozen=True)
class VisibleKeys:
    """What the rows of some pieces see; the same for all of their heads."""

    visible: Float[Tensor, "query key"]
    """1 where the mask lets a query see a key"""
    keys: Float[Tensor, "piece key"]
    """1 for ordinary keys: not padding, not a resting place"""
    bins: Int[Tensor, "query key"] | None
    """the offset bin of a query and a key; None if they share no positions"""
    bin_count: int = 0

    def float(self) -> VisibleKeys:
        return VisibleKeys(self.visible.float(), self.keys.float(), self.bins, self.bin_count)

    def sum_bins(self, x: Float[Tensor, "fit query key"]) -> Float[Tensor, "fit bin"]:
        assert self.bins is not None
        return x.new_zeros(x.shape[0], self.bin_count).index_add_(-1, self.bins.flatten(), x.flatten(1))


@dataclass(frozen=True)
class Marginals:
    """Weights on rows, keys and bins of some fits (heads, halves of the rows)."""

    rows: Float[Tensor, "fit piece query"]
    keys: Float[Tensor, "fit piece key"]
    bins: Float[Tensor, "fit piece bin"]

    def repeat(self, times: int) -> Marginals:
        """The same marginals for fits of several strengths."""
        return Marginals(*(x.repeat(times, 1, 1) for x in (self.rows, self.keys, self.bins)))

    def float(self) -> Marginals:
        return Marginals(self.rows.float(), self.keys.float(), self.bins.float())

    def swapped(self) -> Marginals:
        """The second half of the fits first: the rows that a half of the rows is judged by."""
        return Marginals(*(x.roll(len(x) // 2, 0) for x in (self.rows, self.keys, self.bins)))


@dataclass(frozen=True)
class LogLinearFit:
    """The intensities of a log-linear model."""

    bins: Float[Tensor, "fit bin"] | None
    keys: Float[Tensor, "fit piece key"]

    def double(self) -> LogLinearFit:
        return LogLinearFit(None if self.bins is None else self.bins.double(), self.keys.double())

    def kernel(self, layout: VisibleKeys) -> Float[Tensor, "#fit query key"]:
        """The fitted intensity of the offset of each query and key, t_bin(i,j); 0 where hidden."""
        if self.bins is None or layout.bins is None:
            return layout.visible.unsqueeze(0)
        return self.bins[:, layout.bins] * layout.visible

    def explained(self, rows: Marginals, layout: VisibleKeys) -> Float[Tensor, "fit piece"]:
        """Σ w p log(q / uniform): by how much the model is nearer to these rows than uniform weights, in nats."""
        z, even = ((f.keys * layout.keys) @ f.kernel(layout).mT for f in (self, uniform(layout)))
        gain = torch.special.xlogy(rows.keys, self.keys).sum(-1)
        if self.bins is not None:
            gain = gain + torch.special.xlogy(rows.bins, self.bins.unsqueeze(1)).sum(-1)
        return gain - torch.special.xlogy(rows.rows, z / even).nan_to_num(0.0).sum(-1)


def uniform(layout: VisibleKeys) -> LogLinearFit:
    return LogLinearFit(None, torch.ones_like(layout.keys).unsqueeze(0))


def fit(
    rows: Marginals,
    layout: VisibleKeys,
    strength: Float[Tensor, " fit"],
    *,
    position: bool,
    word: bool,
    sweeps: int = SWEEPS,
) -> LogLinearFit:
    """The log-linear model of some rows by their marginals, with offsets, keys or both; `strength` is α."""
    alpha = strength[:, None]
    total = rows.bins.sum(1)
    keys, row_weight = layout.keys.expand(rows.keys.shape), rows.rows
    if not word and bool((layout.keys == layout.keys[:1]).all()):
        row_weight = row_weight.sum(1, keepdim=True)  # pieces that see the same keys have the same model
        keys = keys[:, :1]
    bins = torch.ones_like(total) if position else None
    for _ in range(sweeps):
        if bins is not None:
            kernel = LogLinearFit(bins, keys).kernel(layout)
            weight = _ratio(row_weight, keys @ kernel.mT, 0.0)
            expected = layout.sum_bins(weight.mT @ keys * layout.visible)
            bins = _ratio(total + alpha, expected + alpha, 1.0)
        if word:
            kernel = LogLinearFit(bins, keys).kernel(layout)
            weight = _ratio(row_weight, keys @ kernel.mT, 0.0)
            expected = weight @ kernel
            keys = _ratio(rows.keys + alpha[..., None], expected + alpha[..., None], 1.0) * layout.keys
    return LogLinearFit(bins, keys.expand(rows.keys.shape))


def _ratio(x: Tensor, y: Tensor, otherwise: float) -> Tensor:
    """x / y; `otherwise` where y is 0: a row without an ordinary key, a bin or a key that no row sees."""
    return torch.where(y > 0, x / y, otherwise)
