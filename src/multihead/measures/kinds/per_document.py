"""Statistics of heads per document, rather than over all tokens.

A document is a row of a batch. Its attention rows are summed block by block, so only (document, head) values are
stored. Two artificial heads attend to the same tokens through the same mask: the `even` head has uniform weights
over its visible keys, and the `random` head has standard normal scores. They give the value of a statistic by
chance. The even head also determines where a statistic is defined: the first token has no previous one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead._base.shapes import HeadOutputs
from multihead.layer import Groups, Problem, attend
from multihead.layer._problem import ScoreConfig, autocast_disabled
from multihead.model.call import Call, Tokens
from multihead.model.kernel_arguments import without_interception
from multihead.model.statistics.arena import Memory
from multihead.model.statistics.features import PairFeatures
from multihead.model.statistics.meanings import offset_name
from multihead.model.statistics.row_statistics import BlockRows
from multihead.model.statistics.split_rows import RowBlock, split_rows
from multihead.model.statistics.statistics_options import Statistics

PerDocument = Float[Tensor, "document head"]

RANDOM_DIM = 64
"""Query and key size of the random head, large enough for nearly independent scores."""

PLACES = ("first", "self", "previous", "next", "before", "after")
TOKENS = ("special", "same_token", "induction")
NEEDED = (*PLACES, *TOKENS, "relative_entropy", "output_norm")
"""Row statistics to sum, besides offsets and classes."""

ROUNDING = 1e-7
"""Below any weight of an even head; smaller masses are rounding errors."""

EVEN, RANDOM = 0, 1
"""Indices of the two artificial heads."""


@dataclass(frozen=True)
class Sums:
    """Sum of each statistic over the rows of a document, and the number of rows for which it is defined."""

    total: dict[str, PerDocument]
    rows: dict[str, PerDocument]
    all_rows: PerDocument

    def mean(self, name: str) -> PerDocument:
        """Mean over the rows for which it is defined; NaN if there are none."""
        # Without rows the total may be a rounding error, and dividing it by 0 infinite.
        return (self.total[name] / self.rows[name]).masked_fill(self.rows[name] == 0, torch.nan)

    def share(self, *names: str) -> PerDocument:
        """Sum of the named statistics / all rows."""
        return torch.stack([self.total[name] for name in names]).sum(0) / self.all_rows


@dataclass(frozen=True)
class DocumentSums:
    """One attention call by document: sums of its heads and of the artificial heads, and its tokens."""

    heads: Sums
    chance: Sums  # of the heads EVEN and RANDOM
    ids: Int[Tensor, "document key"] | None
    real: Bool[Tensor, "document key"]
    sees: dict[str, Bool[Tensor, "document query"]]  # by statistic: rows for which it is defined
    cross: bool
    lined: dict[str, PerDocument]  # `alignment` of "heads" and of "chance", in cross-attention


@torch.no_grad()
def read_documents(
    call: Call, out: HeadOutputs, options: Statistics, memory: Memory, generator: torch.Generator
) -> DocumentSums:
    """Sum the statistics of one call; `generator` draws the scores of the random head."""
    problem, cross = call.problem, call.cross or call.problem.cross
    with autocast_disabled(problem.q.device):
        null, null_out = _null_heads(problem, generator)
        chance, sees = _sums(null, null_out, call.queries, call.keys, options, memory, cross, None)
        heads, _ = _sums(problem, out.detach(), call.queries, call.keys, options, memory, cross, sees)
    pairs = PairFeatures.of(problem, call.queries, call.keys, options, cross)
    has_ids = pairs.key_id is not None and problem.coordinates.queries == problem.coordinates.keys and not cross
    ids = pairs.key_id.long().cpu() if has_ids and pairs.key_id is not None else None
    alignments = {}
    if cross:
        alignments = {
            name: alignment(of, call.queries, call.keys) for name, of in (("heads", problem), ("chance", null))
        }
    return DocumentSums(heads, chance, ids, pairs.real.cpu(), sees, cross, alignments)


def _sums(
    problem: Problem,
    out: HeadOutputs,
    queries: Tokens,
    keys: Tokens,
    options: Statistics,
    memory: Memory,
    cross: bool,
    sees: dict[str, Bool[Tensor, "document query"]] | None,
) -> tuple[Sums, dict[str, Bool[Tensor, "document query"]]]:
    """The sums of all heads, and the rows in which the first head has mass on each statistic."""
    pairs, size = PairFeatures.of(problem, queries, keys, options, cross), problem.coordinates
    measure = BlockRows(problem, out, pairs, options.offsets, memory)
    all_rows = torch.zeros(size.batch, size.heads, dtype=torch.float64)
    names: tuple[str, ...] = ()
    total = rows = all_rows.new_empty(0)
    eligible = torch.empty(0, dtype=torch.bool)
    for block, names, x, counts in _blocks(problem, pairs, measure, options):
        if not total.numel():
            total, rows = (all_rows.new_zeros(len(names), *all_rows.shape) for _ in range(2))
            eligible = torch.zeros(len(names), size.batch, size.queries, dtype=torch.bool)
            if sees is not None:
                eligible = torch.stack([sees[name] for name in names])
        batch, heads, x = block.batch, block.heads, x.masked_fill(~counts, 0.0)
        if sees is None and heads.start == EVEN:  # its blocks are first
            eligible[:, batch, block.queries] |= (x[:, :, EVEN] > ROUNDING).cpu()
        counted = eligible[:, batch, None, block.queries] & counts.cpu()
        all_rows[batch, heads] += counts.sum(-1).cpu()
        total[:, batch, heads] += x.sum(-1, dtype=torch.float64).cpu()
        rows[:, batch, heads] += counted.sum(-1)
    by_name = [dict(zip(names, table, strict=False)) for table in (total, rows, eligible)]
    return Sums(by_name[0], by_name[1], all_rows), by_name[2]


def _blocks(
    problem: Problem, pairs: PairFeatures, measure: BlockRows, options: Statistics
) -> Iterator[
    tuple[
        RowBlock,
        tuple[str, ...],
        Float[Tensor, "statistic batch head query"],
        Bool[Tensor, "batch head query"],
    ]
]:
    """Values per document of each block, and the rows that count: real, finite, two visible keys or more."""
    offsets = torch.arange(-options.offsets, options.offsets + 1, device=problem.q.device)
    first_index = pairs.marks["first"].argmax(-1, keepdim=True)
    first = pairs.key_place.expand(first_index.shape[0], -1).gather(-1, first_index)
    marks = {name: mark for name, mark in pairs.marks.items() if name.startswith("class:")}
    first_is_special = torch.zeros_like(first)
    if "special" in pairs.marks:
        first_is_special = pairs.marks["special"].gather(-1, first_index)
        marks["delimiter"] = pairs.marks["special"] * (1 - pairs.marks["first"])
    for block in split_rows(problem, pairs.real, pairs.count, options.block_bytes):
        if not block.keys:
            continue
        measured = measure.measure(block)
        counts = pairs.real[block.batch, None, block.queries] & ~measured.empty & ~measured.broken
        counts = counts & (measured.numbers["visible"] >= 2)
        numbers = {n: x for n, x in measured.numbers.items() if n in NEEDED or n.startswith("class:")}
        if "special" in numbers:
            # The first token is often special: its mass then counts as `first`, not as `delimiter`.
            numbers["delimiter"] = numbers["special"] - first_is_special[block.batch, :, None] * numbers["first"]
        if measured.near is not None and problem.coordinates.queries == problem.coordinates.keys:
            for name in marks.keys() & numbers.keys():  # mass on the query itself does not indicate a class
                self_mass = marks[name][block.batch, None, block.queries] * numbers["self"]
                numbers[name] = (numbers[name] - self_mass).relu_()
        names, x = list(numbers), torch.stack(list(numbers.values()))
        if measured.near is not None:
            # Mass on the first token does not indicate an offset: many heads use it as a sink.
            place = pairs.query_place.expand(pairs.real.shape)[block.batch, block.queries]
            on_first = first[block.batch] - place == offsets.view(-1, 1, 1)
            on_first &= offsets.view(-1, 1, 1).abs() > 1
            x = torch.cat([x, measured.near.masked_fill(on_first.unsqueeze(2), 0.0)])
            names += [offset_name(int(o)) for o in offsets]
        yield block, tuple(names), x, counts


# ---- artificial heads -------------------------------------------------------------------------


def _null_heads(problem: Problem, generator: torch.Generator) -> tuple[Problem, HeadOutputs]:
    """The even and the random head over the same tokens, with the same mask."""
    like = problem.q
    q, k = (
        torch.randn(like.shape[0], 1, count, RANDOM_DIM, generator=generator)
        for count in (like.shape[2], problem.k.shape[2])
    )
    q, k = (torch.cat([torch.zeros_like(x), x], dim=1).to(like.device) for x in (q, k))
    v = k[..., :1]
    null = replace(
        problem,
        q=q,
        k=k,
        v=v,
        groups=Groups.even(2, 2),
        mask=problem.mask.without_bias(),
        coordinates=problem.coordinates.of_heads([0, 0]),
        scores=ScoreConfig(RANDOM_DIM**-0.5),
    )
    return null, torch.zeros_like(q[..., :1])  # their outputs are not used


# ---- alignment --------------------------------------------------------------------------------


@torch.no_grad()
def alignment(problem: Problem, queries: Tokens, keys: Tokens) -> PerDocument:
    """Per document, corr(i, j) for query i drawn uniformly and key j from its weights; 1 is a straight line.

    Positions are passed to the kernel as values, so no map is stored. Weight on padding, which Whisper does not
    mask, does not count. NaN if all positions are the same.
    """
    size = problem.coordinates
    position = torch.linspace(0, 1, max(size.keys, 2), dtype=torch.float64)[: size.keys]
    values = torch.stack([torch.ones_like(position), position, position.square()], dim=-1).to(problem.k)
    values = values.expand(problem.k.shape[0], problem.k.shape[1], -1, -1).contiguous()
    if keys.valid is not None:
        values = values * keys.valid.to(values.device)[:, None, :, None]
    with without_interception():
        moments = attend(replace(problem, v=values, scores=replace(problem.scores, dropout=0.0))).double().cpu()
    real = torch.ones(size.batch, size.queries, dtype=torch.bool) if queries.valid is None else queries.valid.cpu()
    weight = real[:, None].double() * moments[..., 0]  # less than 1 if a sink or padding takes some mass
    i = torch.linspace(0, 1, max(size.queries, 2), dtype=torch.float64)[: size.queries]
    mass = weight.sum(-1)

    def mean(x: Tensor) -> Tensor:
        return (real[:, None] * x).sum(-1) / mass

    mean_i, mean_j = mean(moments[..., 0] * i), mean(moments[..., 1])
    cov = mean((i - mean_i.unsqueeze(-1)) * moments[..., 1])
    var_i = mean(moments[..., 0] * (i - mean_i.unsqueeze(-1)).square())
    var_j = mean(moments[..., 2]) - mean_j.square()
    return torch.where((var_i > 1e-12) & (var_j > 1e-9), cov / (var_i * var_j).clamp(min=1e-24).sqrt(), torch.nan)
