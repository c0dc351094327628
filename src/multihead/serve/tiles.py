"""Parts of one head's map, from q and k, some rows at a time: memory is linear in tokens.

>>> import torch, multihead as mh
>>> from multihead.serve.tiles import HeadMap, Part
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 3, batch_first=True), 1).eval()
>>> with torch.no_grad(), mh.capture(model, statistics=None, keep="qk") as heads:
...     _ = model(torch.randn(1, 7, 12))
>>> one = HeadMap(heads.calls(heads.sites[0])[-1].problem, 2)
>>> bool((one.row(3) - heads["L0H2"].weights([3])[0, 0]).abs().max() < 1e-6)
True
>>> one.tile(Part(0, 0, 7, 7), 7, 7).shape, one.tile(Part(0, 0, 7, 7), 3, 2).shape
(torch.Size([7, 7]), torch.Size([2, 3]))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from multihead.errors import SizeError
from multihead.layer import Problem, weights_of
from multihead.layer.outputs import Cells

BLOCK = 1_000_000
"""Cells of a map that are computed at a time: few enough for the processor's cache."""


class Stopped(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True)
class Part:
    """Keys x … x + w − 1 of the queries y … y + h − 1."""

    x: int
    y: int
    w: int
    h: int


@dataclass(frozen=True)
class HeadMap:
    """softmax(q kᵀ) of one head on one text; with `factor`, each key's weight times it, rows summing to 1 again."""

    problem: Problem
    head: int
    factor: Float[Tensor, " key"] | None = None
    stopped: Callable[[], bool] = lambda: False
    """asked now and then: whether nobody waits any more"""

    @property
    def shape(self) -> tuple[int, int]:
        return self.problem.coordinates.queries, self.problem.coordinates.keys

    def rows(self, rows: list[int]) -> Float[Tensor, "row key"]:
        """The weights of some queries."""
        weights = weights_of(self.problem, Cells([self.head], rows))[0, 0].float().cpu()
        if self.factor is None:
            return weights
        weights = weights * self.factor
        return weights / weights.sum(1, keepdim=True).clamp_min(1e-30)

    def row(self, i: int) -> Float[Tensor, " key"]:
        """The weights of query i."""
        return self.rows([i])[0]

    def column(self, j: int) -> Float[Tensor, " query"]:
        """The weights that all queries give to key j."""
        seen = torch.empty(self.shape[0])
        for rows, block in self._blocks(range(self.shape[0])):
            seen[rows] = block[:, j]  # copied: a list of views would hold every block
        return seen

    def tile(self, part: Part, width: int, height: int, *, thin: bool = False) -> UInt8[Tensor, "height width"]:
        """255 √p of a part in `height` × `width` cells; of several in one place, the strongest.

        `thin`: of the rows of one place only the first is looked at, for a picture that is small and quick.
        """
        queries, keys = self.shape
        inside = part.x >= 0 and part.y >= 0 and part.x + part.w <= keys and part.y + part.h <= queries
        if not inside or not (1 <= width <= part.w and 1 <= height <= part.h):
            raise SizeError(
                f"{part} in {height} x {width} cells is no part of a map of {queries} x {keys}",
                hint="a part lies inside, and is not drawn larger than it is",
            )
        lines = _places(part.h, height)
        wanted = [part.y + int((lines == line).int().argmax()) for line in range(height)] if thin else None
        drawn = torch.zeros(height, width, dtype=torch.uint8)
        for rows, block in self._blocks(range(part.y, part.y + part.h) if wanted is None else wanted):
            narrow = _strongest(block[:, part.x : part.x + part.w], width)
            coded = (narrow.clamp(0, 1).sqrt() * 255).round().to(torch.uint8)
            at = lines[torch.tensor(rows) - part.y]
            drawn.scatter_reduce_(0, at[:, None].expand(-1, width), coded, "amax")
        return drawn

    def strongest(
        self, count: int, rows: Bool[Tensor, " query"], keys: Bool[Tensor, " key"], *, square: bool
    ) -> list[tuple[float, int, int]]:
        """The largest weights of the wanted rows and keys, (weight, query, key); `square`: none to itself."""
        best: list[tuple[float, int, int]] = []
        for at, block in self._blocks([i for i in range(self.shape[0]) if bool(rows[i])]):
            seen = block.masked_fill(~keys, -1.0)
            if square:
                seen[torch.arange(len(at)), torch.tensor(at)] = -1.0
            top = seen.flatten().topk(min(count, seen.numel()))
            found = zip(top.values.tolist(), top.indices.tolist(), strict=True)
            width = self.shape[1]
            best += [(p, at[where // width], where % width) for p, where in found if p >= 0]
            best = sorted(best, key=lambda x: -x[0])[:count]
        return best

    def _blocks(self, rows: range | list[int]) -> Iterator[tuple[list[int], Float[Tensor, "row key"]]]:
        size = max(1, BLOCK // max(1, self.shape[1]))
        for start in range(0, len(rows), size):
            if self.stopped():
                raise Stopped
            some = list(rows[start : start + size])
            yield some, self.rows(some)


def _places(count: int, places: int) -> Int[Tensor, " count"]:
    """Which of `places` even parts each of `count` things is in."""
    edges = torch.arange(places + 1) * count // places
    return torch.bucketize(torch.arange(count), edges[1:], right=True)


def _strongest(cells: Float[Tensor, "row key"], width: int) -> Float[Tensor, "row place"]:
    """The largest of each of `width` even runs of keys."""
    count = cells.shape[1]
    if width == count:
        return cells
    starts = np.arange(width) * count // width
    return torch.from_numpy(np.maximum.reduceat(cells.numpy(), starts, axis=1))
