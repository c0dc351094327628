"""Cut a problem into blocks of complete rows: every key that the rows may see, some heads, a bound on memory.

Complete rows need no second pass: the softmax, its maximum and every sum over keys are at hand at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from multihead.layer.frame import Span
from multihead.layer.mask_algebra import Interval
from multihead.layer.problem import Problem
from multihead.layer.tiles import Inside, Tile, tile, whole

ROWS = 96
"""Queries of a block at most: more of them compute more of the cells above the diagonal."""

FEW_ROWS = 24
"""With fewer queries than this in a block the matrix products are slow; then a block takes fewer heads instead."""

STEP = 64
"""Keys among which the mask hides some are halved down to this many, to leave out those that all may see."""


@dataclass(frozen=True)
class RowBlock:
    """Queries of some batch rows and heads, the keys they may see, and those among them that a mask may hide."""

    batch: slice
    heads: slice
    queries: slice
    keys: tuple[slice, ...]
    written: tuple[slice, ...]  # a part of `keys`, where the mask has to be written out

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(batch, heads, queries, keys)"""
        width = sum(k.stop - k.start for k in self.keys)
        return _length(self.batch), _length(self.heads), _length(self.queries), width

    def take_keys(self, table: Shaped[Tensor, "... key"]) -> Shaped[Tensor, "... block_key"]:
        """table[..., keys]: the block's part of a table whose last axis is the keys."""
        parts = [table[..., part] for part in self.keys]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def column(self, key: int) -> int:
        """Where the block holds this key."""
        at = 0
        for part in self.keys:
            if part.start <= key < part.stop:
                return at + key - part.start
            at += part.stop - part.start
        raise AssertionError(f"key {key} is not in {self.keys}")


def _length(part: slice) -> int:
    return part.stop - part.start


def cut(problem: Problem, real: Bool[Tensor, "batch query"], features: int, block_bytes: int) -> Iterator[RowBlock]:
    """Blocks that together hold every real query once; those of the same batch rows and heads follow each other.

    A (query, key) pair takes two numbers per head (score and weight) and one for each feature of the pair.
    """
    frame = problem.frame
    itemsize = torch.promote_types(problem.q.dtype, torch.float32).itemsize
    numbers, keys = block_bytes // itemsize, max(frame.keys, 1)
    size = problem.groups.size or 1
    heads = min(max((numbers // (FEW_ROWS * keys) - features) // 2, 1), frame.heads)
    heads = max(heads // size * size, min(heads, size))  # whole groups, where that many fit
    pairs = max(numbers // (2 * heads + features), 1)
    for _, same in groupby(_tiles(problem, min(pairs, ROWS * keys)), key=lambda t: (t.batch.start, t.batch.stop)):
        tiles = list(same)
        rows, largest = tiles[0].batch, max(t.shape[1] * t.shape[2] for t in tiles)
        together = 1 if problem.packing is not None else max(1, pairs // max(largest, 1))
        for first in range(rows.start, rows.stop, together):
            batch = slice(first, min(first + together, rows.stop))
            wanted = [(t, _written(problem, t, batch)) for t in tiles if bool(real[batch, t.queries].any())]
            for head in range(0, frame.heads, heads):
                some = slice(head, min(head + heads, frame.heads))
                for t, written in wanted:
                    yield RowBlock(batch, some, t.queries, t.keys, written)


def together(blocks: Iterable[RowBlock], rows: int) -> Iterator[list[RowBlock]]:
    """Blocks of the same batch rows and heads whose queries follow each other, up to `rows` rows; at least one.

    A block without keys stays alone.
    """
    held: list[RowBlock] = []
    for block in blocks:
        if held and (
            not block.keys
            or not held[-1].keys
            or (block.batch, block.heads) != (held[-1].batch, held[-1].heads)
            or block.queries.start != held[-1].queries.stop
            or _length(block.batch) * _length(block.heads) * (block.queries.stop - held[0].queries.start) > rows
        ):
            yield held
            held = []
        held.append(block)
    if held:
        yield held


def _tiles(problem: Problem, pairs: int) -> Iterator[Tile]:
    mask, frame = problem.mask, problem.frame
    if _structured(problem):
        # `tile` takes a mask that differs by head for `heads` times as large; our blocks count that themselves.
        largest = pairs * (frame.heads if mask.per_head else 1)
        yield from tile(mask, frame, largest=largest, every=True)
        return
    one = whole(mask, frame)
    inside = Inside.FULL if one.inside is Inside.FULL else Inside.MASKED
    step = max(1, pairs // max(frame.keys, 1))
    for row in range(0, frame.queries, step):
        yield Tile(one.batch, slice(row, min(row + step, frame.queries)), one.keys, inside)


def _structured(problem: Problem) -> bool:
    return problem.mask.structured and problem.frame.aligned


def _written(problem: Problem, t: Tile, batch: slice) -> tuple[slice, ...]:
    """The keys of the tile that the mask hides from some of its queries, or may hide."""
    if t.inside is Inside.FULL:
        return ()
    mask, frame = problem.mask, problem.frame
    if not _structured(problem):
        return t.keys
    rows = range(batch.start, batch.stop) if mask.per_row else range(batch.start, batch.start + 1)
    start, stop = t.queries.start + frame.offset, t.queries.stop + frame.offset
    spans = [Span(row, start, stop, frame.offset, frame.keys) for row in rows]
    hidden: list[Interval] = []

    def look(lo: int, hi: int) -> None:
        if all(mask.covers(span, lo, hi) for span in spans):
            return
        if hi - lo > STEP:
            middle = lo + (hi - lo) // 2
            look(lo, middle)
            look(middle, hi)
        elif hidden and hidden[-1][1] == lo and lo != part.start:
            hidden[-1] = (hidden[-1][0], hi)
        else:
            hidden.append((lo, hi))

    for part in t.keys:
        look(part.start, part.stop)
    return tuple(slice(lo, hi) for lo, hi in hidden)
