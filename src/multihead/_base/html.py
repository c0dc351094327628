"""Self-contained HTML fragments: tables, lines of text, line plots. All text is escaped.

Colours are transparent or inherited from the notebook, so fragments are readable on light and dark backgrounds.

>>> from multihead._base.html import table
>>> print(table(["head", "kind"], [["L0H1", "<b>"]], style=False))
<table class="multihead-table"><thead><tr><th>head</th><th>kind</th></tr></thead><tbody><tr><td>L0H1</td><td>&lt;b&gt;</td></tr></tbody></table>
"""  # noqa: E501

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from html import escape

STYLE = (
    "<style>.multihead-table{border-collapse:collapse}"
    ".multihead-table td,.multihead-table th{text-align:right;padding:.1em .7em;white-space:nowrap}"
    ".multihead-table .w{text-align:left}.multihead-table small{opacity:.6;font-weight:normal}"
    ".multihead-map{image-rendering:pixelated;border:1px solid #8886;display:block;margin:.3em 0}"
    ".multihead-dot{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin:0 .35em 0 .8em}</style>"
)

NONE = "#9aa3ad"


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, words: Collection[int] = (), style: bool = True
) -> str:
    """A table; columns listed in `words` are left-aligned, all others right-aligned."""
    side = [' class="w"' if i in words else "" for i in range(len(titles))]
    head = "".join(f"<th{s}>{escape(t)}</th>" for t, s in zip(titles, side, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{s}>{escape(cell)}</td>" for cell, s in zip(row, side, strict=True)) + "</tr>"
        for row in rows
    )
    html = f'<table class="multihead-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f"{STYLE}{html}" if style else html


def line(text: str, *, small: bool = True) -> str:
    """A paragraph of plain text."""
    escaped = escape(text)
    return f"<div><small>{escaped}</small></div>" if small else f"<div>{escaped}</div>"


def lines(texts: Sequence[str]) -> str:
    return "".join(line(text) for text in texts)


def plain(text: str) -> str:
    """Preformatted text, as in a terminal."""
    return f'<pre style="background:none">{escape(text)}</pre>'


def dots(counts: Mapping[str, int], colours: Mapping[str, str]) -> str:
    """A coloured dot, the word and its count, for each word: ● previous 3 ● broad 7."""
    spans = (
        f'<span class="multihead-dot" style="background:{colours.get(word, NONE)}"></span>{escape(word)} {count}'
        for word, count in counts.items()
    )
    return f"{STYLE}<div>{''.join(spans)}</div>"


def plot(
    series: Mapping[str, Sequence[tuple[float, float]]], colours: Sequence[str], *, across: str, up: str
) -> str:
    """SVG lines through points (x, y) in the notebook's text colour; x decreases from left to right."""
    points = [p for pairs in series.values() for p in pairs if all(map(math.isfinite, p))]
    if not points:
        return ""
    wide, high, left, below, above = 420, 190, 54, 36, 12
    (x0, x1), (y0, y1) = (_range([p[i] for p in points]) for i in range(2))

    def point(x: float, y: float) -> str:
        right, down = (x1 - x) / (x1 - x0), (y1 - y) / (y1 - y0)
        return f"{left + right * (wide - left - 110):.1f},{above + down * (high - below - above):.1f}"

    ends = "".join(
        f'<text x="{left - 5}" y="{float(point(x1, y).partition(",")[2]) + 3:.1f}" text-anchor="end">{y:.3g}</text>'
        for y in (y0, y1)
    )
    ends += "".join(
        f'<text x="{point(x, y0).partition(",")[0]}" y="{high - 20}" text-anchor="middle">{x:.4g}</text>'
        for x in (x1, x0)
    )
    body = "".join(
        f'<polyline fill="none" stroke="{colours[i % len(colours)]}" stroke-width="2" '
        f'points="{" ".join(point(*p) for p in sorted(pairs, reverse=True) if all(map(math.isfinite, p)))}"/>'
        f'<text x="{wide - 100}" y="{18 + 14 * i}" fill="{colours[i % len(colours)]}">{escape(name)}</text>'
        for i, (name, pairs) in enumerate(series.items())
    )
    frame = (
        f'<path d="M{left},{above}V{high - below}H{wide - 110}" fill="none" stroke="currentColor" opacity=".5"/>'
    )
    caption = f'<text x="{left}" y="{high - 4}">{escape(across)}; up: {escape(up)}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" '
        f'role="img" font-family="sans-serif" font-size="11" fill="currentColor">{frame}{ends}{body}{caption}</svg>'
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
