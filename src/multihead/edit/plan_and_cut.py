"""What `multihead prune`, `group` and `curve` do between `mh.plan` and `mh.save`: estimate, plan files, the cut.

>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> import multihead as mh
>>> from multihead.edit.calibration import Calibration
>>> from multihead.edit.plan_and_cut import cut_timed
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=24, vocab_size=50)).eval()
>>> texts = [[(7 * i + j * j) % 50 for j in range(40)] for i in range(40)]
>>> result = cut_timed(model, mh.plan(model, texts, keep=0.5))
>>> result.parameters[0] > result.parameters[1], len(result.record["fits"]) > 0
(True, True)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from multihead._base.estimate import Estimate, ForwardCost, duration
from multihead._base.number_text import number
from multihead._base.progress import Progress
from multihead.edit.calibration import Calibration, anatomy_on
from multihead.edit.cut import cut
from multihead.edit.distill import Distill
from multihead.edit.make_plan import plan as make_plan
from multihead.edit.plan import Plan
from multihead.edit.surgery.record import record_of
from multihead.errors import MultiheadError
from multihead.model.forward import Forward

RUNS = {"obs": 4.0, "fisher": 4.0, "random": 0.0}
"""About how many forward passes over the calibration text a method takes to score the heads."""

GROUPING = 10.0
"""The same, to choose the kv heads that heads share."""


# ---- estimates --------------------------------------------------------------------------------


@dataclass(frozen=True)
class CalibrationCost:
    """Of one forward pass over all of the calibration text."""

    batch: ForwardCost
    batches: float
    """how many times as many tokens as the timed batch the text has"""

    @staticmethod
    def of(model: nn.Module, text: Calibration) -> CalibrationCost:
        first = next(text.fit())
        batches = sum(map(text.tokens_in, text.fit())) / max(1, text.tokens_in(first))
        return CalibrationCost(ForwardCost.of(model, first, Forward(model)), batches)

    def estimate(self, forwards: float) -> Estimate:
        """The model, its copy and the copy that is cut are held, and the activations of all layers."""
        return self.batch.estimate(forwards, self.batches, copies=3, every_layer=True)

    def of_cut(self, *, refit: bool, distill: int = 0, steps: int = 1) -> float:
        """About how many forward passes a cut takes; `steps` batches make a pass."""
        return self.batch.layers * (2.0 if refit else 1.5) + distill * 8.0 / max(1, steps)

    def of_curve(self, points: int, *, refit: bool) -> float:
        """About how many forward passes a curve takes; heads are scored once."""
        return 4 + points * (2 + self.batch.layers * (4 if refit else 1.5))


# ---- plans ------------------------------------------------------------------------------------


def plan_of_file(file: Path | None, requested: Sequence[str], force: bool) -> Plan | None:
    """The plan to cut by, from a file; None if a plan must be made, as `requested` by these options."""
    if file is None or not file.exists() or (force and requested):
        return None
    if requested:
        raise MultiheadError(
            f"{file} holds a plan, and {', '.join(requested)} requests a different one",
            hint="omit the option to use the file, or force=True to replace it",
        )
    return Plan.load(file)


def plan_to_cut(
    model: nn.Module,
    text: Calibration | None,
    stored: Plan | None = None,
    *,
    refit: bool = True,
    distill: Distill | None = None,
    only_plan: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    **request: Any,
) -> Plan:
    """The stored plan, or a new one from a request to `mh.plan`, to be cut with the calibration text.

    Args:
        text: what the plan and the cut are fitted to; None only to check a stored plan.
        only_plan: the estimate is that of the plan alone.
        say: called with the size of the text and an estimate of the work, `refit` and `distill` included.
    """
    if stored is not None:
        stored.check(model)
    if text is None:
        assert stored is not None, "a new plan needs text"
        stored.check_layers(anatomy_on(model, None))
        return stored
    if say is not None:
        cost, runs = CalibrationCost.of(model, text), 0.0
        if stored is None and not request.get("remove"):
            runs = RUNS[request["method"]] if "method" in request else GROUPING
        if not only_plan:
            runs += cost.of_cut(refit=refit, distill=0 if distill is None else distill.steps, steps=len(text))
        say(f"{text.summary}; {cost.estimate(runs)}")
    planned = stored or make_plan(text.model, text, progress=progress, **request)
    return replace(planned, calibration=text)


# ---- the cut ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CutResult:
    """A cut model, and what the cut did."""

    model: nn.Module
    seconds: float
    parameters: tuple[int, int]
    """before and after"""
    record: dict[str, Any] = field(default_factory=dict[str, Any])
    """the fits, and the distillation"""

    def lines(self) -> list[str]:
        """What planning and cutting did: fits and distillation, on held-out documents of the calibration text."""
        lines: list[str] = []
        fits: list[dict[str, Any]] = [fit for fit in self.record.get("fits", []) if fit.get("before")]
        if fits:
            changed = sum(bool(fit.get("kept")) for fit in fits)
            ratios = sorted(fit["after"] / fit["before"] for fit in fits)
            lines.append(
                f"refit: {changed} of {len(fits)} maps changed; held-out error relative to before: "
                f"{number(ratios[len(ratios) // 2], 2)} (median), {number(ratios[-1], 2)} (worst)"
            )
        if distilled := self.record.get("distilled"):
            early = ", stopped early" if distilled["stopped_early"] else ""
            lines.append(
                f"distill: held-out loss {distilled['before']:.4g} → {distilled['after']:.4g}, best at step "
                f"{distilled['best_step']} of {distilled['steps']}{early}, {duration(distilled['seconds'])}"
            )
        return lines


def cut_timed(
    model: nn.Module,
    plan: Plan,
    *,
    refit: bool = True,
    distill: Distill | None = None,
    progress: Progress | None = None,
) -> CutResult:
    """Cut by the plan, with its time and its record."""
    start = time.perf_counter()
    small = cut(model, plan, refit=refit, distill=distill, progress=progress)
    seconds = time.perf_counter() - start
    record = record_of(small)
    before, after = (sum(p.numel() for p in m.parameters()) for m in (model, small))
    return CutResult(small, seconds, (before, after), dict((record.plan if record else None) or {}))
