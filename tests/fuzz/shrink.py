"""The simplest case that still fails in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from fuzz.cases import Call, Case, Change, Mistake
from fuzz.describe import show
from fuzz.findings import Finding
from fuzz.layers import Buckets, Layer, Rope, Slopes
from fuzz.masks import Join, Leaf
from fuzz.run import run


def shrink(case: Case, finding: Finding, *, tries: int = 400) -> Case:
    """Drop and reduce whatever the failure does not need."""
    better = True
    while better and tries > 0:
        better = False
        for simpler in _simpler(case):
            tries -= 1
            if tries <= 0:
                break
            if _size(simpler) < _size(case) and _fails(simpler, finding):
                case, better = simpler, True
                break
    return case


def _fails(case: Case, like: Finding) -> bool:
    try:
        return any(finding.cause == like.cause for finding in run(case))
    except Exception:  # noqa: BLE001  a case that the fuzz cannot run, such as heads that do not divide
        return False


def _size(case: Case) -> tuple[int, int]:
    calls = [step for step in case.steps if isinstance(step, Call)]
    layer = case.layer
    tokens = sum(c.batch + c.queries + (c.keys or 0) for c in calls)
    return len(show(case)), tokens + layer.heads + layer.head_dim + layer.values + layer.d_model


def _simpler(case: Case) -> Iterator[Case]:
    for i in range(len(case.steps)):
        if len(case.steps) > 1:
            yield replace(case, steps=case.steps[:i] + case.steps[i + 1 :])
    for name in ("cache", "cells", "first", "mode", "window"):
        yield replace(case, **{name: _default(Case, name)})
    for layer in _simpler_layers(case.layer):
        yield replace(case, layer=layer)
    for i, step in enumerate(case.steps):
        for other in _simpler_steps(step):
            yield replace(case, steps=(*case.steps[:i], other, *case.steps[i + 1 :]))
    yield replace(case, mode="no_grad")


def _simpler_layers(layer: Layer) -> Iterator[Layer]:
    for f in fields(Layer):
        if getattr(layer, f.name) != f.default:
            yield replace(layer, **{f.name: f.default})
    yield replace(layer, kv_of_head=None, kv_heads=None)
    if isinstance(layer.position, Rope | Slopes | Buckets):
        for f in fields(layer.position):
            yield replace(layer, position=replace(layer.position, **{f.name: f.default}))
    if not isinstance(layer.position, Slopes) or layer.position.slopes is None:
        yield replace(layer, heads=1, kv_heads=None, kv_of_head=None)


def _simpler_steps(step: Call | Change | Mistake) -> Iterator[Call | Change | Mistake]:
    if not isinstance(step, Call):
        for seed in range(4):
            yield replace(step, seed=seed)
        return
    yield replace(step, keys=None, form="query")
    for f in fields(Call):
        if getattr(step, f.name) != f.default and (f.name != "form" or step.keys is None) and f.name != "keys":
            yield replace(step, **{f.name: f.default})
    for name in ("batch", "queries", "keys"):
        for count in range(getattr(step, name) or 0):
            yield replace(step, **{name: count})
    for mask in _simpler_masks(step.mask):
        yield replace(step, mask=mask)
    for ask in step.ask:
        yield replace(step, ask=(ask,))


def _simpler_masks(mask: Leaf | Join | None) -> Iterator[Leaf | Join]:
    if isinstance(mask, Leaf):
        for seed in range(8):
            yield Leaf(mask.kind, seed)
        for kind in ("causal", "ragged", "lengths", "padding"):
            yield Leaf(kind, 0)
    elif mask is not None:
        yield from mask.parts
        for i, part in enumerate(mask.parts):
            if len(mask.parts) > 2:
                yield Join(mask.how, mask.parts[:i] + mask.parts[i + 1 :])
            for other in _simpler_masks(part):
                yield Join(mask.how, (*mask.parts[:i], other, *mask.parts[i + 1 :]))


def _default(kind: type, name: str) -> Any:
    return next(f.default for f in fields(kind) if f.name == name)
