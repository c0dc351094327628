"""Charts as data, and the palettes and scales of every face that draws them.

A chart is a `Heatmap`, a `HeadGrid` or a `LineChart`. Four faces draw it: notebooks (`_base.chart_html`),
figures (`show.figure`), the terminal (`show.terminal`) and the page, which receives `page_style()` as JSON.

>>> import numpy as np
>>> from multihead._base.charts import Heatmap, shade
>>> shade("measure", 0.0), shade("measure", 1.0)
('#440154', '#fde725')
>>> attention = Heatmap.attention(np.array([[1.0, 0.0], [0.75, 0.25]]), ["the", "cat"], ["the", "cat"])
>>> attention.levels().tolist()[0], float(attention.levels()[1, 1])
([1.0, 0.0], 0.5)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from multihead._base.number_text import PAGE_FORMATS
from multihead._base.share_words import SHARES, leading_shares

Cells = Float[np.ndarray, "row column"]

# ---- palettes ---------------------------------------------------------------------------------

KIND_COLOURS = {
    "first": "#0072b2", "delimiter": "#56b4e9", "self": "#b59a00", "previous": "#e69f00", "next": "#d55e00",
    "offset": "#96631a", "window": "#e8a07c", "duplicate": "#cc79a7", "induction": "#8f2d6b", "class": "#009e73",
    "alignment": "#44aa99", "broad": "#7d74c9", "dead": "#444b55", "too little data": "#c3c8cf",
}  # fmt: skip
"""Colours of head kinds: Okabe and Ito (2008) and neighbours, distinct with every kind of colour vision."""

LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444b55")
"""Colours of lines (Okabe and Ito 2008)."""

NO_VALUE = "#dfe3e8"
"""A cell without a number."""

RAMPS = {
    # attention weights: from the background to ink, one hue
    "weight": ("#ffffff", "#a9cbe6", "#2f7fc0", "#06284d"),
    "weight-dark": ("#171d25", "#1d4f7c", "#58a8e8", "#f2f8ff"),
    # viridis (Smith and van der Walt 2015)
    "measure": (
        *("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c"),
        *("#28ae80", "#5ec962", "#addc30", "#fde725"),
    ),
    # values of both signs: blue below zero, orange above
    "signed": ("#3b6fb6", "#8fb3dc", "#f1f3f6", "#eeb27f", "#c8601f"),
    "signed-dark": ("#8fbff5", "#3a6fae", "#1d242d", "#a85a20", "#ffb378"),
}
"""Colours of 0 … 1, evenly spaced; between two of them colours are mixed."""


def shade(ramp: str, level: float) -> str:
    """The #rrggbb colour of a level from 0 to 1 in charts."""
    stops = RAMPS[ramp]
    position = min(max(level, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(position), len(stops) - 2)
    pair = [[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops[low : low + 2]]
    return "#" + "".join(f"{round(a + (position - low) * (b - a)):02x}" for a, b in zip(*pair, strict=True))


def word_colours(words: Sequence[str]) -> dict[str, str]:
    """A colour for each word, the most frequent first: kinds and shares have theirs, others the next free one."""
    ordered = [word for word, _ in Counter(words).most_common()]
    free = [colour for kind, colour in KIND_COLOURS.items() if kind not in ordered]
    colours: dict[str, str] = {}
    for word in ordered:
        colour = KIND_COLOURS.get(word) or next((share.colour for share in leading_shares(word)), None)
        colours[word] = colour or (free.pop(0) if word and free else NO_VALUE)
    return colours


# ---- the page ----------------------------------------------------------------------------------


def page_style() -> dict[str, Any]:
    """Chart palettes and number formats as the page's script reads them."""
    return {
        "kinds": KIND_COLOURS,
        "shares": [asdict(share) for share in SHARES],
        "two_lead": TWO_LEAD,
        "lines": LINE_COLOURS,
        "ramps": RAMPS,
        "no_value": NO_VALUE,
        "weight_exponent": WEIGHT_EXPONENT,
        "size": [SMALLEST, LARGEST],
        "ring": {"size": [SMALLEST_RING, LARGEST_RING], "hole": RING_HOLE, "centre": RING_CENTRE},
        "format": PAGE_FORMATS,
    }


# ---- heatmaps ---------------------------------------------------------------------------------

WEIGHT_EXPONENT = 0.5
"""Weights are drawn by their square root, so that small ones are visible."""


@dataclass(frozen=True)
class Heatmap:
    """A matrix drawn as coloured cells: an attention map, or a measure of every pair of heads.

    The colour of a value x is `shade(ramp, ((x − low) / (high − low)) ** exponent)`; NaN has none. A distance has
    `low` above `high`: small distances are drawn like large similarities.
    """

    cells: Cells
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    ramp: str = "measure"
    low: float = 0.0
    high: float = 1.0
    exponent: float = 1.0
    title: str = ""
    value: str = ""
    """the title of the colour bar"""
    row_title: str = ""
    column_title: str = ""
    frames: Sequence[tuple[int, int]] = ()
    """(start, length) of runs of rows and columns that belong together"""
    rules: Sequence[int] = ()
    """a line is drawn before each of these rows and columns"""

    @staticmethod
    def attention(
        weights: Cells, queries: Sequence[str] = (), keys: Sequence[str] = (), *, title: str = "", top: float = 1.0
    ) -> Heatmap:
        """The heatmap chart of a head: queries down, keys across; `top` is the weight that is drawn darkest."""
        return Heatmap(
            weights, queries, keys, ramp="weight", high=top, exponent=WEIGHT_EXPONENT, title=title,
            value="weight", row_title="query", column_title="key",
        )  # fmt: skip

    def levels(self) -> Cells:
        """The position of each cell on the ramp, 0 … 1; NaN for a cell without a number."""
        scaled = (self.cells - self.low) / (self.high - self.low)
        return np.clip(scaled, 0.0, 1.0) ** self.exponent

    def pooled(self, most: int) -> Heatmap:
        """At most `most` cells along each side, without labels."""
        sign = 1.0 if self.high > self.low else -1.0  # the strongest cell is the one drawn furthest up the ramp
        cells = sign * pooled(sign * self.cells, most)
        return replace(self, cells=cells, rows=(), columns=(), frames=(), rules=())


def pooled(cells: Cells, rows: int, columns: int | None = None) -> Float[np.ndarray, "pooled_row pooled_column"]:
    """Pool the cells of a chart: the largest number in each of `rows` x `columns` bins; NaN if there is none."""
    for axis, bins in enumerate((rows, columns or rows)):
        if bins < cells.shape[axis]:
            cells = np.fmax.reduceat(cells, bin_starts(cells.shape[axis], bins), axis=axis)
    return cells


def bin_starts(count: int, bins: int) -> list[int]:
    """The first index of each of at most `bins` runs of nearly equal length."""
    bins = min(count, bins)
    return [i * count // bins for i in range(bins)]


# ---- the grid of heads ------------------------------------------------------------------------

SMALLEST, LARGEST = 0.22, 0.86
"""Diameters of the least and the most important head, of a cell."""

UNSIZED = 0.62
"""The diameter of every head where nothing sets it."""

SMALLEST_RING, LARGEST_RING = 0.58, 0.96
"""Ring diameters of the least and the most important head; smaller rings would hide their parts."""

RING_HOLE, RING_CENTRE = 0.64, 0.46
"""Diameters of a ring's hole, and of the disc in it that shows the leading shares, of the ring."""


TWO_LEAD = "two lead"
"""In legends: heads in which two parts lead."""

Arc = tuple[float, float, str]
"""Start and end in turns, clockwise from the top, and the colour."""


@dataclass(frozen=True)
class HeadGrid:
    """All heads of a model, layers down and heads across: each has a word, a number, or shares of several parts."""

    heads: Sequence[str]
    words: Sequence[str] | None = None
    numbers: Float[np.ndarray, " head"] | None = None
    value: str = ""
    """the title of the words or numbers"""
    sizes: Float[np.ndarray, " head"] | None = None
    """a larger value makes a larger circle"""
    size_title: str = ""
    hollow: frozenset[str] = frozenset()
    """heads that can be pruned"""
    shares: Float[np.ndarray, "head part"] | None = None
    """the share of each part for every head, drawn as a ring; NaN if not measured"""
    parts: Sequence[str] = ()
    part_colours: Sequence[str] = ()
    part_meanings: Sequence[str] = ()
    leading: Sequence[Sequence[str]] = ()
    """of each head, the parts that lead: drawn as a disc inside the ring"""
    title: str = ""

    @property
    def layers(self) -> list[str]:
        return list(dict.fromkeys(name.rpartition("H")[0] for name in self.heads))

    @property
    def places(self) -> list[tuple[int, int]]:
        """The row and the column of each head in the chart."""
        rows = {layer: row for row, layer in enumerate(self.layers)}
        split = [name.rpartition("H") for name in self.heads]
        return [(rows[layer], int(head)) for layer, _, head in split]

    @property
    def width(self) -> int:
        """Columns: the number of heads of the widest layer."""
        return 1 + max(column for _, column in self.places)

    @property
    def diameters(self) -> Float[np.ndarray, " head"]:
        """The diameter of each head's circle in the chart; its area grows with the head's size."""
        rings = self.shares is not None
        smallest, largest = (SMALLEST_RING, LARGEST_RING) if rings else (SMALLEST, LARGEST)
        if self.sizes is None:
            return np.full(len(self.heads), largest if rings else UNSIZED)
        sizes = np.nan_to_num(np.clip(self.sizes, 0, None), nan=0.0, posinf=0.0)
        most = sizes.max(initial=0.0)
        return smallest + (largest - smallest) * np.sqrt(sizes / most if most > 0 else sizes)

    def ring(self, i: int) -> list[Arc]:
        """The arcs of the ring of head i in the chart; one grey arc where its shares were not measured."""
        assert self.shares is not None
        shares = self.shares[i].tolist()
        return _arcs(shares, self.part_colours) if np.isfinite(shares).all() else [(0.0, 1.0, NO_VALUE)]

    def disc(self, i: int) -> list[Arc]:
        """The disc inside the ring of head i in the chart: its leading shares, equally large."""
        leading = self.leading[i] if self.leading else ()
        colours = dict(zip(self.parts, self.part_colours, strict=True))
        return _arcs([1 / len(leading) for _ in leading], [colours[part] for part in leading])

    @property
    def leading_counts(self) -> dict[str, int]:
        """The number of heads in which each part leads alone, then of those in which two lead: they add up."""
        counts = Counter(leading[0] if len(leading) == 1 else TWO_LEAD for leading in self.leading if leading)
        return {part: counts[part] for part in (*self.parts, *([TWO_LEAD] if counts[TWO_LEAD] else []))}

    def heatmap(self) -> Heatmap:
        """The numbers of a head grid as a heatmap chart; with both signs, zero is in the middle of the ramp."""
        assert self.numbers is not None
        cells = np.full((len(self.layers), self.width), np.nan)
        for place, x in zip(self.places, self.numbers, strict=True):
            cells[place] = x
        known = self.numbers[np.isfinite(self.numbers)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        if low < 0 < high:
            end = max(-low, high)
            return Heatmap(cells, self.layers, ramp="signed", low=-end, high=end, value=self.value)
        return Heatmap(cells, self.layers, low=low, high=high if high > low else low + 1.0, value=self.value)


def _arcs(shares: Sequence[float], colours: Sequence[str]) -> list[Arc]:
    ends = np.cumsum(shares).tolist()
    parts = zip(ends, shares, colours, strict=True)
    return [(end - share, end, colour) for end, share, colour in parts if share > 0]


# ---- lines ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """Points (x, y) in the order in which they are joined."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class LineChart:
    """Lines over one axis."""

    lines: Sequence[Line]
    x_title: str
    y_title: str
    x_descends: bool = False
    y_logarithmic: bool = False
    marks: Sequence[tuple[float, str]] = ()
    """(x, text): vertical lines with a label"""
    title: str = ""
