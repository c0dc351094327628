"""Which heads are alike: a square for every two of them.

>>> import torch
>>> from multihead.figure.pairs import alike
>>> from multihead.measures.similarity.result import Similarity
>>> cka = torch.tensor([[1.0, 0.1, 0.9], [0.1, 1.0, 0.2], [0.9, 0.2, 1.0]])
>>> found = Similarity(("L0H0", "L0H1", "L0H2"), {"cka": cka}, {}, {"tokens": 7, "notes": []})
>>> sorted(t.get_text() for t in alike(found).axes[0].get_yticklabels())
['L0H0', 'L0H1', 'L0H2']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from multihead.errors import SizeError
from multihead.figure.style import COLUMN, PAGE, bar, label, paper, scale
from multihead.measures.similarity.result import PAIRS, Similarity

if TYPE_CHECKING:
    from multihead.figure.paper import Paper


def alike(
    found: Similarity, by: str | None = None, *, order: Literal["clusters", "layers"] = "clusters", title: str = ""
) -> Paper:
    """Head × head likeness; heads that are alike stand together, clusters are framed.

    Args:
        by: correlation, cka, attention, write or read; by default what the similarity was ranked by.
        order: "clusters", that of the dendrogram; or "layers", that of the model, with a line between layers.
    """
    by = found.by if by is None else by
    values, heads = found[by], found.heads
    if order not in ("clusters", "layers"):
        raise SizeError(f"order={order!r} is not known", hint="'clusters' or 'layers'")
    at = list(found.clusters.order) if order == "clusters" else list(range(len(heads)))
    cells = values[at][:, at].numpy()
    side = min(max(0.1 * len(heads), COLUMN - 1.1), PAGE - 1.1)
    signed, far = by == "correlation", by == "attention"
    colours = scale("both" if signed else "viridis_r" if far else "measure")
    with paper(side + 1.1, side + 0.6) as figure:
        axes = figure.add_subplot()
        picture = axes.imshow(
            np.ma.masked_invalid(cells), cmap=colours, vmin=-1 if signed else 0, vmax=1, interpolation="nearest"
        )
        label(axes.yaxis, [heads[i] for i in at], inches=side)
        label(axes.xaxis, [heads[i] for i in at], inches=side, turned=True)
        axes.set_title(title, parse_math=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        if order == "clusters":
            _frames(axes, found, at)
        else:
            _lines(axes, heads)
        meaning = PAIRS[by].unit if by in PAIRS else ""
        bar(figure, picture, axes, f"{by} ({meaning})" if meaning else by)
    return figure


def _frames(axes: Any, found: Similarity, order: list[int]) -> None:
    """A frame around each cluster of two or more."""
    from matplotlib.patches import Rectangle

    place = {head: at for at, head in enumerate(order)}
    for some in found.clusters.members():
        seats = [place[head] for head in some]
        low, count = min(seats), len(seats)
        if max(seats) - low + 1 == count:
            box = Rectangle((low - 0.5, low - 0.5), count, count, fill=False, edgecolor="white", linewidth=1.6)
            axes.add_patch(box)
            inner = Rectangle((low - 0.5, low - 0.5), count, count, fill=False, edgecolor="#d55e00", linewidth=0.9)
            axes.add_patch(inner)


def _lines(axes: Any, heads: tuple[str, ...]) -> None:
    """A line between layers."""
    layers = [name.rpartition("H")[0] for name in heads]
    for at in range(1, len(layers)):
        if layers[at] != layers[at - 1]:
            axes.axhline(at - 0.5, color="white", linewidth=0.9)
            axes.axvline(at - 0.5, color="white", linewidth=0.9)
