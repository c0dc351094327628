"""Table display: plain text, rich in a terminal, HTML in a notebook.

>>> import torch
>>> from multihead.table.column_info import ColumnInfo
>>> from multihead.table.table import HeadTable
>>> from multihead.table.view import text
>>> masses = torch.tensor([0.125, torch.nan])
>>> table = HeadTable(("L0H0", "L1H0"), {"first": masses}, {"first": ColumnInfo("share", "")})
>>> print(text(table))
head  first
L0H0  0.125
L1H0      –
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from multihead._base.html_fragments import STYLE
from multihead._base.number_text import MISSING, number
from multihead._base.plural import plural
from multihead._base.share_words import SHARE_NAMES, leading_shares
from multihead.table.rows_and_columns import Column, TableData, cell

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

FIRST = (
    *("kind", "kind_detail", "leading", *SHARE_NAMES, "kind_score", "kind_control", "driven"),
    *("rank", "ablation_zero", "ablation_mean", "importance"),
    *("most_similar", "most_similar_cka"),
    *("syntax_relation", "syntax_accuracy", "syntax_baseline"),
)
"""Columns of results, shown first if present."""

STATISTICS = ("entropy", "effective_keys", "max_weight", "distance", "first", "self", "previous", "next", "special")
"""Statistics shown by default."""

_DETAILS = (
    *("offset", "class:", "kind", "second", "third", "most_similar", "cluster", "order"),
    *("fisher", "gradient", "syntax"),
)
"""Columns whose names start like this are shown only on request."""

MOST_ROWS, MOST_LETTERS = 400, 90_000
"""Limits of a table in a notebook, in rows and characters of HTML; larger ones scroll slowly and bloat the file."""


def shown(table: TableData, columns: Sequence[str] | None = None) -> list[str]:
    """The columns that a view shows: the named ones, or by default results first, then selected statistics."""
    if columns is not None:
        return [name for name in columns if table[name] is not None]
    names = [name for name in (*FIRST, *STATISTICS) if name in table.columns and _has_values(table.columns[name])]
    others = [name for name in table.columns if name not in names and not _is_detail(name, table)]
    return ([n for n in names if n in FIRST] + others + [n for n in names if n not in FIRST]) or [*table.columns]


def importance_column(table: TableData) -> str | None:
    """The column that importance is read from: the first of these that was measured."""
    return next((n for n in ("ablation_zero", "ablation_mean", "importance") if n in table.columns), None)


def has_shares(table: TableData) -> bool:
    """Whether a table displays shares of log n: the five were measured of any head."""
    names = (*SHARE_NAMES, "leading")
    if not all(name in table.columns and _has_values(table.columns[name]) for name in names):
        return False
    leading = table["leading"]
    return isinstance(leading, tuple) and any(leading_shares(word) for word in leading)


def _has_values(column: Column) -> bool:
    """Whether any head has a value in this column."""
    return any(column) if isinstance(column, tuple) else not bool(column.isnan().all())


def _is_detail(name: str, table: TableData) -> bool:
    """Whether a view shows the column only on request."""
    stem = next((n for n in FIRST if name.startswith((f"{n}_", f"{n}:"))), None)
    is_statistic = table.meaning[name].scale is not None
    return is_statistic or stem is not None or name.startswith(_DETAILS)


def word(column: Column, row: int) -> str:
    """A cell as a view shows it, numbers with three significant digits."""
    x = cell(column, row)
    if isinstance(x, str):
        return x or MISSING
    return number(x)


def text(table: TableData, columns: Sequence[str] | None = None) -> str:
    """View a table as plain text."""
    names = shown(table, columns)
    lines = [["head", *names]]
    lines += [[head, *(word(table.columns[n], i) for n in names)] for i, head in enumerate(table.heads)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(x.rjust(w) for x, w in zip(line, widths, strict=True)) for line in lines)


@dataclass(frozen=True)
class RichView:
    """A table rendered by `rich`: as many columns as fit the terminal, with a line between layers."""

    table: TableData
    columns: Sequence[str] | None = None
    first: str | None = None
    """the column to show first"""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich import box  # slow to import
        from rich.table import Table
        from rich.text import Text

        table, names = self.table, shown(self.table, self.columns)
        if self.first is not None and self.first in table.columns:
            names = [self.first, *(n for n in names if n != self.first)]
        cells = {n: [word(table.columns[n], i) for i in range(len(table))] for n in names}
        fitting = names if self.columns is not None else _columns_that_fit(table, names, cells, options.max_width)
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        grid.add_column("head", no_wrap=True, style="bold")
        for name in fitting:
            title = Text(name)
            if table.meaning[name].unit:
                title.append(f"\n{table.meaning[name].unit}", style="dim")
            grid.add_column(title, justify=_side(table.columns[name]), no_wrap=True)
        largest, ends = {n: _largest(table.columns[n]) for n in fitting}, _layer_ends(table.heads)
        ends = ends if self.first is None else set[int]()  # a sorted table has no layer order
        for i, head in enumerate(table.heads):
            styles = ["dim" if cells[n][i] == MISSING else "bold" if i == largest[n] else "" for n in fitting]
            row = [Text(cells[n][i], style) for n, style in zip(fitting, styles, strict=True)]
            grid.add_row(Text(head), *row, end_section=i in ends)
        yield grid
        if self.columns is None and len(fitting) < len(table.columns):
            rest, names = len(table.columns) - len(fitting), _other_columns(table, fitting)
            yield Text(
                f"{plural(len(table), 'head')}; and {rest} more of {plural(len(table.columns), 'column')}: {names}",
                style="dim",
            )


@dataclass(frozen=True)
class MeaningView:
    """What every column means, for a terminal."""

    table: TableData

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich import box  # slow to import
        from rich.table import Table
        from rich.text import Text

        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in ("column", "unit", "meaning"):
            grid.add_column(title)
        for name in self.table.columns:
            meaning = self.table.meaning[name]
            grid.add_row(Text(name, "bold"), Text(meaning.unit), Text(meaning.text))
        yield grid


@dataclass(frozen=True)
class BlockView:
    """A block for every head with all of its columns, for a terminal."""

    table: TableData

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich.table import Table  # slow to import
        from rich.text import Text

        table = self.table
        for row, head in enumerate(table.heads):
            yield Text(head, "bold")
            grid = Table.grid(padding=(0, 2))
            for name, column in table.columns.items():
                why = table.why(name, head) or table.meaning[name].text
                grid.add_row(Text(f"  {name}"), Text(word(column, row)), Text(why, "dim"))
            yield grid


def _columns_that_fit(table: TableData, names: Sequence[str], cells: dict[str, list[str]], width: int) -> list[str]:
    """The leading columns that fit the width of a view; at least one."""
    space = width - 3 - max([4, *map(len, table.heads)])  # 3: padding of each column
    fitting: list[str] = []
    for name in names:
        space -= 3 + max([len(name), len(table.meaning[name].unit), *map(len, cells[name])])
        if space < 0 and fitting:
            break
        fitting.append(name)
    return fitting


def _other_columns(table: TableData, but: Sequence[str]) -> str:
    others = [n for n in table.columns if n not in but]
    return ", ".join(others[:12]) + (", ..." if len(others) > 12 else "")


def _side(column: Column) -> Any:
    return "left" if isinstance(column, tuple) else "right"


def _largest(column: Column) -> int:
    if isinstance(column, tuple) or not len(column) or bool(column.isnan().all()):
        return -1
    return int(column.nan_to_num(-math.inf, posinf=math.inf, neginf=-math.inf).argmax())


def _layer_ends(heads: Sequence[str]) -> set[int]:
    """Rows of a view after which a layer ends; empty unless the rows are in the model's order."""
    layers = [head.rpartition("H")[0] for head in heads]
    ends = {index for index, (a, b) in enumerate(pairwise(layers)) if a != b}
    in_order = len(ends) + 1 == len(set(layers)) < len(heads)
    return ends if in_order else set()


def html(table: TableData) -> str:
    """View a table in a notebook: meanings and reasons are tooltips. All text is escaped."""
    names = shown(table)
    side = {n: ' class="w"' if isinstance(table.columns[n], tuple) else "" for n in names}
    head = "".join(
        f'<th{side[n]} title="{escape(table.meaning[n].text)}">{escape(n)}<br>'
        f"<small>{escape(table.meaning[n].unit)}</small></th>"
        for n in names
    )
    rows: list[str] = []
    length = len(head)
    for i, name in enumerate(table.heads[:MOST_ROWS]):
        reasons = {n: table.reasons.get(n, {}).get(name, "") for n in names}
        cells = "".join(
            f"<td{side[n]}"
            + (f' title="{escape(reasons[n])}"' if reasons[n] else "")
            + f">{escape(word(table.columns[n], i))}</td>"
            for n in names
        )
        row = f"<tr><th>{escape(name)}</th>{cells}</tr>"
        length += len(row)
        if rows and length > MOST_LETTERS:
            break
        rows.append(row)
    more = len(table) - len(rows)
    rest = [n for n in table.columns if n not in names]
    note = f"{plural(len(table), 'head')}" + (f", {more} not shown" if more else "")
    note += f"; more columns: {_other_columns(table, names)}" if rest else ""
    return (
        f'{STYLE}<table class="multihead-table"><thead><tr><th>head</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table><small>{escape(note)}</small>"
    )
