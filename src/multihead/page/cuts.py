"""The curve of real cuts: at each size the model is planned, cut, fitted again, judged on other text, and timed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from multihead.corpus.batches import Document
from multihead.edit.calibration import Calibration
from multihead.edit.check.curve import METHODS, SHARES, Curve, Point, curve
from multihead.edit.check.metrics import METRICS
from multihead.edit.check.speed import whole_model
from multihead.errors import MultiheadError
from multihead.measures.cost.cost import LINES, Cost, cost
from multihead.measures.cost.cost_text import amount
from multihead.page.curve import LIMIT

HELD = 4
"""Every so many-th document judges, and nothing is fitted to it."""

ROUNDS = 5
"""of timing a point of the first method beside the whole model"""


def cut_curve(
    model: nn.Module,
    documents: Sequence[Document],
    *,
    tokenizer: Any = None,
    methods: Sequence[str] = METHODS,
    shares: Sequence[float] = SHARES,
    limit: float = LIMIT,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Quality lost against heads kept by each method, with the heads that go, sizes, speed and costs.

    Three documents of four choose heads and are fitted to, the fourth judges. Cut models of the first method are
    timed beside the original.
    """
    held = list(documents[HELD - 1 :: HELD])
    fit = [d for i, d in enumerate(documents) if i % HELD != HELD - 1]
    if not fit or not held:
        raise MultiheadError(f"{len(documents)} documents are too few for a curve: one of {HELD} judges")
    extra: dict[tuple[str, float], dict[str, Any]] = {}
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        text = Calibration(model, fit, tokenizer, seed=seed)

        def seen(point: Point, small: nn.Module) -> None:
            timed = point.method == methods[0]
            extra[point.method, point.keep] = _after(model, small, text, timed=timed)

        found = curve(
            model,
            text,
            held,
            tokenizer=tokenizer,
            methods=methods,
            shares=shares,
            seed=seed,
            progress=None if progress is None else lambda _, done, every: progress(done, every),
            seen=seen,
        )
        said += [str(w.message) for w in caught]
    return _told(found, extra, len(fit), limit, list(dict.fromkeys(said)))


def _after(model: nn.Module, small: nn.Module, text: Calibration, *, timed: bool) -> dict[str, Any]:
    """Size, costs and speed of a model that was cut."""
    told: dict[str, Any] = {"parameters": sum(p.numel() for p in small.parameters())}
    try:
        told["cost"] = cost_cells(cost(small))
    except MultiheadError:
        told["cost"] = None
    if timed:
        time = whole_model(model, small, next(text.held_out(), None) or next(text.fit()), rounds=ROUNDS)
        told["speed"] = {"ratio": time.ratio, "low": time.low, "high": time.high, "rounds": time.rounds}
        told["speed"] |= {"batch": time.batch, "tokens": time.tokens, "verdict": time.verdict}
    return told


def _told(
    found: Curve, extra: dict[tuple[str, float], dict[str, Any]], fitted: int, limit: float, said: list[str]
) -> dict[str, Any]:
    """As the page has it."""
    metric = METRICS[found.shown]
    before = found.original[found.shown]
    curves: list[dict[str, Any]] = []
    for method in found.methods:
        points = [{"kept": found.heads, "gone": 0, "lost": 0.0, "heads": []}]
        for p in sorted((p for p in found.points if p.method == method), key=lambda p: -p.kept):
            lost = metric.lost(before, p.numbers[found.shown])
            told = {"kept": p.kept, "gone": found.heads - p.kept, "lost": lost if math.isfinite(lost) else 1e9}
            points.append(told | {"heads": list(p.removed)} | extra.get((method, p.keep), {}))
        curves.append({"method": method, "points": points, "order": []})
    allowed = [p["gone"] for p in curves[0]["points"] if p["lost"] <= limit]
    return {
        "cut": True,
        "unit": metric.loss,
        "loss": found.shown,
        "limit": limit,
        "prunable": max(allowed, default=0),
        "heads": found.heads,
        "fitted": fitted,
        "judged": found.documents,
        "curves": curves,
        "notes": [f"curve: {note}" for note in (*found.notes, *said)],
    }


def cost_cells(found: Cost) -> list[str]:
    """What attention costs, line by line, as it is written in a table."""
    return [_cell(label, read(found)) for label, read in LINES.items()]


def _cell(label: str, x: float) -> str:
    if math.isnan(x):
        return "–"
    if label.startswith("crossover"):
        return "never" if math.isinf(x) else f"{x:.0f}"
    unit = "B" if label.startswith(("scores", "KV", "decoding, bytes")) else ""
    return amount(x, unit) if x else "none"
