"""Mergeable means of head outputs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.errors import SizeError
from multihead.model.statistics.arena import Scratch

ROWS = 256
"""Rows masked at a time."""


class OutputMeans:
    """E[z] per head over its good rows."""

    def __init__(self, heads: int, *, room: Scratch | None = None) -> None:
        """`room`: memory outside the heap, see `Scratch`."""
        self.heads, self.room = heads, room or Scratch()
        self.count: Int[Tensor, " head"] = torch.zeros(heads, dtype=torch.long)
        self.total: Float[Tensor, "head value_dim"] | None = None

    def add(self, z: HeadOutputs, good: Bool[Tensor, "batch head query"]) -> None:
        """Add head outputs of the rows that count to their means."""
        if self.total is None:
            self.total = self._zeros(z.shape[3])
        self.count += good.sum((0, 2)).cpu()
        for b in range(z.shape[0]):
            for row in range(0, z.shape[2], ROWS):
                rows = z[b, :, row : row + ROWS]
                counts = good[b, :, row : row + ROWS].unsqueeze(-1)
                if not bool(counts.all()):
                    rows = rows.masked_fill(~counts, 0.0)
                self.total += rows.sum(1, dtype=torch.float64).cpu()

    def _zeros(self, value_dim: int) -> Float[Tensor, "head value_dim"]:
        return self.room.take(torch.empty(0, dtype=torch.float64), self.heads, value_dim).zero_()

    def merge(self, other: OutputMeans) -> None:
        """Add the sums of other head outputs."""
        if other.total is None:
            return
        if self.total is None:
            self.total = self._zeros(other.total.shape[1])
        if self.total.shape != other.total.shape:
            raise SizeError(
                f"outputs of {tuple(self.total.shape)} and {tuple(other.total.shape)} (heads, size) cannot merge",
                hint="merge outputs of the same attention site",
            )
        self.count += other.count
        self.total += other.total

    def mean(self) -> Float[Tensor, "head value_dim"]:
        """The mean output E[z] of every head; NaN for a head without rows."""
        if self.total is None:
            raise SizeError("no outputs were added yet", hint="call add first")
        return self.total / self.count.unsqueeze(-1)

    def state(self) -> dict[str, object]:
        return {"count": self.count.clone(), "total": None if self.total is None else self.total.clone()}

    def load(self, state: Mapping[str, object]) -> None:
        for name in ("count", "total"):
            value = state[name]
            setattr(self, name, value.clone() if isinstance(value, Tensor) else None)
