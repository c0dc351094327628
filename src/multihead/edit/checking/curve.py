"""Quality against heads kept: cut at several sizes by several methods, judge each on held-out text.

>>> from multihead.edit.checking.curve import Curve, Point
>>> found = {0.75: 0.99, 0.5: 0.97, 0.25: 0.6}
>>> points = tuple(Point("obs", keep, int(12 * keep), {"cosine": c}) for keep, c in found.items())
>>> curve = Curve(points, "cosine", {"cosine": 1.0}, 12, 40)
>>> curve.knee().keep
0.5
>>> print(curve)
cosine on 40 held-out documents; the original has 1
heads kept    obs
9 of 12      0.99
6 of 12      0.97
3 of 12      0.6
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from multihead._base import html
from multihead._base.colours import LINES
from multihead.corpus.batches import Document
from multihead.edit.calibration import Calibration, Progress
from multihead.edit.checking.quality import quality
from multihead.edit.plan_text import table
from multihead.errors import MultiheadError, SizeError

METHODS = ("obs", "fisher", "random")
SHARES = (0.875, 0.75, 0.625, 0.5, 0.375, 0.25)
SHOWN = ("nn10", "perplexity", "cosine", "relative_error")
"""Which number is drawn: the first that there is."""


@dataclass(frozen=True)
class Point:
    """One cut: by which method, the share that was asked for, heads that stayed, and its quality."""

    method: str
    keep: float
    kept: int
    numbers: Mapping[str, float]
    gone: tuple[str, ...] = ()
    """the heads that went"""


@dataclass(frozen=True, repr=False)
class Curve:
    """All points, which number of them is drawn, and the original's numbers."""

    points: tuple[Point, ...]
    shown: str
    original: Mapping[str, float]
    heads: int
    documents: int
    notes: tuple[str, ...] = ()
    """points that could not be cut, and why"""

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(p.method for p in self.points))

    def knee(self) -> Point | None:
        """Of the first method: the point farthest above the line from the first to the last (Satopää et al. 2011).

        Sizes and quality are scaled to 0…1. None for fewer than 3 points.
        """
        mine = sorted((p for p in self.points if p.method == self.methods[0]), key=lambda p: p.kept)
        sign = -1.0 if self.shown in ("perplexity", "relative_error") else 1.0
        y = [sign * _tame(self.shown, p.numbers[self.shown]) for p in mine]
        if len(mine) < 3 or mine[-1].kept == mine[0].kept or not all(map(math.isfinite, y)) or y[-1] <= y[0]:
            return None
        x = [(p.kept - mine[0].kept) / (mine[-1].kept - mine[0].kept) for p in mine]
        above = [(v - y[0]) / (y[-1] - y[0]) - at for v, at in zip(y, x, strict=True)]
        best = max(range(len(mine)), key=lambda i: above[i])
        return mine[best] if above[best] > 0 else None

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Titles and lines: a line per size, a column per method."""
        sizes = sorted({p.keep for p in self.points}, reverse=True)
        lines: list[list[str]] = []
        for keep in sizes:
            here = {p.method: p for p in self.points if p.keep == keep}
            kept = sorted({p.kept for p in here.values()})
            label = f"{kept[0]} of {self.heads}" if len(kept) == 1 else f"{kept[0]} to {kept[-1]} of {self.heads}"
            lines.append(
                [label, *(f"{here[m].numbers[self.shown]:.3g}" if m in here else "" for m in self.methods)]
            )
        return ["heads kept", *self.methods], lines

    def __repr__(self) -> str:
        titles, lines = self.rows()
        first = (
            f"{self.shown} on {self.documents} held-out documents; the original has {self.original[self.shown]:.4g}"
        )
        return "\n".join([first, *table(titles, lines), *(f"note: {n}" for n in self.notes)])

    def _repr_html_(self) -> str:
        """Quality against heads kept, drawn and in numbers."""
        titles, rows = self.rows()
        whole = (float(self.heads), float(self.original[self.shown]))
        series = {
            method: [
                whole,
                *((float(p.kept), float(p.numbers[self.shown])) for p in self.points if p.method == method),
            ]
            for method in self.methods
        }
        drawn = html.plot(series, LINES, across=f"heads kept, of {self.heads}", up=self.shown)
        said = f"{self.shown} on {self.documents} held-out documents; the original has {whole[1]:.4g}"
        return drawn + html.table(titles, rows) + html.lines([said, *(f"note: {n}" for n in self.notes)])

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        knee = self.knee()
        return {
            "shown": self.shown, "heads": self.heads, "documents": self.documents, "original": dict(self.original),
            "points": [
                {"method": p.method, "keep": p.keep, "kept": p.kept,
                 **{n: x if math.isfinite(x) else None for n, x in p.numbers.items()}}
                for p in self.points
            ],
            "knee": None if knee is None else knee.keep, "notes": list(self.notes),
        }  # fmt: skip


def curve(
    model: nn.Module,
    calibration: Calibration,
    held_out: Iterable[Document],
    *,
    tokenizer: Any = None,
    shares: Sequence[float] = SHARES,
    methods: Sequence[str] = METHODS,
    refit: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    seen: Callable[[Point, nn.Module], None] | None = None,
) -> Curve:
    """Cut the model for every share and method, and judge each cut on documents that nothing was fitted to.

    `seen` gets every point and the model that was cut for it, which nobody holds afterwards.
    """
    from multihead.edit.cut import cut
    from multihead.edit.planning import plan

    wrong = [x for x in shares if not 0 < x <= 1]
    if wrong or not shares or not methods:
        raise SizeError(f"shares={list(shares)}, methods={list(methods)}", hint="shares above 0 and at most 1")
    documents = list(held_out)
    points: list[Point] = []
    notes: list[str] = []
    original: dict[str, float] = {}
    heads = judged = 0
    total = len(methods) * len(shares)
    for method in methods:
        for keep in shares:
            if progress is not None:
                progress(f"{method} {keep:g}", len(points) + len(notes), total)
            made = plan(model, calibration, keep=keep, method=method, seed=seed)
            try:
                small = cut(model, made, refit=refit) if made.changes else model
            except MultiheadError as wrong:  # the other points are worth having
                notes.append(f"{method} {keep:g}: {wrong.message}")
                continue
            found = quality(model, small, documents, tokenizer=tokenizer)
            original = {n: a for n, (a, _) in found.numbers.items()}
            heads, judged = made.heads, found.documents
            gone = tuple(layer.head(h) for layer in made.layers for h in layer.gone)
            points.append(Point(method, keep, made.kept, {n: b for n, (_, b) in found.numbers.items()}, gone))
            if seen is not None:
                seen(points[-1], small)
    if progress is not None:
        progress("curve", total, total)
    if not points:
        raise MultiheadError(f"none of {total} cuts could be made: {notes[0]}", hint="multihead prune says more")
    return Curve(tuple(points), next(n for n in SHOWN if n in original), original, heads, judged, tuple(notes))


def draw(curve: Curve, path: Path, *, title: str = "") -> None:
    """The curve as a picture: .png, .svg or .pdf, by the name of the file."""
    from multihead.figure import curve as drawn

    drawn(curve, title=title).savefig(path)


def _tame(name: str, x: float) -> float:
    """Perplexities by their logarithm, as they are drawn."""
    return math.log(x) if name == "perplexity" and 0 < x < math.inf else x
