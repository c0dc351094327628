"""Golden values of the measures: statistics, kinds, importance, similarity, syntax, and the theory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import multihead as mh
from golden.models import BEGIN, END, PADDING, load
from golden.record import Recorder
from multihead.measures import Statistics
from multihead.measures import syntax as measure_syntax
from multihead.measures.importance.losses import MaskedLanguageModel
from multihead.statements.catalogue import STATEMENTS

TREEBANK = Path(__file__).parents[1] / "unit" / "measures" / "small.conllu"

ALLOCATED = (
    "explicit_bytes", "fused_bytes", "explicit_bytes_by_heads", "fused_bytes_by_heads", "maps_alive",
    "exponent_explicit", "exponent_fused", "space_exponent", "fused_space_exponent",
)  # fmt: skip
"""Numbers of statements 11 and T1 that count allocated bytes: they describe the layer's implementation."""

ROUNDING = ("relative_error", "difference_error", "largest_difference", "lowest", "shares")
"""Numbers of statements 8, 9 and 12 that are rounding error, or no more exact than Lanczos' tolerance; the verdict
says whether they are small."""

TRAINED = ("12", "13")
"""Slow statements, about a student that is trained."""

OF_SIZES = ("10", "11", "17", "T1")
"""Slow statements that depend on the sizes of a layer only."""


def measure(record: Recorder, name: str) -> None:
    model = load(name)
    asked = Statistics(special=model.special, classes=model.classes or {})
    table = mh.measure(model.module, model.documents, tokenizer=model.tokenizer, statistics=asked)
    record.table(table.heads, table.columns)


def kinds(record: Recorder, name: str) -> None:
    model = load(name)
    known = {"tokenizer": model.tokenizer, "special": model.special, "classes": model.classes}
    table = mh.kinds(model.module, model.documents, **known).table
    record.table(table.heads, table.columns)


def importance(record: Recorder, name: str, documents: int | None = None, loss: Any = None) -> None:
    """By gradients and by both kinds of ablation, with the rank correlations between them."""
    model = load(name)
    found = mh.importance(
        model.module, model.documents[:documents], tokenizer=model.tokenizer, loss=loss, method="all"
    )
    record.table(found.table.heads, found.table.columns)
    record.value("intact/loss", found.table.about["loss_intact"])
    for pair in found.agreement:
        ways = (record.names.canonical(way, "columns") for way in (pair.first, pair.second))
        record.value(f"agreement/{' and '.join(ways)}", pair.all)


def importance_of_masked_words(record: Recorder, name: str) -> None:
    """With the loss of a masked language model; token 3 is the mask."""
    importance(record, name, loss=MaskedLanguageModel(3, (BEGIN, PADDING, END, 3), seed=0))


def similarity(record: Recorder, name: str) -> None:
    """The table, and the matrix of every measure over all pairs of heads."""
    model = load(name)
    found = mh.similarity(model.module, model.documents, tokenizer=model.tokenizer)
    record.table(found.heads, found.table.columns)
    for measure, numbers in found.pairs.items():
        record.tensor(f"pairs/{record.names.canonical(measure, 'keys')}", numbers)


def syntax(record: Recorder, name: str) -> None:
    """How often heads point along the relations of a small treebank."""
    model = load(name)
    table = measure_syntax(model.module, TREEBANK, tokenizer=model.tokenizer).table
    record.table(table.heads, table.columns)


def theory(
    record: Recorder, name: str, layers: Sequence[str], but: Sequence[str] = (), students: bool = False
) -> None:
    """The verdict of every statement and its numbers, which include both sides; no sentences.

    Args:
        but: statements to leave out.
        students: with the statements that train a student.
    """
    model = load(name)
    left_out = but if students else (*but, *TRAINED)
    chosen = [statement.id for statement in STATEMENTS if statement.id not in left_out]
    found = mh.theory(
        model.module, model.documents, tokenizer=model.tokenizer, layers=layers, only=chosen, tokens=300
    )
    for row in found.rows:
        path = f"{row.layer}/statement {row.statement.id}"
        record.value(f"{path}/verdict", row.result.verdict)
        numbers = {key: list(x) if isinstance(x, Sequence) else x for key, x in row.result.numbers.items()}
        record.plain(numbers, path, dropped=(*ALLOCATED, *ROUNDING))
