"""Quality against the number of heads kept, as every face of a report draws it.

`quick_curve` ablates the least important heads together, without fitting anything; `show/cut_curve.py` cuts models.

>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from multihead.corpus.documents import Corpus
>>> from multihead.measures.importance.losses import LanguageModel
>>> from multihead.show.quality_curve import quick_curve
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> corpus, order = Corpus(model, [[3, 1, 4, 1, 5]]), ["L0H1", "L1H2", "L0H0", "L0H2", "L1H0", "L1H1"]
>>> [point.kept for point in quick_curve(model, corpus, order, LanguageModel(), points=3).lines[0].points][:3]
[6, 4, 2]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from multihead._base.charts import Line, LineChart
from multihead.corpus.documents import Corpus
from multihead.corpus.run import run
from multihead.edit.check.speed import Timing
from multihead.measures.importance.ablation import AblatedSets
from multihead.measures.importance.losses import Loss
from multihead.model.rerun_strategies import Reruns

LIMIT = 0.05
"""The share of quality that may be lost for heads to be called prunable."""


@dataclass(frozen=True)
class CurvePoint:
    """A model with fewer heads."""

    kept: int
    lost: float
    """share of the quality"""
    removed: tuple[str, ...] | None = None
    """the removed heads; if None, the first of the line's order"""
    parameters: int | None = None
    cost: tuple[str, ...] | None = None
    """the costs of attention, in the rows of the report's table"""
    speed: Timing | None = None
    """compared with the original"""

    def to_json(self, heads: int) -> dict[str, Any]:
        """The point of a model that had so many heads, as the page has it."""
        data: dict[str, Any] = {"kept": self.kept, "gone": heads - self.kept}
        data["lost"] = self.lost if math.isfinite(self.lost) else 1e9  # JSON has no infinity
        if self.removed is not None:
            data["heads"] = list(self.removed)
        if self.parameters is not None:
            data |= {"parameters": self.parameters, "cost": None if self.cost is None else list(self.cost)}
        if self.speed is not None:
            names = ("ratio", "low", "high", "rounds", "batch", "tokens", "verdict")
            data["speed"] = {name: getattr(self.speed, name) for name in names}
        return data


@dataclass(frozen=True)
class CurveLine:
    """The points of one method, from all heads on."""

    method: str
    points: tuple[CurvePoint, ...]
    order: tuple[str, ...] = ()
    """heads in the order in which they are removed"""


@dataclass(frozen=True)
class QualityCurve:
    """Lost quality against heads kept, a line per method; the first line tells which heads can be pruned."""

    heads: int
    lines: tuple[CurveLine, ...]
    unit: str
    loss: str
    """the name of the quality"""
    limit: float = LIMIT
    """the share of quality that may be lost"""
    cut: bool = False
    """every point is a model that was cut and fitted again"""
    fitted: int = 0
    """documents that the cut models were fitted to"""
    judged: int = 0
    """held-out documents that judged them"""
    notes: tuple[str, ...] = ()

    @property
    def prunable(self) -> int:
        """How many heads can be pruned together within the limit."""
        return self.heads - self._smallest.kept

    @property
    def prunable_heads(self) -> tuple[str, ...]:
        removed, order = self._smallest.removed, self.lines[0].order
        return order[: self.prunable] if removed is None else removed

    @property
    def _smallest(self) -> CurvePoint:
        """The point of the first line with the least heads within the limit."""
        within = (point for point in self.lines[0].points if point.lost <= self.limit)
        return min(within, key=lambda point: point.kept, default=CurvePoint(self.heads, 0.0, ()))

    def chart(self) -> LineChart:
        """The quality curve as a chart: lost quality against heads kept."""
        lines = [Line(x.method, [(float(p.kept), p.lost) for p in x.points]) for x in self.lines]
        marks = [(float(self.heads - self.prunable), f"{self.limit:.0%} lost")]
        title, unit = f"heads kept, of {self.heads}", f"lost: {self.unit}"
        return LineChart(lines, title, unit, x_descends=True, marks=marks if self.prunable else ())

    def to_json(self) -> dict[str, Any]:
        """The quality curve as the page has it."""
        shown = ("cut", "unit", "loss", "limit", "prunable", "heads", "fitted", "judged")
        curves = [
            {"method": x.method, "order": list(x.order), "points": [p.to_json(self.heads) for p in x.points]}
            for x in self.lines
        ]
        return {name: getattr(self, name) for name in shown} | {"curves": curves}


def quick_curve(
    model: nn.Module,
    corpus: Corpus,
    order: Sequence[str],
    loss: Loss,
    *,
    points: int = 11,
    limit: float = LIMIT,
    progress: Callable[[float], None] | None = None,
) -> QualityCurve:
    """Ablate the first heads of `order` together, more and more of them, and find how many stay within `limit`.

    Lost quality is the growth of perplexity, or, for a model without a vocabulary, the squared distance of its
    outputs to the intact model's, relative to their size. Nothing is trained or fitted: real pruning does better.
    """
    count, lost = len(order), dict[int, float]()
    reruns = Reruns()  # one for all passes: a strategy is proven once

    def measure(counts: Sequence[int]) -> None:
        """Measure points of the curve: the quality lost without the first heads of the order."""
        ablated = AblatedSets(loss, [order[:pruned] for pruned in counts], reruns)
        run(model, corpus, [ablated], progress=progress)
        more = ablated.increase()
        lost.update(
            zip(counts, more if loss.is_distance else [math.expm1(min(x, 50.0)) for x in more], strict=True)
        )

    steps = sorted({round(count * i / points) for i in range(points)})
    lost[0] = 0.0
    measure([pruned for pruned in steps if pruned])
    low = max(pruned for pruned in steps if lost[pruned] <= limit)
    high = min((pruned for pruned in steps if pruned > low), default=count)
    while high - low > 1:  # between two points of the curve: the loss mostly grows with every head
        middle = (low + high) // 2
        measure([middle])
        low, high = (middle, high) if lost[middle] <= limit else (low, middle)
    unit = "distance of the outputs (share of their size, squared)" if loss.is_distance else "growth of perplexity"
    line = tuple(CurvePoint(count - pruned, lost[pruned]) for pruned in sorted(lost))
    method = "least important first, nothing refitted"
    return QualityCurve(count, (CurveLine(method, line, tuple(order)),), unit, loss.name, limit)
