"""Statistics of the heads of one attention site, taken in call by call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.errors import SizeError
from multihead.layer.problem import Problem, own_precision
from multihead.model.call import Tokens
from multihead.model.statistics.arena import Memory
from multihead.model.statistics.blocks import RowBlock, cut, together
from multihead.model.statistics.catalogue import meanings
from multihead.model.statistics.features import Pairs
from multihead.model.statistics.moments import Moments
from multihead.model.statistics.options import Statistics
from multihead.model.statistics.output_moments import Outputs
from multihead.model.statistics.row_means import Measured
from multihead.model.statistics.row_sums import BlockRows
from multihead.table.meaning import Meaning

HELD = 1 << 20
"""Numbers of rows that are held back before they are taken in together: many small sums cost more than one."""

PerHead = Float[Tensor, " head"]


class HeadStatistics:
    """Mean, std, min, max and histogram over query rows of every statistic of every head.

    Padded queries are left out. Rows that may see nothing (`empty`) and rows made from NaN or inf (`broken`) are
    counted per head and never averaged; sequences of nothing but padding are counted in `all_padding`.
    Cross-attention has no places or tokens in common, so distances, offsets, self, before, after, same token and
    induction stay without a count there, and read as NaN; as does what needs ids where none are known.
    """

    def __init__(self, heads: int, options: Statistics | None = None, memory: Memory | None = None) -> None:
        """`memory`: what to share with the statistics of other layers."""
        self.heads = heads
        self.memory = memory or Memory()
        self.options = options or Statistics()
        self.meaning: dict[str, Meaning] = meanings(self.options)
        self.names = list(self.meaning)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.named = self.names[: len(self.names) - 2 * self.options.offsets - 1]  # the offsets come last
        self.moments = Moments([m.scale for m in self.meaning.values()], heads, self.memory.kept)
        self.outputs = Outputs(heads, covariance=self.options.covariance, room=self.memory.kept)
        self.rows = 0
        """real queries taken in"""
        self.padding = 0
        """padded queries left out"""
        self.all_padding = 0
        """sequences without a real query"""
        self.empty: Int[Tensor, " head"] = torch.zeros(heads, dtype=torch.long)
        self.broken: Int[Tensor, " head"] = torch.zeros(heads, dtype=torch.long)

    # ---- taking in ----------------------------------------------------------------------------

    @torch.no_grad()
    def update(
        self, problem: Problem, out: HeadOutputs, queries: Tokens, keys: Tokens, *, cross: bool = False
    ) -> None:
        """Take in one call: what the kernel saw, what it returned, and the tokens on both sides.

        With `cross` (or `problem.cross`) the two sides are different sequences.
        """
        if problem.frame.heads != self.heads:
            raise SizeError(
                f"these are statistics of {self.heads} heads, the call has {problem.frame.heads}",
                hint="keep one HeadStatistics per attention site",
            )
        with own_precision(problem.q.device):
            self._update(problem, out.detach(), queries, keys, cross or problem.cross)

    def _update(self, problem: Problem, out: HeadOutputs, queries: Tokens, keys: Tokens, cross: bool) -> None:
        frame = problem.frame
        pairs = Pairs.of(problem, queries, keys, self.options, cross)
        real = pairs.real
        self.rows += int(real.sum())
        self.padding += int((~real).sum())
        self.all_padding += int((~real.any(-1)).sum())
        good = torch.zeros(frame.batch, frame.heads, frame.queries, dtype=torch.bool, device=real.device)
        measure, held = BlockRows(problem, out, pairs, self.options.offsets, self.memory), _Held(self.moments)
        for blocks in together(cut(problem, real, pairs.count, self.options.block_bytes), HELD // len(self.names)):
            block = replace(blocks[0], queries=slice(blocks[0].queries.start, blocks[-1].queries.stop))
            mine = real[block.batch, None, block.queries]
            if not block.keys:
                self.empty[block.heads] += mine.sum().cpu()
                continue
            found = measure.measure(*blocks)
            self.empty[block.heads] += (found.empty & mine).sum((0, 2)).cpu()
            self.broken[block.heads] += (found.broken & mine).sum((0, 2)).cpu()
            counts = mine & ~found.empty & ~found.broken
            good[block.batch, block.heads, block.queries] = counts
            held.add(block, *self._table(found, counts))
        held.flush()
        self.outputs.add(_by_row(out, problem, good), good)

    def _table(
        self, found: Measured, counts: Bool[Tensor, "batch head query"]
    ) -> tuple[tuple[int, ...], Float[Tensor, "statistic head row"]]:
        """Which statistics the block has, and their rows; NaN where a row does not count for a head."""
        named = [name for name in self.named if name in found.numbers]
        which = [self.index[name] for name in named]
        parts = [found.numbers[name] for name in named]
        if found.near is not None:
            parts += found.near
            which += range(len(self.named), len(self.names))
        table = torch.stack(parts)
        table, counts = table.transpose(1, 2).flatten(2), counts.transpose(0, 1).flatten(1)
        if not bool(counts.all()):
            some = counts.any(0)
            table = table[..., some].masked_fill_(~counts[:, some], torch.nan)
        return tuple(which), table

    # ---- joining ------------------------------------------------------------------------------

    def merge(self, other: HeadStatistics) -> HeadStatistics:
        """Take in all that another has taken in: the same as one pass over both."""
        if self.names != other.names:
            raise SizeError(
                f"{len(self.names)} and {len(other.names)} statistics do not merge",
                hint="both must be made with the same options",
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
        """Rows that the statistic is of."""
        return self.moments.count[self._index(name)].clone()

    def mean(self, name: str) -> PerHead:
        return self._where_any(name, self.moments.mean)

    def std(self, name: str) -> PerHead:
        """√(Σ (x − mean)² / count) over rows."""
        at = self._index(name)
        return self._where_any(name, self.moments.squares.div(self.moments.count[at].clamp(min=1)).sqrt())

    def min(self, name: str) -> PerHead:
        return self._where_any(name, self.moments.lowest)

    def max(self, name: str) -> PerHead:
        return self._where_any(name, self.moments.highest)

    def histogram(self, name: str) -> tuple[Float[Tensor, " edge"], Int[Tensor, "head bin"]]:
        """(edges, counts): how many rows lie in each bin; the outer bins hold what lies outside."""
        at, scale = self._index(name), self.meaning[name].scale
        if scale is None:
            having = [n for n, m in self.meaning.items() if m.scale is not None]
            raise SizeError(f"{name!r} has no histogram", hint=f"these have: {', '.join(having)}")
        return scale.edges(), self.moments.histogram[self.moments.binned.index(at)].clone()

    def _where_any(self, name: str, table: Float[Tensor, "statistic head"]) -> PerHead:
        at = self._index(name)
        return table[at].masked_fill(self.moments.count[at] == 0, torch.nan)

    def _index(self, name: str) -> int:
        if name not in self.meaning:
            raise SizeError(f"there is no statistic {name!r}", hint=f"choose one of {', '.join(self.names)}")
        return self.index[name]

    # ---- keeping ------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything as tensors and plain data: `from_state` makes the same statistics again."""
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
        made = HeadStatistics(state["heads"], Statistics(**state["options"]))
        made.rows, made.padding, made.all_padding = state["rows"], state["padding"], state["all_padding"]
        made.empty.copy_(state["empty"])
        made.broken.copy_(state["broken"])
        made.moments.load(state["moments"])
        made.outputs.load(state["outputs"])
        return made


class _Held:
    """Rows on their way into the moments."""

    def __init__(self, moments: Moments) -> None:
        self.moments = moments
        self.parts: dict[tuple[int, int, tuple[int, ...]], list[Tensor]] = {}
        self.numbers = 0

    def add(self, block: RowBlock, which: tuple[int, ...], table: Float[Tensor, "statistic head row"]) -> None:
        self.parts.setdefault((block.heads.start, block.heads.stop, which), []).append(table)
        self.numbers += table.numel()
        if self.numbers >= HELD:
            self.flush()

    def flush(self) -> None:
        for (start, stop, which), tables in self.parts.items():
            table = tables[0] if len(tables) == 1 else torch.cat(tables, dim=-1)
            if table.shape[2]:
                self.moments.add(table, slice(start, stop), which)
        self.parts, self.numbers = {}, 0


def _by_row(
    out: HeadOutputs, problem: Problem, good: Bool[Tensor, "row head token"]
) -> Float[Tensor, "row head token value_dim"]:
    """The outputs of the heads by batch row, also where they are packed."""
    if problem.packing is None:
        return out
    rows = out.new_zeros(*good.shape, out.shape[3])
    for b, (start, stop) in enumerate(zip(problem.packing, problem.packing[1:], strict=False)):
        rows[b, :, : stop - start] = out[0, :, start:stop]
    return rows
