"""The statistics of a capture as a table: a row per head, the mean of every statistic, and why some have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from multihead.errors import MultiheadError
from multihead.model.statistics.catalogue import meanings
from multihead.table.table import HeadTable, Numbers

if TYPE_CHECKING:
    from multihead.model.capture import Capture, Head


def table_of(heads: Capture) -> HeadTable:
    """The mean of every statistic of every head."""
    if heads.options is None:
        raise MultiheadError(
            "the capture has no statistics to put into a table",
            hint="mh.capture(model) takes them, statistics=None does not",
        )
    meaning, sites = meanings(heads.options), heads.sites
    columns = {name: torch.cat([heads.statistics(s).mean(name) for s in sites]) for name in meaning}
    names = tuple(head.name for head in heads)
    return HeadTable(names, columns, meaning, _missing(heads, columns, names))


def _missing(heads: Capture, columns: Mapping[str, Numbers], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Why a statistic has no number: no row has it."""
    known = {head.name: head for head in heads}
    reasons: dict[str, dict[str, str]] = {}
    for column, values in columns.items():
        without = [name for name, x in zip(names, values.tolist(), strict=True) if x != x]
        if without:
            reasons[column] = {name: _reason(column, known[name]) for name in without}
    return reasons


def _reason(column: str, head: Head) -> str:
    if not head.statistics.moments.count[:, head.index].any():
        return "no row of finite numbers sees a key"
    if column == "sink":
        return "the head has no learned sink"
    if head.site.cross:
        return "cross-attention: queries and keys are of different sequences"
    if column in ("special", "same_token", "induction") or column.startswith("class:"):
        return "the ids of the tokens are not known"
    return "no row sees more than one key" if column == "relative_entropy" else "no row has such a number"
