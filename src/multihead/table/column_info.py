"""Column metadata: unit, one-line meaning, and histogram bins.

>>> Scale(0.0, 1.0).bins(torch.tensor([0.0, 0.5, 2.0])).tolist()
[0, 32, 63]
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

BINS = 64


@dataclass(frozen=True)
class Scale:
    """BINS equal bins of f(x) between f(lowest) and f(highest); values outside fall in the first or last bin.

    f is x itself, or, with `bend`, sign(x) log2(1 + |x| / bend): linear near 0, logarithmic far from it.
    """

    lowest: float
    highest: float
    bend: float | None = None

    def bent(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return x if self.bend is None else torch.log2(1 + x.abs() / self.bend).copysign(x)

    def bins(self, x: Float[Tensor, "..."]) -> Int[Tensor, "..."]:
        """The histogram bin of each value of a column; undefined for NaN."""
        lo, hi = self._range()
        scaled = torch.sub(self.bent(x), lo).mul_(BINS / (hi - lo)).clamp_(0, BINS - 1)
        return scaled.int()  # converting to int is much faster than to long

    def edges(self) -> Float[Tensor, " edge"]:
        lo, hi = self._range()
        flat = torch.linspace(lo, hi, BINS + 1, dtype=torch.float64)
        return flat if self.bend is None else ((2 ** flat.abs() - 1) * self.bend).copysign(flat)

    def _range(self) -> tuple[float, float]:
        lo, hi = self.bent(torch.tensor([self.lowest, self.highest], dtype=torch.float64)).tolist()
        return lo, hi


@dataclass(frozen=True)
class ColumnInfo:
    """The unit of a column, its meaning, and its histogram bins; if `scale` is None, it has no histogram."""

    unit: str
    text: str
    scale: Scale | None = None
