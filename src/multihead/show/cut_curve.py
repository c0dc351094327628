"""The curve of real cuts: at each size the model is planned, cut, fitted again, judged on other text, and timed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from multihead.corpus.accumulator import Inputs
from multihead.corpus.batches import Document
from multihead.edit.calibration import Calibration
from multihead.edit.check.curve import METHODS, SHARES, Curve, Point, curve, split_documents
from multihead.edit.check.metrics import METRICS
from multihead.edit.check.speed import whole_model
from multihead.errors import MultiheadError
from multihead.measures.cost.cost import USUAL_TOKENS, Cost, cost
from multihead.measures.cost.cost_text import cost_cells
from multihead.model.model_inputs import documents_in
from multihead.model.token_count import TokenCount
from multihead.model.token_limit import token_limit
from multihead.show.quality_curve import LIMIT, CurveLine, CurvePoint, QualityCurve

ROUNDS = 5
"""rounds that time a point of the first method next to the original"""


def cut_curve(
    model: nn.Module,
    documents: Sequence[Document],
    *,
    tokenizer: Any = None,
    methods: Sequence[str] = METHODS,
    shares: Sequence[float] = SHARES,
    limit: float = LIMIT,
    seed: int = 0,
    progress: Callable[[float, float], None] | None = None,
) -> QualityCurve:
    """Lost quality against heads kept by each method, with the removed heads, sizes, speed and costs.

    Three documents of four choose heads and are fitted to, the fourth judges. Cut models of the first method are
    timed against the original.
    """
    fit, held_out = split_documents(documents)
    details: dict[tuple[str, float], CurvePoint] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        text = Calibration(model, fit, tokenizer=tokenizer, seed=seed)

        def measure(point: Point, small: nn.Module) -> None:
            timed = point.method == methods[0]
            details[point.method, point.keep] = _details(model, small, text, timed=timed)

        measured = curve(
            model,
            text,
            held_out,
            tokenizer=tokenizer,
            methods=methods,
            shares=shares,
            seed=seed,
            progress=None if progress is None else lambda _, done, total: progress(done, total),
            seen=measure,
        )
    warned = dict.fromkeys(str(w.message) for w in caught)
    shown = curve_of_cuts(measured, details, limit=limit)
    return replace(shown, fitted=len(fit), notes=(*shown.notes, *(f"curve: {note}" for note in warned)))


def curve_of_cuts(
    measured: Curve, details: Mapping[tuple[str, float], CurvePoint] | None = None, *, limit: float = LIMIT
) -> QualityCurve:
    """The result of `multihead.edit.check.curve.curve` as a report shows it: the quality that each cut loses.

    `details` adds sizes, costs and speed to the point of a method and a share of heads.
    """
    metric, before = METRICS[measured.shown], measured.original[measured.shown]
    lines: list[CurveLine] = []
    for method in measured.methods:
        points = [CurvePoint(measured.heads, 0.0, ())]
        for p in sorted((p for p in measured.points if p.method == method), key=lambda p: -p.kept):
            point = (details or {}).get((method, p.keep), CurvePoint(p.kept, 0.0))
            lost = metric.lost(before, p.numbers[measured.shown])
            points.append(replace(point, kept=p.kept, lost=lost, removed=p.removed))
        lines.append(CurveLine(method, tuple(points)))
    notes = tuple(f"curve: {note}" for note in measured.notes)
    return QualityCurve(
        measured.heads,
        tuple(lines),
        metric.loss,
        measured.shown,
        limit,
        cut=True,
        judged=measured.documents,
        notes=notes,
    )


def _details(model: nn.Module, small: nn.Module, text: Calibration, *, timed: bool) -> CurvePoint:
    """Size, costs and speed of a cut model on the curve."""
    try:
        costs = tuple(cost_cells(attention_cost(small, text.example())))
    except MultiheadError:
        costs = None
    speed = None
    if timed:
        speed = whole_model(model, small, next(text.held_out(), None) or next(text.fit()), rounds=ROUNDS)
    parameters = sum(p.numel() for p in small.parameters())
    return CurvePoint(0, math.nan, parameters=parameters, cost=costs, speed=speed)


def attention_cost(model: nn.Module, batch: Inputs) -> Cost:
    """The cost of attention on a text of 2,048 tokens, or of as many as the model can read.

    A model that reads no token ids, such as one of images, reads as many tokens as a document of the batch has.
    """
    limit = token_limit(model)
    if limit is None and "input_ids" not in batch:
        limit = max(1, TokenCount(model)(batch) // documents_in(batch))
    return cost(model, tokens=min(USUAL_TOKENS, limit or USUAL_TOKENS))
