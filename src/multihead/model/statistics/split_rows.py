"""Split a problem into blocks of complete query rows (all visible keys, some heads) within a memory bound.

Complete rows need no second pass: the softmax, its maximum and all sums over keys are computed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from multihead.layer import Problem
from multihead.layer._coordinates import Span
from multihead.layer._mask_algebra import Interval
from multihead.layer._tiles import Tile, TileMask, single_tile, tile

ROWS = 96
"""Maximum queries per block; more would compute more cells above the diagonal."""

FEW_ROWS = 24
"""Matrix products with fewer queries than this are slow; a block takes fewer heads instead."""

STEP = 64
"""Key ranges with hidden keys are bisected down to this size, to exclude fully visible keys."""


@dataclass(frozen=True)
class RowBlock:
    """Queries of some batch rows and heads, the keys they may see, and the keys that a mask may hide."""

    batch: slice
    heads: slice
    queries: slice
    keys: tuple[slice, ...]
    written: tuple[slice, ...]  # the part of `keys` where the mask must be applied

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(batch, heads, queries, keys)"""
        width = sum(k.stop - k.start for k in self.keys)
        return _size(self.batch), _size(self.heads), _size(self.queries), width

    def take_keys(self, table: Shaped[Tensor, "... key"]) -> Shaped[Tensor, "... block_key"]:
        """table[..., keys] of a tensor whose last axis is the keys."""
        parts = [table[..., part] for part in self.keys]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def take_queries(self, x: Shaped[Tensor, "batch head query dim"]) -> Shaped[Tensor, "_ _ _ dim"]:
        """The block's part of q or of the output."""
        return x[self.batch, self.heads, self.queries]

    def column(self, key: int) -> int:
        """The column of a key in the block of rows."""
        column = 0
        for part in self.keys:
            if part.start <= key < part.stop:
                return column + key - part.start
            column += part.stop - part.start
        raise AssertionError(f"key {key} is not in {self.keys}")


def _size(part: slice) -> int:
    return part.stop - part.start


def split_rows(
    problem: Problem, real: Bool[Tensor, "batch query"], features: int, block_bytes: int
) -> Iterator[RowBlock]:
    """Blocks that contain every real query once; blocks of the same batch rows and heads are consecutive.

    A (query, key) pair takes two values per head (score and weight) and one per feature.
    """
    problem = replace(problem, mask=problem.mask.frozen())  # its structure is looked up for every block
    coordinates = problem.coordinates
    itemsize = torch.promote_types(problem.q.dtype, torch.float32).itemsize
    budget, keys = block_bytes // itemsize, max(coordinates.keys, 1)
    size = problem.groups.size or 1
    heads = min(max((budget // (FEW_ROWS * keys) - features) // 2, 1), coordinates.heads)
    heads = max(heads // size * size, min(heads, size))  # whole groups, if they fit
    pairs = max(budget // (2 * heads + features), 1)
    tiles_to_split = _tiles_to_split(problem, min(pairs, ROWS * keys))
    for _, group in groupby(tiles_to_split, key=lambda t: (t.batch.start, t.batch.stop)):
        tiles = list(group)
        rows, largest = tiles[0].batch, max(t.shape[1] * t.shape[2] for t in tiles)
        batch_size = max(1, pairs // max(largest, 1))
        for first in range(rows.start, rows.stop, batch_size):
            batch = slice(first, min(first + batch_size, rows.stop))
            blocks = [(t, _masked_keys(problem, t, batch)) for t in tiles if bool(real[batch, t.queries].any())]
            for head in range(0, coordinates.heads, heads):
                block_heads = slice(head, min(head + heads, coordinates.heads))
                for t, written in blocks:
                    yield RowBlock(batch, block_heads, t.queries, t.keys, written)


def joined_blocks(blocks: Iterable[RowBlock], rows: int) -> Iterator[list[RowBlock]]:
    """Join the blocks of split rows: same batch rows and heads, consecutive queries, at most `rows` rows.

    A run has at least one block; a block without keys forms its own run.
    """
    run: list[RowBlock] = []
    for block in blocks:
        if run and (
            not block.keys
            or not run[-1].keys
            or (block.batch, block.heads) != (run[-1].batch, run[-1].heads)
            or block.queries.start != run[-1].queries.stop
            or _size(block.batch) * _size(block.heads) * (block.queries.stop - run[0].queries.start) > rows
        ):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


def _tiles_to_split(problem: Problem, pairs: int) -> Iterator[Tile]:
    """The tiles of a problem that `split_rows` splits into blocks of complete rows."""
    mask, coordinates = problem.mask, problem.coordinates
    if _is_structured(problem):
        # `tile` counts a per-head mask `heads` times; block sizes already account for the heads.
        largest = pairs * (coordinates.heads if mask.per_head else 1)
        yield from tile(mask, coordinates, largest=largest, every=True)
        return
    full = single_tile(mask, coordinates)
    tile_mask = TileMask.FULL if full.mask is TileMask.FULL else TileMask.MASKED
    step = max(1, pairs // max(coordinates.keys, 1))
    for row in range(0, coordinates.queries, step):
        yield Tile(full.batch, slice(row, min(row + step, coordinates.queries)), full.keys, tile_mask)


def _is_structured(problem: Problem) -> bool:
    return problem.mask.structured and problem.coordinates.aligned


def _masked_keys(problem: Problem, t: Tile, batch: slice) -> tuple[slice, ...]:
    """For rows that are split: keys of a block's tile that the mask hides, or may hide, from some queries."""
    if t.mask is TileMask.FULL:
        return ()
    mask, coordinates = problem.mask, problem.coordinates
    if not _is_structured(problem):
        return t.keys
    rows = range(batch.start, batch.stop) if mask.per_row else range(batch.start, batch.start + 1)
    start, stop = t.queries.start + coordinates.offset, t.queries.stop + coordinates.offset
    spans = [Span(row, start, stop, coordinates.offset, coordinates.keys) for row in rows]
    hidden: list[Interval] = []

    def scan(lo: int, hi: int) -> None:
        """Split a block's keys in halves to find those that the mask may hide."""
        if all(mask.is_full(span, lo, hi) for span in spans):
            return
        if hi - lo > STEP:
            middle = lo + (hi - lo) // 2
            scan(lo, middle)
            scan(middle, hi)
        elif hidden and hidden[-1][1] == lo and lo != part.start:
            hidden[-1] = (hidden[-1][0], hi)
        else:
            hidden.append((lo, hi))

    for part in t.keys:
        scan(part.start, part.stop)
    return tuple(slice(lo, hi) for lo, hi in hidden)
