"""Self-contained HTML fragments: tables and lines of text. All text is escaped.

Colours are transparent or inherited from the notebook, so fragments are readable on light and dark backgrounds.

>>> from multihead._base.html_fragments import table
>>> print(table(["head", "kind"], [["L0H1", "<b>"]], style=False))
<table class="multihead-table"><thead><tr><th>head</th><th>kind</th></tr></thead><tbody><tr><td>L0H1</td><td>&lt;b&gt;</td></tr></tbody></table>
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape

from multihead._base.charts import NO_VALUE

STYLE = (
    "<style>.multihead-table{border-collapse:collapse}"
    ".multihead-table td,.multihead-table th{text-align:right;padding:.1em .7em;white-space:nowrap}"
    ".multihead-table .w{text-align:left}.multihead-table small{opacity:.6;font-weight:normal}"
    ".multihead-map{image-rendering:pixelated;border:1px solid #8886;display:block;margin:.3em 0}"
    ".multihead-dot{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin:0 .35em 0 .8em}</style>"
)


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, words: Collection[int] = (), style: bool = True
) -> str:
    """An HTML table; columns listed in `words` are left-aligned, all others right-aligned."""
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


def dots(counts: Mapping[str, int | str], colours: Mapping[str, str]) -> str:
    """HTML of a coloured dot, the word and its count, for each word: ● previous 3 ● broad 7."""
    spans = (
        f'<span class="multihead-dot" style="background:{colours.get(word, NO_VALUE)}"></span>'
        f"{escape(word)} {count}"
        for word, count in counts.items()
    )
    return f"{STYLE}<div>{''.join(spans)}</div>"
