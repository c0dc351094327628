"""What every mask is: allowed cells, their structure, and composition with & and |.

A mask is evaluated on a `Grid` of indices, block by block. Beside that it tells its structure on the host:

- `intervals(span)`: outside these key ranges no query of the span may look (work not done);
- `covers(span, lo, hi)`: every query of the span may look at every key of lo..hi-1 (no mask needed);
- `cuts(span)`: where to cut the queries so that the blocks become simple.

`intervals` may be too wide and `covers` too shy, never the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import torch
from jaxtyping import Bool
from torch import Tensor

from multihead._base.shapes import Allowed, ScoreBias
from multihead.errors import TypeMismatchError
from multihead.layer.frame import Frame, Grid, Span
from multihead.layer.picture import as_svg, as_text

Interval = tuple[int, int]


class Mask:
    """May this query attend to this key? This base allows everything."""

    #: rows of the batch differ
    per_row: bool = False
    #: heads differ, so that a written-out block has a head axis
    per_head: bool = False
    #: a query may always attend to the key at its own place, so no row is empty
    sees_self: bool = True
    #: whether the structure is known without reading a tensor from a device
    structured: bool = True
    #: adds numbers to the scores beside hiding some
    adds: bool = False
    #: preferred number of queries in a block; 0: whatever comes
    block: int = 0
    #: batch rows that the mask is written for; None: any number
    rows: int | None = None
    #: the constructor call as text
    name: str = "everything()"

    def allowed(self, grid: Grid) -> Allowed | None:
        """The block as a bool tensor that broadcasts; None where everything is allowed."""
        return None

    def added(self, grid: Grid) -> ScoreBias | None:
        """What is added to the scores of the block, or None."""
        return None

    def intervals(self, span: Span) -> list[Interval]:
        return [(0, span.keys)]

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        return True

    def cuts(self, span: Span) -> Iterable[int]:
        return ()

    def check(self, frame: Frame) -> None:
        """Raise where this mask does not fit the sizes of the call."""

    def learned(self) -> list[Tensor]:
        """The tensors behind `added` that need a gradient."""
        return [t for p in self.parts() if p is not self for t in p.learned()]

    def parts(self) -> list[Mask]:
        """The masks whose conjunction this is."""
        return []

    def __and__(self, other: Mask) -> Mask:
        _check_is_mask(other)
        return conjunction([*self.parts(), *other.parts()])

    def __or__(self, other: Mask) -> Mask:
        _check_is_mask(other)
        return Or([self, other])

    def __repr__(self) -> str:
        return self.name

    def tensor(
        self, queries: int, keys: int | None = None, *, batch: int | None = None, heads: int = 1
    ) -> Bool[Tensor, "batch head query key"]:
        """The mask written out, True where attending is allowed. For looking and for tests."""
        batch = batch if batch is not None else self.rows or 1
        frame = Frame(batch, heads, queries, queries if keys is None else keys, torch.device("cpu"))
        self.check(frame)
        allowed = self.allowed(frame.grid())
        if allowed is None:
            allowed = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        return allowed.expand(batch, heads, frame.queries, frame.keys)

    def draw(self, queries: int = 12, keys: int | None = None, *, row: int = 0, head: int = 0) -> str:
        """The mask as text, a line per query."""
        return as_text(self.tensor(queries, keys, heads=head + 1)[row, head])

    def svg(self, queries: int = 12, keys: int | None = None, *, row: int = 0, head: int = 0) -> str:
        """The mask as a picture: a self-contained SVG."""
        return as_svg(self.tensor(queries, keys, heads=head + 1)[row, head], title=repr(self))

    def size_to_draw(self) -> tuple[int, int]:
        """(queries, keys) that the mask is written for, else a size that fits a screen."""
        return 12, 12

    def _repr_svg_(self) -> str:
        return self.svg(*self.size_to_draw())


def _check_is_mask(other: object) -> None:
    if not isinstance(other, Mask):
        raise TypeMismatchError(
            f"a mask cannot be joined with a {type(other).__name__}",
            hint="write a tensor as mask.tensor(allowed) or mask.additive(scores)",
        )


class Leaf(Mask):
    """A mask that is not composed of others."""

    sees_self = False

    def parts(self) -> list[Mask]:
        return [self]


class And(Mask):
    """Allowed where every part allows; what the parts add is summed."""

    def __init__(self, parts: Sequence[Mask]) -> None:
        self._parts = list(parts)
        _inherit(self, parts)
        self.sees_self = all(p.sees_self for p in parts)
        self.name = " & ".join(f"({p})" if isinstance(p, Or) else str(p) for p in parts)

    def parts(self) -> list[Mask]:
        return self._parts

    def allowed(self, grid: Grid) -> Allowed | None:
        return _fold(torch.logical_and, (p.allowed(grid) for p in self._parts))

    def added(self, grid: Grid) -> ScoreBias | None:
        return _fold(torch.add, (p.added(grid) for p in self._parts))

    def intervals(self, span: Span) -> list[Interval]:
        return reduce(intersect, (p.intervals(span) for p in self._parts), [(0, span.keys)])

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        return all(p.covers(span, lo, hi) for p in self._parts)

    def cuts(self, span: Span) -> Iterable[int]:
        return [c for p in self._parts for c in p.cuts(span)]

    def check(self, frame: Frame) -> None:
        for part in self._parts:
            part.check(frame)

    def size_to_draw(self) -> tuple[int, int]:
        return _first_size(self._parts)


class Or(Leaf):
    """Allowed where any part allows."""

    def __init__(self, parts: Sequence[Mask]) -> None:
        adding = next((p for p in parts if p.adds), None)
        if adding is not None:
            raise TypeMismatchError(
                f"{adding} adds numbers to the scores, and | has no meaning for numbers",
                hint="join it with &, or write the alternative into the tensor",
            )
        self._either = list(parts)
        _inherit(self, parts)
        self.sees_self = any(p.sees_self for p in parts)
        self.name = " | ".join(f"({p})" if isinstance(p, And) else str(p) for p in parts)

    def allowed(self, grid: Grid) -> Allowed | None:
        found = [p.allowed(grid) for p in self._either]
        return None if any(f is None for f in found) else _fold(torch.logical_or, found)

    def intervals(self, span: Span) -> list[Interval]:
        return union([i for p in self._either for i in p.intervals(span)])

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        return any(p.covers(span, lo, hi) for p in self._either)

    def cuts(self, span: Span) -> Iterable[int]:
        return [c for p in self._either for c in p.cuts(span)]

    def check(self, frame: Frame) -> None:
        for part in self._either:
            part.check(frame)

    def size_to_draw(self) -> tuple[int, int]:
        return _first_size(self._either)


def conjunction(parts: Sequence[Mask]) -> Mask:
    """parts[0] & parts[1] & ...; of nothing: everything."""
    if not parts:
        return Mask()
    return parts[0] if len(parts) == 1 else And(parts)


def _inherit(whole: Mask, parts: Sequence[Mask]) -> None:
    whole.per_row = any(p.per_row for p in parts)
    whole.per_head = any(p.per_head for p in parts)
    whole.structured = all(p.structured for p in parts)
    whole.adds = any(p.adds for p in parts)
    whole.block = max([p.block for p in parts])
    rows = [p.rows for p in parts if p.rows is not None]
    whole.rows = max(rows) if rows else None  # torch.compile does not know max(..., default=...)


def _first_size(parts: Sequence[Mask]) -> tuple[int, int]:
    default = Mask().size_to_draw()
    return next((p.size_to_draw() for p in parts if p.size_to_draw() != default), default)


def _fold(join: Callable[[Tensor, Tensor], Tensor], found: Iterable[Tensor | None]) -> Tensor | None:
    present = [f for f in found if f is not None]
    return reduce(join, present) if present else None


def union(intervals: Sequence[Interval]) -> list[Interval]:
    """Sorted, disjoint intervals that cover the same places; overlapping and touching ones are joined."""
    joined: list[Interval] = []
    for lo, hi in sorted(i for i in intervals if i[0] < i[1]):
        if joined and lo <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(hi, joined[-1][1]))
        else:
            joined.append((lo, hi))
    return joined


def intersect(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    return union([(max(x[0], y[0]), min(x[1], y[1])) for x in a for y in b])
