"""The base of all masks: allowed cells, their structure, and composition with & and |.

A mask is evaluated on a `Grid` of indices, block by block. If the host can read its contents it also reports its
structure, so hidden work is skipped:

- `key_ranges(span)`: ranges that contain every key visible to a query of the span;
- `is_full(span, lo, hi)`: whether every query of the span may attend to every key of lo..hi-1;
- `split_points(span)`: positions at which to split the queries into simple blocks.

`key_ranges` may be too wide, never too narrow; `is_full` may miss a full block, never the reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import reduce

import torch
from jaxtyping import Bool
from torch import Tensor

from multihead._base.arguments import check_count, describe
from multihead._base.shapes import Allowed, ScoreBias
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._coordinates import Coordinates, Grid, Span
from multihead.layer._mask_picture import as_svg, as_text

Interval = tuple[int, int]


class Mask:
    """Which query may attend to which key. This base class allows everything."""

    #: rows of the batch differ
    per_row: bool = False
    #: heads differ, so a written-out block has a head axis
    per_head: bool = False
    #: every query may attend to the key at its position, so no row is empty
    diagonal_visible: bool = True
    #: adds a bias to the scores
    has_bias: bool = False
    #: the bias comes from the user and may have any size
    any_bias: bool = False
    #: preferred number of queries in a block; 0 if any number is equally good
    block: int = 0
    #: contains `ragged`, so padding is not projected
    ragged: bool = False
    #: part of it is a function of the user, which may raise
    by_rule: bool = False
    #: batch rows that the mask is written for; None if it fits any batch
    rows: int | None = None

    @property
    def structured(self) -> bool:
        """Whether the host knows the structure without reading a tensor from a device."""
        return True

    @property
    def key(self) -> Hashable:
        """The key for cached plans: equal keys mean equal structure. See `pure`."""
        return ()

    @property
    def pure(self) -> bool:
        """Whether `key` also determines the cells and the bias, so a written-out block can be cached."""
        return True

    def frozen(self) -> Mask:
        """The same mask with its host values read once, for many calls of `key_ranges` and `is_full`."""
        return self

    def allowed(self, grid: Grid) -> Allowed | None:
        """The block as a bool tensor that broadcasts; None if everything is allowed."""
        return None

    def score_bias(self, grid: Grid) -> ScoreBias | None:
        """The bias added to the scores of the block, or None."""
        return None

    def key_ranges(self, span: Span) -> list[Interval]:
        return [(0, span.keys)]

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        return True

    def split_points(self, span: Span) -> Iterable[int]:
        return ()

    def check(self, coordinates: Coordinates) -> None:
        """Raise if this mask does not fit the sizes of the call."""

    def tensors(self) -> list[Tensor]:
        """Every tensor that the cells and the bias are computed from."""
        return []

    def bias_params(self) -> list[Tensor]:
        """The tensors behind `score_bias` that require a gradient."""
        return []

    def without_bias(self) -> Mask:
        """The same mask, without the bias it adds to the scores."""
        return self

    def parts(self) -> Sequence[Mask]:
        """The masks whose conjunction this is."""
        return ()

    def __and__(self, other: Mask | Tensor) -> Mask:
        return conjunction([*self.parts(), *_as_mask(other).parts()])

    def __or__(self, other: Mask | Tensor) -> Mask:
        return Or([self, _as_mask(other)])

    def __rand__(self, other: Tensor) -> Mask:
        return conjunction([*_as_mask(other).parts(), *self.parts()])

    def __ror__(self, other: Tensor) -> Mask:
        return Or([_as_mask(other), self])

    def __bool__(self) -> bool:
        raise TypeMismatchError(
            f"{self} has no truth value: `and`, `or` and `not` do not combine masks",
            hint="combine masks with & and |: mask.causal() & mask.window(256)",
        )

    def __invert__(self) -> Mask:
        raise TypeMismatchError(
            f"{self} cannot be inverted: its complement has no structure",
            hint="write the complement as a rule: mask.where(lambda batch, head, query, key: key > query)",
        )

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., object], types: object, args: Sequence[object] = (), kwargs: object = None
    ) -> object:
        """Torch calls this for `tensor & mask`; every other function of a mask raises."""
        if func in (Tensor.__and__, Tensor.__or__) and isinstance(args[0], Tensor) and isinstance(args[1], Mask):
            return args[1].__rand__(args[0]) if func is Tensor.__and__ else args[1].__ror__(args[0])
        raise TypeMismatchError(
            f"torch functions need tensors, got a Mask for {getattr(func, '__name__', func)}",
            hint="write the mask out: mask.tensor(queries, keys)",
        )

    def __repr__(self) -> str:
        return "everything()"

    def tensor(
        self, queries: int, keys: int | None = None, *, batch: int | None = None, heads: int = 1
    ) -> Bool[Tensor, "batch head query key"]:
        """The mask written out, True where attending is allowed. For inspection and tests."""
        batch = batch if batch is not None else self.rows or 1
        keys = queries if keys is None else keys
        for name, count in {"queries": queries, "keys": keys, "batch": batch, "heads": heads}.items():
            check_count(name, count, least=0)
        size = Coordinates(batch, heads, queries, keys, torch.device("cpu"))
        self.check(size)
        allowed = self.allowed(size.grid())
        if allowed is None:
            allowed = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        return allowed.expand(batch, heads, size.queries, size.keys)

    def draw(self, queries: int = 12, keys: int | None = None, *, row: int = 0, head: int = 0) -> str:
        """The mask as text, a line per query."""
        return as_text(self._cells(queries, keys, row, head))

    def svg(self, queries: int = 12, keys: int | None = None, *, row: int = 0, head: int = 0) -> str:
        """The mask as a self-contained SVG picture."""
        return as_svg(self._cells(queries, keys, row, head), title=repr(self))

    def size_to_draw(self) -> tuple[int, int]:
        """(queries, keys) that the mask is written for, otherwise a size that fits a screen."""
        return 12, 12

    def _repr_svg_(self) -> str:
        return self.svg(*self.size_to_draw())

    def _cells(self, queries: int, keys: int | None, row: int, head: int) -> Bool[Tensor, "query key"]:
        """The cells of the mask for one row and head, to print or draw."""
        check_count("row", row, least=0)
        check_count("head", head, least=0)
        cells = self.tensor(queries, keys, heads=head + 1)
        if row >= cells.shape[0]:
            raise SizeError(f"row must be in 0..{cells.shape[0] - 1}, got {row}")
        return cells[row, head]


def _as_mask(other: Mask | Tensor) -> Mask:
    """The other operand of & or |; raises unless it is a mask."""
    if isinstance(other, Mask):
        return other
    if isinstance(other, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]  # users combine anything
        hint = "convert it: mask.tensor(allowed), mask.padding(real) or mask.additive(scores)"
    else:
        hint = "for example mask.causal() & mask.lengths([7, 3])"
    raise TypeMismatchError(f"& and | need two masks, got {describe(other)}", hint=hint)


class Leaf(Mask):
    """A mask that is not a combination of others."""

    diagonal_visible = False
    name: str = ""

    def parts(self) -> Sequence[Mask]:
        return (self,)

    def __repr__(self) -> str:
        return self.name


class _Composite(Mask):
    """A combination of masks; its attributes follow from its parts."""

    def __init__(self, masks: Sequence[Mask]) -> None:
        self.masks = tuple(masks)
        self.per_row = any(m.per_row for m in masks)
        self.per_head = any(m.per_head for m in masks)
        self.has_bias = any(m.has_bias for m in masks)
        self.any_bias = any(m.any_bias for m in masks)
        self.by_rule = any(m.by_rule for m in masks)
        self.ragged = any(m.ragged for m in masks)
        self.block = max([m.block for m in masks])
        rows = [m.rows for m in masks if m.rows is not None]
        self.rows = max(rows) if rows else None  # torch.compile does not support max(..., default=...)

    @property
    def structured(self) -> bool:
        return all(m.structured for m in self.masks)

    @property
    def key(self) -> Hashable:
        return (type(self), *[m.key for m in self.masks])

    @property
    def pure(self) -> bool:
        return all(m.pure for m in self.masks)

    def frozen(self) -> Mask:
        return type(self)([m.frozen() for m in self.masks])

    def split_points(self, span: Span) -> Iterable[int]:
        return [point for m in self.masks for point in m.split_points(span)]

    def check(self, coordinates: Coordinates) -> None:
        for m in self.masks:
            m.check(coordinates)

    def tensors(self) -> list[Tensor]:
        return [t for m in self.masks for t in m.tensors()]

    def size_to_draw(self) -> tuple[int, int]:
        default = Mask().size_to_draw()
        return next((m.size_to_draw() for m in self.masks if m.size_to_draw() != default), default)

    def _join(self, sign: str, other: type[Mask]) -> str:
        return sign.join(f"({m})" if isinstance(m, other) else str(m) for m in self.masks)


class And(_Composite):
    """Allowed where every part allows; the biases of the parts are summed."""

    def __init__(self, masks: Sequence[Mask]) -> None:
        super().__init__(masks)
        self.diagonal_visible = all(m.diagonal_visible for m in masks)

    def parts(self) -> Sequence[Mask]:
        return self.masks

    def allowed(self, grid: Grid) -> Allowed | None:
        return _combine(torch.logical_and, (m.allowed(grid) for m in self.masks))

    def score_bias(self, grid: Grid) -> ScoreBias | None:
        return _combine(torch.add, (m.score_bias(grid) for m in self.masks))

    def key_ranges(self, span: Span) -> list[Interval]:
        return reduce(intersect, (m.key_ranges(span) for m in self.masks), [(0, span.keys)])

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        return all(m.is_full(span, lo, hi) for m in self.masks)

    def bias_params(self) -> list[Tensor]:
        return [t for m in self.masks for t in m.bias_params()]

    def without_bias(self) -> Mask:
        return conjunction([part for m in self.masks for part in m.without_bias().parts()])

    def __repr__(self) -> str:
        return self._join(" & ", Or)


class Or(_Composite):
    """Allowed where any part allows."""

    def __init__(self, masks: Sequence[Mask]) -> None:
        biased = next((m for m in masks if m.has_bias), None)
        if biased is not None:
            raise TypeMismatchError(
                f"| needs masks without a bias on the scores, got {biased}",
                hint="combine it with &, or write both masks into one tensor",
            )
        super().__init__(masks)
        self.diagonal_visible = any(m.diagonal_visible for m in masks)
        self.ragged = False  # padding of one part may be a key or a query of another

    def parts(self) -> Sequence[Mask]:
        return (self,)

    def allowed(self, grid: Grid) -> Allowed | None:
        cells = [m.allowed(grid) for m in self.masks]
        return None if any(c is None for c in cells) else _combine(torch.logical_or, cells)

    def key_ranges(self, span: Span) -> list[Interval]:
        return union([interval for m in self.masks for interval in m.key_ranges(span)])

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        return any(m.is_full(span, lo, hi) for m in self.masks)

    def __repr__(self) -> str:
        return self._join(" | ", And)


EVERYTHING = Mask()


def conjunction(parts: Sequence[Mask]) -> Mask:
    """The conjunction of masks: parts[0] & parts[1] & ...; everything() if there are none."""
    if not parts:
        return EVERYTHING
    return parts[0] if len(parts) == 1 else And(parts)


def _combine(join: Callable[[Tensor, Tensor], Tensor], cells: Iterable[Tensor | None]) -> Tensor | None:
    present = [c for c in cells if c is not None]
    return reduce(join, present) if present else None


def union(intervals: Sequence[Interval]) -> list[Interval]:
    """The union of intervals of positions that a mask shows: sorted and disjoint; adjacent ones are joined."""
    joined: list[Interval] = []
    for lo, hi in sorted(i for i in intervals if i[0] < i[1]):
        if joined and lo <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(hi, joined[-1][1]))
        else:
            joined.append((lo, hi))
    return joined


def intersect(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    return union([(max(x[0], y[0]), min(x[1], y[1])) for x in a for y in b])
