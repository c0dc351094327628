"""Everything that was measured of a model, as one object. The page, the server, notebooks and figures read it.

>>> import multihead as mh
>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> report = mh.report(model, [[3, 1, 4, 1, 5], [9, 2, 6]], parts=("measure", "cost"))
>>> report.card
'40.3 k parameters · 2 layers × 3 heads · 6 kv heads · 8 tokens in 2 documents'
>>> len(report.table), report.texts[0].name, report.curve is None
(6, '3 1 4 1 5', True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from multihead._base.chart_html import head_grid_html, line_chart_html
from multihead._base.html_fragments import line, lines
from multihead._base.labels import without_value
from multihead._base.number_text import amount, number
from multihead._base.plural import plural
from multihead.edit.plan_text import table as text_table
from multihead.measures.cost.cost import Cost
from multihead.measures.kinds.kinds_result import Kinds
from multihead.measures.similarity.similarity_result import Similarity
from multihead.show import report_page
from multihead.show.encode import BlobTable
from multihead.show.headlines import Finding, findings
from multihead.show.page_file import save_page
from multihead.show.quality_curve import QualityCurve
from multihead.show.text_maps import ShownLayer, ShownText
from multihead.statements.theory import Theory
from multihead.table.head_grid import head_grid
from multihead.table.table import HeadTable
from multihead.table.view import importance_column

NAMED = 8
"""Heads of a kind that the summary names."""


@dataclass(frozen=True)
class ModelInfo:
    """The model that was measured."""

    name: str
    kind: str
    """its class"""
    parameters: int

    @staticmethod
    def of(model: nn.Module, name: str | None = None) -> ModelInfo:
        kind = type(model).__name__
        return ModelInfo(name or kind, kind, sum(p.numel() for p in model.parameters()))

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "class": self.kind, "parameters": self.parameters}


@dataclass(frozen=True)
class CorpusInfo:
    """The documents that it was measured over."""

    name: str
    documents: int
    tokens: int | None = None
    """if None, not counted"""
    loss: str | None = None
    """with which importance was measured"""

    def to_json(self) -> dict[str, Any]:
        return {name: x for name, x in vars(self).items() if x is not None}


class WordPair(NamedTuple):
    """A head's strongest pairs over the corpus: the query attended to the key more than to any other token."""

    query: str
    key: str
    times: int
    weight: float
    """the mean"""


class KindRow(NamedTuple):
    """The heads of one kind, or those that are named by one share."""

    kind: str
    heads: list[str]
    importance: float | None
    """the mean"""


@dataclass(frozen=True, repr=False)
class Report:
    """The measurements of a model. A part is None or empty if it was not requested, not possible, or stopped."""

    model: ModelInfo
    corpus: CorpusInfo
    layers: tuple[ShownLayer, ...] = ()
    """every attention, in the order in which they run"""
    texts: tuple[ShownText, ...] = ()
    """the texts whose maps are shown; a window of a long text is a text"""
    blobs: BlobTable = field(default_factory=BlobTable)
    """the maps, encoded"""
    table: HeadTable | None = None
    """a row per head, with the columns of all measures"""
    kinds: Kinds | None = None
    similarity: Similarity | None = None
    curve: QualityCurve | None = None
    theory: Theory | None = None
    cost: Cost | None = None
    pairs: Mapping[str, Sequence[WordPair]] | None = None
    """the tokens that each head connects most, over the corpus"""
    notes: tuple[str, ...] = ()
    """parts that could not be measured, and why"""
    stopped: bool = False
    """whether Ctrl-C ended it before all parts were measured"""

    # ---- reading ------------------------------------------------------------------------------

    @property
    def heads(self) -> list[str]:
        """The name of every head."""
        return [name for layer in self.layers for name in layer.site.names]

    @property
    def findings(self) -> list[Finding]:
        """Up to three sentences that say most about the model."""
        return findings(self.table, self.similarity, self.curve, self.theory)

    @property
    def card(self) -> str:
        """The report's card: parameters, layers × heads, kv heads, tokens read."""
        widths = {layer.site.heads for layer in self.layers}
        count, heads = len(self.layers), len(self.heads)
        layers = plural(count, "layer")
        shape = (
            f"{layers} × {plural(widths.pop(), 'head')}"
            if len(widths) == 1
            else f"{plural(heads, 'head')} in {layers}"
        )
        parts = [f"{amount(self.model.parameters)} parameters", shape]
        if kv_heads := sum(layer.kv_heads for layer in self.layers):
            parts.append(plural(kv_heads, "kv head"))
        documents = plural(self.corpus.documents, "document")
        parts.append(f"{self.corpus.tokens:,} tokens in {documents}" if self.corpus.tokens else documents)
        return " · ".join(parts)

    def kind_rows(self) -> list[KindRow]:
        """The report's kinds with their heads and mean importance, the most frequent kind first."""
        table = self.table
        if table is None or "kind" not in table.columns:
            return []
        by = importance_column(table)
        rows: dict[str, list[int]] = {}
        for i, kind in enumerate(table["kind"]):
            rows.setdefault(without_value(kind), []).append(i)
        return [
            KindRow(kind, [table.heads[i] for i in at], None if by is None else float(table[by][at].nanmean()))
            for kind, at in sorted(rows.items(), key=lambda item: -len(item[1]))
        ]

    # ---- showing ------------------------------------------------------------------------------

    def summary(self) -> str:
        """The report as plain text: the card, the findings, and a line per kind."""
        text = [f"{self.model.name}: {self.card}", *(f"  • {finding.text}" for finding in self.findings)]
        rows = self.kind_rows()
        if rows:
            text += ["", *text_table(*_kind_table(rows, self._importance_title))]
        if self.stopped:
            text += ["", "stopped before everything was measured"]
        return "\n".join(text)

    __repr__ = summary

    @property
    def _importance_title(self) -> str:
        """How importance was measured: ablation and gradients are different numbers."""
        by = None if self.table is None else importance_column(self.table)
        return "mean importance (by gradients)" if by == "importance" else "mean importance (by ablation)"

    def _repr_html_(self) -> str:
        """The report in a notebook: the card, the findings, the grid of heads, and the curve."""
        parts = [line(f"{self.model.name}: {self.card}", small=False)]
        parts.append(lines([finding.text for finding in self.findings]))
        if self.table is not None:
            hollow = () if self.curve is None else self.curve.prunable_heads
            parts.append(head_grid_html(head_grid(self.table, hollow=hollow)))
        if self.curve is not None:
            parts.append(line_chart_html(self.curve.chart()))
        return "".join(parts) + lines([f"note: {note}" for note in self.notes])

    def to_json(self) -> dict[str, Any]:
        """The report's summary as plain data, for `multihead report --json`; `table.to_json()` has the numbers."""
        return {
            "model": self.model.to_json(),
            "corpus": self.corpus.to_json(),
            "heads": len(self.heads),
            "findings": [vars(finding) for finding in self.findings],
            "kinds": {row.kind: row.heads for row in self.kind_rows()},
            "prunable": None if self.curve is None else self.curve.prunable,
            "texts": [
                {"name": text.name, "tokens": text.tokens, "window": text.window[0], "windows": text.window[1]}
                for text in self.texts
            ],
            "notes": list(self.notes),
            "stopped": self.stopped,
        }

    def html(self, *, served: Sequence[str] | None = None) -> str:
        """The page. `served`: the inputs that its server reads, of `MapStore.reads`; maps are requested there."""
        return report_page.page(self, served=served)

    def save(self, path: str | Path) -> Path:
        """Write the page as one HTML file, completely or not at all; returns its path."""
        return save_page(self.html(), path)


def _kind_table(rows: Sequence[KindRow], importance_title: str) -> tuple[list[str], list[list[str]]]:
    """Titles and cells of the report's table of kinds."""
    measured = any(row.importance is not None for row in rows)
    titles = ["kind", "heads", *([importance_title] if measured else []), "which"]
    cells: list[list[str]] = []
    for kind, heads, importance in rows:
        which = " ".join(heads[:NAMED]) + (" ..." if len(heads) > NAMED else "")
        mean = ["–" if importance is None else number(importance)] if measured else []
        cells.append([kind, str(len(heads)), *mean, which])
    return titles, cells
