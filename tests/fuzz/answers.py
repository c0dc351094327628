"""The same calls by the package and by the dense oracle, with the gradients of all that wants one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fuzz import dense
from fuzz.findings import Numbers
from fuzz.scene import Moved, Ready, Scene, Step
from multihead import cache
from multihead.layer import Ask, Cells


def answered(scene: Scene, ready: Ready, kept: cache.Cache | None, route: str | None, **inputs: Tensor) -> Numbers:
    """The result of the package."""
    call = ready.call
    query = inputs.get("query", ready.query)
    if (
        kept is not None and call.poison and scene.case.mode != "grad"
    ):  # nobody may read the padding of a ragged call
        query = torch.where(ready.real[..., None], query, torch.nan)
    key, value = inputs.get("key", ready.key), inputs.get("value", ready.value)
    if ready.unbatched:
        query = query[0]
        key, value = (None if x is None else _row(x, ready) for x in (key, value))
    if key is None and call.keys is None:
        key, value = {"query": (None, None), "query, query": (query, None)}.get(call.form, (query, query))
    arguments: dict[str, Any] = {
        "mask": ready.sight.mask, "cache": kept, "positions": ready.positions, "head_gate": ready.gate,
        "route": route,
    }  # fmt: skip
    if call.ask:
        cells = (
            Cells(heads=[0], rows=[-1] if call.queries else []) if "cells" in call.ask else "weights" in call.ask
        )
        arguments["ask"] = Ask(weights=cells, lse="lse" in call.ask, heads="heads" in call.ask)
    with torch.set_grad_enabled(scene.case.mode == "grad" and not call.frozen):
        result = scene.module(query, key, value, **{k: v for k, v in arguments.items() if v is not None})
    if not call.ask:
        return {"out": _batched(result, ready)}
    named = {"out": result.out, "weights": result.weights, "lse": result.lse, "heads": result.heads}
    return {name: _batched(x, ready) for name, x in named.items() if x is not None}


def _row(x: Tensor, ready: Ready) -> Tensor:
    """x[0], the same object for every call: a Cross cache knows its key again."""
    return ready.rows.setdefault(id(x), x[0])


def _batched(x: Tensor, ready: Ready) -> Tensor:
    return x[None] if ready.unbatched else x


def expected(scene: Scene, steps: list[Step]) -> Numbers:
    """The results and gradients of the oracle."""
    calls = [step for step in steps if isinstance(step, Ready)]
    exact = with_gradients(scene, calls, oracle(scene, steps, torch.float64))
    if not scene.case.layer.single:
        return exact
    rounded = with_gradients(scene, calls, oracle(scene, steps, torch.float32))
    return exact | {f"error of {name}": (x - rounded[name]).abs() for name, x in exact.items()}


def oracle(scene: Scene, steps: list[Step], dtype: torch.dtype) -> list[Numbers]:
    """The results of all calls by the dense einsum."""
    parameters = {name: p.to(dtype) for name, p in scene.parameters.items()}
    memory, results = dense.Memory(), []
    for step in steps:
        if isinstance(step, Moved) and not step.refused:
            argument = step.argument.tolist() if isinstance(step.argument, Tensor) else step.argument
            getattr(memory, step.how)(*([] if argument is None else [argument]))
        if isinstance(step, Ready):
            with torch.set_grad_enabled(scene.case.mode == "grad" and not step.call.frozen):
                results.append(_asked(step, _dense(scene, step, memory, parameters, dtype)))
    return results


def _dense(
    scene: Scene, ready: Ready, memory: dense.Memory, parameters: dense.Parameters, dtype: torch.dtype
) -> dense.Answer:
    """One call. A ring is a cache that grows, under a window."""
    case, layer, room = scene.case, scene.case.layer, ready.sight.room
    q = dense.queries_of(layer, parameters, ready.query.to(dtype), ready.query_at, ready.length)
    k, v, filled = _keys_and_values(scene, ready, memory, parameters, dtype)
    allowed = ready.sight.allowed() & filled[:, None, None, :]
    if case.cache == "ring":
        near = (room.k > room.q - case.window) & (room.k <= room.q)
        allowed = allowed & (near | (room.k < case.first))
    return dense.attend(
        layer, parameters, q, k, v,
        allowed=allowed, added=ready.sight.added(dtype), query_at=ready.query_at, key_at=ready.bias_key_at,
        gate=None if ready.gate is None else ready.gate.to(dtype),
    )  # fmt: skip


def _keys_and_values(
    scene: Scene, ready: Ready, memory: dense.Memory, parameters: dense.Parameters, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """(k, v, which slots hold a key) of a call, those in the cache included."""
    layer, room, kept = scene.case.layer, ready.sight.room, scene.case.cache
    if kept != "cross" or not memory.k:
        key = (ready.query if ready.key is None else ready.key).to(dtype)
        k = dense.keys_of(layer, parameters, key, ready.key_at, ready.length)
        v = dense.values_of(layer, parameters, key if ready.value is None else ready.value.to(dtype))
        if kept is None or room.batch == 0:
            return k, v, torch.ones(room.batch, k.shape[2], dtype=torch.bool)
        memory.append(k, v, [k.shape[2]] * room.batch if kept == "cross" else ready.counts)
    return memory.padded(room.keys)


def _asked(ready: Ready, answer: dense.Answer) -> Numbers:
    found, ask = {"out": answer.out}, ready.call.ask
    if "cells" in ask:
        found["weights"] = answer.weights[:, :1, -1:]
    elif "weights" in ask:
        found["weights"] = answer.weights
    found |= {name: getattr(answer, name) for name in ("lse", "heads") if name in ask}
    return found


def with_gradients(scene: Scene, calls: list[Ready], results: list[Numbers]) -> Numbers:
    """All results by name, and the gradients of everything that wants one."""
    numbers: Numbers = {}
    for i, result in enumerate(results):
        for name, x in result.items():
            if name == "weights" and calls[i].slots:
                continue
            numbers[name if len(results) == 1 else f"{name} of call {i}"] = x.detach()
    if scene.case.mode != "grad" or all(ready.call.frozen for ready in calls):
        return numbers
    leaves = dict(scene.parameters)
    for i, ready in enumerate(calls):
        leaves |= {name if len(calls) == 1 else f"{name} of call {i}": x for name, x in ready.leaves().items()}
    grads = torch.autograd.grad(
        loss(results, calls), list(leaves.values()), allow_unused=True, materialize_grads=True
    )
    return numbers | {f"gradient of {name}": grad for name, grad in zip(leaves, grads, strict=True)}


def loss(results: list[Numbers], calls: list[Ready]) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for ready, result in zip(calls, results, strict=True):
        for name, x in result.items():
            if name != "lse" and not (name == "weights" and ready.slots):
                generator = torch.Generator().manual_seed(ready.call.seed)
                total = total + (x * torch.randn(x.shape, generator=generator, dtype=torch.float64)).sum()
    return total
