"""Positions of the queries and keys of one call, and index grids over any block of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

if TYPE_CHECKING:
    from multihead.layer._head_shard import HeadShard
    from multihead.layer._kv_store import SequenceShard

ALL = slice(None)


@dataclass(frozen=True)
class Grid:
    """Index tensors of one block of the score tensor; together they broadcast to (batch, head, query, key).

    `query` and `key` are positions in the sequence, aligned bottom-right; `row` counts the queries of this call
    from 0; `batches`, `rows` and `columns` are the ranges of batch rows, queries and key slots that the block
    covers.
    """

    batch: Int[Tensor, "batch 1 1 1"]
    head: Int[Tensor, "1 head 1 1"]
    query: Int[Tensor, "#batch 1 query 1"]
    key: Int[Tensor, "#batch 1 1 key"]
    row: Int[Tensor, "1 1 query 1"]
    batches: slice
    rows: slice | Tensor
    columns: tuple[slice, ...]
    scattered: bool = False
    """whether keys are not in the order of their positions, as in a ring"""

    @property
    def device(self) -> torch.device:
        return self.query.device

    def take_tokens(self, table: Shaped[Tensor, "#batch ... token"]) -> Shaped[Tensor, "#batch ... key"]:
        """The grid's part of a table with one entry per token of the text along its last axis."""
        if not self.scattered:
            return self.take_columns(table)
        # Padding of a ragged chunk may have positions past the last token; `filled` hides it.
        positions = self.key[:, 0, 0].clamp(max=table.shape[-1] - 1)
        rows = max(table.shape[0], positions.shape[0])
        index = positions.view(-1, *(1,) * (table.ndim - 2), positions.shape[-1])
        shape = (rows, *table.shape[1:-1], positions.shape[-1])
        return table.expand(rows, *table.shape[1:]).gather(-1, index.expand(shape))

    def take_columns(self, table: Tensor) -> Tensor:
        """The grid's part of a table with one entry per key slot along its last axis: table[..., columns]."""
        if self.columns == (ALL,):
            return table
        parts = [table[..., c] for c in self.columns]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


@dataclass(frozen=True, eq=False)  # compared by identity: `aligned` returns one object for equal sizes
class Coordinates:
    """Sizes of one call, and the positions of its queries and keys in the sequence.

    If `query_positions` and `key_positions` are None, keys are at 0..keys-1 and the last query is at the last key
    (bottom-right alignment), in every row. A cache whose rows differ in length sets them. `head_ids` are the heads
    of the layer on this rank, out of `all_heads`; by default all of them.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    device: torch.device
    query_positions: Int[Tensor, "#batch query"] | None = None
    key_positions: Int[Tensor, "#batch key"] | None = None
    head_ids: tuple[int, ...] | None = None
    all_heads: int | None = None
    tokens: int | None = None
    """tokens of the text, if the keys are only some of them, as in a ring; if None, `keys`"""
    shard: SequenceShard | None = None
    """set if the sequence is split over ranks; sizes and positions are then those of the full sequence"""

    @property
    def key(self) -> Hashable:
        """The key of the coordinates for cached plans: this object, or its sizes if no positions are explicit."""
        if self.query_positions is None and self.key_positions is None:
            return self
        return self.batch, self.heads, self.all_heads, self.queries, self.keys, self.tokens, self.device

    @property
    def aligned(self) -> bool:
        """Whether every row is bottom-right aligned, so the host knows all positions."""
        return self.query_positions is None and self.key_positions is None

    @property
    def offset(self) -> int:
        """Position of the first query."""
        return self.keys - self.queries

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(batch, head, query, key) of masks written by the user, for the heads of all ranks."""
        tokens = self.keys if self.tokens is None else self.tokens
        return self.batch, self.all_heads or self.heads, self.queries, tokens

    @property
    def empty(self) -> bool:
        """Whether the call has no scores to compute."""
        return self.batch * self.heads * self.queries * self.keys == 0

    def of_heads(self, heads: Sequence[int]) -> Coordinates:
        """The coordinates of some of these heads."""
        ids = range(self.heads) if self.head_ids is None else self.head_ids
        return replace(
            self, heads=len(heads), head_ids=tuple(ids[h] for h in heads), all_heads=self.all_heads or self.heads
        )

    def all_queries(self) -> Int[Tensor, "#batch query"]:
        if self.query_positions is not None:
            return self.query_positions
        return torch.arange(self.offset, self.keys, device=self.device).unsqueeze(0)

    def all_keys(self) -> Int[Tensor, "#batch key"]:
        if self.key_positions is not None:
            return self.key_positions
        return torch.arange(self.keys, device=self.device).unsqueeze(0)

    def grid(
        self,
        batches: slice = ALL,
        rows: slice | Tensor = ALL,
        columns: tuple[slice, ...] = (ALL,),
        heads: slice | Tensor = ALL,
    ) -> Grid:
        """Index grids over a block of coordinates: batch, head, query and key, which broadcast."""
        query, key = self.all_queries()[:, rows], self.all_keys()
        if query.shape[0] > 1:
            query = query[batches]
        if key.shape[0] > 1:
            key = key[batches]
        head = torch.arange(self.heads, device=self.device)
        if self.head_ids is not None:
            head = torch.tensor(self.head_ids, device=self.device)
        grid = Grid(
            batch=torch.arange(self.batch, device=self.device)[batches].view(-1, 1, 1, 1),
            head=head[heads].view(1, -1, 1, 1),
            query=query[:, None, :, None],
            key=key[:, None, None, :],
            row=torch.arange(self.queries, device=self.device)[rows].view(1, 1, -1, 1),
            batches=batches,
            rows=rows,
            columns=columns,
            scattered=self.tokens is not None,
        )
        return replace(grid, key=grid.take_columns(grid.key))


@lru_cache(maxsize=1024)
def aligned(batch: int, heads: int, queries: int, keys: int, device: torch.device) -> Coordinates:
    """Bottom-right aligned coordinates; not for traced graphs, where a size may be a symbol."""
    return Coordinates(batch, heads, queries, keys, device)


@lru_cache(maxsize=256)
def localized(coordinates: Coordinates, shard: HeadShard | None) -> Coordinates:
    """The coordinates of the heads on this rank; unchanged if the layer is not split over ranks."""
    return coordinates if shard is None else replace(coordinates, head_ids=shard.heads, all_heads=shard.all_heads)


@dataclass(frozen=True)
class Span:
    """Queries at positions start..stop-1 of one batch row, in aligned coordinates."""

    row: int
    start: int
    stop: int
    offset: int
    keys: int
