"""Run a kernel over tiles and put the outputs together, with gradients that stay linear in tokens.

Slicing a tensor n times makes a backward that writes n full-size gradients. So where gradients are needed
keys and values are split once, at every bound that any tile has (the backward of a split is one cat), and a
tile joins the pieces it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise

import torch
from torch import Tensor

from multihead._base.shapes import HeadOutputs, Keys, Queries, Values
from multihead.layer._kernels import Block, lower
from multihead.layer._problem import Problem
from multihead.layer._tiles import ANY_SIZE, Tile

Kernel = Callable[[Block], HeadOutputs]
TileKernel = Callable[[Problem, Tile, Queries, Keys, Values], HeadOutputs]


def on_block(kernel: Kernel) -> TileKernel:
    """A kernel of blocks as a kernel of tiles."""
    return lambda problem, tile, q, k, v: kernel(lower(problem, tile, q, k, v))


def run_tiles(problem: Problem, tiles: Sequence[Tile], kernel: TileKernel, *, nothing: float = 0.0) -> HeadOutputs:
    """Each tile through the kernel; together they hold every query once. Queries without keys give `nothing`."""
    q, k, v = problem.q, problem.k, problem.v
    if problem.packing is not None:
        return _run_rows(problem, _stored(tiles, problem.packing.bounds), q, k, v, kernel, nothing)
    if torch.compiler.is_compiling() or (
        len(tiles) == 1 and (tiles[0] is ANY_SIZE or tiles[0].shape[2] == k.shape[2])
    ):
        return kernel(problem, tiles[0], q, k, v)  # everything at once: nothing to cut, and a graph shows it
    groups = [(rows, [(t, t.queries, t.keys) for t in same]) for rows, same in groupby(tiles, key=_rows)]
    sizes = [stop - start for (start, stop), _ in groups]
    parts = zip(groups, q.split(sizes), k.split(sizes), v.split(sizes), strict=True)
    outs = [_run_rows(problem, placed, gq, gk, gv, kernel, nothing) for (_, placed), gq, gk, gv in parts]
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=0)


_Placed = tuple[Tile, slice, tuple[slice, ...]]  # a tile, and where its queries and keys are stored


def _rows(tile: Tile) -> tuple[int, int]:
    return tile.batch.start, tile.batch.stop


def _stored(tiles: Sequence[Tile], bounds: Sequence[int]) -> list[_Placed]:
    """Tiles of packed rows: one row each, shifted to where the row is stored, without queries of the padding."""
    placed: list[_Placed] = []
    by_row = {row: [t for t in tiles if t.batch.start <= row < t.batch.stop] for row in range(len(bounds) - 1)}
    for row, mine in by_row.items():
        base, real = bounds[row], bounds[row + 1] - bounds[row]
        for t in mine:
            start, stop = t.queries.start, min(t.queries.stop, real)
            if start < stop:
                keys = tuple(slice(base + k.start, base + k.stop) for k in t.keys)
                tile = Tile(slice(row, row + 1), slice(start, stop), t.keys, t.inside)
                placed.append((tile, slice(base + start, base + stop), keys))
    return placed


def _run_rows(
    problem: Problem,
    placed: Sequence[_Placed],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    kernel: TileKernel,
    nothing: float,
) -> HeadOutputs:
    asked = _Pieces(q, [queries for _, queries, _ in placed])
    bounds = [key for _, _, keys in placed for key in keys]
    keys, values = _Pieces(k, bounds), _Pieces(v, bounds)
    outs: list[Tensor] = []
    for tile, queries, ranges in placed:
        rows = asked.take((queries,))
        if not ranges:
            outs.append(zero_output(rows, v.shape[3]) + nothing)
            continue
        outs.append(kernel(problem, tile, rows, keys.take(ranges), values.take(ranges)))
    if not outs:
        return zero_output(q, v.shape[3])
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=2)


def zero_output(q: Tensor, value_dim: int) -> HeadOutputs:
    """Zeros for queries that attend to nothing, part of the graph so that gradients are zeros too."""
    return q[..., :0].sum(-1, keepdim=True).expand(*q.shape[:-1], value_dim)


class _Pieces:
    """A tensor from which ranges of tokens (axis 2) are taken many times."""

    def __init__(self, x: Tensor, ranges: Sequence[slice]) -> None:
        self.x = x
        self.pieces: dict[int, tuple[int, Tensor]] | None = None
        if torch.is_grad_enabled() and x.requires_grad:
            bounds = sorted({0, x.shape[2], *(b for r in ranges for b in (r.start, r.stop))})
            sizes = [hi - lo for lo, hi in pairwise(bounds)]
            split = x.split(sizes, dim=2)
            self.pieces = {lo: (hi, p) for lo, hi, p in zip(bounds, bounds[1:], split, strict=False)}

    def take(self, ranges: Sequence[slice]) -> Tensor:
        if len(ranges) == 1 and ranges[0] == slice(0, self.x.shape[2]):
            return self.x
        if self.pieces is None:
            taken = [self.x[:, :, r] for r in ranges]
        else:
            taken: list[Tensor] = []
            for r in ranges:
                at = r.start
                while at < r.stop:
                    at, piece = self.pieces[at]
                    taken.append(piece)
        return taken[0] if len(taken) == 1 else torch.cat(taken, dim=2)
