"""Parts of one head's map, from q and k, some rows at a time: memory is linear in tokens.

>>> import torch, multihead as mh
>>> from multihead.show.map_tiles import HeadMap, Part
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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from multihead._base.charts import bin_starts, pooled
from multihead.errors import SizeError
from multihead.layer import Problem, weights_of
from multihead.layer.outputs import Cells

BLOCK = 1_000_000
"""Cells of a map that are computed at a time: few enough for the processor's cache."""


class Stopped(Exception):
    """The browser no longer waits for the answer."""


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
    """called between blocks: whether the browser has hung up"""

    @property
    def shape(self) -> tuple[int, int]:
        return self.problem.coordinates.queries, self.problem.coordinates.keys

    def rows(self, rows: list[int]) -> Float[Tensor, "row key"]:
        """The weights of some queries, computed for tiles of the map."""
        weights = weights_of(self.problem, Cells([self.head], rows))[0, 0].float().cpu()
        if self.factor is None:
            return weights
        weights = weights * self.factor
        return weights / weights.sum(1, keepdim=True).clamp_min(1e-30)

    def row(self, i: int) -> Float[Tensor, " key"]:
        """The weights of query i."""
        return self.rows([i])[0]

    def column(self, j: int) -> Float[Tensor, " query"]:
        """The column of the map: the weights that all queries give to key j."""
        weights = torch.empty(self.shape[0])
        for rows, block in self._blocks(range(self.shape[0])):
            weights[rows] = block[:, j]  # copied: a list of views would hold every block
        return weights

    def tile(self, part: Part, width: int, height: int, *, thin: bool = False) -> UInt8[Tensor, "height width"]:
        """A tile of the map: 255 √p in `height` × `width` pixels; a pixel shows the largest weight of its cells.

        `thin`: of the rows of a pixel only the first is computed, for a picture that is small and quick.
        """
        queries, keys = self.shape
        inside = part.x >= 0 and part.y >= 0 and part.x + part.w <= keys and part.y + part.h <= queries
        if not inside:
            raise SizeError(
                f"the part must lie inside the map of {queries} x {keys}, got {part}",
                hint="x + w is at most the number of keys, y + h that of queries",
            )
        if not (1 <= width <= part.w and 1 <= height <= part.h):
            raise SizeError(
                f"a picture must have 1 to {part.h} x 1 to {part.w} pixels, got {height} x {width}",
                hint="a cell has at most one pixel",
            )
        pixel_of_row = _bins(part.h, height)
        rows: Sequence[int] = range(part.h)
        if thin:
            rows = [int((pixel_of_row == pixel).int().argmax()) for pixel in range(height)]
        picture = torch.zeros(height, width, dtype=torch.uint8)
        for block_rows, block in self._blocks([part.y + row for row in rows]):
            largest = torch.from_numpy(pooled(block[:, part.x : part.x + part.w].numpy(), len(block), width))
            coded = (largest.clamp(0, 1).sqrt() * 255).round().to(torch.uint8)
            pixels = pixel_of_row[torch.tensor(block_rows) - part.y]
            picture.scatter_reduce_(0, pixels[:, None].expand(-1, width), coded, "amax")
        return picture

    def strongest(
        self, count: int, rows: Bool[Tensor, " query"], keys: Bool[Tensor, " key"], *, square: bool
    ) -> list[tuple[float, int, int]]:
        """The map's largest weights in some rows and keys: (weight, query, key). `square`: no diagonal."""
        best: list[tuple[float, int, int]] = []
        keys_per_row = self.shape[1]
        for queries, block in self._blocks(rows.nonzero().flatten().tolist()):
            weights = block.masked_fill(~keys, -1.0)
            if square:
                weights[torch.arange(len(queries)), torch.tensor(queries)] = -1.0
            top = weights.flatten().topk(min(count, weights.numel()))
            for weight, cell in zip(top.values.tolist(), top.indices.tolist(), strict=True):
                if weight >= 0:
                    best.append((weight, queries[cell // keys_per_row], cell % keys_per_row))
            best = sorted(best, key=lambda pair: -pair[0])[:count]
        return best

    def _blocks(self, rows: range | list[int]) -> Iterator[tuple[list[int], Float[Tensor, "row key"]]]:
        """The map in blocks of rows, so that memory is linear in tokens."""
        size = max(1, BLOCK // max(1, self.shape[1]))
        for start in range(0, len(rows), size):
            if self.stopped():
                raise Stopped
            block = list(rows[start : start + size])
            yield block, self.rows(block)


def _bins(count: int, bins: int) -> Int[Tensor, " count"]:
    """Which of some even bins each index is in."""
    starts = torch.tensor(bin_starts(count, bins))
    return torch.bucketize(torch.arange(count), starts[1:], right=True)
