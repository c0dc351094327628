"""`multihead.report`: one HTML file that tells what every head of a model does, and needs nothing else to open.

>>> import tempfile
>>> from pathlib import Path
>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from multihead.page.build import report
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> with tempfile.TemporaryDirectory() as folder:
...     page = report(model, [[3, 1, 4, 1, 5], [9, 2, 6]], Path(folder) / "report.html", parts=("measure", "cost"))
...     page.read_text(encoding="utf-8")[:15]
'<!doctype html>'
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from torch import Tensor, nn

from multihead import __version__
from multihead._base.atomic_files import write_atomically
from multihead.corpus.batches import BATCH_SIZE, Document
from multihead.errors import MultiheadError
from multihead.measures.cost.cost import LINES, Cost
from multihead.measures.cost.cost_text import amount, title
from multihead.measures.kinds.evidence import RULES
from multihead.measures.similarity.result import PAIRS, Similarity
from multihead.page.cuts import cost_cells
from multihead.page.encode import deflated, shares_text
from multihead.page.findings import findings, importance_column
from multihead.page.gather import PARTS, Gathered, Progress, gather
from multihead.page.words import clear
from multihead.table.data import Column
from multihead.table.table import HeadTable

SCRIPTS = (
    *("base", "data", "far", "table", "grid", "canvas", "reading", "head", "panel"),
    *("tokens", "alike", "cut", "theory", "main"),
)
"""Files of the page's script, in the order in which they are joined."""

PAIRED = 1024
"""Heads up to which the numbers of every pair are kept."""

_OWN, _NONE = "'self'", "'none'"

DIGITS = 6
"""of every number of the table"""

PLAIN = (
    "kind",
    "kind_score",
    "most_similar",
    "most_similar_cka",
    "entropy",
    "distance",
    "first",
    "special",
    "previous",
)
"""Columns of the table that is shown without JavaScript, besides importance."""


def report(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    out: str | Path,
    *,
    tokenizer: Any = None,
    text: Document | Sequence[str] | None = None,
    name: str | None = None,
    corpus: str = "",
    parts: Sequence[str] = PARTS,
    importance: str = "auto",
    curve: Mapping[str, Any] | None = None,
    cut: Sequence[str] = (),
    heads: Sequence[str] | None = None,
    windows: int | None = None,
    batch_size: int = BATCH_SIZE,
    max_tokens: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Path:
    """Measure `model` over `data` and write the page to `out`. Gives the file.

    After Ctrl-C the page holds what was finished, and KeyboardInterrupt is raised once it is written.

    Args:
        data: texts (with a `tokenizer`), lists of token ids, or batches: what is measured over.
        text: what maps are shown of: a text, or several; left out, the first documents of `data`.
        parts: what to gather, see `multihead.page.gather.PARTS`.
        importance: its method, "gradient" or "ablation"; "auto" ablates every head of a model with few heads.
        curve: a curve of quality that was measured before, in the place of the quick one.
        cut: methods, "obs", "fisher", "random": the model is really cut by each for the curve, and fitted again.
        heads: the heads whose maps are kept, ["L3H7"]; by default all.
        windows: of a text longer than the model takes, so many windows are kept; by default as many as stay small.
        progress: called as (part, done, all).
    """
    found = gather(
        model,
        data,
        tokenizer=tokenizer,
        text=text,
        name=name,
        corpus=corpus,
        parts=parts,
        importance=importance,
        curve=curve,
        cut=cut,
        heads=heads,
        windows=windows,
        batch_size=batch_size,
        max_tokens=max_tokens,
        seed=seed,
        progress=progress,
    )
    written = write_page(found, Path(out))
    if found.stopped:
        raise KeyboardInterrupt
    return written


def write_page(found: Gathered, out: Path) -> Path:
    """The page as a file: whole, or not at all."""
    html = page(found)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, html.encode("utf-8", errors="replace"))
    except OSError as wrong:
        raise MultiheadError(
            f"the page was not written to {out}: {wrong.strerror} ({len(html) / 1e6:.1f} MB)",
            hint="choose another -o, on a disk with more room that may be written to",
        ) from wrong
    return out


def page(found: Gathered, *, served: bool = False) -> str:
    """The HTML. Nothing that was measured or read is in it as markup: it is base64, or escaped.

    `served`: maps are asked of the server that the page came from, the only one that it may ask.
    """
    lines = list(found.lines.texts)
    told = _data(found, lines) | {"served": served}
    data = deflated(json.dumps(told, separators=(",", ":"), allow_nan=False).encode())
    script, style = _script(), _file("style.css")
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; style-src 'sha256-{_digest(style)}'; "
        f"img-src data: blob:; connect-src {_OWN if served else _NONE}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return Template(_file("page.html")).substitute(
        policy=policy,
        title=escape(f"{clear(found.model['name'])}: what every head does"),
        name=escape(clear(found.model["name"])),
        style=style,
        script=script,
        data=data,
        lines="\n".join(lines),
        plain=_plain(found),
    )


def _digest(text: str) -> str:
    return base64.b64encode(sha256(text.encode()).digest()).decode()


def _file(name: str) -> str:
    return files("multihead.page").joinpath(name).read_text(encoding="utf-8")


def _script() -> str:
    parts = "".join(_file(f"app/{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


# ---- the data ---------------------------------------------------------------------------------


def _data(found: Gathered, lines: list[str]) -> dict[str, Any]:
    claims = found.claims
    return {
        "version": __version__,
        "made": datetime.now(UTC).strftime("%Y-%m-%d"),
        "model": found.model | {"name": clear(found.model["name"])},
        "corpus": found.corpus | {"name": clear(found.corpus.get("name", ""))},
        "stopped": found.stopped,
        "notes": [clear(note) for note in found.notes],
        "findings": [
            vars(f)
            for f in findings(
                found.table, found.similarity, found.curve, None if claims is None else claims["statements"]
            )
        ],
        "sites": found.sites,
        "heads": found.heads,
        "table": None if found.table is None else _table(found.table, found.heads),
        "importance": importance_column(found.table),
        "kinds": {rule.kind: {"meaning": rule.meaning, "threshold": rule.threshold} for rule in RULES},
        "why": None if found.kinds is None else {e.head: e.why for e in found.kinds},
        "often": found.pairs,
        "pairs": _pairs(found.similarity, lines),
        "curve": found.curve,
        "claims": _claims(claims),
        "cost": None if found.cost is None else _cost(found.cost),
        "texts": found.texts,
    }


def _table(table: HeadTable, heads: Sequence[str]) -> dict[str, Any]:
    """Columns in the order of the heads; numbers rounded, None where there is none."""
    at = {name: i for i, name in enumerate(table.heads)}
    rows = [at[name] for name in heads]
    columns: dict[str, Any] = {}
    for name, column in table.columns.items():
        words = not isinstance(column, Tensor)
        cells: list[Any] = list(column) if words else rounded(column.tolist())
        why: dict[str, list[str]] = {}
        for head, reason in table.reasons.get(name, {}).items():
            why.setdefault(reason, []).append(head)
        said = table.meaning[name]
        columns[name] = {"unit": said.unit, "meaning": said.text, "values": [cells[i] for i in rows], "why": why}
    return columns


def rounded(numbers: Sequence[float]) -> list[float | None]:
    """Some digits of each; None where there is no number."""
    return [float(f"{x:.{DIGITS}g}") if math.isfinite(x) else None for x in numbers]


def _pairs(found: Similarity | None, lines: list[str]) -> dict[str, Any] | None:
    """Every measure as bytes, where there are not too many heads."""
    if found is None or not 2 <= len(found.heads) <= PAIRED:
        return None
    measures: list[dict[str, Any]] = []
    for name, values in found.pairs.items():
        low = -1.0 if name == "correlation" else 0.0
        said = PAIRS[name]
        lines.append(shares_text(values, low))
        measures.append({"name": name, "unit": said.unit, "meaning": said.text, "low": low, "line": len(lines) - 1})
    order = [found.heads.index(name) for name in found.order]
    return {
        "heads": list(found.heads),
        "measures": measures,
        "order": order,
        "groups": [list(group) for group in found.groups()],
        "by": found.by,
        "notes": [clear(str(n)) for n in found.about.get("notes", [])],
    }


def _claims(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Without the numbers behind the verdicts: `multihead claims --json` has them."""
    if found is None:
        return None
    lines: list[dict[str, Any]] = []
    for line in found["statements"]:
        layers = {
            label: {k: v for k, v in finding.items() if k != "numbers"} for label, finding in line["layers"].items()
        }
        lines.append({**line, "layers": layers})
    return {"about": found["about"], "statements": lines}


def _cost(cost: Cost) -> dict[str, Any]:
    """Now, and with half the heads."""
    half = cost.pruned(max(1, max(s.heads for s in cost.specs) // 2)) if _halves(cost) else None
    columns = [cost] if half is None else [cost, half]
    rows = [[label, *cells] for label, *cells in zip(LINES, *(cost_cells(c) for c in columns), strict=True)]
    heading = ["now"] if half is None else ["now", "with half the heads"]
    return {"title": [line.strip() for line in title(cost)], "heading": heading, "rows": rows}


def _halves(cost: Cost) -> bool:
    """Whether every layer has an even number of heads of its own."""
    return len({s.heads for s in cost.specs}) == 1 and all(
        s.heads % 2 == 0 and s.kv_heads == s.heads and s.latent is None for s in cost.specs
    )


# ---- without JavaScript -----------------------------------------------------------------------


def _plain(found: Gathered) -> str:
    """Card, findings and table as plain HTML, for a browser that runs no script."""
    claims = None if found.claims is None else found.claims["statements"]
    said = findings(found.table, found.similarity, found.curve, claims)
    items = "".join(f"<li>{escape(f.text)}</li>" for f in said)
    parts = [f"<p>{escape(card(found))}</p>", f"<ul>{items}</ul>" if items else ""]
    table = found.table
    if table is not None:
        by = importance_column(table)
        names = [n for n in (*PLAIN[:2], by, *PLAIN[2:]) if n is not None and n in table.columns]
        head = "".join(f'<th scope="col">{escape(n)}</th>' for n in ("head", *names))
        columns = [[escape(name) for name in table.heads], *(_cells(table.columns[n]) for n in names)]
        rows = (
            f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
            for name, *cells in zip(*columns, strict=True)
        )
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>")
    return "\n".join(parts)


def _cells(column: Column) -> list[str]:
    if isinstance(column, Tensor):
        return ["–" if math.isnan(x) else f"{x:.3g}" for x in column.tolist()]
    known = {word: escape(clear(word)) for word in set(column)}
    return [known[word] for word in column]


def card(found: Gathered) -> str:
    """Parameters, layers × heads, kv heads, tokens seen."""
    sites, heads = found.sites, len(found.heads)
    each = {s["heads"] for s in sites}
    shape = (
        f"{len(sites)} layers × {each.pop()} heads" if len(each) == 1 else f"{heads} heads in {len(sites)} layers"
    )
    parts = [f"{amount(found.model['parameters'])} parameters", shape]
    if kv := sum(s["kv"] for s in sites):
        parts.append(f"{kv} kv heads")
    tokens, documents = found.corpus.get("tokens"), found.corpus["documents"]
    seen = f"{documents} document{'s' if documents != 1 else ''}"
    parts.append(f"{tokens:,} tokens in {seen}" if tokens else seen)
    return " · ".join(parts)
