"""The masks with a structure behind the functions of `mask.py`: each knows its cells and which keys a row spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from multihead._base.shapes import Allowed
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer.frame import Frame, Grid, Span
from multihead.layer.mask_algebra import Interval, Leaf, Mask, conjunction, union


class HostTensor:
    """A small integer tensor whose numbers are also known on the host, where reading them costs nothing."""

    def __init__(self, values: Sequence[int] | Tensor) -> None:
        fraction = values.is_floating_point() if isinstance(values, Tensor) else any(n != int(n) for n in values)
        if fraction:
            raise TypeMismatchError(f"{values} are not whole numbers", hint="lengths and offsets count tokens")
        given = values if isinstance(values, Tensor) else torch.tensor(values, dtype=torch.long)
        self.tensor: Int[Tensor, "..."] = given
        if isinstance(values, Tensor):
            self.known: bool = given.device.type == "cpu" and not torch.compiler.is_compiling()
            self.values: list[int] = given.tolist() if self.known else []
        else:  # numbers in the program are known, also while it is traced
            self.known, self.values = True, list(values)

    def row(self, row: int) -> int:
        return self.values[row if len(self.values) > 1 else 0]

    def __str__(self) -> str:
        if not self.known:
            return f"<{self.tensor.shape[0]} on {self.tensor.device}>"
        shown = ", ".join(map(str, self.values[:8]))
        return f"[{shown}{', …' if len(self.values) > 8 else ''}]"


class Causal(Leaf):
    """key <= query."""

    sees_self = True
    name = "causal()"

    def allowed(self, grid: Grid) -> Allowed | None:
        return grid.key <= grid.query

    def intervals(self, span: Span) -> list[Interval]:
        return [(0, span.stop)]

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        return hi - 1 <= span.start

    def check(self, frame: Frame) -> None:
        if frame.aligned and frame.queries > frame.keys:
            raise SizeError(
                f"{self} with {frame.queries} queries and only {frame.keys} keys: "
                f"the first {frame.queries - frame.keys} queries would stand before the first key",
                hint="pass at least as many keys as queries, or leave the causal mask out",
            )


class Window(Leaf):
    """query - left < key <= query + right, or key < first."""

    sees_self = True

    def __init__(self, left: int, right: int, first: int) -> None:
        whole = all(isinstance(n, int) for n in (left, right, first))  # pyright: ignore[reportUnnecessaryIsInstance]  # users
        if not whole or left < 1 or right < 0 or first < 0:
            raise SizeError(
                f"window(left={left}, right={right}, first={first}) needs whole left >= 1, right >= 0, first >= 0",
                hint="left counts the query itself: window(256) sees 256 keys",
            )
        self.left, self.right, self.first = (min(n, 1 << 40) for n in (left, right, first))  # no int64 overflows
        # Half the window: larger blocks compute more hidden cells, smaller ones make more calls (bench/layer.py).
        self.block = min(max((left + right) // 2, 64), 512)
        arguments = [str(left)] + [str(right)] * (right > 0) + [f"first={first}"] * (first > 0)
        self.name = f"window({', '.join(arguments)})"

    def allowed(self, grid: Grid) -> Allowed | None:
        near = (grid.key > grid.query - self.left) & (grid.key <= grid.query + self.right)
        return near | (grid.key < self.first) if self.first else near

    def intervals(self, span: Span) -> list[Interval]:
        band = (max(span.start - self.left + 1, 0), min(span.stop + self.right, span.keys))
        return union([(0, min(self.first, span.keys)), band])

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        near = lo > span.stop - 1 - self.left and hi - 1 <= span.start + self.right
        return near or hi <= self.first


class Lengths(Leaf):
    """key < lengths[batch]."""

    per_row = True
    word = "lengths"

    def __init__(self, lengths: Sequence[int] | Tensor | HostTensor) -> None:
        self.lengths = lengths if isinstance(lengths, HostTensor) else HostTensor(lengths)
        self.structured = self.lengths.known
        self.rows = self.lengths.tensor.shape[0]
        self.name = f"{self.word}({self.lengths})"

    def allowed(self, grid: Grid) -> Allowed | None:
        return grid.key < self.limit(grid)

    def intervals(self, span: Span) -> list[Interval]:
        return [(0, self.lengths.row(span.row))]

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        return hi <= self.lengths.row(span.row)

    def cuts(self, span: Span) -> Iterable[int]:
        return [self.lengths.row(span.row)]

    def check(self, frame: Frame) -> None:
        self.check_against(frame, frame.keys, "keys")

    def check_against(self, frame: Frame, tokens: int, what: str) -> None:
        if self.rows not in (1, frame.batch):
            raise SizeError(
                f"{self} is written for {self.rows} rows, the batch has {frame.batch}",
                hint="one length per batch row",
            )
        for row, length in enumerate(self.lengths.values):
            if not 0 <= length <= tokens:
                raise SizeError(
                    f"{self}: row {row} has length {length}, outside 0..{tokens} ({tokens} {what})",
                    hint=f"lengths count {what}; they do not count what lies outside this call",
                )

    def limit(self, grid: Grid) -> Int[Tensor, "#batch 1 1 1"]:
        limits = self.lengths.tensor.to(grid.device)
        return (limits if self.rows == 1 else limits[grid.batches]).view(-1, 1, 1, 1)


class Ragged(Lengths):
    """row < lengths[batch] and key < lengths[batch]: the padding is neither query nor key."""

    word = "ragged"

    def allowed(self, grid: Grid) -> Allowed | None:
        return (grid.row < self.limit(grid)) & (grid.key < self.limit(grid))

    def intervals(self, span: Span) -> list[Interval]:
        length = self.lengths.row(span.row)
        return [(0, length)] if span.start < length else []

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        return max(hi, span.stop) <= self.lengths.row(span.row)

    def check(self, frame: Frame) -> None:
        if frame.queries != frame.keys:
            raise SizeError(
                f"{self} describes self-attention, but there are {frame.queries} queries and {frame.keys} keys",
                hint="for cross-attention hide the padding of the keys with mask.lengths(...)",
            )
        self.check_against(frame, frame.queries, "tokens")


class RaggedQueries(Lengths):
    """row < lengths[batch]: what is left of `ragged` once a cache keeps the keys."""

    word = "ragged"

    def allowed(self, grid: Grid) -> Allowed | None:
        return grid.row < self.limit(grid)

    def intervals(self, span: Span) -> list[Interval]:
        return [(0, span.keys)] if span.start - span.offset < self.lengths.row(span.row) else []

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        return span.stop - span.offset <= self.lengths.row(span.row)

    def cuts(self, span: Span) -> Iterable[int]:
        return [self.lengths.row(span.row) + span.offset]

    def check(self, frame: Frame) -> None:
        self.check_against(frame, frame.queries, "new tokens")


class Padding(Leaf):
    """real[batch, key]."""

    per_row = True

    def __init__(self, real: Bool[Tensor, "batch key"]) -> None:
        if real.dtype != torch.bool or real.ndim != 2:
            raise TypeMismatchError(
                f"padding() takes a bool tensor (batch, key), got {real.dtype} of shape {tuple(real.shape)}",
                hint="True marks a real key; for a 0/1 tensor write mask.padding(t.bool())",
            )
        self.real = real
        self.rows = real.shape[0]
        self.structured = not torch.compiler.is_compiling() and real.device.type == "cpu"
        self.name = f"padding({self.rows} x {real.shape[1]})"
        # Per row the first and the last real key, and whether all between them are real.
        self._hulls: list[tuple[int, int, bool]] | None = None

    def allowed(self, grid: Grid) -> Allowed | None:
        real = self.real.to(grid.device)
        real = real if self.rows == 1 else real[grid.batches]
        return grid.take_columns(real)[:, None, None, :]

    def intervals(self, span: Span) -> list[Interval]:
        lo, hi, _ = self._hull(span.row)
        return [(lo, hi)]

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        first, last, solid = self._hull(span.row)
        return solid and first <= lo and hi <= last

    def cuts(self, span: Span) -> Iterable[int]:
        return self._hull(span.row)[:2]

    def check(self, frame: Frame) -> None:
        if self.rows not in (1, frame.batch) or self.real.shape[1] != frame.keys:
            raise SizeError(
                f"{self} does not fit batch {frame.batch} x {frame.keys} keys",
                hint="one bool per batch row and key, cached keys included",
            )

    def _hull(self, row: int) -> tuple[int, int, bool]:
        if self._hulls is None:
            count, keys = self.real.sum(-1), self.real.shape[1]
            first = self.real.int().argmax(-1) if keys else count
            last = keys - self.real.flip(-1).int().argmax(-1) if keys else count
            last = torch.where(count > 0, last, first)
            self._hulls = [
                (f, h, h - f == n) for f, h, n in zip(first.tolist(), last.tolist(), count.tolist(), strict=True)
            ]
        return self._hulls[row if self.rows > 1 else 0] if self.rows else (0, 0, True)

    def size_to_draw(self) -> tuple[int, int]:
        return self.real.shape[1], self.real.shape[1]


class Documents(Leaf):
    """id[query] == id[key], id >= 0."""

    def __init__(self, ids: Tensor | Sequence[int], *, by_offsets: bool) -> None:
        given = ids if isinstance(ids, Tensor) else torch.tensor(ids, dtype=torch.long)
        self.ids: Int[Tensor, "batch key"] = given if given.ndim == 2 else given.unsqueeze(0)
        self.rows = None if given.ndim == 1 else given.shape[0]
        self.per_row = self.rows is not None and self.rows > 1
        self.structured = not torch.compiler.is_compiling() and given.device.type == "cpu"
        self.sees_self = by_offsets
        self._runs: list[list[tuple[int, int, int]]] | None = None  # per row (id, start, stop)
        count = f"{len(self.runs(0))} runs, " if self.structured and self.ids.numel() else ""
        self.name = f"documents({count}{self.ids.shape[1]} tokens)"

    def runs(self, row: int) -> list[tuple[int, int, int]]:
        """Stretches of equal id: (id, first, one past the last)."""
        if self._runs is None:
            self._runs = [_runs(r) for r in self.ids.tolist()]
        return self._runs[row if len(self._runs) > 1 else 0]

    def allowed(self, grid: Grid) -> Allowed | None:
        ids = self.ids.to(grid.device)
        ids = ids if ids.shape[0] == 1 else ids[grid.batches]
        rows = max(ids.shape[0], grid.query.shape[0], grid.key.shape[0])
        ids = ids.expand(rows, -1)
        asks = ids.gather(1, grid.query[:, 0, :, 0].expand(rows, -1))[:, None, :, None]
        asked = ids.gather(1, grid.key[:, 0, 0, :].expand(rows, -1))[:, None, None, :]
        return (asks == asked) & (asks >= 0)

    def intervals(self, span: Span) -> list[Interval]:
        runs = self.runs(span.row)
        mine = {i for i, lo, hi in runs if i >= 0 and lo < span.stop and hi > span.start}
        return union([(lo, hi) for i, lo, hi in runs if i in mine])

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        lo, hi = min(lo, span.start), max(hi, span.stop)
        return any(i >= 0 and first <= lo and hi <= last for i, first, last in self.runs(span.row))

    def cuts(self, span: Span) -> Iterable[int]:
        return [lo for _, lo, _ in self.runs(span.row)]

    def check(self, frame: Frame) -> None:
        fits = self.rows in (None, 1, frame.batch) and self.ids.shape[1] >= frame.keys
        if not fits or (frame.aligned and frame.queries > frame.keys):
            raise SizeError(
                f"{self} does not fit batch {frame.batch} x {frame.queries} queries x {frame.keys} keys",
                hint="one id per key, cached keys included, and every query stands at a key",
            )

    def size_to_draw(self) -> tuple[int, int]:
        return self.ids.shape[1], self.ids.shape[1]


class Bounds(Leaf):
    """As Documents, by offsets whose numbers are not on the host: every token counts the bounds behind it."""

    sees_self = True
    structured = False

    def __init__(self, bounds: Int[Tensor, " bounds"]) -> None:
        self.bounds = bounds
        self.name = f"documents({bounds.shape[0] - 1} documents)"

    def allowed(self, grid: Grid) -> Allowed | None:
        bounds = self.bounds.to(grid.device)
        asks = (grid.query.unsqueeze(-1) >= bounds).sum(-1)
        asked = (grid.key.unsqueeze(-1) >= bounds).sum(-1)
        return asks == asked


class Prefix(Lengths):
    """key <= query or key < lengths[batch]."""

    sees_self = True
    word = "prefix"

    def allowed(self, grid: Grid) -> Allowed | None:
        return (grid.key <= grid.query) | (grid.key < self.limit(grid))

    def intervals(self, span: Span) -> list[Interval]:
        return [(0, max(span.stop, self.lengths.row(span.row)))]

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        return hi - 1 <= span.start or hi <= self.lengths.row(span.row)


def _runs(ids: list[int]) -> list[tuple[int, int, int]]:
    runs: list[tuple[int, int, int]] = []
    start = 0
    for one, group in groupby(ids):
        stop = start + sum(1 for _ in group)
        runs.append((one, start, stop))
        start = stop
    return runs


def ragged_lengths(mask: Mask) -> HostTensor | None:
    """The lengths of the `ragged` part of a mask, if it has one."""
    return next((p.lengths for p in mask.parts() if isinstance(p, Ragged)), None)


def within_cache(mask: Mask, filled: Bool[Tensor, "batch key"] | None) -> Mask:
    """The same mask over the keys of a cache: which slots count is the cache's word, not `ragged`'s."""
    parts = [RaggedQueries(p.lengths) if isinstance(p, Ragged) else p for p in mask.parts()]
    return conjunction([*parts, Padding(filled)] if filled is not None else parts)
