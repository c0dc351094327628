"""Means of every document apart: what a head does in each text, not only over all of their tokens.

A document is a row of a batch. Its rows of attention are summed block by block as they are computed, so nothing is
held but (document, head) numbers. Beside the heads of the model, two made-up ones look at the same tokens through
the same mask: the `even` head, which spreads its weight over all it may see, and the `random` head, whose scores
are drawn from a normal distribution of spread 1. They say what a statistic would be by chance, and the even head
tells which rows could have it at all: the first token has no previous one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multihead._base.shapes import Allowed, HeadOutputs
from multihead.layer.frame import Grid, Span
from multihead.layer.mask_algebra import Interval, Leaf, Mask, conjunction
from multihead.layer.problem import Groups, Problem, Scores, own_precision
from multihead.layer.routes import attend
from multihead.model.call import Call, Tokens
from multihead.model.kernel_arguments import without_interception
from multihead.model.statistics.arena import Memory
from multihead.model.statistics.blocks import RowBlock, cut
from multihead.model.statistics.catalogue import offset_name
from multihead.model.statistics.features import Pairs
from multihead.model.statistics.options import Statistics
from multihead.model.statistics.row_sums import BlockRows

PerDocument = Float[Tensor, "document head"]

RANDOM_DIM = 64
"""Size of the vectors behind the random head's scores: enough for them to be as good as independent."""

PLACES = ("first", "self", "previous", "next", "before", "after")
TOKENS = ("special", "same_token", "induction")
NEEDED = (*PLACES, *TOKENS, "relative_entropy", "output_norm")
"""Statistics of rows that are summed, beside those of offsets and classes."""

SOME = 1e-7
"""Less than an even head gives to any key: what is under it is rounding."""

EVEN, RANDOM = 0, 1
"""The two made-up heads."""


@dataclass(frozen=True)
class Sums:
    """Of each statistic, the sum over the rows of a document, and how many of its rows could have it."""

    total: dict[str, PerDocument]
    rows: dict[str, PerDocument]
    all_rows: PerDocument

    def mean(self, name: str) -> PerDocument:
        """Over the rows that could have it; NaN where there is none."""
        # The total of no row may be a rounding error, and that over 0 infinite.
        return (self.total[name] / self.rows[name]).masked_fill(self.rows[name] == 0, torch.nan)

    def share(self, *names: str) -> PerDocument:
        """Σ of the named, over all rows."""
        return torch.stack([self.total[name] for name in names]).sum(0) / self.all_rows


@dataclass(frozen=True)
class Documents:
    """One call of one attention, document by document: its heads, the made-up heads, and its tokens."""

    heads: Sums
    chance: Sums  # of the heads EVEN and RANDOM
    ids: Int[Tensor, "document key"] | None
    real: Bool[Tensor, "document key"]
    sees: dict[str, Bool[Tensor, "document query"]]  # by statistic: rows that could have it
    cross: bool
    lined: dict[str, PerDocument]  # `alignment` of "heads" and of "chance", in cross-attention


@torch.no_grad()
def read_documents(
    call: Call, out: HeadOutputs, options: Statistics, memory: Memory, generator: torch.Generator
) -> Documents:
    """Sum up one call; `generator` draws the scores of the random head."""
    problem, cross = call.problem, call.cross or call.problem.cross
    with own_precision(problem.q.device):
        made, made_out = null_heads(problem, generator)
        chance, sees = _sums(made, made_out, call.queries, call.keys, options, memory, cross, None)
        heads, _ = _sums(problem, out.detach(), call.queries, call.keys, options, memory, cross, sees)
    pairs = Pairs.of(problem, call.queries, call.keys, options, cross)
    known = pairs.key_id is not None and problem.frame.queries == problem.frame.keys and not cross
    ids = pairs.key_id.long().cpu() if known and pairs.key_id is not None else None
    lined = {}
    if cross:
        lined = {"heads": alignment(problem, call.queries), "chance": alignment(made, call.queries)}
    return Documents(heads, chance, ids, pairs.real.cpu(), sees, cross, lined)


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
    """The sums of all heads, and which rows the first head gives anything to each statistic."""
    pairs, frame = Pairs.of(problem, queries, keys, options, cross), problem.frame
    measure = BlockRows(problem, out, pairs, options.offsets, memory)
    all_rows = torch.zeros(frame.batch, frame.heads, dtype=torch.float64)
    names: tuple[str, ...] = ()
    total = rows = all_rows.new_empty(0)
    could = torch.empty(0, dtype=torch.bool)
    for block, names, x, counts in _blocks(problem, pairs, measure, options):
        if not total.numel():
            total, rows = (all_rows.new_zeros(len(names), *all_rows.shape) for _ in range(2))
            could = torch.zeros(len(names), frame.batch, frame.queries, dtype=torch.bool)
            if sees is not None:
                could = torch.stack([sees[name] for name in names])
        batch, heads, x = block.batch, block.heads, x.masked_fill(~counts, 0.0)
        if sees is None and heads.start == EVEN:  # its blocks come first
            could[:, batch, block.queries] |= (x[:, :, EVEN] > SOME).cpu()
        here = could[:, batch, None, block.queries] & counts.cpu()
        all_rows[batch, heads] += counts.sum(-1).cpu()
        total[:, batch, heads] += x.sum(-1, dtype=torch.float64).cpu()
        rows[:, batch, heads] += here.sum(-1)
    by_name = [dict(zip(names, table, strict=False)) for table in (total, rows, could)]
    return Sums(by_name[0], by_name[1], all_rows), by_name[2]


def _blocks(
    problem: Problem, pairs: Pairs, measure: BlockRows, options: Statistics
) -> Iterator[
    tuple[
        RowBlock,
        tuple[str, ...],
        Float[Tensor, "statistic batch head query"],
        Bool[Tensor, "batch head query"],
    ]
]:
    """The numbers of each block by name, and which of its rows count: real, whole, and with a choice of keys."""
    away = torch.arange(-options.offsets, options.offsets + 1, device=problem.q.device)
    at = pairs.marks["first"].argmax(-1, keepdim=True)
    first = pairs.key_place.expand(at.shape[0], -1).gather(-1, at)
    marks = {name: mark for name, mark in pairs.marks.items() if name.startswith("class:")}
    begins = torch.zeros_like(first)
    if "special" in pairs.marks:
        begins = pairs.marks["special"].gather(-1, at)
        marks["delimiter"] = pairs.marks["special"] * (1 - pairs.marks["first"])
    for block in cut(problem, pairs.real, pairs.count, options.block_bytes):
        if not block.keys:
            continue
        found = measure.measure(block)
        counts = pairs.real[block.batch, None, block.queries] & ~found.empty & ~found.broken
        counts = counts & (found.numbers["visible"] >= 2)
        numbers = {n: x for n, x in found.numbers.items() if n in NEEDED or n.startswith("class:")}
        if "special" in numbers:
            # The first token is often special itself: then its mass is `first`, and not of a delimiter.
            numbers["delimiter"] = numbers["special"] - begins[block.batch, :, None] * numbers["first"]
        if found.near is not None and problem.frame.queries == problem.frame.keys:
            for name in marks.keys() & numbers.keys():  # a token that looks at itself shows no class
                own = marks[name][block.batch, None, block.queries] * numbers["self"]
                numbers[name] = (numbers[name] - own).relu_()
        names, x = list(numbers), torch.stack(list(numbers.values()))
        if found.near is not None:
            # A row whose offset -7 is the first token shows no offset: too many heads rest there.
            place = pairs.query_place.expand(pairs.real.shape)[block.batch, block.queries]
            rests = first[block.batch] - place == away.view(-1, 1, 1)
            rests &= away.view(-1, 1, 1).abs() > 1
            x = torch.cat([x, found.near.masked_fill(rests.unsqueeze(2), 0.0)])
            names += [offset_name(int(o)) for o in away]
        yield block, tuple(names), x, counts


# ---- the made-up heads ------------------------------------------------------------------------


def null_heads(problem: Problem, generator: torch.Generator) -> tuple[Problem, HeadOutputs]:
    """The even and the random head over the same tokens, behind the same mask."""
    like = problem.q
    q, k = (
        torch.randn(like.shape[0], 1, count, RANDOM_DIM, generator=generator)
        for count in (like.shape[2], problem.k.shape[2])
    )
    q, k = (torch.cat([torch.zeros_like(x), x], dim=1).to(like.device) for x in (q, k))
    v = k[..., :1]
    made = replace(
        problem,
        q=q,
        k=k,
        v=v,
        groups=Groups.even(2, 2),
        mask=conjunction([_Hides(p) if p.adds or p.per_head else p for p in problem.mask.parts()]),
        frame=replace(problem.frame, heads=2),
        scores=Scores(RANDOM_DIM**-0.5),
    )
    return made, torch.zeros_like(q[..., :1])  # what they give is not asked for


class _Hides(Leaf):
    """What a mask hides from the first head, without what it adds to the scores."""

    def __init__(self, mask: Mask) -> None:
        self.mask, self.name = mask, f"hides({mask})"
        self.per_row, self.structured, self.rows = mask.per_row, mask.structured, mask.rows

    def allowed(self, grid: Grid) -> Allowed | None:
        return self.mask.allowed(replace(grid, head=torch.zeros_like(grid.head)))

    def intervals(self, span: Span) -> list[Interval]:
        return self.mask.intervals(span)

    def covers(self, span: Span, lo: int, hi: int) -> bool:
        return self.mask.covers(span, lo, hi)


# ---- alignment --------------------------------------------------------------------------------


@torch.no_grad()
def alignment(problem: Problem, queries: Tokens) -> PerDocument:
    """corr(i, j) where query i is drawn evenly and key j from its weights: 1 is one straight line through the text.

    Places take the values' seat in the kernel, so that no map is built. NaN where all places are the same.
    """
    frame = problem.frame
    place = torch.linspace(0, 1, max(frame.keys, 2), dtype=torch.float64)[: frame.keys]
    values = torch.stack([torch.ones_like(place), place, place.square()], dim=-1).to(problem.k)
    values = values.expand(problem.k.shape[0], problem.k.shape[1], -1, -1).contiguous()
    with without_interception():
        got = attend(replace(problem, v=values, scores=replace(problem.scores, dropout=0.0))).double().cpu()
    real = (
        torch.ones(frame.batch, frame.queries, dtype=torch.bool) if queries.valid is None else queries.valid.cpu()
    )
    weight = real[:, None].double() * got[..., 0]  # less than 1 where a sink takes its part
    i = torch.linspace(0, 1, max(frame.queries, 2), dtype=torch.float64)[: frame.queries]
    mass = weight.sum(-1)

    def mean(x: Tensor) -> Tensor:
        return (real[:, None] * x).sum(-1) / mass

    mean_i, mean_j = mean(got[..., 0] * i), mean(got[..., 1])
    cov = mean((i - mean_i.unsqueeze(-1)) * got[..., 1])
    var_i = mean(got[..., 0] * (i - mean_i.unsqueeze(-1)).square())
    var_j = mean(got[..., 2]) - mean_j.square()
    return torch.where((var_i > 1e-12) & (var_j > 1e-9), cov / (var_i * var_j).clamp(min=1e-24).sqrt(), torch.nan)
