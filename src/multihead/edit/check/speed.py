"""Time two models side by side: both in every round, in a random order; the median ratio and its interval.

>>> from multihead.edit.check.speed import side_by_side
>>> side_by_side("sums", lambda: sum(range(20_000)), lambda: sum(range(100)), rounds=5).ratio > 10
True
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from multihead._base.progress import Progress
from multihead.errors import MultiheadError
from multihead.model.compiled import inner
from multihead.model.forward import Forward
from multihead.model.layer_anatomy import LayerAnatomy
from multihead.model.model_inputs import documents_in
from multihead.model.token_count import TokenCount

Job = Callable[[], object]
SHORTEST = 0.03
"""Seconds of one sample: shorter work is repeated."""


@dataclass(frozen=True)
class Timing:
    """Medians over rounds. `ratio` is before / after within a round: above 1 the cut model is faster."""

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
        return "faster" if self.low > 1 else "slower" if self.high < 1 else "no measurable difference"


def side_by_side(
    name: str,
    before: Job,
    after: Job,
    *,
    rounds: int = 15,
    tokens: int = 0,
    batch: int = 1,
    wait: Job = lambda: None,
    progress: Progress | None = None,
) -> Timing:
    """Time two jobs in interleaved rounds: on a shared machine only times of the same round are comparable.

    `wait` returns when the work that a job has queued on its device is done.
    """
    jobs = (before, after)
    repeats = [_repeats(job, wait) for job in jobs]
    seconds: tuple[list[float], list[float]] = ([], [])
    order, draw = [0, 1], random.Random(0)
    gc.collect()
    for i in range(rounds):
        draw.shuffle(order)
        for side in order:
            seconds[side].append(_sample(jobs[side], repeats[side], wait))
        if progress is not None:
            progress(f"speed: {name}", i + 1, rounds)
    ratios = [a / b for a, b in zip(*seconds, strict=True)]
    low, high = interval(ratios)
    ms = [1e3 * statistics.median(times) for times in seconds]
    return Timing(name, tokens, batch, ms[0], ms[1], statistics.median(ratios), low, high, rounds)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """An interval of the speed ratio that holds the true median with at least 95 %, for any distribution.

    >>> interval([float(x) for x in range(1, 12)])
    (2.0, 10.0)
    """
    n, ordered, tail, k = len(values), sorted(values), 0.0, 0
    while k < n // 2:
        tail += math.comb(n, k) / 2**n
        if tail > 0.025:
            break
        k += 1
    return ordered[max(k, 1) - 1], ordered[n - max(k, 1)]


def synchronize(device: torch.device) -> Job:
    """The function that waits, before a time is read, for the work queued on a device.

    A call on an accelerator returns before its kernels have run, so a clock without this measures the launch. The
    CPU computes within the call.
    """
    if device.type in ("cpu", "meta"):
        return lambda: None
    module = torch.get_device_module(device)
    return module.synchronize if device.type == "mps" else lambda: module.synchronize(device)


def _synchronize_all(*models: nn.Module) -> Job:
    """The function that waits for every device that holds parameters of the models."""
    waits = [synchronize(device) for device in sorted({p.device for m in models for p in m.parameters()}, key=str)]

    def wait() -> None:
        for one in waits:
            one()

    return wait


def whole_model(
    before: nn.Module,
    after: nn.Module,
    inputs: Mapping[str, Any],
    *,
    rounds: int = 15,
    progress: Progress | None = None,
) -> Timing:
    """Time one forward pass of each model."""
    old, new = Forward(before), Forward(after)
    with old.listening(), new.listening():
        return _timing(
            "whole model", (old, new), old.prepared(inputs), new.prepared(inputs), inputs, rounds, progress
        )


def attention_layers(
    before: nn.Module,
    after: nn.Module,
    layers: Sequence[LayerAnatomy],
    inputs: Mapping[str, Any],
    *,
    rounds: int = 15,
    progress: Progress | None = None,
) -> Timing:
    """The attention modules of each model alone, output projections included, on the arguments of one pass."""
    old, new = Forward(inner(before)), Forward(inner(after))
    with old.listening(), new.listening():
        jobs = attention_job(old, layers, inputs), attention_job(new, layers, inputs)
        return _timing("attention layers", (old, new), *jobs, inputs, rounds, progress)


def attention_job(forward: Forward, layers: Iterable[LayerAnatomy], inputs: Mapping[str, Any]) -> Job:
    """A job to time: all attention modules of a model, with the arguments that they get in one run."""
    paths = list(dict.fromkeys(path for layer in layers for path in _module_paths(layer)))
    try:
        modules = [forward.model.get_submodule(path) for path in paths]
    except AttributeError as error:
        raise MultiheadError(
            f"after must have the attention modules of before: {error}", hint="compare a model with its cut copy"
        ) from error
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


def _timing(
    name: str,
    models: tuple[Forward, Forward],
    before: Job,
    after: Job,
    inputs: Mapping[str, Any],
    rounds: int,
    progress: Progress | None,
) -> Timing:
    """Time two jobs side by side, and describe the sizes."""
    batch = documents_in(inputs)
    tokens = TokenCount(models[0].model, whole=True)(inputs) // batch
    wait = _synchronize_all(*(f.model for f in models))
    return side_by_side(
        name, before, after, rounds=rounds, tokens=tokens, batch=batch, wait=wait, progress=progress
    )


def _module_paths(layer: LayerAnatomy) -> tuple[str, ...]:
    """The attention module, and that of W_O if it lies outside."""
    out = layer.weights["o"].module
    return (layer.path,) if out == layer.path or out.startswith(f"{layer.path}.") else (layer.path, out)


def _repeats(job: Job, wait: Job) -> int:
    job()
    return max(1, math.ceil(SHORTEST / max(_sample(job, 1, wait), 1e-6)))


def _sample(job: Job, repeats: int, wait: Job) -> float:
    """Seconds of one timed call of a model."""
    gc.disable()
    try:
        wait()
        start = time.perf_counter()
        for _ in range(repeats):
            job()
        wait()
        return (time.perf_counter() - start) / repeats
    finally:
        gc.enable()
