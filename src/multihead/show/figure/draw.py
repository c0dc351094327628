"""Draw charts on matplotlib axes. Nothing here is imported before matplotlib is known to be installed."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from typing import Any

import numpy as np

from multihead._base.charts import (
    LINE_COLOURS,
    NO_VALUE,
    RING_CENTRE,
    RING_HOLE,
    HeadGrid,
    Heatmap,
    LineChart,
    word_colours,
)
from multihead.show.figure.style import colour_bar, colour_map, short

MARKERS = "os^Dvx+"


def draw_heatmap(axes: Any, chart: Heatmap) -> Any:
    """Draw the cells, frames and rules of a heatmap; returns the image, for a colour bar."""
    from matplotlib.colors import PowerNorm
    from matplotlib.patches import Rectangle

    low, high = sorted((chart.low, chart.high))
    colours = colour_map(chart.ramp, reverse=chart.low > chart.high)
    image = axes.imshow(
        np.ma.masked_invalid(chart.cells), cmap=colours, norm=PowerNorm(chart.exponent, low, high, clip=True),
        aspect="equal", interpolation="nearest",
    )  # fmt: skip
    for side in axes.spines.values():
        side.set_visible(chart.ramp == "weight")
        side.set_color("#c3c8cf")
    for start, length in chart.frames:
        for colour, width in (("white", 1.6), ("#d55e00", 0.9)):
            box = Rectangle(
                (start - 0.5, start - 0.5), length, length, fill=False, edgecolor=colour, linewidth=width
            )
            axes.add_patch(box)
    for index in chart.rules:
        axes.axhline(index - 0.5, color="white", linewidth=0.9)
        axes.axvline(index - 0.5, color="white", linewidth=0.9)
    return image


def draw_head_grid(figure: Any, axes: Any, grid: HeadGrid) -> None:
    """Draw rings of shares, circles coloured by words, or squares coloured by numbers."""
    if grid.shares is not None:
        _rings(figure, axes, grid)
    elif grid.words is not None:
        _circles(figure, axes, grid)
    else:
        _squares(figure, axes, grid)


def _rings(figure: Any, axes: Any, grid: HeadGrid) -> None:
    """Draw a ring of the shares of each head; the disc inside has the colours of those that lead."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Wedge

    rings: list[tuple[Any, str]] = []
    discs: list[tuple[Any, str, str]] = []
    for i, ((y, x), diameter) in enumerate(zip(grid.places, grid.diameters, strict=True)):
        radius = diameter / 2
        for start, end, colour in grid.ring(i):
            wedge = Wedge((x, y), radius, *_degrees(start, end), width=(1 - RING_HOLE) * radius)
            rings.append((wedge, colour))
        for start, end, colour in grid.disc(i):
            fill = "white" if grid.heads[i] in grid.hollow else colour
            discs.append((Wedge((x, y), RING_CENTRE * radius, *_degrees(start, end)), fill, colour))
    wedges, colours = zip(*rings, strict=True)
    axes.add_collection(PatchCollection(wedges, facecolors=colours, edgecolors="white", linewidths=0.3))
    if discs:
        wedges, fills, colours = zip(*discs, strict=True)
        axes.add_collection(PatchCollection(wedges, facecolors=fills, edgecolors=colours, linewidths=0.5))
    names: list[str] = list(grid.parts)
    if grid.leading:
        names = [f"{part} ({count})" for part, count in grid.leading_counts.items()]
    _legend(figure, dict(zip_longest(names, grid.part_colours, fillvalue=NO_VALUE)), grid)


def _degrees(start: float, end: float) -> tuple[float, float]:
    """Parts of a turn as angles, clockwise from the top: the y axis points down, so angles grow clockwise."""
    return 360 * start - 90, 360 * end - 90


def _circles(figure: Any, axes: Any, grid: HeadGrid) -> None:
    """Draw a circle for each head, coloured by its word."""
    from matplotlib.collections import EllipseCollection

    assert grid.words is not None
    colours, sizes = word_colours(grid.words), grid.diameters
    ink = [colours[word] for word in grid.words]
    fill = ["white" if head in grid.hollow else colour for head, colour in zip(grid.heads, ink, strict=True)]
    axes.add_collection(
        EllipseCollection(
            sizes, sizes, np.zeros(len(sizes)), units="xy", facecolors=fill, edgecolors=ink, linewidths=0.9,
            offsets=[(x, y) for y, x in grid.places], offset_transform=axes.transData,
        )
    )  # fmt: skip
    counts = Counter(grid.words).most_common()
    _legend(figure, {f"{short(word, 24)} ({count})": colours[word] for word, count in counts}, grid)


def _legend(figure: Any, colours: dict[str, str], grid: HeadGrid) -> None:
    """Draw the legend of colours and sizes."""
    from matplotlib.lines import Line2D

    dot: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 5}
    keys = [Line2D([], [], color=colour, label=name, **dot) for name, colour in colours.items()]
    if grid.hollow:
        name = f"can be pruned ({len(grid.hollow)})"
        keys.append(Line2D([], [], color="#5b6470", markerfacecolor="white", label=name, **dot))
    if grid.sizes is not None:
        keys.append(Line2D([], [], linestyle="none", label=f"size: {grid.size_title}"))
    if grid.leading:
        keys.append(Line2D([], [], linestyle="none", label="disc: the share that leads"))
    legend = figure.legend(
        handles=keys, loc="outside lower center", ncols=4, columnspacing=1.0, handletextpad=0.15, borderpad=0.1
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _squares(figure: Any, axes: Any, grid: HeadGrid) -> None:
    """Draw a square for each head, coloured by its number."""
    chart = grid.heatmap()
    shape = chart.cells.shape
    image = draw_heatmap(axes, chart)
    exists = np.zeros(shape, dtype=bool)
    exists[tuple(np.array(grid.places).T)] = True
    axes.imshow(np.dstack([np.ones((*shape, 3)), ~exists]), interpolation="nearest", aspect="equal")  # white
    axes.set(xlim=(-0.5, shape[1] - 0.5), ylim=(shape[0] - 0.5, -0.5))
    for rule, count in ((axes.axvline, shape[1]), (axes.axhline, shape[0])):
        for index in range(1, count if count <= 64 else 0):
            rule(index - 0.5, color="white", linewidth=0.8)
    colour_bar(figure, image, axes, chart.value)
    if np.isnan(chart.cells[exists]).any():
        axes.set_xlabel(f"head (grey: no {chart.value.partition(' (')[0]})", parse_math=False)


def draw_lines(axes: Any, chart: LineChart) -> None:
    """Draw a line with markers per series, the first one thicker; a legend, and labelled vertical lines."""
    for i, line in enumerate(chart.lines):
        axes.plot(
            *zip(*line.points, strict=True), label=line.name, color=LINE_COLOURS[i % len(LINE_COLOURS)],
            marker=MARKERS[i % len(MARKERS)], markersize=3.2, linewidth=1.5 if i == 0 else 1.0,
        )  # fmt: skip
    for x, text in chart.marks:
        axes.axvline(x, color="#9aa3ad", linestyle=":", linewidth=0.8)
        axes.annotate(
            text, (x, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 1.5), textcoords="offset points",
            ha="center", va="bottom", color="#5b6470", fontsize=6,
        )  # fmt: skip
    if chart.y_logarithmic:
        axes.set_yscale("log")
        for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            set_formatter("{x:g}")  # 20, not 2 × 10¹
    if chart.x_descends:
        axes.invert_xaxis()
    axes.set_xlabel(chart.x_title)
    axes.set_ylabel(chart.y_title)
    axes.grid(color="#dfe3e8", linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="best")
