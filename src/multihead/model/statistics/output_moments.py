"""Mergeable means and second moments of head outputs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.errors import SizeError
from multihead.model.statistics.arena import Scratch

ROWS = 256
"""Rows converted to fp64 at a time."""


class Outputs:
    """E[z] per head over its good rows; with `covariance`, also the second moments of the concatenated heads.

    Second moments use rows that are good in every head; `joint` counts them.
    """

    def __init__(self, heads: int, *, covariance: bool = False, room: Scratch | None = None) -> None:
        """`room`: memory outside the heap, see `Scratch`."""
        self.heads, self.covariance, self.room = heads, covariance, room or Scratch()
        self.count: Int[Tensor, " head"] = torch.zeros(heads, dtype=torch.long)
        self.total: Float[Tensor, "head value_dim"] | None = None
        self.joint = 0
        self.centre: Float[Tensor, " width"] | None = None  # width = heads · value_dim
        self.squares: Float[Tensor, "width width"] | None = None  # Σ (z − centre)(z − centre)ᵀ

    def add(self, z: HeadOutputs, good: Bool[Tensor, "batch head query"]) -> None:
        if self.total is None:
            self._begin(z.shape[3])
        assert self.total is not None
        self.count += good.sum((0, 2)).cpu()
        for b in range(z.shape[0]):
            for row in range(0, z.shape[2], ROWS):
                rows = z[b, :, row : row + ROWS]
                counts = good[b, :, row : row + ROWS].unsqueeze(-1)
                if not bool(counts.all()):
                    rows = rows.masked_fill(~counts, 0.0)
                self.total += rows.sum(1, dtype=torch.float64).cpu()
                if self.covariance:
                    complete = counts.all(0)[:, 0]
                    self._add_joint(rows.double().transpose(0, 1).flatten(1)[complete].cpu())

    def _begin(self, value_dim: int) -> None:
        self.total = self.room.take(torch.empty(0, dtype=torch.float64), self.heads, value_dim).zero_()
        if self.covariance:
            width = self.heads * value_dim
            self.centre = torch.zeros(width, dtype=torch.float64)
            self.squares = torch.zeros(width, width, dtype=torch.float64)

    def _add_joint(self, rows: Float[Tensor, "row width"]) -> None:
        if rows.shape[0]:
            centre = rows.mean(0)
            deviation = rows - centre
            self._join(rows.shape[0], centre, deviation.T @ deviation)

    def _join(self, count: int, centre: Tensor, squares: Tensor) -> None:
        """Chan et al. 1979, for vectors."""
        assert self.centre is not None
        assert self.squares is not None
        count_of_both = self.joint + count
        delta = centre - self.centre
        self.squares += squares
        self.squares.addr_(delta, delta, alpha=self.joint * count / max(count_of_both, 1))
        self.centre += delta * (count / max(count_of_both, 1))
        self.joint = count_of_both

    def merge(self, other: Outputs) -> None:
        if other.total is None:
            return
        if self.total is None:
            self._begin(other.total.shape[1])
        assert self.total is not None
        if self.total.shape != other.total.shape or self.covariance != other.covariance:
            raise SizeError(
                f"outputs of {tuple(self.total.shape)} and {tuple(other.total.shape)} (heads, size) cannot merge",
                hint="merge outputs of the same attention site, with the same options",
            )
        self.count += other.count
        self.total += other.total
        if other.centre is not None and other.squares is not None:
            self._join(other.joint, other.centre, other.squares)

    def mean(self) -> Float[Tensor, "head value_dim"]:
        """E[z]; NaN for a head without rows."""
        if self.total is None:
            raise SizeError("no outputs were added yet", hint="call update first")
        return self.total / self.count.unsqueeze(-1)

    def second_moments(self) -> Float[Tensor, "width width"]:
        """Cov(z) of the concatenated heads, over rows that are good in every head."""
        if self.squares is None:
            raise SizeError("second moments of the outputs were not kept", hint="use Statistics(covariance=True)")
        return self.squares / max(self.joint, 1)

    def state(self) -> dict[str, object]:
        return {
            "count": self.count.clone(),
            "joint": self.joint,
            "total": None if self.total is None else self.total.clone(),
            "centre": None if self.centre is None else self.centre.clone(),
            "squares": None if self.squares is None else self.squares.clone(),
        }

    def load(self, state: Mapping[str, object]) -> None:
        self.joint = int(str(state["joint"]))
        for name in ("count", "total", "centre", "squares"):
            value = state[name]
            setattr(self, name, value.clone() if isinstance(value, Tensor) else None)
