"""Statistics of the heads of one attention site, updated call by call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead._base.arguments import names_hint
from multihead._base.shapes import HeadOutputs
from multihead.errors import SizeError
from multihead.layer import Problem
from multihead.layer._problem import autocast_disabled
from multihead.model.call import Tokens
from multihead.model.statistics.arena import Memory
from multihead.model.statistics.features import PairFeatures
from multihead.model.statistics.meanings import meanings
from multihead.model.statistics.output_means import OutputMeans
from multihead.model.statistics.row_statistics import BlockRows, Measured
from multihead.model.statistics.split_rows import RowBlock, joined_blocks, split_rows
from multihead.model.statistics.statistics_options import Statistics
from multihead.model.statistics.stream_moments import StreamMoments
from multihead.table.column_info import ColumnInfo

PENDING = 1 << 20
"""Values buffered before they are added to the moments together: many small sums cost more than one."""

PerHead = Float[Tensor, " head"]


class HeadStatistics:
    """Mean, std, min, max and histogram over query rows of every statistic of every head.

    Padded queries are excluded. Rows without a visible key (`empty`) and rows computed from NaN or inf (`broken`)
    are counted per head but not averaged; `all_padding` counts sequences that are only padding. In cross-attention
    queries and keys share no positions or tokens: distances, offsets, self, before, after, same token and induction
    have no rows and are NaN. Statistics that need token ids are NaN if the ids are unknown.
    """

    def __init__(self, heads: int, options: Statistics | None = None, memory: Memory | None = None) -> None:
        """`memory` may be shared with the statistics of other layers."""
        self.heads = heads
        self.memory = memory or Memory()
        self.options = options or Statistics()
        self.meaning: dict[str, ColumnInfo] = meanings(self.options)
        self.names = list(self.meaning)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.named = self.names[: len(self.names) - 2 * self.options.offsets - 1]  # the offsets come last
        self.moments = StreamMoments([m.scale for m in self.meaning.values()], heads, self.memory.kept)
        self.outputs = OutputMeans(heads, room=self.memory.kept)
        self.rows = 0
        """real queries"""
        self.padding = 0
        """excluded padded queries"""
        self.all_padding = 0
        """sequences without a real query"""
        self.empty: Int[Tensor, " head"] = torch.zeros(heads, dtype=torch.long)
        self.broken: Int[Tensor, " head"] = torch.zeros(heads, dtype=torch.long)

    # ---- updating -----------------------------------------------------------------------------

    @torch.no_grad()
    def update(
        self, problem: Problem, out: HeadOutputs, queries: Tokens, keys: Tokens, *, cross: bool = False
    ) -> None:
        """Add one attention call: its problem, its head outputs, and the tokens of queries and keys.

        If `cross` or `problem.cross` is true, queries and keys are different sequences.
        """
        if problem.coordinates.heads != self.heads:
            raise SizeError(
                f"the call must have {self.heads} heads, got {problem.coordinates.heads}",
                hint="keep one HeadStatistics per attention site",
            )
        with autocast_disabled(problem.q.device):
            self._update(problem, out.detach(), queries, keys, cross or problem.cross)

    def _update(self, problem: Problem, out: HeadOutputs, queries: Tokens, keys: Tokens, cross: bool) -> None:
        """Add one attention call to the statistics, block by block."""
        size = problem.coordinates
        pairs = PairFeatures.of(problem, queries, keys, self.options, cross)
        real = pairs.real
        self.rows += int(real.sum())
        self.padding += int((~real).sum())
        self.all_padding += int((~real.any(-1)).sum())
        good = torch.zeros(size.batch, size.heads, size.queries, dtype=torch.bool, device=real.device)
        measure = BlockRows(problem, out, pairs, self.options.offsets, self.memory)
        pending, limit = _PendingRows(self.moments), PENDING // len(self.names)
        for blocks in joined_blocks(split_rows(problem, real, pairs.count, self.options.block_bytes), limit):
            block = replace(blocks[0], queries=slice(blocks[0].queries.start, blocks[-1].queries.stop))
            real_rows = real[block.batch, None, block.queries]
            if not block.keys:
                self.empty[block.heads] += real_rows.sum().cpu()
                continue
            measured = measure.measure(*blocks)
            self.empty[block.heads] += (measured.empty & real_rows).sum((0, 2)).cpu()
            self.broken[block.heads] += (measured.broken & real_rows).sum((0, 2)).cpu()
            counts = real_rows & ~measured.empty & ~measured.broken
            good[block.batch, block.heads, block.queries] = counts
            pending.add(block, *self._table(measured, counts))
        pending.flush()
        self.outputs.add(out, good)

    def _table(
        self, measured: Measured, counts: Bool[Tensor, "batch head query"]
    ) -> tuple[tuple[int, ...], Float[Tensor, "statistic head row"]]:
        """Head statistics of a block of rows, and their indices; NaN if a row does not count for a head."""
        names = [name for name in self.named if name in measured.numbers]
        indices = [self.index[name] for name in names]
        parts = [measured.numbers[name] for name in names]
        if measured.near is not None:
            parts += measured.near
            indices += range(len(self.named), len(self.names))
        table = torch.stack(parts)
        table, counts = table.transpose(1, 2).flatten(2), counts.transpose(0, 1).flatten(1)
        if not bool(counts.all()):
            counted = counts.any(0)
            table = table[..., counted].masked_fill_(~counts[:, counted], torch.nan)
        return tuple(indices), table

    # ---- merging ------------------------------------------------------------------------------

    def merge(self, other: HeadStatistics) -> HeadStatistics:
        """Add the head statistics of other rows; equals one pass over both."""
        if self.names != other.names:
            raise SizeError(
                f"different statistics cannot merge: {len(self.names)} and {len(other.names)}",
                hint="create both with the same options",
            )
        self.moments.merge(other.moments)
        self.outputs.merge(other.outputs)
        self.rows += other.rows
        self.padding += other.padding
        self.all_padding += other.all_padding
        self.empty += other.empty
        self.broken += other.broken
        return self

    # ---- reading ------------------------------------------------------------------------------

    def count(self, name: str) -> Int[Tensor, " head"]:
        """Number of rows of a statistic."""
        return self.moments.count[self._index(name)].clone()

    def mean(self, name: str) -> PerHead:
        return self._nan_without_rows(name, self.moments.mean)

    def std(self, name: str) -> PerHead:
        """√(Σ (x − mean)² / count) over rows."""
        index = self._index(name)
        return self._nan_without_rows(name, self.moments.squares.div(self.moments.count[index].clamp(min=1)).sqrt())

    def min(self, name: str) -> PerHead:
        return self._nan_without_rows(name, self.moments.lowest)

    def max(self, name: str) -> PerHead:
        return self._nan_without_rows(name, self.moments.highest)

    def histogram(self, name: str) -> tuple[Float[Tensor, " edge"], Int[Tensor, "head bin"]]:
        """The histogram of a statistic (edges, counts): rows in each bin; the outer bins include values outside."""
        index, scale = self._index(name), self.meaning[name].scale
        if scale is None:
            available = [n for n, m in self.meaning.items() if m.scale is not None]
            raise SizeError(f"{name!r} has no histogram", hint=f"choose one of {', '.join(available)}")
        return scale.edges(), self.moments.histogram[self.moments.binned.index(index)].clone()

    def _nan_without_rows(self, name: str, table: Float[Tensor, "statistic head"]) -> PerHead:
        index = self._index(name)
        return table[index].masked_fill(self.moments.count[index] == 0, torch.nan)

    def _index(self, name: str) -> int:
        if name not in self.meaning:
            raise SizeError(f"unknown statistic {name!r}", hint=names_hint(name, self.names))
        return self.index[name]

    # ---- state --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """The head statistics as tensors and plain data; `from_state` restores them."""
        return {
            "heads": self.heads,
            "options": self.options.state(),
            "rows": self.rows,
            "padding": self.padding,
            "all_padding": self.all_padding,
            "empty": self.empty.clone(),
            "broken": self.broken.clone(),
            "moments": self.moments.state(),
            "outputs": self.outputs.state(),
        }

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> HeadStatistics:
        """The head statistics of `state`."""
        statistics = HeadStatistics(state["heads"], Statistics(**state["options"]))
        statistics.rows, statistics.padding = state["rows"], state["padding"]
        statistics.all_padding = state["all_padding"]
        statistics.empty.copy_(state["empty"])
        statistics.broken.copy_(state["broken"])
        statistics.moments.load(state["moments"])
        statistics.outputs.load(state["outputs"])
        return statistics


class _PendingRows:
    """A buffer of rows to add to the moments."""

    def __init__(self, moments: StreamMoments) -> None:
        self.moments = moments
        self.parts: dict[tuple[int, int, tuple[int, ...]], list[Tensor]] = {}
        self.values = 0

    def add(self, block: RowBlock, indices: tuple[int, ...], table: Float[Tensor, "statistic head row"]) -> None:
        """Keep the statistics of a block until there are enough rows to add at once."""
        self.parts.setdefault((block.heads.start, block.heads.stop, indices), []).append(table)
        self.values += table.numel()
        if self.values >= PENDING:
            self.flush()

    def flush(self) -> None:
        """Add the waiting rows to the head statistics."""
        for (start, stop, indices), tables in self.parts.items():
            table = tables[0] if len(tables) == 1 else torch.cat(tables, dim=-1)
            if table.shape[2]:
                self.moments.add(table, slice(start, stop), indices)
        self.parts, self.values = {}, 0
