"""The statistics of a capture as a table: a row per head with the mean of every statistic, and reasons for NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from multihead.errors import MultiheadError
from multihead.model.statistics.meanings import meanings
from multihead.table.rows_and_columns import Numbers
from multihead.table.table import HeadTable

if TYPE_CHECKING:
    from multihead.model.capture import Capture
    from multihead.model.captured_head import CapturedHead


def table_of(heads: Capture) -> HeadTable:
    """A table of the mean of every statistic of every head."""
    if heads.options is None:
        raise MultiheadError(
            "the capture has no statistics",
            hint="omit statistics=None, as in mh.capture(model)",
        )
    meaning, sites = meanings(heads.options), heads.sites
    columns = {name: torch.cat([heads.statistics(s).mean(name) for s in sites]) for name in meaning}
    names = tuple(head.name for head in heads)
    return HeadTable(names, columns, meaning, _reasons(heads, columns, names))


def _reasons(heads: Capture, columns: Mapping[str, Numbers], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Why means in the table of a capture are NaN: column → head → reason."""
    head_by_name = {head.name: head for head in heads}
    reasons: dict[str, dict[str, str]] = {}
    for column, values in columns.items():
        undefined = [name for name, x in zip(names, values.tolist(), strict=True) if x != x]
        if undefined:
            reasons[column] = {name: _reason(column, head_by_name[name]) for name in undefined}
    return reasons


def _reason(column: str, head: CapturedHead) -> str:
    """Why a captured statistic of a head is NaN."""
    if not head.statistics.moments.count[:, head.index].any():
        return "no row with finite values sees a key"
    if column == "sink":
        return "the head has no learned sink"
    if head.site.cross:
        return "cross-attention: queries and keys are different sequences"
    if column in ("special", "same_token", "induction") or column.startswith("class:"):
        return "the token ids are unknown"
    return "no row sees more than one key" if column == "relative_entropy" else "no row has this statistic"
