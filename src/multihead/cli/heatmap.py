"""One head's map as characters: queries down, keys across, as much of it as the terminal is wide.

>>> import torch
>>> from rich.console import Console
>>> from multihead.cli.heatmap import Heatmap
>>> seen = Heatmap(torch.tensor([[1.0, 0.0], [0.25, 0.75]]), ["the", "cat"], ["the", "cat"])
>>> Console(width=40, color_system=None).print(seen, end="")
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

from jaxtyping import Float
from torch import Tensor

from multihead._base.colours import viridis

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

LABEL, HIGH = 12, 8
"""Columns of a token beside the map, lines of one above it."""

SHADES = ((0.6, "█"), (0.3, "▓"), (0.1, "▒"), (0.02, "░"), (0.0, "·"))
"""The weight above which a cell is drawn so; exactly 0, which is what a mask gives, is blank."""


@dataclass(frozen=True)
class Heatmap:
    """A map that rich draws: in colours where there are some, else in shades, or in tenths as digits."""

    weights: Float[Tensor, "query key"]
    queries: Sequence[str]
    keys: Sequence[str]
    start: int = 0
    """the first token that is shown"""
    digits: bool = False

    @cached_property
    def wide(self) -> int:
        from rich.cells import cell_len

        return min(LABEL, max([cell_len(w) for w in self.queries], default=1))

    def fitting(self, width: int) -> tuple[int, int]:
        """(how many keys are shown, how many columns each takes)."""
        left = max(1, len(self.keys) - self.start)
        room = max(1, width - self.wide - 3)
        return (left, 2) if 2 * left <= room else (min(left, room), 1)

    def shown(self, width: int) -> range:
        """The places that are shown: of keys, and of queries where these are the same tokens."""
        return range(self.start, self.start + self.fitting(width)[0])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich.cells import set_cell_size
        from rich.text import Text

        keys = self.shown(options.max_width)
        each = self.fitting(options.max_width)[1]
        rows = keys if list(self.queries) == list(self.keys) else range(len(self.queries))
        names = [_spelled(word, console.encoding) for word in self.keys]
        for line in _above([names[i] for i in keys], each):
            yield Text(" " * (self.wide + 3) + line, "dim")
        beside = options.max_width - self.wide - 3 - each * len(keys) - 9
        arrow = "→" if console.encoding.startswith("utf") else "->"
        for i in rows:
            line = Text("  " + set_cell_size(_spelled(self.queries[i], console.encoding), self.wide) + " ")
            for j in keys:
                line.append_text(self._cell(float(self.weights[i, j]), each, console))
            best = int(self.weights[i].argmax())
            if beside >= 4:
                name = set_cell_size(names[best], min(beside, LABEL)).rstrip()
                line.append(f"  {arrow} {name} {float(self.weights[i, best]):.2f}", "dim")
            yield line

    def _cell(self, weight: float, each: int, console: Console) -> Any:
        from rich.text import Text

        if self.digits or not console.encoding.startswith("utf"):
            mark = "." if 0 < weight < 0.05 else " " if weight == 0 else str(min(9, round(10 * weight)))
            return Text(mark.ljust(each))
        if console.color_system in ("truecolor", "256") and not console.no_color:
            return Text(" " * each, f"on {viridis(weight**0.5)}")
        mark = next((shade for least, shade in SHADES if weight > least), " ")
        return Text(mark.ljust(each) if mark == "·" else mark * each)

    def scale(self, console: Console) -> Any:
        """What the marks mean, in a line."""
        from rich.text import Text

        if self.digits or not console.encoding.startswith("utf"):
            return Text("  digits are tenths of a row's weight, . is less", "dim")
        if console.color_system in ("truecolor", "256") and not console.no_color:
            line = Text("  weight 0 ", "dim")
            for i in range(24):
                line.append(" ", f"on {viridis(i / 23)}")
            return line.append(" 1, by its root", "dim")
        return Text("  · less than 0.02   ░ above 0.02   ▒ above 0.1   ▓ above 0.3   █ above 0.6", "dim")


def _above(names: Sequence[str], each: int) -> list[str]:
    """The names from top to bottom, standing on the map."""
    from rich.cells import cell_len

    columns: list[list[str]] = []
    for name in names:
        letters = [c for c in name if cell_len(c)]  # marks that sit on a letter have no line of their own
        letters = letters if len(letters) <= HIGH else [*letters[: HIGH - 1], "…"]
        columns.append(["□" if cell_len(c) > each else c for c in letters])
    high = max(map(len, columns), default=0)
    lines: list[str] = []
    for y in range(high):
        cells = (column[y - high + len(column)] if y >= high - len(column) else "" for column in columns)
        lines.append("".join(c + " " * (each - cell_len(c)) for c in cells).rstrip())
    return lines


def _spelled(word: str, encoding: str) -> str:
    """The word in letters that the terminal has."""
    return word.encode(encoding, "replace").decode(encoding)
