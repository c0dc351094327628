"""The page of a report: one HTML file with its script, style and data, which needs nothing else to open.

Nothing that was measured or read is in it as markup: data is base64, and the table that a browser without scripts
shows is escaped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from torch import Tensor

from multihead import __version__
from multihead._base import html_fragments
from multihead._base.charts import page_style
from multihead._base.share_words import SHARE_NAMES
from multihead.measures.cost.cost import LINES, Cost
from multihead.measures.cost.cost_text import cost_cells, title
from multihead.measures.kinds.evidence import RULES, Rule
from multihead.measures.similarity.similarity_result import PAIRS, Similarity
from multihead.show.encode import deflated, shares_text
from multihead.show.kind_texts import KINDS, UNCLEAR
from multihead.show.page_file import fill_page, page_part
from multihead.show.tokens import show_control_chars
from multihead.statements.theory import Theory
from multihead.table.table import HeadTable
from multihead.table.view import importance_column, shown, word

if TYPE_CHECKING:
    from multihead.show.report import Report

PAIRED = 1024
"""Heads up to which the similarity of every pair is in the page."""

DIGITS = 6
"""significant digits of every number of the table"""


def page(report: Report, *, served: Sequence[str] | None = None) -> str:
    """The HTML page of a report.

    Args:
        served: the inputs that its server reads, of `MapStore.reads`. The page may request maps from it only.
    """
    blobs = list(report.blobs.texts)
    data = json.dumps(
        _data(report, blobs) | {"served": None if served is None else list(served)},
        separators=(",", ":"),
        allow_nan=False,
    )
    name = escape(show_control_chars(report.model.name))
    return fill_page(
        page_part("app/page.html"),
        script=page_part("bundles/report.js"),
        style=page_part("app/style.css") + (page_part("app/switches.css") if served is not None else ""),
        connect="'self'" if served is not None else "'none'",
        title=f"{name}: what every head does",
        name=name,
        data=deflated(data.encode()),
        lines="\n".join(blobs),
        plain=_plain(report),
    )


# ---- the data: its types are in app/types.js ----------------------------------------------------


def _data(report: Report, blobs: list[str]) -> dict[str, Any]:
    """The report as the data of the HTML page."""
    model, corpus = report.model.to_json(), report.corpus.to_json()
    pairs = report.pairs
    return {
        "version": __version__,
        "charts": page_style(),
        "made": datetime.now(UTC).strftime("%Y-%m-%d"),
        "model": model | {"name": show_control_chars(report.model.name)},
        "corpus": corpus | {"name": show_control_chars(report.corpus.name)},
        "stopped": report.stopped,
        "notes": [show_control_chars(note) for note in report.notes],
        "findings": [vars(finding) for finding in report.findings],
        "sites": [layer.to_json() for layer in report.layers],
        "heads": report.heads,
        "table": None if report.table is None else _table(report.table, report.heads),
        "importance": None if report.table is None else importance_column(report.table),
        "kinds": {rule.kind: _rule(rule) for rule in RULES},
        "kind_texts": {kind: text.sentence for kind, text in (KINDS | UNCLEAR).items()},
        "why": None if report.kinds is None else {e.head: e.why for e in report.kinds},
        "often": None if pairs is None else {head: [list(pair) for pair in some] for head, some in pairs.items()},
        "pairs": _similarity(report.similarity, blobs),
        "curve": None if report.curve is None else report.curve.to_json(),
        "theory": _theory(report.theory),
        "cost": None if report.cost is None else _cost(report.cost),
        "texts": [text.to_json() for text in report.texts],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    """A kind in the HTML page; `shares` are those that must lead where it names a head."""
    shares = [share for share in SHARE_NAMES if rule.names([share])]
    return {"meaning": rule.meaning, "threshold": rule.threshold, "shares": shares}


def _table(table: HeadTable, heads: Sequence[str]) -> dict[str, Any]:
    """The table in the HTML page: columns in the order of the heads; numbers rounded, None for NaN."""
    index_of = {name: i for i, name in enumerate(table.heads)}
    rows = [index_of[name] for name in heads]
    columns: dict[str, Any] = {}
    for name, column in table.columns.items():
        cells: list[Any] = rounded(column.tolist()) if isinstance(column, Tensor) else list(column)
        why: dict[str, list[str]] = {}
        for head, reason in table.reasons.get(name, {}).items():
            why.setdefault(reason, []).append(head)
        meaning = table.meaning[name]
        columns[name] = {
            "unit": meaning.unit, "meaning": meaning.text, "values": [cells[i] for i in rows], "why": why,
        }  # fmt: skip
    return columns


def rounded(numbers: Sequence[float]) -> list[float | None]:
    """Some digits of each; None for NaN and infinity."""
    return [float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None for x in numbers]


def _similarity(similarity: Similarity | None, blobs: list[str]) -> dict[str, Any] | None:
    """Similarity in the HTML page: every measure as bytes, unless there are too many heads."""
    if similarity is None or not 2 <= len(similarity.heads) <= PAIRED:
        return None
    measures: list[dict[str, Any]] = []
    for name, values in similarity.pairs.items():
        low = -1.0 if name == "correlation" else 0.0
        meaning = PAIRS[name]
        blobs.append(shares_text(values, low))
        measures.append(
            {"name": name, "unit": meaning.unit, "meaning": meaning.text, "low": low, "line": len(blobs) - 1}
        )
    return {
        "heads": list(similarity.heads),
        "measures": measures,
        "order": [similarity.heads.index(name) for name in similarity.order],
        "groups": [list(group) for group in similarity.groups()],
        "by": similarity.by,
        "notes": [show_control_chars(str(note)) for note in similarity.about.get("notes", [])],
    }


def _theory(theory: Theory | None) -> dict[str, Any] | None:
    """The theory in the HTML page, without the numbers behind the verdicts."""
    if theory is None:
        return None
    data = theory.to_json()
    for statement in data["statements"]:
        for result in statement["layers"].values():
            del result["numbers"]
    return data


def _cost(cost: Cost) -> dict[str, Any]:
    """The cost in the HTML page: now, and with half the heads."""
    half = cost.pruned(max(1, max(s.heads for s in cost.specs) // 2)) if _can_halve(cost) else None
    columns = [cost] if half is None else [cost, half]
    rows = [[label, *cells] for label, *cells in zip(LINES, *(cost_cells(c) for c in columns), strict=True)]
    heading = ["now"] if half is None else ["now", "with half the heads"]
    return {"title": [line.strip() for line in title(cost)], "heading": heading, "rows": rows}


def _can_halve(cost: Cost) -> bool:
    """Whether the HTML page can show half the heads: all layers have the same even number, without groups."""
    return len({s.heads for s in cost.specs}) == 1 and all(
        s.heads % 2 == 0 and s.kv_heads == s.heads and s.latent is None for s in cost.specs
    )


# ---- without JavaScript -----------------------------------------------------------------------


def _plain(report: Report) -> str:
    """The report's page without a script: card, findings and table as plain HTML."""
    items = "".join(f"<li>{escape(finding.text)}</li>" for finding in report.findings)
    parts = [f"<p>{escape(report.card)}</p>", f"<ul>{items}</ul>" if items else ""]
    table = report.table
    if table is not None:
        names = shown(table)
        rows = [
            [head, *(show_control_chars(word(table.columns[name], i)) for name in names)]
            for i, head in enumerate(table.heads)
        ]
        parts.append(html_fragments.table(["head", *names], rows, style=False))
    return "\n".join(parts)
