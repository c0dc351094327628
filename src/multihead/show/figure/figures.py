"""The figures of `mh.figure`: a map, the maps of a layer, all heads, their similarity, and a curve."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.charts import Heatmap
from multihead.edit.plan import Plan
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.measures.similarity.similarity_result import Similarity
from multihead.model.capture import Capture
from multihead.model.captured_head import CapturedHead
from multihead.model.sites import Site
from multihead.show.figure.draw import draw_head_grid, draw_heatmap, draw_lines
from multihead.show.figure.style import COLUMN, PAGE, colour_bar, label, labels_step, sheet, short
from multihead.show.quality_curve import QualityCurve
from multihead.show.report import Report
from multihead.table.head_grid import head_grid
from multihead.table.table import HeadTable

if TYPE_CHECKING:
    from multihead.edit.check.curve import Curve
    from multihead.show.figure.figure import Figure

T = TypeVar("T")

Weights = Float[Tensor, "query key"]
Rows = Sequence[Sequence[float]]
Tokens = Sequence[str] | Sequence[int]

SMALLEST = 1.5
"""Inches of a map of few tokens."""


def attention(
    head: CapturedHead | Weights | Rows,
    tokens: Tokens | None = None,
    *,
    queries: Tokens | None = None,
    sequence: int = 0,
    top: float | None = 1.0,
    title: str | None = None,
) -> Figure:
    """The map of one head: queries down, keys across; the darkness of a cell is the square root of its weight.

    Args:
        head: a head of a capture that kept "qk", or weights (query, key).
        tokens: labels of the keys, and of the queries unless `queries` labels those.
        sequence: the index of the sequence in its batch.
        top: the weight that is drawn darkest; if None, the largest weight of this map.
    """
    weights = _weights(head, sequence)
    across, down = _labels(weights, tokens, queries)
    heading = title if title is not None else head.name if isinstance(head, CapturedHead) else ""
    chart = Heatmap.attention(weights.numpy(), down, across, title=heading, top=_top(top, [weights]))
    longest = max(weights.shape)
    side = min(max(0.17 * longest, SMALLEST), PAGE - 1.2)
    width, height = (side * n / longest for n in reversed(weights.shape))
    with sheet(max(width + 1.1, 2.2), height + 0.9) as figure:
        axes = figure.add_subplot()
        image = draw_heatmap(axes, chart)
        label(axes.xaxis, across, inches=width, turned=True)
        label(axes.yaxis, down, inches=height)
        axes.xaxis.tick_top()
        axes.set_ylabel(chart.row_title)
        axes.set_title(chart.title, parse_math=False)
        colour_bar(figure, image, axes, chart.value, ticks=_ticks(chart))
        axes.set_xlabel(chart.column_title)
        axes.xaxis.set_label_position("top")
    return figure


def layer(
    heads: Capture,
    name: str | int,
    tokens: Tokens | None = None,
    *,
    sequence: int = 0,
    columns: int = 4,
    top: float | None = 1.0,
    title: str | None = None,
) -> Figure:
    """The maps of all heads of a layer on one scale: `layer(heads, "L3")`, for a capture that kept "qk".

    Args:
        tokens: labels of the queries, left of the maps of the first column.
        columns: maps per row.
    """
    site = _site(heads, name)
    if columns < 1:
        raise SizeError(f"columns must be at least 1, got {columns}")
    maps = [_weights(CapturedHead(heads, site, h), sequence) for h in range(site.heads)]
    columns = min(columns, len(maps))
    rows = math.ceil(len(maps) / columns)
    ratio = min(maps[0].shape[0] / maps[0].shape[1], 1.6)
    words = None if tokens is None else _labels(maps[0], tokens, None)[1]
    width = PAGE if columns > 2 else COLUMN
    side = (width - (0.85 if words is None else 1.35)) / columns
    charts = [Heatmap.attention(w.numpy(), title=site.name(h), top=_top(top, maps)) for h, w in enumerate(maps)]
    with sheet(width, rows * (side * ratio + 0.22) + 0.3) as figure:
        panels: Any = figure.subplots(rows, columns, squeeze=False)
        image = None
        for i, axes in enumerate(panels.flat):
            if i >= len(charts):
                axes.set_axis_off()
                continue
            image = draw_heatmap(axes, charts[i])
            axes.set_title(charts[i].title, fontsize=7, pad=2.5, parse_math=False)
            axes.set_xticks([])
            axes.set_yticks([])
            if words is not None and i % columns == 0:
                label(axes.yaxis, words, inches=side * ratio)
        colour_bar(figure, image, list(panels.flat), "weight", ticks=_ticks(charts[0]), shrink=0.6)
        if title:
            figure.suptitle(title, fontsize=8, parse_math=False)
    return figure


def grid(
    table: HeadTable | Report,
    by: str | None = None,
    *,
    size: str | None = None,
    hollow: Plan | Iterable[str] | None = None,
    title: str = "",
) -> Figure:
    """All heads, layers down and heads across: coloured by kind and sized by importance, or coloured by a number.

    Args:
        by: the column of the colour; default: the kind if there is one, else the first column of numbers.
        size: the column of the size; default: the measured importance, if any.
        hollow: heads that can be pruned, by name, or the plan that removes them; default: those of a report.
    """
    if isinstance(hollow, Plan):
        hollow = [plan.head(h) for plan in hollow.layers for h in plan.removed]
    if isinstance(table, Report):
        if hollow is None and table.curve is not None:
            hollow = table.curve.prunable_heads
        table = _part(table.table, table, "a table")
    chart = head_grid(table, by, size=size, hollow=hollow or (), title=title)
    room = min(max(0.26 * chart.width, COLUMN - 1.0), PAGE - 1.0)
    height = min(room / chart.width * len(chart.layers), 8.5)
    with sheet(room + 1.0, height + (0.5 if chart.numbers is not None else 0.75)) as figure:
        axes = figure.add_subplot()
        axes.set(xlim=(-0.5, chart.width - 0.5), ylim=(len(chart.layers) - 0.5, -0.5), aspect="equal")
        axes.set_xlabel("head")
        axes.set_ylabel("layer")
        axes.set_title(chart.title, parse_math=False)
        axes.set_xticks(range(0, chart.width, labels_step(chart.width, room, 10)))
        step = labels_step(len(chart.layers), height)
        axes.set_yticks(range(0, len(chart.layers), step), labels=chart.layers[::step], parse_math=False)
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        draw_head_grid(figure, axes, chart)
    return figure


def similarity(
    result: Similarity | Report,
    by: str | None = None,
    *,
    order: Literal["clusters", "layers"] = "clusters",
    title: str = "",
) -> Figure:
    """The similarity of every two heads as a figure.

    Args:
        by: correlation, cka, attention, write or read; default: the measure that the result is ranked by.
        order: "clusters": similar heads are neighbours, and clusters are framed; "layers": the model's order.
    """
    if isinstance(result, Report):
        result = _part(result.similarity, result, "similarity")
    chart = result.heatmap(by, order=order)
    side = min(max(0.1 * len(result.heads), COLUMN - 1.1), PAGE - 1.1)
    with sheet(side + 1.1, side + 0.6) as figure:
        axes = figure.add_subplot()
        image = draw_heatmap(axes, chart)
        label(axes.yaxis, chart.rows, inches=side)
        label(axes.xaxis, chart.columns, inches=side, turned=True)
        axes.set_title(title, parse_math=False)
        colour_bar(figure, image, axes, chart.value)
    return figure


def curve(curve: Curve | QualityCurve | Report, *, title: str = "") -> Figure:
    """The figure of quality against heads kept, a line per method from the original on the left.

    The knee is marked; in the curve of a report, which draws lost quality, the share that may be lost.
    """
    if isinstance(curve, Report):
        curve = _part(curve.curve, curve, "a curve")
    with sheet(COLUMN, 2.3) as figure:
        axes = figure.add_subplot()
        draw_lines(axes, curve.chart())
        axes.set_title(title, pad=11, parse_math=False)
    return figure


# ---- arguments --------------------------------------------------------------------------------


def _part(part: T | None, report: Report, name: str) -> T:
    """The part of a report that a figure draws; raises if it has none."""
    if part is None:
        raise MultiheadError(
            f"the report must have {name} to draw it", hint="; ".join(report.notes) or "mh.report(parts=...)"
        )
    return part


def _weights(head: CapturedHead | Weights | Rows, sequence: int) -> Weights:
    """The map that a figure draws, from a captured head or a matrix."""
    if isinstance(head, CapturedHead):
        maps = head.weights()
        if not -len(maps) <= sequence < len(maps):
            raise SizeError(
                f"the batch has {len(maps)} sequences, got sequence={sequence}", hint="they count from 0"
            )
        weights = maps[sequence]
    else:
        weights = _tensor(head)
    if weights.ndim != 2 or 0 in weights.shape:
        raise SizeError(f"a map must have the shape (query, key), got {tuple(weights.shape)}", hint="weights[0]")
    return weights.detach().float().cpu()


def _tensor(weights: Any) -> Tensor:
    """A matrix that a figure draws, as a tensor."""
    try:
        return torch.as_tensor(weights)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise TypeMismatchError(
            f"a map must be a matrix of numbers, got {type(weights).__name__}: {reason}",
            hint='heads["L3H7"] of a capture that kept "qk", or weights (query, key)',
        ) from error


def _labels(weights: Weights, tokens: Tokens | None, queries: Tokens | None) -> tuple[list[str], list[str]]:
    """Figure labels of the keys and of the queries, which are the last tokens where a cache held the others."""
    down, across = weights.shape
    if queries is None and tokens is not None and not isinstance(tokens, str):
        queries = tokens[-down:] if len(tokens) >= down else tokens
    labels: list[list[str]] = []
    for name, words, count in (("keys", tokens, across), ("queries", queries, down)):
        if words is not None and (isinstance(words, str) or len(words) != count):
            got = f"the text {words[:20]!r}" if isinstance(words, str) else f"{len(words)} tokens"
            raise SizeError(f"{got} cannot label {count} {name}", hint="pass a list, a label for each: ['a', ...]")
        labels.append([str(i) for i in range(count)] if words is None else [short(str(w)) for w in words])
    return labels[0], labels[1]


def _top(top: float | None, maps: Sequence[Weights]) -> float:
    """The weight that a figure draws darkest."""
    if top is None:
        return max(float(w.nan_to_num(0.0).max()) for w in maps) or 1.0
    if not 0 < top <= 1:
        raise SizeError(f"top must be in (0, 1] or None, got {top}")
    return top


def _ticks(chart: Heatmap) -> list[float]:
    return [float(f"{x * chart.high:.2g}") for x in (0, 0.05, 0.25, 0.5, 1.0)]


def _site(heads: Capture, name: str | int) -> Site:
    """The layer that a figure draws; raises if its maps were not kept."""
    site = heads.sites.layer(f"L{name}" if isinstance(name, int) else name)
    if not heads.calls(site):
        raise MultiheadError(f"the capture kept no map of {site.label}", hint="mh.capture(model, keep='qk')")
    return site
