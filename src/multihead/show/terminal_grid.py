"""The grid of heads in a terminal: a letter for the share that leads in each head, two where two lead.

>>> import torch
>>> from rich.console import Console
>>> from multihead._base.share_words import SHARE_NAMES
>>> from multihead.show.terminal_grid import TerminalHeadGrid
>>> from multihead.table.head_grid import head_grid
>>> from multihead.table.column_info import ColumnInfo
>>> from multihead.table.table import HeadTable
>>> shares = torch.tensor([[0.1, 0.1, 0.8, 0.0, 0.0], [0.5, 0.1, 0.0, 0.2, 0.2]])
>>> columns = {name: shares[:, i] for i, name in enumerate(SHARE_NAMES)} | {"leading": ("position", "word + match")}
>>> table = HeadTable(("L0H0", "L0H1"), columns, {name: ColumnInfo("share", "") for name in columns})
>>> Console(width=80, color_system=None).print(TerminalHeadGrid(head_grid(table)), end="")
      0  1
  L0  p  wm
  s  spread    0  attention is spread over many tokens
  r  rest      0  attention rests on the first token or on special tokens
  p  position  1  the distance between query and key decides, not the words
  w  word      0  the key decides: some words draw attention from every query
  m  match     0  query and key decide together: each query picks its own keys
     two lead  1  two letters
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multihead._base.charts import TWO_LEAD, HeadGrid
from multihead._base.share_words import SHARES

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

CELL = 2
"""Letters of a head; between heads is a space where there is room for it."""


@dataclass(frozen=True)
class TerminalHeadGrid:
    """A grid of shares that rich prints: letters, in colours where the terminal has them."""

    grid: HeadGrid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich.text import Text

        grid, layers = self.grid, self.grid.layers
        label = max(map(len, layers)) + 4
        spaced = label + (CELL + 1) * grid.width <= options.max_width
        width = CELL + spaced
        shown = max(1, (options.max_width - label) // width)  # columns that fit
        step = 1 if width > len(str(grid.width - 1)) else 2
        numbers = "".join(str(i).ljust(step * width) for i in range(0, min(shown, grid.width), step))
        yield Text(" " * label + numbers.rstrip(), "dim")
        heads = {place: i for i, place in enumerate(grid.places)}
        for y, layer in enumerate(layers):
            line = Text(f"  {layer}".ljust(label))
            for x in range(min(shown, grid.width)):
                line.append_text(self._cell(heads.get((y, x))))
                line.append(" " * spaced)
            line.rstrip()
            yield line
        if shown < grid.width:
            yield Text(f"  heads 0 to {shown - 1} of {grid.width}, as many as fit", "dim")
        counts = grid.leading_counts
        most = len(str(max(counts.values())))
        for share in SHARES:
            line = Text(f"  {share.letter}  ", f"bold {share.colour}")
            name = f"{share.name:8}  {counts[share.name]:{most}}"
            yield line.append(name, "not bold default").append(f"  {share.meaning}", "not bold default dim")
        if two := counts.get(TWO_LEAD):
            yield Text(f"     {TWO_LEAD:8}  {two:{most}}").append("  two letters", "dim")

    def _cell(self, head: int | None) -> Any:
        """The letters of a head in the grid; a dot if its shares were not measured; blank without a head."""
        from rich.text import Text

        cell = Text()
        if head is not None:
            leading = self.grid.leading[head]
            for share in SHARES:
                if share.name in leading:
                    cell.append(share.letter, f"bold {share.colour}")
            if not leading:
                cell.append(".", "dim")
        cell.append(" " * (CELL - len(cell)))
        return cell
