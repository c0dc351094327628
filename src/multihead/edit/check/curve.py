"""Quality against heads kept: cut at several sizes by several methods, judge each cut on held-out text.

>>> from multihead.edit.check.curve import Curve, Point
>>> cosines = {0.75: 0.99, 0.5: 0.97, 0.25: 0.6}
>>> points = tuple(Point("obs", keep, int(12 * keep), {"cosine": c}) for keep, c in cosines.items())
>>> curve = Curve(points, "cosine", {"cosine": 1.0}, 12, 40)
>>> curve.knee().keep
0.5
>>> print(curve)
cosine on 40 held-out documents; the original has 1
heads kept  obs
9 of 12     0.99
6 of 12     0.97
3 of 12     0.6
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from multihead._base import html_fragments
from multihead._base.arguments import check_data, check_flag, check_function, check_list, check_model, check_seed
from multihead._base.chart_html import line_chart_html
from multihead._base.charts import Line, LineChart
from multihead._base.number_text import number
from multihead._base.plural import plural
from multihead._base.progress import Progress, check_progress, shown_progress
from multihead.corpus.batches import Document
from multihead.edit.calibration import Calibration, calibrate
from multihead.edit.check.metrics import METRICS, Metric, quality
from multihead.edit.cut import cut
from multihead.edit.make_plan import apply_order, check_share, prune_order
from multihead.edit.plan import Plan
from multihead.edit.plan_and_cut import CalibrationCost
from multihead.edit.plan_text import table
from multihead.edit.saliency import check_method
from multihead.edit.search import Shape
from multihead.errors import MultiheadError, SizeError

METHODS = ("obs", "fisher", "random")
SHARES = (0.875, 0.75, 0.625, 0.5, 0.375, 0.25)
EVERY = 4
"""Every fourth document judges if no text is held out, and nothing is fitted to it."""


@dataclass(frozen=True)
class Point:
    """One cut: the method, the requested share of heads, the number of heads kept, and its quality."""

    method: str
    keep: float
    kept: int
    numbers: Mapping[str, float]
    removed: tuple[str, ...] = ()
    """names of the removed heads"""


@dataclass(frozen=True, repr=False)
class Curve:
    """All points, the name of the metric that is drawn, and the metrics of the original."""

    points: tuple[Point, ...]
    shown: str
    original: Mapping[str, float]
    heads: int
    documents: int
    notes: tuple[str, ...] = ()
    """cuts that failed, and why"""

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(p.method for p in self.points))

    def knee(self) -> Point | None:
        """The knee of the first method's curve, farthest above the line from first to last (Satopää et al. 2011).

        Sizes and quality are scaled to 0…1. None for fewer than 3 points, or if none is above the line.
        """
        mine = sorted((p for p in self.points if p.method == self.methods[0]), key=lambda p: p.kept)
        metric = METRICS[self.shown]
        sign = -1.0 if metric.better == "lower" else 1.0
        y = [sign * _on_axis(metric, p.numbers[self.shown]) for p in mine]
        if len(mine) < 3 or mine[-1].kept == mine[0].kept or not all(map(math.isfinite, y)) or y[-1] <= y[0]:
            return None
        x = [(p.kept - mine[0].kept) / (mine[-1].kept - mine[0].kept) for p in mine]
        above = [(v - y[0]) / (y[-1] - y[0]) - at for v, at in zip(y, x, strict=True)]
        best = max(range(len(mine)), key=lambda i: above[i])
        return mine[best] if above[best] > 0 else None

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """The curve as titles and lines of a table: a line per size, a column per method."""
        sizes = sorted({p.keep for p in self.points}, reverse=True)
        lines: list[list[str]] = []
        for keep in sizes:
            points = {p.method: p for p in self.points if p.keep == keep}
            counts = dict.fromkeys(f"{count(p.kept for p in points.values())}" for count in (min, max))
            values = (number(points[m].numbers[self.shown]) if m in points else "" for m in self.methods)
            lines.append([f"{' to '.join(counts)} of {self.heads}", *values])
        return ["heads kept", *self.methods], lines

    def __repr__(self) -> str:
        titles, lines = self.rows()
        return "\n".join([self._summary(), *table(titles, lines), *(f"note: {n}" for n in self.notes)])

    def _summary(self) -> str:
        original = self.original[self.shown]
        return f"{self.shown} on {self.documents} held-out documents; the original has {original:.4g}"

    def _repr_html_(self) -> str:
        """A plot and a table of the curve, for notebooks."""
        titles, rows = self.rows()
        return (
            line_chart_html(self.chart())
            + html_fragments.table(titles, rows)
            + html_fragments.lines([self._summary(), *(f"note: {n}" for n in self.notes)])
        )

    def chart(self) -> LineChart:
        """The curve as a chart: a line per method from the original to its smallest cut, and the knee."""
        intact = (float(self.heads), float(self.original[self.shown]))
        lines: list[Line] = []
        for method in self.methods:
            cuts = [p for p in self.points if p.method == method and p.kept < self.heads]
            cuts.sort(key=lambda p: -p.kept)
            lines.append(Line(method, [intact, *((float(p.kept), float(p.numbers[self.shown])) for p in cuts)]))
        metric, knee = METRICS[self.shown], self.knee()
        return LineChart(
            lines, f"heads kept, of {self.heads}", f"{metric.label}\n({self.documents} held-out documents)",
            x_descends=True, y_logarithmic=metric.ratio,
            marks=() if knee is None else [(float(knee.kept), f"knee: {plural(knee.kept, 'head')}")],
        )  # fmt: skip

    def plain(self) -> dict[str, Any]:
        """The curve as plain data, for JSON."""
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
    calibration: Iterable[Document] | Calibration,
    held_out: Iterable[Document] | None = None,
    *,
    tokenizer: Any = None,
    shares: Sequence[float] = SHARES,
    methods: Sequence[str] = METHODS,
    refit: bool = True,
    batch_size: int | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    progress: bool | Progress | None = None,
    say: Callable[[str], None] | None = None,
    seen: Callable[[Point, nn.Module], None] | None = None,
) -> Curve:
    """Cut the model for every share and method, and judge each cut on held-out documents.

    Each method ranks the heads once; its shares are prefixes of this order.

    Args:
        calibration: documents that the plans and cuts are fitted to, or a `Calibration` of them.
        held_out: documents that judge; default: every fourth of `calibration`, and nothing is fitted to it.
        batch_size, max_tokens: as for `Calibration`.
        progress: True shows bars on a terminal; a function is called with (point, done, total).
        say: called with a line about the text and how long it may take.
        seen: called with every point and the model that was cut for it.
    """
    check_model(model)
    check_flag("refit", refit)
    check_seed(seed)
    check_progress(progress)
    check_function("say", say)
    check_function("seen", seen)
    check_points(shares, methods)
    if not isinstance(calibration, Calibration):
        check_data(calibration)
        if held_out is None:
            calibration, held_out = split_documents(list(calibration))
        options: dict[str, Any] = {"tokenizer": tokenizer, "batch_size": batch_size, "max_tokens": max_tokens}
        calibration = Calibration(model, calibration, seed=seed, **options)
    check_data(held_out)
    assert held_out is not None
    documents = list(held_out)
    text = calibrate(model, calibration, tokenizer)
    start = replace(Plan.whole(model, text.anatomy), calibration=text)
    points: list[Point] = []
    notes: list[str] = []
    original: dict[str, float] = {}
    judged = 0
    total = len(methods) * len(shares)
    if say is not None:
        cost, count = CalibrationCost.of(model, text), plural(total, "point")
        judging = f"{plural(len(documents), 'document')} to check on"
        say(f"{text.summary}; {judging}; {count}, {cost.estimate(cost.of_curve(total, refit=refit))}")
    with shown_progress(progress) as report:
        for method in methods:
            order = prune_order(text, shares, method=method, shape=Shape(), seed=seed)
            for keep in shares:
                if report is not None:
                    report(f"{method} {keep:g}", len(points) + len(notes), total)
                try:
                    plan = apply_order(start, order, keep, method=method, request=f"keep={keep:g}")
                    small = cut(model, plan, refit=refit) if plan.changes else model
                except MultiheadError as error:  # other points may still be cut
                    notes.append(f"{method} {keep:g}: {error.message}")
                    continue
                measured = quality(model, small, documents, tokenizer=tokenizer)
                original, judged = {n: a for n, (a, _) in measured.metrics.items()}, measured.documents
                removed = tuple(layer.head(h) for layer in plan.layers for h in layer.removed)
                numbers = {n: b for n, (_, b) in measured.metrics.items()}
                points.append(Point(method, keep, plan.kept, numbers, removed))
                if seen is not None:
                    seen(points[-1], small)
        if report is not None:
            report("curve", total, total)
    if not points:
        raise MultiheadError(
            f"none of {total} cuts succeeded: {notes[0]}", hint="multihead prune tries one of them"
        )
    shown = next(n for n in METRICS if n in original)
    return Curve(tuple(points), shown, original, start.heads, judged, tuple(notes))


def split_documents(documents: Sequence[Document]) -> tuple[list[Document], list[Document]]:
    """The documents that a curve fits to, and every fourth one, which judges."""
    held_out = list(documents[EVERY - 1 :: EVERY])
    if not held_out:
        raise MultiheadError(
            f"a curve needs at least {EVERY} documents, one of which judges, got {len(documents)}",
            hint="pass more, or held-out text",
        )
    return [d for i, d in enumerate(documents) if i % EVERY != EVERY - 1], held_out


def check_points(shares: Sequence[float], methods: Sequence[str]) -> None:
    """Raise unless the curve's shares and methods are valid."""
    for name, values in (("shares", shares), ("methods", methods)):
        hint = 'shares=[0.75, 0.5], methods=["obs"]'
        check_list(name, values, "numbers" if name == "shares" else "names", hint=hint)
        if not values:
            raise SizeError(f"{name} must not be empty", hint=hint)
    for share in shares:
        check_share("shares", share)
    for method in methods:
        check_method(method)


def _on_axis(metric: Metric, x: float) -> float:
    """The logarithm of metrics that are drawn on a logarithmic axis."""
    return math.log(x) if metric.ratio and 0 < x < math.inf else x
