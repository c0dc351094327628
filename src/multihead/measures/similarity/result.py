"""Which heads are copies of which: by what they write, where they look, and their weights.

>>> import torch
>>> from torch import nn
>>> from multihead.measures.similarity.similarity import similarity
>>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> found = similarity(model, [{"src": torch.randn(5, 7, 12)}])
>>> list(found.pairs)
['correlation', 'cka', 'attention', 'write', 'read']
>>> found["cka"].shape, len(found.order)
(torch.Size([6, 6]), 6)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.html import line, lines, measure_picture, pooled, table
from multihead.errors import SizeError
from multihead.measures.similarity.clusters import Clusters, grouped
from multihead.table.meaning import Meaning
from multihead.table.table import HeadTable

HeadPairs = Float[Tensor, "head other"]

PAIRS: dict[str, Meaning] = {
    "correlation": Meaning("ρ", "tr C_ij / √(tr C_ii tr C_jj): do two heads write the same vectors"),
    "cka": Meaning("share", "‖C_ij‖² / (‖C_ii‖ ‖C_jj‖): the same up to a rotation; linear CKA = RV"),
    "attention": Meaning("distance", "mean √JS (bits) of the attention rows: 0 the same, 1 nothing in common"),
    "write": Meaning("share", "mean cos² of the principal angles of what two OV circuits write into"),
    "read": Meaning("share", "mean cos² of the principal angles of what two OV circuits read"),
}

SHOWN = 256
"""Cells along a side of the picture; of more heads, the largest values of those that fall together."""

NEVER = "there is no other head to compare with"


@dataclass(frozen=True, repr=False)
class Similarity:
    """Numbers of every pair of heads: `found["cka"]`, `found.pair("L3H1", "L3H5")`, `found.most_similar()`."""

    heads: tuple[str, ...]
    pairs: Mapping[str, HeadPairs]
    undefined: Mapping[str, Sequence[str]]
    """by measure: why some pairs have no number"""
    about: Mapping[str, Any]
    by: str = "cka"
    """the measure that pairs and clusters are ranked by"""
    within: float = 0.5
    """heads of a cluster are on average nearer than this"""

    def __getitem__(self, measure: str) -> HeadPairs:
        if measure not in self.pairs:
            raise SizeError(f"there is no measure {measure!r}", hint=f"choose one of {', '.join(self.pairs)}")
        return self.pairs[measure]

    def pair(self, first: str, second: str) -> dict[str, float]:
        """All numbers of two heads."""
        for name in (first, second):
            if name not in self.heads:
                raise SizeError(f"there is no head {name!r}", hint=f"heads are {self.heads[0]} to {self.heads[-1]}")
        i, j = self.heads.index(first), self.heads.index(second)
        return {name: float(values[i, j]) for name, values in self.pairs.items()}

    @cached_property
    def nearness(self) -> HeadPairs:
        """`by` as a likeness: larger is nearer, −1 for a head and itself and where there is no number."""
        values = self[self.by]
        near = 1 - values if self.by == "attention" else values
        return near.nan_to_num(-1.0).clone().fill_diagonal_(-1.0)

    @cached_property
    def clusters(self) -> Clusters:
        """Average linkage of 1 − likeness."""
        values = self[self.by]
        far = values if self.by == "attention" else 1 - values
        return grouped(far.clamp(0.0, 1.0), within=self.within)

    @property
    def order(self) -> tuple[str, ...]:
        """Heads in the order of the dendrogram."""
        return tuple(self.heads[at] for at in self.clusters.order)

    def groups(self) -> list[tuple[str, ...]]:
        """Clusters of two heads or more."""
        return [tuple(self.heads[at] for at in some) for some in self.clusters.members()]

    def most_similar(self, count: int = 10, *, inside: bool = False) -> list[tuple[str, str, float]]:
        """The nearest pairs, the nearest first, no head twice; `inside`: only pairs of the same layer."""
        near = self.nearness
        order = near.triu(1).flatten().argsort(descending=True, stable=True).tolist()
        found: list[tuple[str, str, float]] = []
        taken: set[int] = set()
        for at in order:
            i, j = divmod(at, len(self.heads))
            if j <= i or float(near[i, j]) == -1.0 or {i, j} & taken or len(found) == count:
                continue
            if inside and _layer(self.heads[i]) != _layer(self.heads[j]):
                continue
            taken |= {i, j}
            found.append((self.heads[i], self.heads[j], float(self[self.by][i, j])))
        return found

    @property
    def table(self) -> HeadTable:
        """Of each head: its nearest one, their numbers, its cluster, and its place in the dendrogram."""
        best = self.nearness.max(1) if len(self.heads) > 1 else None
        alone = [True] * len(self.heads) if best is None else (best.values == -1.0).tolist()
        at = [0] * len(self.heads) if best is None else best.indices.tolist()
        columns: dict[str, Any] = {
            "most_similar": tuple("" if a else self.heads[t] for a, t in zip(alone, at, strict=True))
        }
        meaning = {"most_similar": Meaning("", f"the nearest other head, by {self.by}")}
        for name, values in self.pairs.items():
            mine = [math.nan if a else float(values[i, t]) for i, (a, t) in enumerate(zip(alone, at, strict=True))]
            columns[f"most_similar_{name}"] = torch.tensor(mine, dtype=torch.float64)
            meaning[f"most_similar_{name}"] = Meaning(
                PAIRS[name].unit, f"of the head and its twin: {PAIRS[name].text}"
            )
        columns["cluster"] = torch.tensor(self.clusters.cluster, dtype=torch.float64)
        columns["order"] = torch.tensor(self.clusters.order).argsort().double()
        meaning["cluster"] = Meaning("number", f"heads of one cluster are nearer than {self.within} on average")
        meaning["order"] = Meaning("place", "in the dendrogram, where neighbours are alike")
        reasons = {
            name: {h: self._why(name) for h, v in zip(self.heads, column, strict=True) if v != v or v == ""}
            for name, column in columns.items()
        }
        return HeadTable(self.heads, columns, meaning, {n: r for n, r in reasons.items() if r}, self.about)

    def _why(self, column: str) -> str:
        said = self.undefined.get(column.removeprefix("most_similar_"), ()) or self.undefined.get(self.by, ())
        return "; ".join(said) or NEVER

    def text(self, count: int = 8) -> str:
        """The nearest pairs and the clusters, for a terminal."""
        lines = [["heads", *self.pairs]]
        for a, b, _ in self.most_similar(count):
            lines.append([f"{a} {b}", *(f"{v:.2f}" if v == v else "–" for v in self.pair(a, b).values())])
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        body = ["  ".join(x.rjust(w) for x, w in zip(line, widths, strict=True)) for line in lines]
        groups = [" ".join(group) for group in self.groups()] or ["none"]
        said = [f"{name}: {why}" for name, reasons in self.undefined.items() for why in reasons]
        first = f"{len(self.heads)} heads over {self.about['tokens']} tokens; nearest by {self.by}"
        closest = f"clusters (mean distance below {self.within}):"
        return "\n".join([first, *body, closest, *groups, *said, *self.about["notes"]])

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """The closest pairs, and every pair as a square, in the order of the dendrogram."""
        rows = [
            [a, b, *(f"{v:.2f}" if v == v else "–" for v in self.pair(a, b).values())]
            for a, b, _ in self.most_similar(8)
        ]
        summary = f"{len(self.heads)} heads over {self.about['tokens']} tokens; nearest by {self.by}"
        order = list(self.clusters.order)
        values = self[self.by][order][:, order].double().numpy()
        near = 1 - values if self.by == "attention" else values
        cells = pooled(np.nan_to_num(near, nan=-1.0), SHOWN)
        picture = measure_picture(np.where(cells < -0.5, np.nan, cells), side=max(120, min(420, 6 * len(order))))
        groups = [f"cluster: {' '.join(group)}" for group in self.groups()]
        more = [f"and {len(groups) - 12} more"] if len(groups) > 12 else []
        note = f"every two heads, likest together, by {self.by}: bright is alike"
        return (
            line(summary, small=False)
            + table(["head", "most_similar", *self.pairs], rows, words=(0, 1))
            + picture
            + lines([note, *groups[:12], *more])
        )


def _layer(name: str) -> str:
    return name.rpartition("H")[0]
