"""HeadTable: a row per head, a column per measure, each with its unit and meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.errors import MultiheadError, SizeError
from multihead.measures.meaning import Meaning, meanings
from multihead.model.capture import Heads

SHOWN = ("entropy", "effective_keys", "max_weight", "distance", "first", "self", "previous", "next", "special")
"""Columns of the printed table."""


@dataclass(frozen=True, repr=False)
class HeadTable:
    """Numbers of every head: `table["entropy"]`, `table.row("L3H7")`, `table.top("previous")`."""

    heads: tuple[str, ...]
    columns: Mapping[str, Float[Tensor, " row"]]
    meaning: Mapping[str, Meaning]

    @staticmethod
    def of(heads: Heads) -> HeadTable:
        """The means of all statistics of a capture."""
        if heads.options is None:
            raise MultiheadError(
                "the capture took no statistics, there is nothing to put into a table",
                hint="mh.capture(model) takes them, statistics=None does not",
            )
        meaning, sites = meanings(heads.options), heads.sites
        columns = {name: torch.cat([heads.statistics(s).mean(name) for s in sites]) for name in meaning}
        return HeadTable(tuple(head.name for head in heads), columns, meaning)

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.row(name) for name in self.heads)

    def __getitem__(self, column: str) -> Float[Tensor, " row"]:
        if column not in self.columns:
            raise SizeError(f"there is no column {column!r}", hint=f"choose one of {', '.join(self.columns)}")
        return self.columns[column]

    def row(self, head: str) -> dict[str, Any]:
        """{column: number} of one head."""
        if head not in self.heads:
            raise SizeError(f"there is no head {head!r}", hint=f"heads are {self.heads[0]} to {self.heads[-1]}")
        at = self.heads.index(head)
        return {"head": head} | {name: float(values[at]) for name, values in self.columns.items()}

    def top(self, column: str, count: int = 10) -> list[tuple[str, float]]:
        """The heads with the largest numbers in a column; those without a number are left out."""
        values = self[column]
        order = values.nan_to_num(-torch.inf).argsort(descending=True, stable=True).tolist()
        return [(self.heads[i], float(values[i])) for i in order if not values[i].isnan()][:count]

    def text(self, columns: Sequence[str] = SHOWN) -> str:
        """The table for a terminal: heads down, the named columns across."""
        names = [c for c in columns if c in self.columns]
        lines = [["head", *names]]
        lines += [[h, *(f"{float(self.columns[n][i]):.3g}" for n in names)] for i, h in enumerate(self.heads)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        return "\n".join("  ".join(x.rjust(w) for x, w in zip(line, widths, strict=True)) for line in lines)

    def __repr__(self) -> str:
        return self.text()
