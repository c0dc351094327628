"""All heads at once: layers down, heads across.

>>> import torch
>>> from multihead.figure.heads import grid
>>> from multihead.table.meaning import Meaning
>>> from multihead.table.table import HeadTable
>>> kind = HeadTable(("L0H0", "L0H1"), {"kind": ("broad", "previous")}, {"kind": Meaning("", "")})
>>> [t.get_text() for t in grid(kind).legends[0].get_texts()]
['broad (1)', 'previous (1)']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from multihead._base.colours import KINDS
from multihead.edit.plan import Plan
from multihead.errors import MultiheadError, SizeError
from multihead.figure.style import COLUMN, NOTHING, PAGE, bar, every, paper, scale, short
from multihead.page.findings import importance_column
from multihead.table.head_names import parse
from multihead.table.table import HeadTable

if TYPE_CHECKING:
    from multihead.figure.paper import Paper

LEAST, MOST = 0.22, 0.86
"""Diameters of the least and the most important head, of a cell."""


def grid(
    table: HeadTable,
    by: str | None = None,
    *,
    size: str | None = None,
    go: Plan | Iterable[str] = (),
    title: str = "",
) -> Paper:
    """Colour is the kind, size is the importance, hollow heads can go; or squares coloured by a column of numbers.

    Args:
        by: the column of the colour; "kind" where there is one, else the first of numbers.
        size: the column of the size; by default the importance that was measured, if anything.
        go: heads that can go, by name, or the plan that takes them out.
    """
    if not len(table):
        raise SizeError("a table of no heads has nothing to draw", hint="mh.measure(model, texts)")
    by = _first(table) if by is None else by
    column = table[by]
    places, layers, across = _places(table.heads)
    room = min(max(0.26 * across, COLUMN - 1.0), PAGE - 1.0)
    cell = room / across
    high = min(cell * len(layers), 8.5)
    with paper(room + 1.0, high + (0.75 if isinstance(column, tuple) else 0.5)) as figure:
        axes = figure.add_subplot()
        axes.set(xlim=(-0.5, across - 0.5), ylim=(len(layers) - 0.5, -0.5), aspect="equal")
        axes.set_xlabel("head")
        axes.set_ylabel("layer")
        axes.set_title(title, parse_math=False)
        step = every(across, room, 10), every(len(layers), high)
        axes.set_xticks(range(0, across, step[0]))
        axes.set_yticks(range(0, len(layers), step[1]), labels=layers[:: step[1]], parse_math=False)
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        if isinstance(column, tuple):
            _circles(figure, axes, table, column, places, _size(table, size), _gone(table, go))
        else:
            _squares(figure, axes, table, by, places, (len(layers), across))
    return figure


def _circles(
    figure: Any,
    axes: Any,
    table: HeadTable,
    words: tuple[str, ...],
    places: Sequence[tuple[int, int]],
    size: str | None,
    gone: set[str],
) -> None:
    from matplotlib.collections import EllipseCollection
    from matplotlib.lines import Line2D

    counts = Counter(words).most_common()
    colours = _colours([word for word, _ in counts])
    wide = _diameters(table, size)
    ink = [colours[word] for word in words]
    fill = ["white" if head in gone else colour for head, colour in zip(table.heads, ink, strict=True)]
    line = 0.9
    axes.add_collection(
        EllipseCollection(
            wide, wide, np.zeros(len(wide)), units="xy", facecolors=fill, edgecolors=ink, linewidths=line,
            offsets=[(x, y) for y, x in places], offset_transform=axes.transData,
        )
    )  # fmt: skip
    dot: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 5}
    keys = [Line2D([], [], color=colours[word], label=f"{short(word, 24)} ({n})", **dot) for word, n in counts]
    if gone:
        keys.append(Line2D([], [], color="#5b6470", markerfacecolor="white", label=f"can go ({len(gone)})", **dot))
    if size is not None:
        keys.append(Line2D([], [], linestyle="none", label=f"size: {size}"))
    made = figure.legend(
        handles=keys, loc="outside lower center", ncols=4, columnspacing=1.0, handletextpad=0.15, borderpad=0.1
    )
    for text in made.get_texts():
        text.set_parse_math(False)


def _squares(
    figure: Any, axes: Any, table: HeadTable, by: str, places: Sequence[tuple[int, int]], shape: tuple[int, int]
) -> None:
    numbers = table.numbers(by).numpy()
    cells = np.full(shape, np.nan)
    there = np.zeros(shape, dtype=bool)
    for (y, x), number in zip(places, numbers, strict=True):
        cells[y, x] = number
        there[y, x] = True
    low, high = (float(np.nanmin(numbers)), float(np.nanmax(numbers))) if not np.isnan(numbers).all() else (0, 1)
    both = low < 0 < high
    ends = (-max(-low, high), max(-low, high)) if both else (low, high)
    picture = axes.imshow(
        np.ma.masked_where(np.isnan(cells), cells), cmap=scale("both" if both else "measure"), vmin=ends[0],
        vmax=ends[1], interpolation="nearest", aspect="equal",
    )  # fmt: skip
    axes.imshow(np.dstack([np.ones((*shape, 3)), ~there]), interpolation="nearest", aspect="equal")  # no such head
    axes.set(xlim=(-0.5, shape[1] - 0.5), ylim=(shape[0] - 0.5, -0.5))
    for line, count in ((axes.axvline, shape[1]), (axes.axhline, shape[0])):
        for at in range(1, count if count <= 64 else 0):
            line(at - 0.5, color="white", linewidth=0.8)
    unit = table.meaning[by].unit
    bar(figure, picture, axes, f"{by} ({unit})" if unit else by)
    if np.isnan(numbers).any():
        axes.set_xlabel(f"head (grey: no {by})", parse_math=False)


def _first(table: HeadTable) -> str:
    if "kind" in table.columns:
        return "kind"
    found = next((n for n, c in table.columns.items() if not isinstance(c, tuple)), None)
    if found is None:
        raise MultiheadError("the table has no column to colour heads by", hint="by= names a column")
    return found


def _size(table: HeadTable, asked: str | None) -> str | None:
    found = importance_column(table) if asked is None else asked
    if found is not None:
        table.numbers(found)
    return found


def _diameters(table: HeadTable, size: str | None) -> Any:
    if size is None:
        return np.full(len(table), 0.62)
    importance = np.nan_to_num(np.clip(table.numbers(size).numpy(), 0, None), nan=0.0, posinf=0.0)
    most = importance.max()
    return LEAST + (MOST - LEAST) * np.sqrt(importance / most if most > 0 else importance)


def _gone(table: HeadTable, go: Plan | Iterable[str]) -> set[str]:
    if isinstance(go, Plan):
        return {layer.head(h) for layer in go.layers for h in layer.removed}
    named = [go] if isinstance(go, str) else list(go)
    return {table.row(name)["name"] for name in named}


def _colours(words: Sequence[str]) -> dict[str, str]:
    """Those of the kinds; other words get the next that is free."""
    free = [colour for colour in KINDS.values() if colour not in {KINDS.get(w) for w in words}]
    found: dict[str, str] = {}
    for word in words:
        found[word] = KINDS.get(word) or (NOTHING if not word or not free else free.pop(0))
    return found


def _places(heads: Sequence[str]) -> tuple[list[tuple[int, int]], list[str], int]:
    """(line, column) of each head, the names of the lines, and how many columns there are."""
    lines: dict[str, int] = {}
    places: list[tuple[int, int]] = []
    for name in heads:
        layer = name.rpartition("H")[0]
        places.append((lines.setdefault(layer, len(lines)), parse(name)[2]))
    return places, list(lines), 1 + max(x for _, x in places)
