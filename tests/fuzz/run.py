"""Run a case by the package and by the oracle, and list the differences."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import multihead as mh
from blocks import blocks_of
from fuzz.answers import answered, expected, loss, with_gradients
from fuzz.cases import Case
from fuzz.findings import Finding, Numbers, compare, distinct, error_finding, refuses
from fuzz.mistakes import MISTAKES
from fuzz.scene import Moved, Ready, Scene, Step, Wrong, realise
from fuzz.transforms import transformed
from multihead import cache


def run(case: Case) -> list[Finding]:
    """Everything that is wrong with a case, each cause once."""
    with _mode(case.mode), blocks_of(case.cells) if case.cells else contextlib.nullcontext():
        scene = realise(case)
        if case.transform is not None:
            return distinct(transformed(scene))
        return distinct(_cached(scene) if case.cache else _plain(scene))


# ---- calls without a cache ------------------------------------------------------------------------


def _plain(scene: Scene) -> Iterator[Finding]:
    for step in scene.steps:
        if isinstance(step, Wrong):
            yield from _mistake(scene, step, None)
        elif isinstance(step, Ready):
            for version in (0, 1) if step.call.changed and step.sight.changes else (0,):
                step.sight.change(version)
                yield from _one(scene, step, "" if version == 0 else " after its mask was changed in place")


def _one(scene: Scene, ready: Ready, when: str) -> Iterator[Finding]:
    """One call, by the default route and by the named one, and again with poison in the hidden tokens."""
    want = expected(scene, [ready])
    for route in dict.fromkeys((None, ready.call.route)):
        try:
            result = answered(scene, ready, None, route)
            got = with_gradients(scene, [ready], [result])
        except Exception as error:  # noqa: BLE001  any error is a finding
            if not refuses(error, route):
                yield error_finding(error, when)
            continue
        yield from compare(got, want, when)
    bad = _hidden(ready) if ready.call.poison else None
    if bad is not None and bool(bad.any()):
        yield from _poisoned(scene, ready, bad, want, when)


def _hidden(ready: Ready) -> Tensor:
    """(batch, token) of the keys that no query of their row may see."""
    return ~ready.sight.allowed().any(2).any(1)


def _poisoned(scene: Scene, ready: Ready, bad: Tensor, want: Numbers, when: str) -> Iterator[Finding]:
    """NaN and inf in hidden keys and values reach no output, and no gradient of another token."""
    key_side = ready.key is not None
    # A token of self-attention asks as well, unless it is padding of a ragged batch.
    asks = torch.zeros_like(ready.real) if key_side else bad & ready.real
    names = ("key", "value") if key_side else ("query",)
    draw = torch.Generator().manual_seed(ready.call.seed)
    value = (torch.nan, torch.inf, -torch.inf)[int(torch.randint(3, (), generator=draw))]
    inputs = {name: getattr(ready, name) for name in ("query", "key", "value")}
    dirty = {
        name: x.detach().masked_fill(bad[..., None], value).requires_grad_(x.requires_grad) if name in names else x
        for name, x in inputs.items()
        if x is not None
    }
    for route in dict.fromkeys((None, ready.call.route)):
        try:
            out = answered(scene, ready, None, route, **dirty)["out"]
            clean = out.masked_fill(asks[..., None], 0.0)
            expected_out = {**want, "out": want["out"].masked_fill(asks[..., None], 0.0)}
            yield from compare({"out": clean.detach()}, expected_out, when + " (poison)")
            if asks.any() or not clean.requires_grad or set(ready.call.ask) - {"lse"}:
                continue
            leaves = {name: x for name, x in dirty.items() if x.requires_grad}
            grads = torch.autograd.grad(
                loss([{"out": out}], [ready]), list(leaves.values()), allow_unused=True, materialize_grads=True
            )
            got = {
                f"gradient of {name}": grad.masked_fill(bad[..., None], 0.0) if name in names else grad
                for name, grad in zip(leaves, grads, strict=True)
            }
            yield from compare(got, want, when + " (poison)")
        except Exception as error:  # noqa: BLE001
            if not refuses(error, route):
                yield error_finding(error, when + " (poison)")


# ---- calls that share a cache ---------------------------------------------------------------------


def _cached(scene: Scene) -> Iterator[Finding]:
    calls = [step for step in scene.steps if isinstance(step, Ready)]
    want = expected(scene, scene.steps)
    routes = [False, True] if any(ready.call.route for ready in calls) else [False]
    for named in routes:
        kept, results = scene.new_cache(), []
        assert kept is not None
        for step in scene.steps:
            stop = False
            for finding in _cached_step(scene, step, kept, named, results):
                yield finding
                stop |= finding.kind in ("crash", "refused", "accepted", "cache changed")
            if stop:  # what the cache holds from here on is anyone's guess
                break
        else:
            try:
                got = with_gradients(scene, calls, results)
            except Exception as error:  # noqa: BLE001
                yield error_finding(error, " in the backward")
                continue
            yield from compare(got, want, "")


def _cached_step(
    scene: Scene, step: Step, kept: cache.Cache, named: bool, results: list[Numbers]
) -> Iterator[Finding]:
    if isinstance(step, Wrong):
        yield from _mistake(scene, step, kept)
        return
    if isinstance(step, Moved):
        before = snapshot(kept)
        try:
            getattr(kept, step.how)(*([] if step.argument is None else [step.argument]))
        except mh.MultiheadError as error:
            if not step.refused:
                yield error_finding(error)
            yield from _unchanged(before, kept, step.how)
        except Exception as error:  # noqa: BLE001
            yield error_finding(error)
        else:
            if step.refused:
                yield Finding("accepted", f"{step.how} of a ring that has lost the tokens")
        return
    route = step.call.route if named else None
    for attempt in dict.fromkeys((route, None)):
        before = snapshot(kept)
        try:
            results.append(answered(scene, step, kept, attempt))
            return
        except mh.MultiheadError as error:
            if not refuses(error, attempt):
                yield error_finding(error)
            changes = list(_unchanged(before, kept, "a route that cannot" if attempt else "a refused call"))
            yield from changes
            if changes or not refuses(error, attempt):
                return
        except Exception as error:  # noqa: BLE001
            yield error_finding(error)
            yield from _unchanged(before, kept, "a call that failed")
            return


def _mistake(scene: Scene, wrong: Wrong, kept: cache.Cache | None) -> Iterator[Finding]:
    arguments = MISTAKES[wrong.kind](wrong.site)
    if arguments is None:
        return
    before = None if kept is None else snapshot(kept)
    try:
        scene.module(**arguments, **({} if kept is None else {"cache": kept}))
    except mh.MultiheadError:
        pass
    except Exception as error:  # noqa: BLE001
        yield error_finding(error, f" (mistake: {wrong.kind})")
    else:
        yield Finding("accepted", wrong.kind)
        return
    if kept is not None and before is not None:
        yield from _unchanged(before, kept, f"mistake: {wrong.kind}")


def snapshot(kept: cache.Cache) -> dict[str, Any]:
    """Everything that a cache holds."""
    held = {name: x.detach().clone() if isinstance(x, Tensor) else x for name, x in vars(kept).items()}
    return held | {"lengths": kept.lengths.tolist()}


def _unchanged(before: dict[str, Any], kept: cache.Cache, by: str) -> Iterator[Finding]:
    after = snapshot(kept)
    for name, was in before.items():
        now = after[name]
        if isinstance(was, Tensor) and isinstance(now, Tensor):
            same = was.shape == now.shape and torch.equal(was.nan_to_num(), now.nan_to_num())
        else:
            same = type(was) is type(now) and was == now
        if not same:
            yield Finding("cache changed", by, f"{name}: {_short(was)} became {_short(now)}")
            return


def _short(x: Any) -> str:
    return f"tensor {tuple(x.shape)}" if isinstance(x, Tensor) else str(x)


def _mode(mode: str) -> contextlib.AbstractContextManager[Any]:
    return {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}[mode]()
