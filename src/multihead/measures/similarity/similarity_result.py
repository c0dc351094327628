"""How similar heads are: by their outputs, their attention and their weights.

>>> import torch
>>> from torch import nn
>>> from multihead.measures.similarity.similarity import similarity
>>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> result = similarity(model, [{"src": torch.randn(5, 7, 12)}])
>>> list(result.pairs)
['correlation', 'cka', 'attention', 'write', 'read']
>>> result["cka"].shape, len(result.order)
(torch.Size([6, 6]), 6)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.arguments import check_count
from multihead._base.chart_html import heatmap_html
from multihead._base.charts import Heatmap
from multihead._base.html_fragments import line, lines, table
from multihead._base.number_text import fraction
from multihead._base.plural import plural
from multihead.errors import SizeError
from multihead.measures.similarity.clusters import Clusters, grouped
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable

HeadPairs = Float[Tensor, "head other"]

PAIRS: dict[str, ColumnInfo] = {
    "correlation": ColumnInfo("ρ", "tr C_ij / √(tr C_ii tr C_jj): do two heads write the same vectors"),
    "cka": ColumnInfo("share", "‖C_ij‖² / (‖C_ii‖ ‖C_jj‖): the same up to a rotation; linear CKA = RV"),
    "attention": ColumnInfo("distance", "mean √JS (bits) of the attention rows: 0 identical, 1 disjoint"),
    "write": ColumnInfo("share", "mean cos² of the principal angles between the spaces that two OV circuits write"),
    "read": ColumnInfo("share", "mean cos² of the principal angles between the spaces that two OV circuits read"),
}

SHOWN = 256
"""Cells along a side of the picture; with more heads, a cell shows the largest of several values."""

NEVER = "no other head to compare with"


@dataclass(frozen=True, repr=False)
class Similarity:
    """Measures of every pair of heads: `result["cka"]`, `result.pair("L3H1", "L3H5")`, `result.most_similar()`."""

    heads: tuple[str, ...]
    pairs: Mapping[str, HeadPairs]
    undefined: Mapping[str, Sequence[str]]
    """by measure: the reasons why some pairs have no value"""
    about: Mapping[str, Any]
    by: str = "cka"
    """the measure that pairs and clusters are ranked by"""
    within: float = 0.5
    """heads of a cluster are on average closer than this"""

    def __getitem__(self, measure: str) -> HeadPairs:
        if measure not in self.pairs:
            raise SizeError(f"unknown measure {measure!r}", hint=f"choose one of {', '.join(self.pairs)}")
        return self.pairs[measure]

    def pair(self, first: str, second: str) -> dict[str, float]:
        """All similarity measures of two heads."""
        for name in (first, second):
            if name not in self.heads:
                raise SizeError(f"unknown head {name!r}", hint=f"heads are {self.heads[0]} to {self.heads[-1]}")
        i, j = self.heads.index(first), self.heads.index(second)
        return {name: float(values[i, j]) for name, values in self.pairs.items()}

    @cached_property
    def closeness(self) -> HeadPairs:
        """The measure `by` as a similarity: larger is closer; −1 on the diagonal and for pairs without a value."""
        values = self[self.by]
        similar = 1 - values if self.by == "attention" else values
        return similar.nan_to_num(-1.0).clone().fill_diagonal_(-1.0)

    @cached_property
    def clusters(self) -> Clusters:
        """Clusters of similar heads, by average linkage of 1 − similarity."""
        values = self[self.by]
        distance = values if self.by == "attention" else 1 - values
        return grouped(distance.clamp(0.0, 1.0), within=self.within)

    @property
    def order(self) -> tuple[str, ...]:
        """Heads in the order of the dendrogram."""
        return tuple(self.heads[i] for i in self.clusters.order)

    def groups(self) -> list[tuple[str, ...]]:
        """Clusters of two heads or more."""
        return [tuple(self.heads[i] for i in members) for members in self.clusters.members()]

    def most_similar(self, count: int = 10, *, inside: bool = False) -> list[tuple[str, str, float]]:
        """The most similar pairs first, each head at most once; `inside`: only pairs within a layer."""
        check_count("count", count)
        closeness = self.closeness
        order = closeness.triu(1).flatten().argsort(descending=True, stable=True).tolist()
        pairs: list[tuple[str, str, float]] = []
        taken: set[int] = set()
        for cell in order:
            i, j = divmod(cell, len(self.heads))
            if j <= i or float(closeness[i, j]) == -1.0 or {i, j} & taken or len(pairs) == count:
                continue
            if inside and _layer(self.heads[i]) != _layer(self.heads[j]):
                continue
            taken |= {i, j}
            pairs.append((self.heads[i], self.heads[j], float(self[self.by][i, j])))
        return pairs

    @property
    def table(self) -> HeadTable:
        """For each head: the closest other head, their measures, its cluster, its position in the dendrogram."""
        best = self.closeness.max(1) if len(self.heads) > 1 else None
        closest: list[int | None] = [None] * len(self.heads)
        if best is not None:
            values_and_heads = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            closest = [None if value == -1.0 else head for value, head in values_and_heads]
        columns: dict[str, Any] = {"most_similar": tuple("" if j is None else self.heads[j] for j in closest)}
        meaning = {"most_similar": ColumnInfo("", f"the closest other head, by {self.by}")}
        for name, values in self.pairs.items():
            column = [math.nan if j is None else float(values[i, j]) for i, j in enumerate(closest)]
            columns[f"most_similar_{name}"] = torch.tensor(column, dtype=torch.float64)
            meaning[f"most_similar_{name}"] = ColumnInfo(
                PAIRS[name].unit, f"of the head and its closest head: {PAIRS[name].text}"
            )
        columns["cluster"] = torch.tensor(self.clusters.cluster, dtype=torch.float64)
        columns["order"] = torch.tensor(self.clusters.order).argsort().double()
        meaning["cluster"] = ColumnInfo("number", f"heads of one cluster are closer than {self.within} on average")
        meaning["order"] = ColumnInfo("place", "position in the dendrogram, where neighbours are similar")
        reasons = {
            name: {h: self._why(name) for h, v in zip(self.heads, column, strict=True) if v != v or v == ""}
            for name, column in columns.items()
        }
        return HeadTable(self.heads, columns, meaning, {n: r for n, r in reasons.items() if r}, self.about)

    def _why(self, column: str) -> str:
        reasons = self.undefined.get(column.removeprefix("most_similar_"), ()) or self.undefined.get(self.by, ())
        return "; ".join(reasons) or NEVER

    def heatmap(self, by: str | None = None, *, order: str = "clusters") -> Heatmap:
        """All pairs of heads, by "clusters" (similar heads are neighbours, clusters framed) or by "layers"."""
        by = self.by if by is None else by
        values = self[by]
        if order not in ("clusters", "layers"):
            raise SizeError(f"order must be 'clusters' or 'layers', got {order!r}")
        index = list(self.clusters.order) if order == "clusters" else list(range(len(self.heads)))
        names = [self.heads[i] for i in index]
        frames: list[tuple[int, int]] = []
        place = {head: i for i, head in enumerate(index)}
        for members in self.clusters.members() if order == "clusters" else ():
            places = sorted(place[head] for head in members)
            if places[-1] - places[0] + 1 == len(places):
                frames.append((places[0], len(places)))
        layers = [_layer(name) for name in names]
        unit = PAIRS[by].unit if by in PAIRS else ""
        return Heatmap(
            values[index][:, index].double().numpy(), names, names,
            ramp="signed" if by == "correlation" else "measure",
            low={"correlation": -1.0, "attention": 1.0}.get(by, 0.0), high=0.0 if by == "attention" else 1.0,
            value=f"{by} ({unit})" if unit else by, frames=frames,
            rules=[] if order == "clusters" else [i for i in range(1, len(names)) if layers[i] != layers[i - 1]],
        )  # fmt: skip

    def text(self, count: int = 8) -> str:
        """The most similar pairs and the clusters as text, for a terminal."""
        lines = [["heads", *self.pairs]]
        for a, b, _ in self.most_similar(count):
            lines.append([f"{a} {b}", *(fraction(v) for v in self.pair(a, b).values())])
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        body = ["  ".join(x.rjust(w) for x, w in zip(line, widths, strict=True)) for line in lines]
        groups = [" ".join(group) for group in self.groups()] or ["none"]
        undefined = [f"{name}: {reason}" for name, reasons in self.undefined.items() for reason in reasons]
        summary = (
            f"{plural(len(self.heads), 'head')} over {plural(self.about['tokens'], 'token')}; closest by {self.by}"
        )
        clusters = f"clusters (mean distance below {self.within}):"
        return "\n".join([summary, *body, clusters, *groups, *undefined, *self.about["notes"]])

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """The most similar pairs, and a map of all pairs in the order of the dendrogram, for notebooks."""
        rows = [[a, b, *(fraction(v) for v in self.pair(a, b).values())] for a, b, _ in self.most_similar(8)]
        summary = (
            f"{plural(len(self.heads), 'head')} over {plural(self.about['tokens'], 'token')}; closest by {self.by}"
        )
        side = max(120, min(420, 6 * len(self.heads)))
        picture = heatmap_html(self.heatmap().pooled(SHOWN), side=side, alt="heads by heads")
        groups = [f"cluster: {' '.join(group)}" for group in self.groups()]
        more = [f"and {len(groups) - 12} more"] if len(groups) > 12 else []
        note = f"all pairs of heads, by {self.by}, in the order of the dendrogram: bright pairs are similar"
        return (
            line(summary, small=False)
            + table(["head", "most_similar", *self.pairs], rows, words=(0, 1))
            + picture
            + lines([note, *groups[:12], *more])
        )


def _layer(name: str) -> str:
    return name.rpartition("H")[0]
