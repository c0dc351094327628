"""Split the score matrix into rectangles, skipping the hidden ones.

A tile is a run of batch rows, a run of queries and the keys that they may attend to. Its own mask is empty (FULL),
the square lower triangle, for which kernels have a flag (CAUSAL), or cells to be written out (MASKED). A window
becomes a band of tiles, packed documents become blocks on the diagonal, and padding is in no tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from multihead.layer._coordinates import ALL, Coordinates, Span
from multihead.layer._mask_algebra import Interval, Mask, conjunction, intersect
from multihead.layer._mask_structured import Causal
from multihead.layer._tracing import is_compiling

LARGEST_MASK = 1 << 22
"""Most cells of a mask written out at once, per batch row and head: 4 MiB of bools."""

KERNEL_STEP = 512
"""Keys that the fused kernel processes at a time on CPU: a causal square of this size skips nothing."""

MASK_COST = 1.1
"""Cost of a score under a written-out mask, relative to one without a mask."""

CAUSAL_ROWS = 128
"""Queries per block where no kernel skips the upper triangle: small blocks compute little of it."""


class TileMask(Enum):
    """The mask inside a tile."""

    FULL = "full"
    CAUSAL = "causal"
    MASKED = "masked"


@dataclass(frozen=True)
class Tile:
    """Queries `queries` of batch rows `batch`, and the key ranges `keys` that they may attend to."""

    batch: slice
    queries: slice
    keys: tuple[slice, ...]
    mask: TileMask

    @property
    def shape(self) -> tuple[int, int, int]:
        """(batch rows, queries, keys)"""
        width = sum(k.stop - k.start for k in self.keys)
        return self.batch.stop - self.batch.start, self.queries.stop - self.queries.start, width

    @property
    def cells(self) -> int:
        """Scores that a kernel computes for one head; a causal kernel skips half of its square."""
        rows, queries, keys = self.shape
        return rows * queries * keys // (2 if self.mask is TileMask.CAUSAL else 1)

    @property
    def work(self) -> float:
        """Cost of the fused kernel on one head of a tile, in scores; its causal flag skips whole steps of keys."""
        rows, queries, keys = self.shape
        if self.mask is TileMask.CAUSAL:
            return rows * queries * min(keys, (keys + KERNEL_STEP) / 2)
        return rows * queries * keys * (MASK_COST if self.mask is TileMask.MASKED else 1.0)


ANY_SIZE = Tile(ALL, ALL, (ALL,), TileMask.FULL)
"""Everything as one tile without a mask, for any sizes."""


def single_tile(mask: Mask, coordinates: Coordinates) -> Tile:
    """The whole score matrix as one tile."""
    tile_mask = TileMask.MASKED
    if not mask.parts():
        tile_mask = TileMask.FULL
    elif _is_plain_causal(mask) and coordinates.aligned and coordinates.queries == coordinates.keys:
        tile_mask = TileMask.CAUSAL
    if is_compiling():  # sizes may be symbols, and a tile would specialize them
        return Tile(ALL, ALL, (ALL,), tile_mask)
    return Tile(
        slice(0, coordinates.batch), slice(0, coordinates.queries), (slice(0, coordinates.keys),), tile_mask
    )


def tile(
    mask: Mask,
    coordinates: Coordinates,
    *,
    largest: int = LARGEST_MASK,
    every: bool = False,
    part: tuple[Interval, Interval] | None = None,
) -> list[Tile]:
    """The tiles of aligned coordinates under a mask whose structure is known on the host, row by row.

    Together they hold every query of every row exactly once. `largest` bounds the cells of a masked tile,
    with `every` those of any tile (for kernels that write out all scores). `part` limits them to ranges of
    positions: (queries, keys).
    """
    mask = mask.frozen()
    part = ((coordinates.offset, coordinates.keys), (0, coordinates.keys)) if part is None else part
    if mask.per_head:
        largest //= max(coordinates.heads, 1)
    if not mask.per_row:
        rows = (
            [(slice(0, coordinates.batch), _tiles_of_row(mask, coordinates, 0, largest, every, part))]
            if coordinates.batch
            else []
        )
    else:
        each = [_tiles_of_row(mask, coordinates, row, largest, every, part) for row in range(coordinates.batch)]
        rows = _join_equal_rows(each)
    return [
        Tile(batch, slice(start, stop), keys, tile_mask)
        for batch, tiles in rows
        for start, stop, keys, tile_mask in tiles
    ]


_RowTile = tuple[int, int, tuple[slice, ...], TileMask]


def _tiles_of_row(
    mask: Mask, coordinates: Coordinates, row: int, largest: int, every: bool, part: tuple[Interval, Interval]
) -> list[_RowTile]:
    """The tiles of one batch row under the mask."""
    tiles: list[_RowTile] = []
    (first, last), key_range = part
    everything = Span(row, first, last, coordinates.offset, coordinates.keys)
    inner = {point for point in mask.split_points(everything) if first < point < last}
    bounds = sorted({first, last} | inner)
    for start, stop in pairwise(bounds):
        step = mask.block or stop - start
        while start < stop:
            block = min(step, stop - start)
            span = Span(row, start, start + block, coordinates.offset, coordinates.keys)
            intervals = intersect(mask.key_ranges(span), [key_range])
            tile_mask = _tile_mask(mask, span, intervals)
            cells = block * sum(hi - lo for lo, hi in intervals)
            smaller = block
            if (every or tile_mask is TileMask.MASKED) and cells > largest:
                smaller = max(1, block * largest // cells)
            if tile_mask is TileMask.CAUSAL and (every or KERNEL_STEP // 2 < block <= KERNEL_STEP):
                smaller = min(smaller, CAUSAL_ROWS)
            if smaller < block:
                step = smaller
                continue
            keys = tuple(slice(lo, hi) for lo, hi in intervals)
            tiles.append((start - coordinates.offset, start + block - coordinates.offset, keys, tile_mask))
            start += block
    return tiles if every else _join_neighbours(tiles)


def _tile_mask(mask: Mask, span: Span, intervals: Sequence[Interval]) -> TileMask:
    """How much of a tile the mask hides: nothing, above the diagonal, or some cells."""
    if all(mask.is_full(span, lo, hi) for lo, hi in intervals):
        return TileMask.FULL
    if list(intervals) == [(span.start, span.stop)]:
        others = [p for p in mask.parts() if not isinstance(p, Causal)]
        diagonal = len(others) < len(mask.parts())
        if diagonal and conjunction(others).is_full(span, span.start, span.stop):
            return TileMask.CAUSAL
    return TileMask.MASKED


def _join_neighbours(tiles: list[_RowTile]) -> list[_RowTile]:
    """Join adjacent FULL tiles over the same keys."""
    joined: list[_RowTile] = []
    for start, stop, keys, tile_mask in tiles:
        if joined and tile_mask is TileMask.FULL and joined[-1][1:] == (start, keys, tile_mask):
            start = joined.pop()[0]
        joined.append((start, stop, keys, tile_mask))
    return joined


def _join_equal_rows(rows: list[list[_RowTile]]) -> list[tuple[slice, list[_RowTile]]]:
    """Batch rows with equal tiles as one."""
    joined: list[tuple[slice, list[_RowTile]]] = []
    for row, tiles in enumerate(rows):
        start = row
        if joined and joined[-1][1] == tiles:
            start = joined.pop()[0].start
        joined.append((slice(start, row + 1), tiles))
    return joined


def _is_plain_causal(mask: Mask) -> bool:
    return all(isinstance(p, Causal) for p in mask.parts())
