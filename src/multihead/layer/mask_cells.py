"""The masks told cell by cell, by a tensor or a rule: nothing is known of them before they are looked at."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.shapes import Allowed, ScoreBias
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer.frame import Frame, Grid, Span
from multihead.layer.mask_algebra import Leaf

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class TensorMask(Leaf):
    """allowed[batch, head, query, key]."""

    word = "tensor"

    def __init__(self, cells: Tensor) -> None:
        if not self.takes(cells.dtype) or not 2 <= cells.ndim <= 4:
            raise TypeMismatchError(
                f"mask.{self.word}() got {cells.dtype} of shape {tuple(cells.shape)}",
                hint="bool says who may attend (True = may), float is added to the scores; shape (query, key), "
                "(batch, query, key) or (batch, head, query, key). A 0/1 mask is mask.tensor(t.bool())",
            )
        self.shape = tuple(cells.shape)
        self.cells = cells[None, None] if cells.ndim == 2 else cells[:, None] if cells.ndim == 3 else cells
        self.rows = self.cells.shape[0] if self.cells.shape[0] > 1 else None
        self.per_head = self.cells.shape[1] > 1
        self.name = f"{self.word}({' x '.join(map(str, self.shape))})"

    def takes(self, dtype: torch.dtype) -> bool:
        return dtype == torch.bool

    def allowed(self, grid: Grid) -> Allowed | None:
        return self.block_of(grid)

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        return False

    def check(self, frame: Frame) -> None:
        want = (frame.batch, frame.heads, frame.queries, frame.keys)
        if any(have not in (1, need) for have, need in zip(self.cells.shape, want, strict=True)):
            raise SizeError(
                f"{self} does not broadcast to (batch, head, query, key) = {want}",
                hint="a 3-D mask is (batch, query, key); give per-head masks four dimensions",
            )

    def block_of(self, grid: Grid) -> Tensor:
        """The cells of one block, broadcast axes kept at 1."""
        cells = self.cells.to(grid.device)
        cells = cells[grid.batches] if cells.shape[0] > 1 else cells
        cells = cells[:, grid.head[0, :, 0, 0]] if cells.shape[1] > 1 else cells
        cells = cells[:, :, grid.rows] if cells.shape[2] > 1 else cells
        return grid.take_columns(cells) if cells.shape[3] > 1 else cells

    def size_to_draw(self) -> tuple[int, int]:
        return self.cells.shape[2], self.cells.shape[3]


class Additive(TensorMask):
    """scores[batch, head, query, key], added; -inf hides."""

    word = "additive"
    adds = True

    def takes(self, dtype: torch.dtype) -> bool:
        return dtype.is_floating_point

    def allowed(self, grid: Grid) -> Allowed | None:
        return self.block_of(grid) > -torch.inf

    def added(self, grid: Grid) -> ScoreBias | None:
        # Hidden cells are hidden by `allowed`; here they add 0, so that no inf - inf arises on the way.
        block: Float[Tensor, "#batch #head #query #key"] = self.block_of(grid)
        return block.masked_fill(block == -torch.inf, 0.0)

    def learned(self) -> list[Tensor]:
        return [self.cells] if self.cells.requires_grad else []


class Where(Leaf):
    """rule(batch, head, query, key)."""

    per_head = True

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.name = f"where({getattr(rule, '__name__', type(rule).__name__)})"

    def allowed(self, grid: Grid) -> Allowed | None:
        cells = self.rule(grid.batch, grid.head, grid.query, grid.key)
        if cells.dtype != torch.bool:
            raise TypeMismatchError(
                f"{self} returned {cells.dtype}, not torch.bool",
                hint="return a comparison, True where the query may attend",
            )
        return cells

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        return False
