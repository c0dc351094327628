"""Heatmaps in a terminal: as many columns as it is wide, in colours, shades or digits.

>>> import numpy as np
>>> from rich.console import Console
>>> from multihead._base.charts import Heatmap
>>> from multihead.show.terminal import TerminalHeatmap
>>> chart = Heatmap.attention(np.array([[1.0, 0.0], [0.25, 0.75]]), ["the", "cat"], ["the", "cat"])
>>> Console(width=40, color_system=None).print(TerminalHeatmap(chart), end="")
      t c
      h a
      e t
  the ██    → the 1.00
  cat ▒▒██  → cat 0.75
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from multihead._base.charts import Heatmap, shade
from multihead._base.number_text import fraction

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

LABEL, HIGH = 12, 8
"""Columns of a row's label, lines of a column's label."""

SHADES = ((0.6, "█"), (0.3, "▓"), (0.1, "▒"), (0.02, "░"), (0.0, "·"))
"""A cell above this weight gets this mark; a weight of exactly 0, as a mask gives, is blank."""


@dataclass(frozen=True)
class TerminalHeatmap:
    """A map that rich prints: in colours if the terminal has them, else in shades, or as digits (tenths)."""

    chart: Heatmap
    start: int = 0
    """the first column that is shown"""
    digits: bool = False

    @cached_property
    def label_width(self) -> int:
        from rich.cells import cell_len

        return min(LABEL, max([cell_len(label) for label in self.chart.rows], default=1))

    def _fit(self, width: int) -> tuple[int, int]:
        """How many columns of a map fit the terminal, and how many characters each takes."""
        left = max(1, len(self.chart.columns) - self.start)
        room = max(1, width - self.label_width - 3)
        return (left, 2) if 2 * left <= room else (min(left, room), 1)

    def shown(self, width: int) -> range:
        """The columns that are shown, and the rows if these have the same labels."""
        return range(self.start, self.start + self._fit(width)[0])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich.cells import set_cell_size
        from rich.text import Text

        chart, columns, width = self.chart, self.shown(options.max_width), self._fit(options.max_width)[1]
        rows = columns if list(chart.rows) == list(chart.columns) else range(len(chart.rows))
        labels = [_printable(label, console.encoding) for label in chart.columns]
        for line in _upright([labels[i] for i in columns], width):
            yield Text(" " * (self.label_width + 3) + line, "dim")
        room = options.max_width - self.label_width - 3 - width * len(columns) - 9
        arrow = "→" if console.encoding.startswith("utf") else "->"
        levels = chart.levels()
        for i in rows:
            label = set_cell_size(_printable(chart.rows[i], console.encoding), self.label_width)
            line = Text(f"  {label} ")
            for j in columns:
                line.append_text(self._cell(float(chart.cells[i, j]), float(levels[i, j]), width, console))
            best = int(chart.cells[i].argmax())
            if room >= 4:
                name = set_cell_size(labels[best], min(room, LABEL)).rstrip()
                line.append(f"  {arrow} {name} {fraction(float(chart.cells[i, best]))}", "dim")
            yield line

    def _cell(self, weight: float, level: float, width: int, console: Console) -> Any:
        """A cell of a map in the terminal: a colour, a shade or a digit."""
        from rich.text import Text

        if self.digits or not console.encoding.startswith("utf"):
            mark = "." if 0 < weight < 0.05 else " " if weight == 0 else str(min(9, round(10 * weight)))
            return Text(mark.ljust(width))
        if _has_colours(console):
            return Text(" " * width, f"on {shade('measure', level)}")
        mark = next((mark for least, mark in SHADES if weight > least), " ")
        return Text(mark.ljust(width) if mark == "·" else mark * width)

    def scale(self, console: Console) -> Any:
        """The line in the terminal that explains the marks."""
        from rich.text import Text

        if self.digits or not console.encoding.startswith("utf"):
            return Text("  digits are tenths of a row's weight, . is less", "dim")
        if _has_colours(console):
            line = Text("  weight 0 ", "dim")
            for i in range(24):
                line.append(" ", f"on {shade('measure', i / 23)}")
            return line.append(" 1 (square-root scale)", "dim")
        return Text("  · less than 0.02   ░ above 0.02   ▒ above 0.1   ▓ above 0.3   █ above 0.6", "dim")


def _has_colours(console: Console) -> bool:
    return console.color_system in ("truecolor", "256") and not console.no_color


def _upright(labels: Sequence[str], width: int) -> list[str]:
    """Labels from top to bottom, standing on the map in the terminal."""
    from rich.cells import cell_len

    columns: list[list[str]] = []
    for label in labels:
        letters = [c for c in label if cell_len(c)]  # combining marks have no line of their own
        letters = letters if len(letters) <= HIGH else [*letters[: HIGH - 1], "…"]
        columns.append(["□" if cell_len(c) > width else c for c in letters])
    height = max(map(len, columns), default=0)
    lines: list[str] = []
    for y in range(height):
        cells = (column[y - height + len(column)] if y >= height - len(column) else "" for column in columns)
        lines.append("".join(c + " " * (width - cell_len(c)) for c in cells).rstrip())
    return lines


def _printable(word: str, encoding: str) -> str:
    """The word in characters that the terminal has."""
    return word.encode(encoding, "replace").decode(encoding)
