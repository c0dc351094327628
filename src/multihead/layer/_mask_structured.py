"""The structured masks behind the functions of `mask.py`: each knows its cells and the keys that a row spans."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Sequence
from hashlib import blake2b
from itertools import groupby, pairwise

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from multihead._base.shapes import Allowed
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._coordinates import Coordinates, Grid, Span
from multihead.layer._mask_algebra import Interval, Leaf, Mask, conjunction, union
from multihead.layer._tracing import readable


def content_key(x: Tensor) -> Hashable:
    """The contents of a tensor as a short hashable; only its shape and device where the host may not read it."""
    if not readable(x):
        return tuple(x.shape), x.device
    data = x.detach().contiguous().numpy().tobytes()
    return tuple(x.shape), data if len(data) <= 256 else blake2b(data, digest_size=16).digest()


class HostInts:
    """Counts or offsets that a mask is built from, as a sequence or as a 1-D tensor.

    A tensor is read at every use, because the caller may change it between two calls.
    """

    def __init__(self, values: Sequence[int] | Tensor, name: str) -> None:
        self._tensor = values if isinstance(values, Tensor) else None
        self._values: tuple[int, ...] = ()
        if self._tensor is None:
            self._values = _integers(values, name)
        elif self._tensor.is_floating_point() or self._tensor.dtype == torch.bool or self._tensor.ndim != 1:
            raise TypeMismatchError(
                f"{name} must be a 1-D tensor of integers, got {self._tensor.dtype} of shape "
                f"{tuple(self._tensor.shape)}",
                hint="count tokens: torch.tensor([7, 3])",
            )
        self.count = len(self._values) if self._tensor is None else self._tensor.shape[0]

    @property
    def on_host(self) -> bool:
        return self._tensor is None or readable(self._tensor)

    @property
    def values(self) -> tuple[int, ...]:
        """The integers; empty where they are not on the host."""
        if self._tensor is None:
            return self._values
        return tuple(self._tensor.tolist()) if readable(self._tensor) else ()

    @property
    def key(self) -> Hashable:
        if self._tensor is None or readable(self._tensor):
            return self.values
        return self.count, self._tensor.device

    @property
    def tensors(self) -> list[Tensor]:
        return [] if self._tensor is None else [self._tensor]

    def tensor(self, device: torch.device | None = None) -> Int[Tensor, " count"]:
        if self._tensor is not None:
            return self._tensor if device is None else self._tensor.to(device)
        return torch.tensor(self._values, dtype=torch.long, device=device)

    def frozen(self) -> HostInts:
        """The values as they are now."""
        return self if self._tensor is None or not self.on_host else HostInts(self.values, "lengths")

    def row(self, row: int) -> int:
        values = self.values
        return values[row if len(values) > 1 else 0]

    def __str__(self) -> str:
        if self._tensor is not None and not self.on_host:
            return f"<{self.count} on {self._tensor.device}>"
        values = self.values
        shown = ", ".join(map(str, values[:8]))
        return f"[{shown}{', …' if len(values) > 8 else ''}]"


def _integers(values: Sequence[int], name: str) -> tuple[int, ...]:
    if not isinstance(values, Iterable) or isinstance(values, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users
        raise TypeMismatchError(f"{name} must be a sequence of integers, got {values!r}", hint=f"{name}=[7, 3]")
    wrong = next((n for n in values if isinstance(n, bool | float | str) or n is None), None)
    if wrong is not None:
        raise TypeMismatchError(f"{name} must be integers, got {wrong!r}", hint="they count tokens")
    return tuple(int(n) for n in values)


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
        queries, keys = coordinates.queries, coordinates.keys
        if coordinates.aligned and queries > keys:
            raise SizeError(
                f"{self} needs at least as many keys as queries, got {queries} queries and {keys} keys: "
                f"the first {queries - keys} queries would be before the first key",
                hint="pass more keys, or no causal mask",
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
        self.left, self.right, self.first = (min(n, 1 << 40) for n in sizes)  # no int64 overflows
        # Half the window: larger blocks compute more hidden cells, smaller ones make more calls (bench/layer.py).
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
        self.check_against(coordinates, coordinates.keys, "keys")

    def check_against(self, coordinates: Coordinates, tokens: int, what: str) -> None:
        if self.rows not in (1, coordinates.batch):
            raise SizeError(
                f"{self} must have one length per batch row, got {self.rows} for a batch of {coordinates.batch}",
                hint=f"give {coordinates.batch} lengths, or one for all rows",
            )
        for row, length in enumerate(self.lengths.values):
            if not 0 <= length <= tokens:
                raise SizeError(
                    f"{self}: the length of row {row} must be in 0..{tokens} (this call has {tokens} {what}), "
                    f"got {length}",
                    hint=f"lengths count {what}",
                )

    def limit(self, grid: Grid) -> Int[Tensor, "#batch 1 1 1"]:
        limits = self.lengths.tensor(grid.device)
        return (limits if self.rows == 1 else limits[grid.batches]).view(-1, 1, 1, 1)

    def __repr__(self) -> str:
        return f"{self.word}({self.lengths})"


class Ragged(Lengths):
    """row < lengths[batch], and key < lengths[batch] unless a cache keeps the keys."""

    word = "ragged"
    ragged = True

    def __init__(self, lengths: Sequence[int] | Tensor | HostInts, *, cached: bool = False) -> None:
        super().__init__(lengths)
        self.cached = cached
        """The keys are those of a cache, which stores real tokens only: then just the queries are limited."""

    @property
    def key(self) -> Hashable:
        return "ragged", self.cached, self.lengths.key

    def allowed(self, grid: Grid) -> Allowed | None:
        real_query = grid.row < self.limit(grid)
        return real_query if self.cached else real_query & (grid.key < self.limit(grid))

    def key_ranges(self, span: Span) -> list[Interval]:
        length = self.lengths.row(span.row)
        if span.start - self._origin(span) >= length:
            return []
        return [(0, span.keys if self.cached else length)]

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        length = self.lengths.row(span.row)
        return span.stop - self._origin(span) <= length and (self.cached or hi <= length)

    def split_points(self, span: Span) -> Iterable[int]:
        return [self.lengths.row(span.row) + self._origin(span)]

    def check(self, coordinates: Coordinates) -> None:
        if not self.cached and coordinates.queries != coordinates.keys:
            raise SizeError(
                f"{self} is for self-attention, got {coordinates.queries} queries and {coordinates.keys} keys",
                hint="for cross-attention hide the padding of the keys with mask.lengths(...)",
            )
        self.check_against(coordinates, coordinates.queries, "new tokens")

    def _origin(self, span: Span) -> int:
        """Position of the first query, which lengths count from."""
        return span.offset


class Padding(Leaf):
    """real[batch, key]."""

    per_row = True

    def __init__(self, real: Bool[Tensor, "batch key"]) -> None:
        if not isinstance(real, Tensor) or real.dtype != torch.bool or real.ndim != 2:  # pyright: ignore[reportUnnecessaryIsInstance]  # users
            got = f"{real.dtype} of shape {tuple(real.shape)}" if isinstance(real, Tensor) else repr(real)  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeMismatchError(
                f"padding() takes a bool tensor (batch, key), got {got}",
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
        if self.rows not in (1, coordinates.batch) or self.real.shape[1] != self._tokens(coordinates):
            raise SizeError(
                f"{self} does not fit a batch of {coordinates.batch} with {coordinates.keys} keys",
                hint="one bool per batch row and key, cached keys included",
            )

    def _tokens(self, coordinates: Coordinates) -> int:
        return coordinates.shape[3]

    def _hull(self, row: int) -> tuple[int, int, bool]:
        hulls = self._read_hulls() if self._hulls is None else self._hulls
        return hulls[row if self.rows > 1 else 0] if self.rows else (0, 0, True)

    def _read_hulls(self) -> list[tuple[int, int, bool]]:
        """Per row the first real key, one past the last, and whether all keys between them are real."""
        count, keys = self.real.sum(-1), self.real.shape[1]
        first = self.real.int().argmax(-1) if keys else count
        last = keys - self.real.flip(-1).int().argmax(-1) if keys else count
        last = torch.where(count > 0, last, first)
        rows = zip(first.tolist(), last.tolist(), count.tolist(), strict=True)
        return [(lo, hi, hi - lo == n) for lo, hi, n in rows]

    def size_to_draw(self) -> tuple[int, int]:
        return self.real.shape[1], self.real.shape[1]


class FilledSlots(Padding):
    """filled[batch, slot]: the slots of a cache that hold a key, where its rows differ in length.

    It changes at every step of decoding, so it has no structure: a plan then serves all steps of the same sizes.
    """

    structured = False
    pure = False

    @property
    def key(self) -> Hashable:
        return "filled", self.real.shape

    def _columns(self, grid: Grid, real: Tensor) -> Tensor:
        return grid.take_columns(real)

    def _tokens(self, coordinates: Coordinates) -> int:
        return coordinates.keys


class Documents(Leaf):
    """id[query] == id[key], id >= 0."""

    def __init__(self, ids: Tensor | Sequence[int]) -> None:
        table = ids if isinstance(ids, Tensor) else torch.tensor(_integers(ids, "document ids"), dtype=torch.long)
        if table.is_floating_point() or table.dtype == torch.bool or table.ndim not in (1, 2):
            raise TypeMismatchError(
                f"document ids must be integers of shape (key,) or (batch, key), got {table.dtype} of shape "
                f"{tuple(table.shape)}",
                hint="mask.documents(torch.tensor([0, 0, 1, 1]))",
            )
        self.ids: Int[Tensor, "batch key"] = table if table.ndim == 2 else table.unsqueeze(0)
        self.rows = None if table.ndim == 1 else table.shape[0]
        self.per_row = self.rows is not None and self.rows > 1
        self._runs: list[list[tuple[int, int, int]]] | None = None

    @property
    def structured(self) -> bool:
        return readable(self.ids)

    @property
    def pure(self) -> bool:
        return readable(self.ids)

    @property
    def key(self) -> Hashable:
        return "documents", content_key(self.ids)

    def frozen(self) -> Mask:
        clone = copy.copy(self)
        clone._runs = self._read_runs() if self.structured else None
        return clone

    def tensors(self) -> list[Tensor]:
        return [self.ids]

    def runs(self, row: int) -> list[tuple[int, int, int]]:
        """Stretches of equal id: (id, first, one past the last)."""
        runs = self._read_runs() if self._runs is None else self._runs
        return runs[row if len(runs) > 1 else 0]

    def _read_runs(self) -> list[list[tuple[int, int, int]]]:
        return [_runs(row) for row in self.ids.tolist()]

    def allowed(self, grid: Grid) -> Allowed | None:
        ids = self.ids.to(grid.device)
        ids = ids if ids.shape[0] == 1 else ids[grid.batches]
        rows = max(ids.shape[0], grid.query.shape[0], grid.key.shape[0])
        ids = ids.expand(rows, -1)
        query_id = ids.gather(1, _inside(grid.query[:, 0, :, 0], ids).expand(rows, -1))[:, None, :, None]
        key_id = ids.gather(1, _inside(grid.key[:, 0, 0, :], ids).expand(rows, -1))[:, None, None, :]
        return (query_id == key_id) & (query_id >= 0)

    def key_ranges(self, span: Span) -> list[Interval]:
        runs = self.runs(span.row)
        seen = {i for i, lo, hi in runs if i >= 0 and lo < span.stop and hi > span.start}
        return union([(lo, hi) for i, lo, hi in runs if i in seen])

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        lo, hi = min(lo, span.start), max(hi, span.stop)
        return any(i >= 0 and first <= lo and hi <= last for i, first, last in self.runs(span.row))

    def split_points(self, span: Span) -> Iterable[int]:
        return [lo for _, lo, _ in self.runs(span.row)]

    def check(self, coordinates: Coordinates) -> None:
        batch, queries, keys = coordinates.batch, coordinates.queries, coordinates.keys
        tokens, needed = self.ids.shape[1], coordinates.shape[3]
        fits = tokens == needed if coordinates.aligned else tokens >= needed
        if self.rows not in (None, 1, batch) or not fits or (coordinates.aligned and queries > keys):
            raise SizeError(
                f"{self} does not fit a batch of {batch} with {queries} queries and {keys} keys",
                hint="one id per key, cached keys included, and every query is also a key",
            )

    def size_to_draw(self) -> tuple[int, int]:
        return self.ids.shape[1], self.ids.shape[1]

    def __repr__(self) -> str:
        count = f"{len(self.runs(0))} runs, " if self.structured and self.ids.numel() else ""
        return f"documents({count}{self.ids.shape[1]} tokens)"


def _inside(positions: Tensor, ids: Tensor) -> Tensor:
    """Padding of a ragged chunk may be at positions past the last token; its rows are hidden by `ragged`."""
    return positions.clamp(max=ids.shape[1] - 1)


class DocumentOffsets(Leaf):
    """As Documents, by offsets: the document of a token is the number of bounds at or before it."""

    diagonal_visible = True

    def __init__(self, offsets: Sequence[int] | Tensor) -> None:
        self.offsets = HostInts(offsets, "document offsets")
        _check_offsets(self.offsets)

    @property
    def structured(self) -> bool:
        return self.offsets.on_host

    @property
    def pure(self) -> bool:
        return self.offsets.on_host

    @property
    def key(self) -> Hashable:
        return "offsets", self.offsets.key

    def frozen(self) -> Mask:
        clone = copy.copy(self)
        clone.offsets = self.offsets.frozen()
        return clone

    def tensors(self) -> list[Tensor]:
        return self.offsets.tensors

    def allowed(self, grid: Grid) -> Allowed | None:
        offsets = self.offsets.tensor(grid.device)
        query_document = (grid.query.unsqueeze(-1) >= offsets).sum(-1)
        return query_document == (grid.key.unsqueeze(-1) >= offsets).sum(-1)

    def key_ranges(self, span: Span) -> list[Interval]:
        return union([(lo, hi) for lo, hi in self._documents() if lo < span.stop and hi > span.start])

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        lo, hi = min(lo, span.start), max(hi, span.stop)
        return any(first <= lo and hi <= last for first, last in self._documents())

    def split_points(self, span: Span) -> Iterable[int]:
        return self.offsets.values

    def check(self, coordinates: Coordinates) -> None:
        _check_offsets(self.offsets)
        keys, last = coordinates.shape[3], self.offsets.values[-1:]
        fits = not last or (last[0] == keys if coordinates.aligned else last[0] >= keys)
        if not fits or (coordinates.aligned and coordinates.queries > keys):
            raise SizeError(
                f"{self} does not fit {coordinates.queries} queries and {keys} keys",
                hint="the last offset is the number of keys, cached keys included, and every query is also a key",
            )

    def size_to_draw(self) -> tuple[int, int]:
        tokens = (self.offsets.values or (12,))[-1]
        return tokens, tokens

    def __repr__(self) -> str:
        tokens = f", {self.offsets.values[-1]} tokens" if self.offsets.on_host else ""
        return f"documents({self.offsets.count - 1} documents{tokens})"

    def _documents(self) -> list[Interval]:
        values = self.offsets.values
        return [(lo, hi) for lo, hi in pairwise(values) if lo < hi]


def _check_offsets(offsets: HostInts) -> None:
    values = offsets.values
    rising = all(a <= b for a, b in pairwise(values))
    if offsets.on_host and (not values or values[0] != 0 or not rising):
        raise SizeError(
            f"document offsets must begin with 0 and never fall, got {offsets}",
            hint="offsets are cumulative lengths: documents of 3 and 4 tokens have offsets [0, 3, 7]",
        )


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


def _runs(ids: list[int]) -> list[tuple[int, int, int]]:
    runs: list[tuple[int, int, int]] = []
    start = 0
    for one, group in groupby(ids):
        stop = start + sum(1 for _ in group)
        runs.append((one, start, stop))
        start = stop
    return runs


def ragged_lengths(mask: Mask, batch: int) -> HostInts | None:
    """The number of real tokens per row under the `ragged` parts of a mask, or None if it has none."""
    if not mask.ragged:
        return None
    lengths = [p.lengths for p in mask.parts() if isinstance(p, Ragged)]
    if len(lengths) == 1:
        return lengths[0]
    if all(one.on_host for one in lengths):
        rows = [one.values * batch if one.count == 1 else one.values for one in lengths]
        return HostInts([min(row) for row in zip(*rows, strict=False)], "lengths")
    tensors = [one.tensor().expand(batch) for one in lengths]
    return HostInts(torch.stack(tensors).amin(0), "lengths")


def within_cache(mask: Mask, filled: Bool[Tensor, "batch key"] | None) -> Mask:
    """The same mask over the keys of a cache: `filled` tells which slots hold a key, not `ragged`."""
    if filled is None and not mask.ragged:
        return mask
    parts = [Ragged(p.lengths, cached=True) if isinstance(p, Ragged) else p for p in mask.parts()]
    return conjunction([*parts, FilledSlots(filled)] if filled is not None else parts)
