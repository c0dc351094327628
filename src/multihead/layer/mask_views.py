"""A mask seen through another: some of its heads, or only what it hides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from multihead.layer.frame import Grid
from multihead.layer.mask_algebra import Mask


class Through(Mask):
    """Structure is that of the mask inside."""

    def __init__(self, own: Mask) -> None:
        self.own = own
        self.per_row, self.per_head, self.sees_self = own.per_row, own.per_head, own.sees_self
        self.structured, self.adds, self.block, self.rows = own.structured, own.adds, own.block, own.rows
        self.name = own.name
        self.intervals, self.covers, self.cuts, self.learned = own.intervals, own.covers, own.cuts, own.learned

    def parts(self) -> list[Mask]:
        return [self] if self.own.parts() else []

    def allowed(self, grid: Grid) -> Tensor | None:
        return self.own.allowed(grid)

    def added(self, grid: Grid) -> Tensor | None:
        return self.own.added(grid)


class Visible(Through):
    """What a mask hides, without what it adds."""

    def __init__(self, own: Mask) -> None:
        super().__init__(own)
        self.adds = False
        self.learned = list[Tensor]

    def added(self, grid: Grid) -> Tensor | None:
        return None


class HeadsOf(Through):
    """Some heads of a mask whose heads differ."""

    def __init__(self, own: Mask, heads: Sequence[int]) -> None:
        super().__init__(own)
        self.heads = list(heads)

    def _inside(self, grid: Grid) -> Grid:
        at = torch.tensor(self.heads, device=grid.device)
        return replace(grid, head=at[grid.head])

    def allowed(self, grid: Grid) -> Tensor | None:
        return self.own.allowed(self._inside(grid))

    def added(self, grid: Grid) -> Tensor | None:
        return self.own.added(self._inside(grid))
