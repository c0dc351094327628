"""Name heads in which match leads by the dependency relation that they follow: "dependency case to head".

The head must point to the right word in more than half of the examples, and significantly more often than the best
fixed offset. The relation needs `EXAMPLES`: where it is rare, the names of heads depend on a few documents.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from multihead._base.share_words import leading_shares
from multihead.table.column_info import ColumnInfo
from multihead.table.rows_and_columns import Column
from multihead.table.table import HeadTable

KIND = "dependency"
EXAMPLES = 200
THRESHOLD = 0.5


def named_by_relations(table: HeadTable) -> HeadTable:
    """A table with the columns of kinds and of syntax, where match heads without a finer kind may have this one."""
    if not {"kind", "leading", "syntax_relation"} <= set(table.columns):
        return table
    rows = [(i, row) for i, row in enumerate(table) if _stands(row)]
    columns: dict[str, Column] = dict(table.columns)
    columns["kind"] = _with(columns["kind"], {i: KIND for i, _ in rows})
    columns["kind_detail"] = _with(
        columns["kind_detail"], {i: f"{row['syntax_relation']} {row['syntax_direction']}" for i, row in rows}
    )
    for name, value in (
        ("kind_score", "syntax_accuracy"),
        ("kind_control", "syntax_baseline"),
        ("kind_low", "syntax_low"),
        ("kind_high", "syntax_high"),
    ):
        columns[name] = _with(columns[name], {i: row[value] for i, row in rows})
    columns["kind_threshold"] = _with(columns["kind_threshold"], {i: THRESHOLD for i, _ in rows})
    named = {row["name"] for _, row in rows}
    reasons = {
        name: {head: why for head, why in of.items() if not (name.startswith("kind_") and head in named)}
        for name, of in table.reasons.items()
    }
    meaning = {**table.meaning, "kind_detail": ColumnInfo("", "offset, width, class or relation")}
    return replace(table, columns=columns, meaning=meaning, reasons={n: of for n, of in reasons.items() if of})


def _stands(row: dict[str, Any]) -> bool:
    """Syntax columns hold only relations that are significantly above the best fixed offset."""
    match_leads = any(share.name == "match" for share in leading_shares(row["kind"]))
    return match_leads and row["syntax_examples"] >= EXAMPLES and row["syntax_low"] > THRESHOLD


def _with(column: Column, values: dict[int, Any]) -> Column:
    """The column with other values in some rows."""
    cells = [values.get(i, x) for i, x in enumerate(column.tolist() if isinstance(column, Tensor) else column)]
    return torch.tensor(cells, dtype=torch.float64) if isinstance(column, Tensor) else tuple(map(str, cells))
