"""Quality against heads kept, a line per method.

>>> from multihead.edit.check.curve import Curve, Point
>>> from multihead.figure.quality import curve
>>> points = tuple(Point("obs", k / 12, k, {"cosine": c}) for k, c in {9: 0.99, 6: 0.97, 3: 0.6}.items())
>>> curve(Curve(points, "cosine", {"cosine": 1.0}, 12, 40)).axes[0].get_xlabel()
'heads kept, of 12'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multihead._base.colours import LINES
from multihead.edit.check.metrics import METRICS
from multihead.figure.style import COLUMN, MARKERS, paper

if TYPE_CHECKING:
    from multihead.edit.check.curve import Curve
    from multihead.figure.paper import Paper


def curve(curve: Curve, *, title: str = "") -> Paper:
    """Heads kept from all to few, one line per method, the original at the left, the knee marked."""
    with paper(COLUMN, 2.3) as figure:
        axes = figure.add_subplot()
        for i, method in enumerate(curve.methods):
            mine = sorted((p for p in curve.points if p.method == method), key=lambda p: -p.kept)
            fewer = [p for p in mine if p.kept < curve.heads]
            axes.plot(
                [curve.heads, *(p.kept for p in fewer)],
                [curve.original[curve.shown], *(p.numbers[curve.shown] for p in fewer)],
                color=LINES[i % len(LINES)], marker=MARKERS[i % len(MARKERS)], markersize=3.2, label=method,
                linewidth=1.5 if i == 0 else 1.0,
            )  # fmt: skip
        knee = curve.knee()
        if knee is not None:
            axes.axvline(knee.kept, color="#9aa3ad", linestyle=":", linewidth=0.8)
            axes.annotate(
                f"knee: {knee.kept} heads", (knee.kept, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 1.5),
                textcoords="offset points", ha="center", va="bottom", color="#5b6470", fontsize=6,
            )  # fmt: skip
        if METRICS[curve.shown].ratio:
            axes.set_yscale("log")
            for axis in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
                axis(lambda x, _: f"{x:g}")  # 20, not 2 × 10¹
        axes.invert_xaxis()
        axes.set_xlabel(f"heads kept, of {curve.heads}")
        axes.set_ylabel(f"{METRICS[curve.shown].label}\n({curve.documents} held-out documents)")
        axes.set_title(title, pad=11, parse_math=False)
        axes.grid(color="#dfe3e8", linewidth=0.5)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.legend(loc="best")
    return figure
