"""Run a kernel over tiles and join the outputs, with gradients linear in tokens.

The backward pass of n slices writes n full-size gradients. Where gradients are needed, keys and values are
therefore split once, at the bounds of all tiles (the backward of a split is one cat), and each tile joins the
pieces it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from multihead._base.shapes import HeadOutputs, Keys, Queries, Values
from multihead.layer._kernels import ScoreBlock, lower
from multihead.layer._problem import Problem
from multihead.layer._tiles import ANY_SIZE, Tile
from multihead.layer._tracing import is_compiling

Kernel = Callable[[ScoreBlock], HeadOutputs]
TileKernel = Callable[[Problem, Tile, Queries, Keys, Values], HeadOutputs]


def on_block(kernel: Kernel) -> TileKernel:
    """Turn a kernel of blocks into a kernel of tiles."""
    return lambda problem, tile, q, k, v: kernel(lower(problem, tile, q, k, v))


def run_tiles(problem: Problem, tiles: Sequence[Tile], kernel: TileKernel, *, empty: float = 0.0) -> HeadOutputs:
    """Run the kernel on each tile; together the tiles hold every query once. The output without keys is `empty`."""
    q, k, v = problem.q, problem.k, problem.v
    if problem.packed is not None:
        return _run_rows(problem, _packed_tiles(tiles, problem.packed.bounds), q, k, v, kernel, empty)
    if is_compiling() or (len(tiles) == 1 and (tiles[0] is ANY_SIZE or tiles[0].shape[2] == k.shape[2])):
        return kernel(problem, tiles[0], q, k, v)  # one tile holds everything
    groups = [
        (rows, [_StoredTile(t, t.queries, t.keys) for t in same]) for rows, same in groupby(tiles, key=_batch_rows)
    ]
    sizes = [stop - start for (start, stop), _ in groups]
    parts = zip(groups, q.split(sizes), k.split(sizes), v.split(sizes), strict=True)
    outs = [_run_rows(problem, stored, gq, gk, gv, kernel, empty) for (_, stored), gq, gk, gv in parts]
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=0)


class _StoredTile(NamedTuple):
    """A tile, and the ranges of the stored tokens that hold its queries and keys."""

    tile: Tile
    queries: slice
    keys: tuple[slice, ...]


def _batch_rows(tile: Tile) -> tuple[int, int]:
    return tile.batch.start, tile.batch.stop


def _packed_tiles(tiles: Sequence[Tile], bounds: Sequence[int]) -> list[_StoredTile]:
    """Tiles of packed rows: one row each, shifted to the stored tokens of the row, without padding queries."""
    stored: list[_StoredTile] = []
    by_row = {row: [t for t in tiles if t.batch.start <= row < t.batch.stop] for row in range(len(bounds) - 1)}
    for row, row_tiles in by_row.items():
        base, real = bounds[row], bounds[row + 1] - bounds[row]
        for t in row_tiles:
            start, stop = t.queries.start, min(t.queries.stop, real)
            if start < stop:
                keys = tuple(slice(base + k.start, base + k.stop) for k in t.keys)
                tile = Tile(slice(row, row + 1), slice(start, stop), t.keys, t.mask)
                stored.append(_StoredTile(tile, slice(base + start, base + stop), keys))
    return stored


def _run_rows(
    problem: Problem,
    tiles: Sequence[_StoredTile],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kernel: TileKernel,
    empty: float,
) -> HeadOutputs:
    """Run the kernel on the tiles of some batch rows, and join their outputs."""
    queries = _Pieces(q, [t.queries for t in tiles])
    key_ranges = [key_range for t in tiles for key_range in t.keys]
    keys, values = _Pieces(k, key_ranges), _Pieces(v, key_ranges)
    outs: list[Tensor] = []
    for t in tiles:
        tile_q = queries.take((t.queries,))
        if t.keys:
            outs.append(kernel(problem, t.tile, tile_q, keys.take(t.keys), values.take(t.keys)))
        else:
            outs.append(zero_output(tile_q, v.shape[3]) + empty)
    if not outs:
        return zero_output(q, v.shape[3])
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)


def zero_output(q: Tensor, value_dim: int) -> HeadOutputs:
    """Zeros for queries that attend to nothing; part of the graph, so gradients are zeros too."""
    return q[..., :0].sum(-1, keepdim=True).expand(*q.shape[:-1], value_dim)


class _Pieces:
    """A tensor from which many ranges of tokens (axis 2) are taken."""

    def __init__(self, x: Tensor, ranges: Sequence[slice]) -> None:
        self.x = x
        self.pieces: dict[int, tuple[int, Tensor]] | None = None
        if torch.is_grad_enabled() and x.requires_grad:
            bounds = sorted({0, x.shape[2], *(b for r in ranges for b in (r.start, r.stop))})
            sizes = [hi - lo for lo, hi in pairwise(bounds)]
            split = x.split(sizes, dim=2)
            self.pieces = {lo: (hi, p) for lo, hi, p in zip(bounds, bounds[1:], split, strict=False)}

    def take(self, ranges: Sequence[slice]) -> Tensor:
        """Some ranges of a tensor, joined for a tile."""
        if len(ranges) == 1 and ranges[0] == slice(0, self.x.shape[2]):
            return self.x
        if self.pieces is None:
            taken = [self.x[:, :, r] for r in ranges]
        else:
            taken: list[Tensor] = []
            for r in ranges:
                start = r.start
                while start < r.stop:
                    start, piece = self.pieces[start]
                    taken.append(piece)
        return taken[0] if len(taken) == 1 else torch.cat(taken, dim=2)
