"""Where the queries and keys of one call stand, and index grids over any block of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from multihead.layer.apart import Apart

ALL = slice(None)


@dataclass(frozen=True)
class Grid:
    """Index tensors of one block of the score tensor; together they broadcast to (batch, head, query, key).

    `query` and `key` are places in the sequence, aligned bottom-right; `row` counts the queries of this
    call from 0; `batches`, `rows` and `columns` say which part of the whole the block covers.
    """

    batch: Int[Tensor, "batch 1 1 1"]
    head: Int[Tensor, "1 head 1 1"]
    query: Int[Tensor, "#batch 1 query 1"]
    key: Int[Tensor, "#batch 1 1 key"]
    row: Int[Tensor, "1 1 query 1"]
    batches: slice
    rows: slice | Tensor
    columns: tuple[slice, ...]

    @property
    def device(self) -> torch.device:
        return self.query.device

    def take_columns(self, table: Tensor) -> Tensor:
        """table[..., columns]: the block's part of a table whose last axis is the key slots."""
        if self.columns == (ALL,):
            return table
        parts = [table[..., c] for c in self.columns]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


@dataclass(frozen=True)
class Frame:
    """Sizes of one call, and the places its queries and keys take in the sequence.

    With `query_places` and `key_places` left out, keys stand at 0..keys-1 and the last query stands at the
    last key (bottom-right alignment), in every row alike. A cache whose rows differ says otherwise. With `apart`
    the frame is that of the whole sequence, and this rank has some of its tokens.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    device: torch.device
    query_places: Int[Tensor, "#batch query"] | None = None
    key_places: Int[Tensor, "#batch key"] | None = None
    apart: Apart | None = None

    @property
    def aligned(self) -> bool:
        """Whether every row is bottom-right aligned, so that structure is known without looking at tensors."""
        return self.query_places is None and self.key_places is None

    @property
    def offset(self) -> int:
        """Place of the first query."""
        return self.keys - self.queries

    def queries_at(self) -> Int[Tensor, "#batch query"]:
        if self.query_places is not None:
            return self.query_places
        return torch.arange(self.offset, self.keys, device=self.device).unsqueeze(0)

    def keys_at(self) -> Int[Tensor, "#batch key"]:
        if self.key_places is not None:
            return self.key_places
        return torch.arange(self.keys, device=self.device).unsqueeze(0)

    def grid(
        self,
        batches: slice = ALL,
        rows: slice | Tensor = ALL,
        columns: tuple[slice, ...] = (ALL,),
        heads: slice | Tensor = ALL,
    ) -> Grid:
        query, key = self.queries_at()[:, rows], self.keys_at()
        if query.shape[0] > 1:
            query = query[batches]
        if key.shape[0] > 1:
            key = key[batches]
        grid = Grid(
            batch=torch.arange(self.batch, device=self.device)[batches].view(-1, 1, 1, 1),
            head=torch.arange(self.heads, device=self.device)[heads].view(1, -1, 1, 1),
            query=query[:, None, :, None],
            key=key[:, None, None, :],
            row=torch.arange(self.queries, device=self.device)[rows].view(1, 1, -1, 1),
            batches=batches,
            rows=rows,
            columns=columns,
        )
        return replace(grid, key=grid.take_columns(grid.key))


@dataclass(frozen=True)
class Span:
    """A run of queries of one batch row, known on the host: places start..stop-1 of an aligned frame."""

    row: int
    start: int
    stop: int
    offset: int
    keys: int
