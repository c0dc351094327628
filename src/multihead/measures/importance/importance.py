"""Importance: how much worse the model gets without each head, by gradients and by ablation, and their agreement.

>>> import multihead as mh
>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from multihead.measures.importance.importance import importance
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> result = importance(model, [[3, 1, 4, 1, 5], [9, 2, 6, 5]], method="all")
>>> result.loss
'language model: cross entropy of the next token'
>>> list(result.table.columns)[:4]
['importance', 'importance_error', 'fisher', 'gradient']
>>> sorted(result.table["rank"].tolist())
[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.arguments import check_data, check_seed
from multihead._base.html_fragments import line, lines
from multihead._base.number_text import number
from multihead._base.plural import plural
from multihead._base.progress import Progress, check_progress, shown_progress
from multihead.corpus.accumulator import Accumulator
from multihead.corpus.batches import BATCH_SIZE, Document
from multihead.corpus.documents import Corpus, rereadable
from multihead.corpus.language import check_language
from multihead.corpus.run import run, with_total
from multihead.errors import SizeError
from multihead.measures.importance.ablation import Ablation, MeanOutputs, Replacement
from multihead.measures.importance.choose_loss import AnyLoss, choose_loss
from multihead.measures.importance.gradients import PROBES, Gradients
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable

METHODS = ("gradient", "ablation", "all")
RANKED_BY = ("ablation_zero", "ablation_mean", "importance")
"""Heads are ranked by the first of these columns that was measured."""


@dataclass(frozen=True)
class Agreement:
    """Spearman's ρ of two columns: over all heads, and inside each layer; NaN where it is not defined."""

    first: str
    second: str
    all: float
    layers: Mapping[str, float]

    @property
    def inside(self) -> float:
        """The mean of the layers' ρ."""
        known = [rho for rho in self.layers.values() if not math.isnan(rho)]
        return sum(known) / len(known) if known else math.nan

    def __str__(self) -> str:
        return f"{self.first} and {self.second}: ρ = {self.all:.2f} over all heads, {self.inside:.2f} inside layers"


@dataclass(frozen=True, repr=False)
class Importance:
    """The table, the loss it was measured with, and the agreement of gradients with ablation."""

    table: HeadTable

    @property
    def loss(self) -> str:
        return str(self.table.about["loss"])

    @property
    def agreement(self) -> tuple[Agreement, ...]:
        """The agreement of every gradient column with every ablation column, and of the ablation columns."""
        cheap = [c for c in ("importance", "fisher") if c in self.table.columns]
        exact = [c for c in ("ablation_zero", "ablation_mean") if c in self.table.columns]
        pairs = [(a, b) for a in cheap for b in exact] + ([(exact[0], exact[1])] if len(exact) == 2 else [])
        return tuple(agreement(self.table, a, self.table, b) for a, b in pairs)

    def text(self, count: int = 10) -> str:
        """The most and the least important heads as text, for a terminal."""
        shown = [self.table.heads[i] for i in self.table["rank"].argsort().tolist()]
        if len(shown) > 2 * count:
            shown = [*shown[:count], "…", *shown[-count:]]
        columns = [c for c in ("rank", *RANKED_BY, "fisher") if c in self.table.columns]
        lines = [["head", *columns]]
        for name in shown:
            row = {} if name == "…" else self.table.row(name)
            lines.append([name, *(self._cell(row, c) for c in columns)])
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        body = ["  ".join(x.rjust(w) for x, w in zip(line, widths, strict=True)) for line in lines]
        about = self.table.about
        head = [f"loss: {self.loss}; {plural(about['documents'], 'document')}"]
        return "\n".join([*head, *body, *map(str, self.agreement), *about["notes"]])

    def _cell(self, row: Mapping[str, Any], column: str) -> str:
        """A cell of the importance table: the value and its standard error."""
        if not row:
            return ""
        if column == "rank":
            return f"{row[column]:.0f}"
        error = row.get(f"{column}_error", math.nan)
        return number(row[column]) + ("" if math.isnan(error) else f" ± {number(error, 1)}")

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """The importance as a table, most important heads first, and the agreement of the measures."""
        ranked_table = self.table.sort("rank")
        columns = [name for name in SHOWN if name in ranked_table.columns]
        head = line(f"loss: {self.loss}; {plural(self.table.about['documents'], 'document')}")
        rest = [*map(str, self.agreement), *map(str, self.table.about["notes"])]
        return head + ranked_table.select(columns)._repr_html_() + lines(rest)  # pyright: ignore[reportPrivateUsage]


SHOWN = (
    "rank", "ablation_zero", "ablation_zero_error", "ablation_mean", "ablation_mean_error", "importance",
    "importance_error", "fisher",
)  # fmt: skip
"""Columns of the table shown in a notebook."""


def importance(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    loss: AnyLoss | None = None,
    method: str = "gradient",
    replace: Replacement | Sequence[Replacement] = ("zero", "mean"),
    normalise: bool = False,
    batch_size: int = BATCH_SIZE,
    max_tokens: int | None = None,
    probes: int = PROBES,
    seed: int = 0,
    progress: bool | Progress | None = None,
) -> Importance:
    """Rank heads by the loss that each one saves, with standard errors over documents.

    Args:
        data: texts (with a `tokenizer`), lists of token ids, or batches; a row of a batch is a document.
        loss: one of `multihead.measures.importance.losses`, or a function (output, batch) → loss of every document;
            default: the one that fits the model, named in the result.
        method: "gradient" (one backward pass per batch), "ablation" (removes each head in turn, exact) or "all".
        replace: what replaces the output of an ablated head: "zero", "mean" (over the corpus), or both.
        normalise: normalise gradient importance per layer, see `Gradients`.
        batch_size: documents at a time.
        max_tokens: longer documents are cut into pieces of this length; default: the positions of the model.
        probes: random directions per batch, for models without a loss of their own, whose outputs are compared.
        seed: of the probes, and of masked tokens.
        progress: True shows bars on a terminal; a function is called with (pass, done, total).

    Returns:
        An `Importance`: `result.table` has a row per head and a rank, `result.loss` names the loss.

    Raises:
        SizeError: if `method` or `replace` is unknown.
        MultiheadError: if the data contains no text, or text without a tokenizer.

    >>> import multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> result = mh.importance(model, tokenizer.sample_texts()[:8], tokenizer=tokenizer, method="ablation")
    >>> result.table.sort("rank").heads[0]
    'L0H0'
    """
    if method not in METHODS:
        raise SizeError(f"method must be one of {', '.join(METHODS)}, got {method!r}", hint='method="gradient"')
    check_data(data)
    check_seed(seed)
    check_progress(progress)
    corpus = Corpus(model, rereadable(data), tokenizer=tokenizer, batch_size=batch_size, max_tokens=max_tokens)
    check_language(tokenizer, corpus.documents, "the text")
    chosen = choose_loss(loss, model, corpus.first().inputs, tokenizer, seed=seed)
    means = MeanOutputs() if method != "gradient" and "mean" in replace else None
    measured: list[Accumulator] = []
    if method != "ablation":
        measured.append(Gradients(chosen, normalise=normalise, probes=probes, seed=seed))
    with shown_progress(progress) as shown:
        passes = with_total(shown, corpus)
        _run(model, corpus, [*measured, *([] if means is None else [means])], passes)
        if method != "gradient":
            measured.append(Ablation(chosen, replace, means=means))
            _run(model, corpus, measured[-1:], passes)
    return Importance(ranked(reduce(HeadTable.join, [accumulator.columns() for accumulator in measured])))


def _run(
    model: nn.Module,
    corpus: Corpus,
    accumulators: Sequence[Accumulator],
    progress: Callable[[str, float], None] | None,
) -> None:
    if accumulators:
        pass_progress = None if progress is None else partial(progress, accumulators[0].name)
        run(model, corpus, accumulators, progress=pass_progress)


def ranked(table: HeadTable) -> HeadTable:
    """The table with a column of ranks by importance: 1 is the most important head."""
    by = next(c for c in RANKED_BY if c in table.columns)
    order = table[by].nan_to_num(-torch.inf).argsort(descending=True, stable=True)
    rank = torch.empty(len(table), dtype=torch.float64)
    rank[order] = torch.arange(1.0, len(table) + 1, dtype=torch.float64)
    text = f"1 is the most important head, by {by}"
    return table.join(HeadTable(table.heads, {"rank": rank}, {"rank": ColumnInfo("place", text)}))


def agreement(first: HeadTable, a: str, second: HeadTable, b: str) -> Agreement:
    """Agreement of two importance columns, over heads of the same names: Spearman's rank correlation."""
    row_of = {head: row for row, head in enumerate(second.heads)}
    missing = next((h for h in first.heads if h not in row_of), None)
    if missing is not None or len(first) != len(second):
        difference = "" if missing is None else f"; {missing!r} is only in the first"
        raise SizeError(
            f"both tables must have the same heads, got {len(first)} and {len(second)} heads{difference}",
            hint="measure both on the same model",
        )
    x, y = first[a], second[b][[row_of[h] for h in first.heads]]
    layers: dict[str, list[int]] = {}
    for row, name in enumerate(first.heads):
        layers.setdefault(name.rpartition("H")[0], []).append(row)
    return Agreement(a, b, spearman(x, y), {layer: spearman(x[rows], y[rows]) for layer, rows in layers.items()})


def spearman(x: Float[Tensor, " n"], y: Float[Tensor, " n"]) -> float:
    """Spearman's ρ, over pairs without NaN; NaN if there are fewer than two, or if x or y is constant."""
    from scipy.stats import spearmanr  # pyright: ignore[reportMissingTypeStubs]

    both = ~(x.isnan() | y.isnan())
    x, y = x[both], y[both]
    if len(x) < 2 or bool((x == x[0]).all()) or bool((y == y[0]).all()):
        return math.nan
    rho: Any = spearmanr(x.numpy(), y.numpy())
    return float(rho.statistic)
