"""Charts in a notebook: heatmaps as PNG images, lines and grids of heads as SVG. All text is escaped.

Backgrounds are transparent and text has the notebook's colour, so charts are readable on light and dark pages.

>>> import numpy as np
>>> from multihead._base.chart_html import heatmap_html
>>> from multihead._base.charts import Heatmap
>>> '<img class="multihead-map" width="260" height="156"' in heatmap_html(Heatmap(np.ones((3, 5))), side=260)
True
"""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from html import escape

import numpy as np
from jaxtyping import UInt8

from multihead._base.charts import (
    LINE_COLOURS,
    NO_VALUE,
    RAMPS,
    RING_CENTRE,
    RING_HOLE,
    Arc,
    HeadGrid,
    Heatmap,
    LineChart,
    shade,
    word_colours,
)
from multihead._base.html_fragments import STYLE, dots, lines
from multihead._base.number_text import fraction, number

# ---- heatmaps ---------------------------------------------------------------------------------


def heatmap_html(chart: Heatmap, *, side: int, alt: str = "attention map") -> str:
    """An image whose longer side has `side` pixels. A weight is opacity, visible on any background."""
    levels = chart.levels()
    if chart.ramp == "weight":
        ink = bytes.fromhex(RAMPS["weight"][2][1:])
        shades = np.round(255 * np.nan_to_num(levels)).astype(np.uint8)
        image = png(shades, ink * 256, bytes(range(256)))
    else:
        shades = np.where(np.isfinite(levels), 1 + np.round(254 * np.nan_to_num(levels)), 0).astype(np.uint8)
        colours = b"".join(bytes.fromhex(shade(chart.ramp, i / 254)[1:]) for i in range(255))
        image = png(shades, b"\0\0\0" + colours, b"\0" + b"\xff" * 255)
    rows, columns = shades.shape
    width = side if columns >= rows else max(1, round(side * columns / rows))
    height = max(1, round(width * rows / columns))
    return (
        f'{STYLE}<img class="multihead-map" width="{width}" height="{height}" alt="{escape(alt)}" '
        f'src="data:image/png;base64,{b64encode(image).decode()}">'
    )


def png(shades: UInt8[np.ndarray, "row column"], palette: bytes, alpha: bytes) -> bytes:
    """An 8-bit palette PNG for a notebook (RFC 2083): `palette` and `alpha` per colour, `shades` indexes them."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    height, width = shades.shape
    rows = np.pad(shades, ((0, 0), (1, 0)))  # each row starts with its filter type: 0, none
    return b"".join([
        b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        chunk(b"PLTE", palette), chunk(b"tRNS", alpha), chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
        chunk(b"IEND", b""),
    ])  # fmt: skip


# ---- the grid of heads ------------------------------------------------------------------------


MOST_RINGS = 160
"""With more heads, discs of the leading shares alone: a notebook keeps every output."""


def head_grid_html(grid: HeadGrid, *, cell: int = 22) -> str:
    """A circle or a ring per head, layers down and heads across, and a legend of the words or parts."""
    left, top = 16 + 7 * max(map(len, grid.layers)), 18
    width, height = left + cell * grid.width + 4, top + cell * len(grid.layers) + 4
    marks = [
        _text(left + cell * (column + 0.5), 11, str(column), "middle")
        for column in range(0, grid.width, 1 + grid.width // 40)
    ]
    marks += [_text(left - 6, top + cell * (y + 0.5) + 4, layer, "end") for y, layer in enumerate(grid.layers)]
    colours = _head_colours(grid)
    for i, (y, x) in enumerate(grid.places):
        centre, radius = (left + cell * (x + 0.5), top + cell * (y + 0.5)), cell * float(grid.diameters[i]) / 2
        marks.append(_circle(grid, i, centre, radius, colours[i]))
    legend = ""
    if grid.shares is not None:
        counts = grid.leading_counts if grid.leading else dict.fromkeys(grid.parts, "")
        legend = dots(counts, dict(zip(grid.parts, grid.part_colours, strict=True)))
        legend += lines([f"{part}: {text}" for part, text in zip(grid.parts, grid.part_meanings, strict=False)])
    elif grid.words is not None:
        legend = dots(dict(Counter(grid.words).most_common()), word_colours(grid.words))
    return svg(width, height, marks) + legend


def _circle(grid: HeadGrid, i: int, centre: tuple[float, float], radius: float, colour: str) -> str:
    """The SVG circle of one head, or its ring."""
    name = grid.heads[i]
    word = "" if grid.words is None else f": {grid.words[i]}"
    value = "" if grid.numbers is None else f": {number(float(grid.numbers[i]))}"
    title = f"<title>{escape(name + word + value)}</title>"
    if grid.shares is not None:
        return _ring(grid, i, centre, radius)
    fill = "none" if name in grid.hollow else colour
    return (
        f'<circle cx="{centre[0]:.1f}" cy="{centre[1]:.1f}" r="{radius:.1f}" fill="{fill}" stroke="{colour}" '
        f'stroke-width="1.5">{title}</circle>'
    )


def _ring(grid: HeadGrid, i: int, centre: tuple[float, float], radius: float) -> str:
    """The SVG ring of the shares of a head; the disc inside has the colours of those that lead."""
    assert grid.shares is not None
    title = grid.heads[i] if grid.words is None else f"{grid.heads[i]}: {grid.words[i]}"
    # Turned, so that arcs start at the top.
    start = f'<g transform="translate({centre[0]:.1f} {centre[1]:.1f}) rotate(-90)" fill="none">'
    if len(grid.heads) > MOST_RINGS:
        return f"{start}<title>{escape(title)}</title>{ring(radius, 0.0, grid.disc(i))}</g>"
    shares = (f"{part} {fraction(x)}" for part, x in zip(grid.parts, grid.shares[i], strict=True))
    start += f"<title>{escape(title)}; {escape(', '.join(shares))}</title>"
    disc = RING_CENTRE * radius
    hole = disc - 1.2 if grid.heads[i] in grid.hollow else 0.0
    return f"{start}{ring(radius, RING_HOLE * radius, grid.ring(i))}{ring(disc, hole, grid.disc(i))}</g>"


def ring(outer: float, inner: float, arcs: Sequence[Arc]) -> str:
    """SVG circles around the origin whose stroke, as wide as the ring, is dashed."""
    r, width = (outer + inner) / 2, outer - inner
    around = 2 * math.pi * r
    return "".join(
        f'<circle r="{r:.2f}" stroke="{colour}" stroke-width="{width:.2f}" '
        f'stroke-dasharray="{(end - start) * around:.2f} {around:.2f}" '
        f'stroke-dashoffset="{-start * around:.2f}"/>'
        for start, end, colour in arcs
    )


def _head_colours(grid: HeadGrid) -> list[str]:
    """The colour of every head in the SVG grid."""
    if grid.words is not None:
        known = word_colours(grid.words)
        return [known[word] for word in grid.words]
    if grid.numbers is None:
        return [NO_VALUE] * len(grid.heads)
    chart = grid.heatmap()
    levels = chart.levels()
    return [
        NO_VALUE if np.isnan(levels[place]) else shade(chart.ramp, float(levels[place])) for place in grid.places
    ]


# ---- lines ------------------------------------------------------------------------------------


def line_chart_html(chart: LineChart) -> str:
    """Lines through points; points that are not finite are left out."""
    points = [p for line in chart.lines for p in line.points if all(map(math.isfinite, p))]
    if not points:
        return ""
    width, height, left, right, below, above = 420, 190, 54, 110, 36, 12
    (x0, x1), (y0, y1) = (_range([p[i] for p in points]) for i in range(2))

    def across(x: float) -> float:
        share = (x - x0) / (x1 - x0)
        return left + (1 - share if chart.x_descends else share) * (width - left - right)

    def down(y: float) -> float:
        return above + (y1 - y) / (y1 - y0) * (height - below - above)

    frame = f"M{left},{above}V{height - below}H{width - right}"
    marks = [f'<path d="{frame}" fill="none" stroke="currentColor" opacity=".5"/>']
    marks += [_text(left - 5, down(y) + 3, number(y), "end") for y in (y0, y1)]
    marks += [_text(across(x), height - 20, number(x), "middle") for x in (x0, x1)]
    for i, line in enumerate(chart.lines):
        colour = LINE_COLOURS[i % len(LINE_COLOURS)]
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in sorted(line.points) if math.isfinite(x + y))
        marks.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        marks.append(_text(width - 100, 18 + 14 * i, line.name, fill=colour))
    marks.append(_text(left, height - 4, f"{chart.x_title}; up: {chart.y_title}"))
    return svg(width, height, marks)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


# ---- SVG --------------------------------------------------------------------------------------


def svg(width: float, height: float, marks: Sequence[str]) -> str:
    """An SVG in the notebook's text colour."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" font-family="sans-serif" font-size="11" '
        f'fill="currentColor">{"".join(marks)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", *, fill: str = "") -> str:
    colour = f' fill="{fill}"' if fill else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{colour}>{escape(text)}</text>'
