"""Golden values of what is measured: statistics, kinds, worth, redundancy, and the statements of the theory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import multihead as mh
from golden.models import BEGIN, END, PADDING, load
from golden.record import Recorder
from multihead.measures.importance.losses import MaskedLanguageModel
from multihead.statements.run import statements

TREEBANK = Path(__file__).parents[1] / "unit" / "measures" / "small.conllu"

ALLOCATED = (
    "explicit_bytes", "fused_bytes", "explicit_bytes_by_heads", "fused_bytes_by_heads", "maps_alive",
    "exponent_explicit", "exponent_fused", "space_exponent", "fused_space_exponent",
)  # fmt: skip
"""Numbers of statements 11 and T1 that say how many bytes the layer allocated: facts of how it is written."""

ROUNDING = ("relative_error", "difference_error", "largest_difference")
"""Numbers of statements 8 and 9 that are nothing but rounding errors; the verdict says whether they are small."""

STUDENT = ("norms_before_training", "norms_after_training", "moved", "rate_times_gradient", "adam_cosine")
"""Numbers of statements 8 and 9 that are of a layer with drawn weights. They are drawn in the basis of a QR
decomposition of the tokens, and where tokens depend on each other (as the first ones of all documents of a causal
model do, being the same) part of that basis is rounding errors: on another machine the numbers are others."""

TRAINED = ("12", "13")
"""Statements of nothing but that student."""

OF_SIZES = ("10", "11", "17", "T1")
"""Statements about the sizes of a layer, the same for all layers of these sizes; slow."""


def measure(record: Recorder, name: str) -> None:
    model = load(name)
    asked = mh.Statistics(special=model.special, classes=model.classes or {})
    table = mh.measure(model.module, model.documents, tokenizer=model.tokenizer, statistics=asked)
    record.table(table.heads, table.columns)


def kinds(record: Recorder, name: str) -> None:
    model = load(name)
    known = {"tokenizer": model.tokenizer, "special": model.special, "classes": model.classes}
    table = mh.kinds(model.module, model.documents, **known).table
    record.table(table.heads, table.columns)


def worth(record: Recorder, name: str, documents: int | None = None, loss: Any = None) -> None:
    """By gradients, by taking each head out in both ways, and how far the two agree."""
    model = load(name)
    found = mh.worth(model.module, model.documents[:documents], tokenizer=model.tokenizer, loss=loss, how="all")
    record.table(found.table.heads, found.table.columns)
    record.value("intact/loss", found.table.about["loss_intact"])
    for pair in found.agreement:
        ways = (record.names.canonical(way, "columns") for way in (pair.first, pair.second))
        record.value(f"agreement/{' and '.join(ways)}", pair.all)


def worth_of_masked_words(record: Recorder, name: str) -> None:
    """By the loss of a masked language model, which needs a token that stands for a hidden one."""
    worth(record, name, loss=MaskedLanguageModel(3, (BEGIN, PADDING, END, 3), seed=0))


def redundancy(record: Recorder, name: str) -> None:
    """The table, and the numbers of all pairs of heads together."""
    model = load(name)
    found = mh.redundancy(model.module, model.documents, tokenizer=model.tokenizer)
    record.table(found.heads, found.table.columns)
    for measure, numbers in found.pairs.items():
        record.tensor(f"pairs/{record.names.canonical(measure, 'keys')}", numbers)


def syntax(record: Recorder, name: str) -> None:
    """How often heads point along the relations of a small treebank."""
    model = load(name)
    table = mh.syntax(model.module, model.tokenizer, TREEBANK).table
    record.table(table.heads, table.columns)


def claims(
    record: Recorder, name: str, layers: Sequence[str], but: Sequence[str] = (), students: bool = False
) -> None:
    """The verdict of every statement, and its numbers, among which are both sides; the sentences are left out.

    Args:
        but: statements that are left out.
        students: whether the tokens span all of the model's width, so that students are the same everywhere.
    """
    model = load(name)
    left_out = but if students else (*but, *TRAINED)
    chosen = [claim.key for claim in statements() if claim.key not in left_out]
    found = mh.claims(
        model.module, model.documents, tokenizer=model.tokenizer, layers=layers, only=chosen, tokens=300
    )
    dropped = (*ALLOCATED, *ROUNDING, *(() if students else STUDENT))
    for row in found.rows:
        path = f"{row.layer}/statement {row.claim.key}"
        record.value(f"{path}/verdict", row.finding.verdict)
        numbers = {key: list(x) if isinstance(x, Sequence) else x for key, x in row.finding.numbers.items()}
        record.plain(numbers, path, dropped=dropped)
