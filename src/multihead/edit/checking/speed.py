"""before / after in time: both in every round, in an order drawn anew; the median of the ratio and its interval.

>>> from multihead.edit.checking.speed import side_by_side
>>> side_by_side("sums", lambda: sum(range(20_000)), lambda: sum(range(100)), rounds=5).ratio > 10
True
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from multihead.edit.calibration import Progress
from multihead.edit.checking.median import interval
from multihead.errors import MultiheadError
from multihead.model.anatomy import LayerAnatomy
from multihead.model.compiled import inner
from multihead.model.forward import Forward

Job = Callable[[], object]
SHORTEST = 0.03
"""seconds of one sample: shorter work is repeated"""


@dataclass(frozen=True)
class Timing:
    """Medians over rounds; `ratio` is before / after within a round, above 1 the cut model is faster."""

    name: str
    tokens: int
    batch: int
    before_ms: float
    after_ms: float
    ratio: float
    low: float
    high: float
    rounds: int

    @property
    def verdict(self) -> str:
        return "faster" if self.low > 1 else "slower" if self.high < 1 else "no difference that can be told"


def side_by_side(
    name: str,
    before: Job,
    after: Job,
    *,
    rounds: int = 15,
    tokens: int = 0,
    batch: int = 1,
    progress: Progress | None = None,
) -> Timing:
    """Time two jobs in interleaved rounds: on a shared machine only what happens within a round compares."""
    jobs = (before, after)
    repeats = [_repeats(job) for job in jobs]
    took: tuple[list[float], list[float]] = ([], [])
    order, draw = [0, 1], random.Random(0)
    gc.collect()
    for done in range(rounds):
        draw.shuffle(order)
        for side in order:
            took[side].append(_sample(jobs[side], repeats[side]))
        if progress is not None:
            progress(f"speed: {name}", done + 1, rounds)
    ratios = [a / b for a, b in zip(*took, strict=True)]
    low, high = interval(ratios)
    ms = [1e3 * statistics.median(times) for times in took]
    return Timing(name, tokens, batch, ms[0], ms[1], statistics.median(ratios), low, high, rounds)


def whole_model(
    before: nn.Module,
    after: nn.Module,
    inputs: Mapping[str, Any],
    *,
    rounds: int = 15,
    progress: Progress | None = None,
) -> Timing:
    """One run of all of the model."""
    batch, tokens = _size(inputs)
    old, new = Forward(before), Forward(after)
    with old.listening(), new.listening():
        jobs = old.prepared(inputs), new.prepared(inputs)
        return side_by_side("whole model", *jobs, rounds=rounds, tokens=tokens, batch=batch, progress=progress)


def attention_layers(
    before: nn.Module,
    after: nn.Module,
    layers: Sequence[LayerAnatomy],
    inputs: Mapping[str, Any],
    *,
    rounds: int = 15,
    progress: Progress | None = None,
) -> Timing:
    """The attention modules alone, output projections included, on what the original gives them."""
    batch, tokens = _size(inputs)
    old, new = Forward(inner(before)), Forward(inner(after))
    with old.listening(), new.listening():
        jobs = attention_job(old, layers, inputs), attention_job(new, layers, inputs)
        return side_by_side("attention layers", *jobs, rounds=rounds, tokens=tokens, batch=batch, progress=progress)


def attention_job(forward: Forward, layers: Sequence[LayerAnatomy], inputs: Mapping[str, Any]) -> Job:
    """Call all attention modules of a model, each with the arguments that it gets in one run."""
    places = list(dict.fromkeys(place for layer in layers for place in _modules(layer)))
    try:
        modules = [forward.model.get_submodule(place) for place in places]
    except AttributeError as gone:
        raise MultiheadError(f"the cut model has other modules than the original: {gone}") from gone
    calls: list[tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = []

    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append((module, args, kwargs))

    hooks = [m.register_forward_pre_hook(keep, with_kwargs=True) for m in modules]
    try:
        forward.run(inputs)
    finally:
        for hook in hooks:
            hook.remove()

    def job() -> None:
        for module, args, kwargs in calls:
            module(*args, **kwargs)

    return job


def _modules(layer: LayerAnatomy) -> tuple[str, ...]:
    """The module that attends, and that of W_O where it lies outside of it."""
    out = layer.weights["o"].module
    return (layer.path,) if out == layer.path or out.startswith(f"{layer.path}.") else (layer.path, out)


def _size(inputs: Mapping[str, Any]) -> tuple[int, int]:
    """(rows, tokens) of a batch."""
    first = next((x for x in inputs.values() if isinstance(x, torch.Tensor)), torch.empty(0, 0))
    return first.shape[0], first.shape[1] if first.ndim in (2, 3) else 0


def _repeats(job: Job) -> int:
    job()
    start = time.perf_counter()
    job()
    return max(1, math.ceil(SHORTEST / max(time.perf_counter() - start, 1e-6)))


def _sample(job: Job, repeats: int) -> float:
    """Seconds of one call."""
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(repeats):
            job()
        return (time.perf_counter() - start) / repeats
    finally:
        gc.enable()
