"""The grid of all heads as a chart: layers down, heads across.

>>> from multihead.table.head_grid import head_grid
>>> from multihead.table.column_info import ColumnInfo
>>> from multihead.table.table import HeadTable
>>> kinds = {"kind": ("broad", "previous", "broad")}
>>> table = HeadTable(("L0H0", "L0H1", "L1H0"), kinds, {"kind": ColumnInfo("", "")})
>>> grid = head_grid(table)
>>> grid.words, grid.places
(('broad', 'previous', 'broad'), [(0, 0), (0, 1), (1, 0)])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from multihead._base.charts import HeadGrid
from multihead._base.labels import without_value
from multihead._base.share_words import SHARE_NAMES, SHARES, leading_shares
from multihead.errors import MultiheadError, SizeError
from multihead.table.table import HeadTable
from multihead.table.view import has_shares, importance_column

BY_SHARES = "shares"
"""The value of `by` that draws the five shares of each head, which are five columns."""


def head_grid(
    table: HeadTable, by: str | None = None, *, size: str | None = None, hollow: Iterable[str] = (), title: str = ""
) -> HeadGrid:
    """The heads as rings of their shares, or coloured by a column of words or numbers.

    Args:
        by: "shares" or a column; default: the shares if they were measured, else the kind, else the first column of
            numbers.
        size: for shares and words, the column that sets the size of a circle; default: the measured importance.
        hollow: names of heads that can be pruned.
    """
    if not len(table):
        raise SizeError("the table has no heads to draw", hint="mh.measure(model, texts)")
    by = _default_column(table) if by is None else by
    rings = by == BY_SHARES and has_shares(table)
    column = table["kind" if "kind" in table.columns else "leading"] if rings else table[by]
    if not isinstance(column, tuple):
        unit = table.meaning[by].unit
        value = f"{by} ({unit})" if unit else by
        return HeadGrid(table.heads, numbers=table.numbers(by).double().numpy(), value=value, title=title)
    size = importance_column(table) if size is None else size
    return HeadGrid(
        table.heads,
        words=tuple(without_value(word) for word in column) if by == "kind" else column,
        value=by,
        sizes=None if size is None else table.numbers(size).double().numpy(),
        size_title=size or "",
        hollow=frozenset(table.row(name)["name"] for name in ([hollow] if isinstance(hollow, str) else hollow)),
        title=title,
        **(_shares(table) if rings else {}),
    )


def _shares(table: HeadTable) -> dict[str, Any]:
    """The shares that the ring of each head in the grid is divided into."""
    return {
        "shares": np.stack([table.numbers(name).double().numpy() for name in SHARE_NAMES], axis=1),
        "parts": SHARE_NAMES,
        "part_colours": tuple(share.colour for share in SHARES),
        "part_meanings": tuple(share.meaning for share in SHARES),
        "leading": tuple(tuple(share.name for share in leading_shares(word)) for word in table["leading"]),
    }


def _default_column(table: HeadTable) -> str:
    """The column that colours the grid: shares, kinds, or the first numbers."""
    if has_shares(table):
        return BY_SHARES
    if "kind" in table.columns:
        return "kind"
    numbers = next((name for name, column in table.columns.items() if not isinstance(column, tuple)), None)
    if numbers is None:
        raise MultiheadError("the table has no column to colour heads by", hint='name a column: by="entropy"')
    return numbers
