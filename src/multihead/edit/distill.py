"""Distil the original into the cut model: some steps of gradient descent on the calibration text, no labels.

The loss is the distance of `distill_loss`: of the states of every block and of the model's output. Half of the
documents are spliced from two (`augment`). By default only attention parameters learn. The state that is best on
the held-out documents is kept, including the one before the first step: distillation never makes them worse.

>>> import copy, torch
>>> from multihead.edit.calibration import Calibration
>>> from multihead.edit.distill import Distill, distill
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 2, 24, 0, batch_first=True), 2).eval()
>>> text = Calibration(model, [{"src": torch.randn(8, 7, 12)} for _ in range(8)])
>>> worse = copy.deepcopy(model)
>>> with torch.no_grad():
...     _ = worse.layers[0].self_attn.out_proj.weight.mul_(0.5)
>>> result = distill(model, worse, text, Distill(steps=40, lr=1e-2))
>>> result.after < 0.5 * result.before
True
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from multihead._base.arguments import check_count, check_number
from multihead._base.eval_mode import eval_mode
from multihead._base.progress import Progress
from multihead.edit.calibration import Calibration, anatomy_on
from multihead.edit.distill_loss import DistillLoss
from multihead.edit.splice_documents import endless
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.model.compiled import inner
from multihead.model.layer_anatomy import LayerAnatomy

BATCHES = 2
"""Batches of a step."""
WARMUP = 0.1
"""The share of the steps in which the rate rises; then it falls along a cosine."""
CLIP = 1.0
"""The largest norm of a gradient."""
AVERAGE = 0.95
"""The share of its past in the running mean of the weights, which is judged and kept."""
SPLICED = 0.5
"""The share of documents that are spliced from two."""
PATIENCE = 4
"""Judgements without a gain that end the training."""


@dataclass(frozen=True)
class Distill:
    """How to distil: steps of AdamW at the learning rate `lr`, on attention parameters or on all.

    >>> import multihead as mh
    >>> from multihead.edit import Distill
    >>> model, tokenizer = mh.embedded()
    >>> plan = mh.plan(model, tokenizer.sample_texts(), tokenizer=tokenizer, keep=0.5)
    >>> small = mh.cut(model, plan, distill=Distill(steps=2))
    """

    steps: int = 150
    lr: float = 3e-4
    parameters: Literal["attention", "all"] = "attention"

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_number("lr", self.lr, above=0)
        if self.parameters not in ("attention", "all"):
            raise SizeError(f'parameters must be "attention" or "all", got {self.parameters!r}')


@dataclass(frozen=True)
class Distilled:
    """The loss on held-out documents before and after, and the steps."""

    before: float
    after: float
    best_step: int
    """the step whose state was kept; 0: none was better than the state before"""
    steps: int
    stopped_early: bool
    parameters: int
    seconds: float


def distill(
    teacher: nn.Module,
    student: nn.Module,
    calibration: Calibration,
    options: Distill | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Distilled:
    """Train the student, in place, to compute what the teacher does on the calibration text."""
    options = options or Distill()
    layers = list(anatomy_on(teacher, calibration))
    learning = _learning(student, layers, options.parameters)
    started = time.perf_counter()
    # `Forward` ends with the run: the backward pass needs eval mode too, and all other parameters stay frozen.
    with eval_mode(teacher), eval_mode(student), _able(learning.values()):
        loss = DistillLoss(teacher, student, layers, next(calibration.fit()))
        before = loss.over(calibration.held_out())
        best = _Best(before, learning)
        steps = _train(loss, calibration, options, best, seed, progress)
        best.put_back()
    parameters = sum(p.numel() for p in learning.values())
    seconds = time.perf_counter() - started
    return Distilled(before, best.loss, best.step, steps, steps < options.steps, parameters, seconds)


def _train(
    loss: DistillLoss,
    calibration: Calibration,
    options: Distill,
    best: _Best,
    seed: int,
    progress: Progress | None,
) -> int:
    """Distil until all steps are taken or nothing improves any more; returns the number of steps."""
    optimizer = torch.optim.AdamW(best.learning.values(), lr=options.lr, betas=(0.9, 0.98), weight_decay=0.0)
    batches = endless(list(calibration.fit()), SPLICED, random.Random(seed))
    mean = EMA(best.learning.values(), AVERAGE)
    every = max(5, options.steps // 12)
    waited = 0
    for step in range(1, options.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = options.lr * rate(step, options.steps, WARMUP)
        optimizer.zero_grad()
        for _ in range(BATCHES):
            (loss(next(batches)) / BATCHES).backward()
        norm = nn.utils.clip_grad_norm_(list(best.learning.values()), CLIP)
        if not bool(norm.isfinite()):
            raise MultiheadError(
                f"the gradient of step {step} has the norm {float(norm)}", hint=f"use an lr below {options.lr:g}"
            )
        optimizer.step()
        mean.update(step)
        if progress is not None:
            progress("distill", step, options.steps)
        if step % every == 0 or step == options.steps:
            with mean.swapped_in():
                better = best.take(loss.over(calibration.held_out()), step)
            waited = 0 if better else waited + 1
            if waited >= PATIENCE:
                return step
    return options.steps


def rate(step: int, steps: int, warmup: float) -> float:
    """The share of the learning rate at a distillation step from 1: a line up, a cosine down to nearly 0."""
    up = max(1, round(warmup * steps))
    if step <= up:
        return step / up
    return 0.5 * (1 + math.cos(math.pi * (step - up) / (steps - up + 1)))


class EMA:
    """m ← a m + (1 − a) p after every step (Polyak and Juditsky 1992): steps that are too long cancel out.

    At first a is smaller, (1 + t) / (10 + t), so the mean soon forgets where it began.
    """

    def __init__(self, learning: Iterable[nn.Parameter], average: float) -> None:
        self.learning, self.average = list(learning), average
        self.mean = [p.detach().clone() for p in self.learning]

    def update(self, step: int) -> None:
        for mean, p in zip(self.mean, self.learning, strict=True):
            mean.lerp_(p.detach(), 1 - min(self.average, (1 + step) / (10 + step)))

    @contextmanager
    def swapped_in(self) -> Generator[None]:
        """Inside the block the distilled parameters are their mean over steps."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        """Swap the distilled parameters and their means."""
        with torch.no_grad():
            for mean, p in zip(self.mean, self.learning, strict=True):
                now = p.clone()
                p.copy_(mean)
                mean.copy_(now)


class _Best:
    """The learning parameters as they were when the held-out loss was least."""

    def __init__(self, loss: float, learning: dict[str, nn.Parameter]) -> None:
        self.loss, self.step, self.learning = loss, 0, learning
        self._kept = self._copy()

    def take(self, loss: float, step: int) -> bool:
        """Keep the distilled parameters if their loss is the lowest."""
        if not loss < self.loss:
            return False
        self.loss, self.step, self._kept = loss, step, self._copy()
        return True

    def put_back(self) -> None:
        """Restore the distilled parameters with the lowest loss."""
        with torch.no_grad():
            for name, p in self.learning.items():
                p.copy_(self._kept[name])
                p.grad = None

    def _copy(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.learning.items()}


def _learning(
    student: nn.Module, layers: Sequence[LayerAnatomy], which: Literal["attention", "all"]
) -> dict[str, nn.Parameter]:
    """The parameters to distil: of modules that call the kernel or hold W_O, or all."""
    inside = {place for x in layers for place in (x.path, *(p.module for p in x.weights.values()))}
    listed = dict(inner(student).named_parameters())
    if which == "attention" and "" not in inside:
        listed = {n: p for n, p in listed.items() if any(n.startswith(f"{place}.") for place in inside)}
    listed = {n: p for n, p in listed.items() if p.is_floating_point()}
    if not listed:
        raise MultiheadError("no parameter of attention can be trained", hint='parameters="all" trains the rest')
    low = next((n for n, p in listed.items() if p.dtype not in (torch.float32, torch.float64)), None)
    if low is not None:
        raise TypeMismatchError(
            f"{low} is {listed[low].dtype}, which is too coarse for the steps of distillation",
            hint="load and cut the model in float32 and convert it afterwards",
        )
    return listed


@contextmanager
def _able(parameters: Iterable[nn.Parameter]) -> Generator[None]:
    """Inside the block the parameters to distil require gradients; after it only those that did before."""
    able = [p for p in parameters if not p.requires_grad]
    for p in able:
        p.requires_grad = True
    try:
        with torch.enable_grad():
            yield
    finally:
        for p in able:
            p.requires_grad = False
