"""Masks given cell by cell, by a tensor or a rule; their structure is unknown."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.arguments import describe
from multihead._base.shapes import Allowed, ScoreBias
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._coordinates import Coordinates, Grid, Span
from multihead.layer._mask_algebra import Leaf, Mask
from multihead.layer._tracing import is_compiling

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class TensorMask(Leaf):
    """allowed[batch, head, query, key]."""

    word = "tensor"
    argument = "allowed"

    def __init__(self, cells: Tensor) -> None:
        if not isinstance(cells, Tensor) or not self.takes(cells.dtype) or not 2 <= cells.ndim <= 4:  # pyright: ignore[reportUnnecessaryIsInstance]  # users
            kind = "float" if self.has_bias else "bool"
            raise TypeMismatchError(
                f"{self.argument} must be a {kind} tensor of 2 to 4 dimensions, got {describe(cells)}",
                hint="a bool tensor is True where attending is allowed, a float tensor is added to the scores; its "
                "shape is (query, key), (batch, query, key) or (batch, head, query, key). For a 0/1 mask write "
                "mask.tensor(t.bool())",
            )
        self.shape = tuple(cells.shape)
        self.cells = cells[None, None] if cells.ndim == 2 else cells[:, None] if cells.ndim == 3 else cells
        self.rows = self.cells.shape[0] if self.cells.shape[0] > 1 else None
        self.per_head = self.cells.shape[1] > 1
        self.name = f"{self.word}({' x '.join(map(str, self.shape))})"

    def takes(self, dtype: torch.dtype) -> bool:
        return dtype == torch.bool

    @property
    def key(self) -> Hashable:
        return self.word, tuple(self.cells.shape), self.cells.device, self.cells.requires_grad

    @property
    def pure(self) -> bool:
        return False

    def tensors(self) -> list[Tensor]:
        return [self.cells]

    def allowed(self, grid: Grid) -> Allowed | None:
        return self.block_of(grid)

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        return False

    def check(self, coordinates: Coordinates) -> None:
        """Raise unless the cells of the mask broadcast to the sizes of the call."""
        shape = coordinates.shape
        if all(have in (1, need) for have, need in zip(self.cells.shape, shape, strict=True)):
            return
        per_key = len(self.shape) == 2 and self.shape == (shape[0], shape[3])
        raise SizeError(
            f"{self} does not broadcast to (batch, head, query, key) = {shape}",
            hint="a 2-D mask is (query, key); for key padding of shape (batch, key) use mask.padding(real)"
            if per_key
            else "a 3-D mask is (batch, query, key); use four dimensions for per-head masks",
        )

    def block_of(self, grid: Grid) -> Tensor:
        """The cells of the mask in one block; broadcast axes keep size 1."""
        cells = self.cells.to(grid.device)
        cells = cells[grid.batches] if cells.shape[0] > 1 else cells
        cells = cells[:, grid.head[0, :, 0, 0]] if cells.shape[1] > 1 else cells
        cells = cells[:, :, grid.rows] if cells.shape[2] > 1 else cells
        return grid.take_tokens(cells) if cells.shape[3] > 1 else cells

    def size_to_draw(self) -> tuple[int, int]:
        return self.cells.shape[2], self.cells.shape[3]


class Additive(TensorMask):
    """scores[batch, head, query, key], added; -inf hides."""

    word = "additive"
    argument = "scores"
    has_bias = any_bias = True

    def takes(self, dtype: torch.dtype) -> bool:
        return dtype.is_floating_point

    def allowed(self, grid: Grid) -> Allowed | None:
        return self.block_of(grid) != -torch.inf  # NaN is visible and shows in the output

    def score_bias(self, grid: Grid) -> ScoreBias | None:
        # `allowed` hides these cells; adding 0 here avoids inf - inf.
        block: Float[Tensor, "#batch #head #query #key"] = self.block_of(grid)
        return block.masked_fill(block == -torch.inf, 0.0)

    def bias_params(self) -> list[Tensor]:
        return [self.cells] if self.cells.requires_grad else []

    def without_bias(self) -> Mask:
        return Hidden(self)


class Hidden(Leaf):
    """The hidden cells of an additive mask, without its bias."""

    def __init__(self, additive: Additive) -> None:
        self.additive = additive
        self.rows, self.per_row, self.per_head = additive.rows, additive.per_row, additive.per_head
        self.diagonal_visible, self.name = additive.diagonal_visible, f"{additive}"
        self.allowed, self.check, self.tensors = additive.allowed, additive.check, additive.tensors

    @property
    def key(self) -> Hashable:
        return "hidden", self.additive.key

    @property
    def pure(self) -> bool:
        return self.additive.pure

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        return False


class Where(Leaf):
    """rule(batch, head, query, key)."""

    per_head = True
    by_rule = True

    def __init__(self, rule: Rule) -> None:
        if not callable(rule):
            raise TypeMismatchError(
                f"rule must be a function of (batch, head, query, key), got {describe(rule)}",
                hint="mask.where(lambda batch, head, query, key: key <= query)",
            )
        self.rule = rule
        self._identity: object | None = None
        self.name = f"where({getattr(rule, '__name__', type(rule).__name__)})"

    @property
    def key(self) -> Hashable:
        if self._identity is None:  # not the rule itself: cached plans would keep its tensors alive
            self._identity = object()
        return "where", self._identity

    @property
    def pure(self) -> bool:
        return False

    def allowed(self, grid: Grid) -> Allowed | None:
        """The cells that the rule of the mask allows."""
        try:
            cells = self.rule(grid.batch, grid.head, grid.query, grid.key)
        except TypeError as error:
            raise TypeMismatchError(
                f"the rule of {self} failed on (batch, head, query, key): {error}",
                hint="mask.where(lambda batch, head, query, key: key <= query)",
            ) from error
        if not isinstance(cells, Tensor) or cells.dtype != torch.bool:  # pyright: ignore[reportUnnecessaryIsInstance]  # users
            got = cells.dtype if isinstance(cells, Tensor) else repr(cells)  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeMismatchError(
                f"the rule of {self} must return a bool tensor, got {got}",
                hint="return a comparison, True where the query may attend",
            )
        sizes = (grid.batch.shape[0], grid.head.shape[1], grid.query.shape[2], grid.key.shape[3])
        if not _broadcasts(cells.shape, sizes):
            raise SizeError(
                f"the rule of {self} returned shape {tuple(cells.shape)} for (batch, head, query, key) = {sizes}",
                hint="combine the index tensors elementwise: they broadcast to (batch, head, query, key)",
            )
        return cells[(None,) * (4 - cells.ndim)]

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        return False

    def check(self, coordinates: Coordinates) -> None:
        """Evaluate the rule of the mask once, on one cell per head, before anything is computed or cached."""
        if not coordinates.empty and not is_compiling():
            first = slice(0, 1)
            self.allowed(coordinates.grid(first, first, (first,)))


def _broadcasts(shape: torch.Size, target: tuple[int, ...]) -> bool:
    return len(shape) <= 4 and all(n in (1, t) for n, t in zip(reversed(shape), reversed(target), strict=False))
