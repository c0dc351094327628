"""Masks by position, with known structure: causal, windows, prefixes, lengths and padding."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from multihead._base.arguments import describe
from multihead._base.shapes import Allowed
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._coordinates import Coordinates, Grid, Span
from multihead.layer._host_integers import HostInts, content_key, host_array
from multihead.layer._mask_algebra import Interval, Leaf, Mask, conjunction, union
from multihead.layer._tracing import readable


class Causal(Leaf):
    """key <= query."""

    diagonal_visible = True
    name = "causal()"

    @property
    def key(self) -> Hashable:
        return "causal"

    def allowed(self, grid: Grid) -> Allowed | None:
        return grid.key <= grid.query

    def key_ranges(self, span: Span) -> list[Interval]:
        return [(0, span.stop)]

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        return hi - 1 <= span.start

    def check(self, coordinates: Coordinates) -> None:
        """Raise if a causal mask has queries before the first key."""
        queries, keys = coordinates.queries, coordinates.keys
        if coordinates.aligned and queries > keys:
            raise SizeError(
                f"{self} needs at least as many keys as queries, got {queries} queries and {keys} keys: "
                f"the first {queries - keys} queries precede the first key",
                hint="pass more keys, or remove the causal mask",
            )


CAUSAL = Causal()


class Window(Leaf):
    """query - left < key <= query + right, or key < first."""

    diagonal_visible = True

    def __init__(self, left: int, right: int, first: int) -> None:
        sizes = (left, right, first)
        integers = all(isinstance(n, int) and not isinstance(n, bool) for n in sizes)  # pyright: ignore[reportUnnecessaryIsInstance]  # users
        if not integers or left < 1 or right < 0 or first < 0:
            raise SizeError(
                "window(left, right, first) needs integers left >= 1, right >= 0 and first >= 0, got "
                f"left={left!r}, right={right!r}, first={first!r}",
                hint="left counts the query itself: window(256) sees 256 keys",
            )
        self.left, self.right, self.first = (min(n, 1 << 40) for n in sizes)  # avoids int64 overflow
        # Half the window: larger blocks compute more hidden cells, smaller blocks need more calls (bench/layer.py).
        self.block = min(max((left + right) // 2, 64), 512)
        arguments = [str(left)] + [str(right)] * (right > 0) + [f"first={first}"] * (first > 0)
        self.name = f"window({', '.join(arguments)})"

    @property
    def key(self) -> Hashable:
        return "window", self.left, self.right, self.first

    def allowed(self, grid: Grid) -> Allowed | None:
        near = (grid.key > grid.query - self.left) & (grid.key <= grid.query + self.right)
        return near | (grid.key < self.first) if self.first else near

    def key_ranges(self, span: Span) -> list[Interval]:
        band = (max(span.start - self.left + 1, 0), min(span.stop + self.right, span.keys))
        return union([(0, min(self.first, span.keys)), band])

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        near = lo > span.stop - 1 - self.left and hi - 1 <= span.start + self.right
        return near or hi <= self.first


class Lengths(Leaf):
    """key < lengths[batch]."""

    per_row = True
    word = "lengths"

    def __init__(self, lengths: Sequence[int] | Tensor | HostInts) -> None:
        self.lengths = lengths if isinstance(lengths, HostInts) else HostInts(lengths, "lengths")
        self.rows = self.lengths.count

    @property
    def structured(self) -> bool:
        return self.lengths.on_host

    @property
    def pure(self) -> bool:
        return self.lengths.on_host

    @property
    def key(self) -> Hashable:
        return self.word, self.lengths.key

    def frozen(self) -> Mask:
        clone = copy.copy(self)
        clone.lengths = self.lengths.frozen()
        return clone

    def tensors(self) -> list[Tensor]:
        return self.lengths.tensors

    def allowed(self, grid: Grid) -> Allowed | None:
        return grid.key < self.limit(grid)

    def key_ranges(self, span: Span) -> list[Interval]:
        return [(0, self.lengths.row(span.row))]

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        return hi <= self.lengths.row(span.row)

    def split_points(self, span: Span) -> Iterable[int]:
        return [self.lengths.row(span.row)]

    def check(self, coordinates: Coordinates) -> None:
        self.check_against(coordinates, coordinates.shape[3], "keys")  # of a ring: tokens, not slots

    def check_rows(self, batch: int) -> None:
        """Raise unless there is one length per batch row, or one for all."""
        if self.rows not in (1, batch):
            raise SizeError(
                f"{self} must have one length per batch row, got {self.rows} for a batch of {batch}",
                hint=f"pass {batch} lengths, or one for all rows",
            )

    def check_against(self, coordinates: Coordinates, tokens: int, noun: str) -> None:
        """Raise unless every length is in 0..`tokens`."""
        self.check_rows(coordinates.batch)
        for row, length in enumerate(self.lengths.values):
            if not 0 <= length <= tokens:
                raise SizeError(
                    f"{self}: the length of row {row} must be in 0..{tokens} (this call has {tokens} {noun}), "
                    f"got {length}",
                    hint=f"lengths count {noun}",
                )

    def limit(self, grid: Grid) -> Int[Tensor, "#batch 1 1 1"]:
        limits = self.lengths.tensor(grid.device)
        return (limits if self.rows == 1 else limits[grid.batches]).view(-1, 1, 1, 1)

    def __repr__(self) -> str:
        return f"{self.word}({self.lengths})"


class Ragged(Lengths):
    """row < lengths[batch], and key < lengths[batch] unless the keys are in a cache."""

    word = "ragged"
    ragged = True

    def __init__(self, lengths: Sequence[int] | Tensor | HostInts, *, cached: bool = False) -> None:
        super().__init__(lengths)
        self.cached = cached
        """whether the keys are in a cache, which stores only real tokens; then only queries are limited"""

    @property
    def key(self) -> Hashable:
        return "ragged", self.cached, self.lengths.key

    def allowed(self, grid: Grid) -> Allowed | None:
        real_query = grid.row < self.limit(grid)
        return real_query if self.cached else real_query & (grid.key < self.limit(grid))

    def key_ranges(self, span: Span) -> list[Interval]:
        """The real keys that the rows of a span see under a ragged mask."""
        length = self.lengths.row(span.row)  # counted from the first query, at position span.offset
        if span.start - span.offset >= length:
            return []
        return [(0, span.keys if self.cached else length)]

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        length = self.lengths.row(span.row)
        return span.stop - span.offset <= length and (self.cached or hi <= length)

    def split_points(self, span: Span) -> Iterable[int]:
        return [self.lengths.row(span.row) + span.offset]

    def check(self, coordinates: Coordinates) -> None:
        """Raise unless the ragged mask is for self-attention, with valid lengths."""
        if not self.cached and coordinates.queries != coordinates.keys:
            raise SizeError(
                f"{self} is for self-attention, got {coordinates.queries} queries and {coordinates.keys} keys",
                hint="for cross-attention hide the padding of the keys with mask.lengths(...)",
            )
        self.check_against(coordinates, coordinates.queries, "new tokens")


class Padding(Leaf):
    """real[batch, key]."""

    per_row = True

    def __init__(self, real: Bool[Tensor, "batch key"]) -> None:
        if not isinstance(real, Tensor) or real.dtype != torch.bool or real.ndim != 2:  # pyright: ignore[reportUnnecessaryIsInstance]  # users
            raise TypeMismatchError(
                f"real must be a bool tensor (batch, key), got {describe(real)}",
                hint="True marks a real key; for a 0/1 tensor write mask.padding(t.bool())",
            )
        self.real = real
        self.rows = real.shape[0]
        self.name = f"padding({self.rows} x {real.shape[1]})"
        self._hulls: list[tuple[int, int, bool]] | None = None

    @property
    def structured(self) -> bool:
        return readable(self.real)

    @property
    def pure(self) -> bool:
        return readable(self.real)

    @property
    def key(self) -> Hashable:
        return "padding", content_key(self.real)

    def frozen(self) -> Mask:
        clone = copy.copy(self)
        clone._hulls = self._read_hulls() if self.structured else None
        return clone

    def tensors(self) -> list[Tensor]:
        return [self.real]

    def allowed(self, grid: Grid) -> Allowed | None:
        real = self.real.to(grid.device)
        real = real if self.rows == 1 else real[grid.batches]
        return self._columns(grid, real)[:, None, None, :]

    def _columns(self, grid: Grid, real: Tensor) -> Tensor:
        return grid.take_tokens(real)

    def key_ranges(self, span: Span) -> list[Interval]:
        lo, hi, _ = self._hull(span.row)
        return [(lo, hi)]

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        first, last, solid = self._hull(span.row)
        return solid and first <= lo and hi <= last

    def split_points(self, span: Span) -> Iterable[int]:
        return self._hull(span.row)[:2]

    def check(self, coordinates: Coordinates) -> None:
        """Raise unless the padding mask has one bool per batch row and key."""
        if self.rows not in (1, coordinates.batch) or self.real.shape[1] != self._tokens(coordinates):
            raise SizeError(
                f"{self} does not fit a batch of {coordinates.batch} with {coordinates.keys} keys",
                hint="pass one bool per batch row and key, cached keys included",
            )

    def _tokens(self, coordinates: Coordinates) -> int:
        return coordinates.shape[3]

    def _hull(self, row: int) -> tuple[int, int, bool]:
        hulls = self._read_hulls() if self._hulls is None else self._hulls
        return hulls[row if self.rows > 1 else 0] if self.rows else (0, 0, True)

    def _read_hulls(self) -> list[tuple[int, int, bool]]:
        """Of a padding mask per row: the first real key, one past the last, and whether all between are real."""
        real = host_array(self.real)
        if real.shape[1] == 0:
            return [(0, 0, True)] * real.shape[0]
        count, first = real.sum(-1), real.argmax(-1)
        last = real.shape[1] - real[:, ::-1].argmax(-1)
        rows = zip(first.tolist(), last.tolist(), count.tolist(), strict=True)
        return [(lo, hi, hi - lo == n) if n else (lo, lo, True) for lo, hi, n in rows]

    def size_to_draw(self) -> tuple[int, int]:
        return self.real.shape[1], self.real.shape[1]


class FilledSlots(Padding):
    """filled[batch, slot]: the slots of a cache that hold a key, if its rows differ in length.

    It changes at every decoding step, so its structure is not used: one plan then serves all steps of equal sizes.
    """

    @property
    def structured(self) -> bool:
        return False

    @property
    def pure(self) -> bool:
        return False

    @property
    def key(self) -> Hashable:
        return "filled", self.real.shape

    def _columns(self, grid: Grid, real: Tensor) -> Tensor:
        return grid.take_columns(real)

    def _tokens(self, coordinates: Coordinates) -> int:
        return coordinates.keys


class Prefix(Lengths):
    """key <= query or key < lengths[batch]."""

    diagonal_visible = True
    word = "prefix"

    def allowed(self, grid: Grid) -> Allowed | None:
        return (grid.key <= grid.query) | (grid.key < self.limit(grid))

    def key_ranges(self, span: Span) -> list[Interval]:
        return [(0, max(span.stop, self.lengths.row(span.row)))]

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        return hi - 1 <= span.start or hi <= self.lengths.row(span.row)


def ragged_lengths(mask: Mask, batch: int, device: torch.device) -> HostInts | None:
    """The number of real tokens per row by the `ragged` parts of a mask; None without such a part."""
    if not mask.ragged:
        return None
    parts = [p for p in mask.parts() if isinstance(p, Ragged)]
    for part in parts:
        part.check_rows(batch)
        if any(t.device.type == "meta" != device.type for t in part.tensors()):
            raise TypeMismatchError(
                f"{part} is on the meta device, the call is on {device}", hint=f"create its lengths on {device}"
            )
    lengths = [part.lengths for part in parts]
    if len(lengths) == 1:
        return lengths[0]
    if all(n.on_host for n in lengths):
        rows = [n.values * batch if n.count == 1 else n.values for n in lengths]
        return HostInts([min(row) for row in zip(*rows, strict=False)], "lengths")
    tensors = [n.tensor().expand(batch) for n in lengths]
    return HostInts(torch.stack(tensors).amin(0), "lengths")


def within_cache(mask: Mask, filled: Bool[Tensor, "batch key"] | None) -> Mask:
    """The same mask over the keys of a cache, where `filled` and not `ragged` defines which slots hold a key."""
    if filled is None and not mask.ragged:
        return mask
    parts = [Ragged(p.lengths, cached=True) if isinstance(p, Ragged) else p for p in mask.parts()]
    return conjunction([*parts, FilledSlots(filled)] if filled is not None else parts)
