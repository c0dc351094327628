"""Distil the original into the cut model: some steps of gradient descent on the calibration text, no labels.

What is made smaller is the `distance`: of the states of every block, of what comes out, and where `relations` count
of which documents are near each other. Documents are mixed, so that there are more of them (`mixing`). Only
attention parameters learn unless told otherwise. The state that is best on the held-out documents is kept, the one
before the first step included: healing never makes them worse.

>>> import copy, torch
>>> from multihead.edit.fitting.calibration import Calibration
>>> from multihead.edit.fitting.heal import Heal, heal
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 2, 24, 0, batch_first=True), 2).eval()
>>> text = Calibration(model, [{"src": torch.randn(8, 7, 12)} for _ in range(8)])
>>> hurt = copy.deepcopy(model)
>>> with torch.no_grad():
...     _ = hurt.layers[0].self_attn.out_proj.weight.mul_(0.5)
>>> done = heal(model, hurt, text, Heal(steps=40, lr=1e-2), example={"src": torch.randn(1, 3, 12)})
>>> done.after < 0.5 * done.before
True
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from multihead._base.eval_mode import eval_mode
from multihead.edit.fitting.calibration import Calibration
from multihead.edit.fitting.distance import Distance
from multihead.edit.fitting.mixing import endless
from multihead.edit.fitting.refit import Progress
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.model.anatomy import LayerAnatomy, anatomy
from multihead.model.compiled import inner


@dataclass(frozen=True)
class Heal:
    """How to distil: `batches` of the calibration text make a step, `patience` looks without a gain stop it."""

    steps: int = 150
    lr: float = 3e-4
    warmup: float = 0.1
    """share of the steps in which the rate rises; then it falls along a cosine"""
    batches: int = 2
    clip: float = 1.0
    weight_decay: float = 0.0
    average: float = 0.95
    """what is judged and kept is a running mean of the weights, with this share of its past at every step"""
    hidden: float = 1.0
    """how much the blocks count beside what comes out"""
    relations: float = 0.0
    """how much it counts which documents are near each other; of models that put out vectors"""
    mix: float = 0.5
    """share of the documents that are the beginning of one and the end of another: more text out of the same"""
    parameters: Literal["attention", "all"] = "attention"
    judge_every: int | None = None
    """steps between two looks at the held-out documents; left out, a twelfth of all, at least 5"""
    patience: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batches < 1 or self.patience < 1:
            raise SizeError(
                f"steps={self.steps}, batches={self.batches} and patience={self.patience} must be 1 or more",
                hint="no healing is heal=None",
            )
        if not (self.lr > 0 and math.isfinite(self.lr)) or not 0 <= self.warmup < 1:
            raise SizeError(f"lr={self.lr} and warmup={self.warmup} are no rates", hint="lr=3e-4, warmup=0.1")
        if min(self.hidden, self.relations) < 0:
            raise SizeError(f"hidden={self.hidden:g} and relations={self.relations:g} are 0 or more")
        if not 0 <= self.average < 1:
            raise SizeError(
                f"average={self.average:g} is no share of the past", hint="0 keeps the weights of the step"
            )
        if not 0 <= self.mix <= 1:
            raise SizeError(f"mix={self.mix:g} is no share of the documents", hint="0 mixes none, 1 all of them")
        if self.parameters not in ("attention", "all"):
            raise SizeError(f"parameters={self.parameters!r} is not known", hint="choose attention or all")


@dataclass(frozen=True)
class Healed:
    """What it did: the loss on held-out documents before and after, and how far it went."""

    before: float
    after: float
    best_step: int
    """the step whose state was kept; 0: none was better than what was there"""
    steps: int
    stopped_early: bool
    parameters: int
    seconds: float


def heal(
    teacher: nn.Module,
    student: nn.Module,
    calibration: Calibration,
    options: Heal | None = None,
    *,
    layers: Iterable[LayerAnatomy] | None = None,
    example: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Healed:
    """Train the student, in place, to be like the teacher on the calibration text.

    Args:
        layers: the teacher's anatomy, where it is known; `example`: what it is found with, where it is not.
    """
    asked = options or Heal()
    found = list(layers) if layers is not None else list(anatomy(teacher, example))
    learning = _learning(student, found, asked.parameters)
    started = time.perf_counter()
    # `Forward` ends with the run: the backward pass needs eval mode too, and all other parameters stay frozen.
    with eval_mode(teacher), eval_mode(student), _able(learning.values()):
        apart = Distance(teacher, student, found, calibration.fit(), hidden=asked.hidden, relations=asked.relations)
        before = apart.over(calibration.held_out())
        best = _Best(before, learning)
        done = _train(apart, calibration, asked, best, progress)
        best.put_back()
    return Healed(
        before, best.loss, best.step, done, done < asked.steps,
        sum(p.numel() for p in learning.values()), time.perf_counter() - started,
    )  # fmt: skip


def _train(apart: Distance, calibration: Calibration, asked: Heal, best: _Best, progress: Progress | None) -> int:
    """Step until all are done or nothing got better for a while; the number of steps."""
    optimizer = torch.optim.AdamW(
        best.learning.values(), lr=asked.lr, betas=(0.9, 0.98), weight_decay=asked.weight_decay
    )
    read = endless(list(calibration.fit()), asked.mix, random.Random(asked.seed))
    mean = Mean(best.learning.values(), asked.average)
    every = asked.judge_every or max(5, asked.steps // 12)
    waited = 0
    for step in range(1, asked.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = asked.lr * rate(step, asked.steps, asked.warmup)
        optimizer.zero_grad()
        for _ in range(asked.batches):
            (apart(next(read)) / asked.batches).backward()
        size = nn.utils.clip_grad_norm_(list(best.learning.values()), asked.clip)
        if not bool(size.isfinite()):
            raise MultiheadError(
                f"the gradient of step {step} is {float(size)}", hint=f"a smaller lr than {asked.lr:g}"
            )
        optimizer.step()
        mean.take(step)
        if progress is not None:
            progress("heal", step, asked.steps)
        if step % every == 0 or step == asked.steps:
            with mean.instead():
                better = best.take(apart.over(calibration.held_out()), step)
            waited = 0 if better else waited + 1
            if waited >= asked.patience:
                return step
    return asked.steps


def rate(step: int, steps: int, warmup: float) -> float:
    """The share of the learning rate at a step from 1: up in a line, down along a cosine to nearly 0."""
    up = max(1, round(warmup * steps))
    if step <= up:
        return step / up
    return 0.5 * (1 + math.cos(math.pi * (step - up) / (steps - up + 1)))


class Mean:
    """m ← a m + (1 − a) p after every step (Polyak and Juditsky 1992): steps that are too long cancel out.

    At first a is smaller, (1 + t) / (10 + t), so that where it began is soon forgotten.
    """

    def __init__(self, learning: Iterable[nn.Parameter], average: float) -> None:
        self.learning, self.average = list(learning), average
        self.mean = [p.detach().clone() for p in self.learning]

    def take(self, step: int) -> None:
        for mean, p in zip(self.mean, self.learning, strict=True):
            mean.lerp_(p.detach(), 1 - min(self.average, (1 + step) / (10 + step)))

    @contextmanager
    def instead(self) -> Generator[None]:
        """Within the block the parameters are the mean."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
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
        if not loss < self.loss:
            return False
        self.loss, self.step, self._kept = loss, step, self._copy()
        return True

    def put_back(self) -> None:
        with torch.no_grad():
            for name, p in self.learning.items():
                p.copy_(self._kept[name])
                p.grad = None

    def _copy(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in self.learning.items()}


def _learning(
    student: nn.Module, layers: Sequence[LayerAnatomy], which: Literal["attention", "all"]
) -> dict[str, nn.Parameter]:
    """The parameters that learn: of the modules that call the kernel and of those that hold W_O, or all."""
    inside = {place for x in layers for place in (x.path, *(p.module for p in x.weights.values()))}
    listed = dict(inner(student).named_parameters())
    if which == "attention" and "" not in inside:
        listed = {n: p for n, p in listed.items() if any(n.startswith(f"{place}.") for place in inside)}
    listed = {n: p for n, p in listed.items() if p.is_floating_point()}
    if not listed:
        raise MultiheadError(
            "there are no parameters of attention to heal", hint='parameters="all" trains the rest'
        )
    low = next((n for n, p in listed.items() if p.dtype not in (torch.float32, torch.float64)), None)
    if low is not None:
        raise TypeMismatchError(
            f"{low} is {listed[low].dtype}: steps of healing are smaller than what it can hold",
            hint="load and cut the model in float32 and convert it afterwards",
        )
    return listed


@contextmanager
def _able(parameters: Iterable[nn.Parameter]) -> Generator[None]:
    """Within the block these learn; afterwards those that did not before do not again."""
    able = [p for p in parameters if not p.requires_grad]
    for p in able:
        p.requires_grad = True
    try:
        with torch.enable_grad():
            yield
    finally:
        for p in able:
            p.requires_grad = False
