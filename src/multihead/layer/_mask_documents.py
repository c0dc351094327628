"""Masks of several documents packed into one row."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby, pairwise

import torch
from jaxtyping import Integer
from torch import Tensor

from multihead._base.arguments import describe, holds_integers, integers
from multihead._base.shapes import Allowed
from multihead.errors import SizeError, TypeMismatchError
from multihead.layer._coordinates import Coordinates, Grid, Span
from multihead.layer._host_integers import HostInts, content_key
from multihead.layer._mask_algebra import Interval, Leaf, Mask, union
from multihead.layer._tracing import readable


class DocumentIds(Leaf):
    """id[query] == id[key], id >= 0."""

    def __init__(self, ids: Tensor | Sequence[int]) -> None:
        table = ids if isinstance(ids, Tensor) else torch.tensor(integers("ids", ids), dtype=torch.long)
        if not holds_integers(table) or table.ndim not in (1, 2):
            raise TypeMismatchError(
                f"ids must be integers of shape (key,) or (batch, key), got {describe(table)}",
                hint="mask.documents(torch.tensor([0, 0, 1, 1]))",
            )
        self.ids: Integer[Tensor, "batch key"] = table if table.ndim == 2 else table.unsqueeze(0)
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
        """Runs of equal ids: (id, first, one past the last)."""
        runs = self._read_runs() if self._runs is None else self._runs
        return runs[row if len(runs) > 1 else 0]

    def _read_runs(self) -> list[list[tuple[int, int, int]]]:
        return [_runs(row) for row in self.ids.tolist()]

    def allowed(self, grid: Grid) -> Allowed | None:
        """Cells of a query and a key in the same document."""
        ids = self.ids.to(grid.device)
        ids = ids if ids.shape[0] == 1 else ids[grid.batches]
        rows = max(ids.shape[0], grid.query.shape[0], grid.key.shape[0])
        ids = ids.expand(rows, -1)
        query_id = ids.gather(1, _inside(grid.query[:, 0, :, 0], ids).expand(rows, -1))[:, None, :, None]
        key_id = ids.gather(1, _inside(grid.key[:, 0, 0, :], ids).expand(rows, -1))[:, None, None, :]
        return (query_id == key_id) & (query_id >= 0)

    def key_ranges(self, span: Span) -> list[Interval]:
        runs = self.runs(span.row)
        visible = {i for i, lo, hi in runs if i >= 0 and lo < span.stop and hi > span.start}
        return union([(lo, hi) for i, lo, hi in runs if i in visible])

    def is_full(self, span: Span, lo: int, hi: int) -> bool:
        lo, hi = min(lo, span.start), max(hi, span.stop)
        return any(i >= 0 and first <= lo and hi <= last for i, first, last in self.runs(span.row))

    def split_points(self, span: Span) -> Iterable[int]:
        return [lo for _, lo, _ in self.runs(span.row)]

    def check(self, coordinates: Coordinates) -> None:
        """Raise unless there is one document id per key of the call."""
        batch, queries, keys = coordinates.batch, coordinates.queries, coordinates.keys
        tokens, needed = self.ids.shape[1], coordinates.shape[3]
        fits = tokens == needed if coordinates.aligned else tokens >= needed
        if self.rows not in (None, 1, batch) or not fits or (coordinates.aligned and queries > keys):
            raise SizeError(
                f"{self} does not fit a batch of {batch} with {queries} queries and {keys} keys",
                hint="pass one id per key, cached keys included; every query must also be a key",
            )

    def size_to_draw(self) -> tuple[int, int]:
        return self.ids.shape[1], self.ids.shape[1]

    def __repr__(self) -> str:
        count = f"{len(self.runs(0))} runs, " if self.structured and self.ids.numel() else ""
        return f"documents({count}{self.ids.shape[1]} tokens)"


def _inside(positions: Tensor, ids: Tensor) -> Tensor:
    """Positions limited to the tokens: padding of a ragged chunk may be past the last token; `ragged` hides it."""
    return positions.clamp(max=ids.shape[1] - 1)


class DocumentOffsets(Leaf):
    """Like Documents, by offsets: the document of a token is the number of offsets at or before it."""

    diagonal_visible = True

    def __init__(self, offsets: Sequence[int] | Tensor) -> None:
        self.offsets = HostInts(offsets, "offsets")
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
        """Raise unless the offsets of documents end at the last key."""
        _check_offsets(self.offsets)
        keys, last = coordinates.shape[3], self.offsets.values[-1:]
        fits = not last or (last[0] == keys if coordinates.aligned else last[0] >= keys)
        if not fits or (coordinates.aligned and coordinates.queries > keys):
            raise SizeError(
                f"{self} does not fit {coordinates.queries} queries and {keys} keys",
                hint="the last offset is the number of keys, cached keys included; every query must also be a key",
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
    """Raise unless offsets of documents start at 0 and do not decrease."""
    values = offsets.values
    rising = all(a <= b for a, b in pairwise(values))
    if offsets.on_host and (not values or values[0] != 0 or not rising):
        raise SizeError(
            f"offsets must start at 0 and not decrease, got {offsets}",
            hint="offsets are cumulative lengths: documents of 3 and 4 tokens have offsets [0, 3, 7]",
        )


def _runs(ids: list[int]) -> list[tuple[int, int, int]]:
    """(document, start, stop) of neighbouring tokens of one document."""
    runs: list[tuple[int, int, int]] = []
    start = 0
    for document, group in groupby(ids):
        stop = start + sum(1 for _ in group)
        runs.append((document, start, stop))
        start = stop
    return runs
