"""torch.func: vmap over stacked parameters and over inputs, grad, and per-sample gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fuzz.answers import oracle
from fuzz.findings import Finding, Numbers, compare, error_finding, refuses
from fuzz.scene import Ready, Scene

COPIES = 2


def transformed(scene: Scene) -> Iterator[Finding]:
    """The difference between a transform of the layer and the oracle, which is called copy by copy."""
    ready = next(step for step in scene.steps if isinstance(step, Ready))
    works: dict[str, Callable[[Scene, Ready, str | None], tuple[Numbers, Numbers]]] = {
        "vmap parameters": _parameters,
        "vmap inputs": _inputs,
        "grad": _grad,
        "per-sample": _per_sample,
    }
    name = scene.case.transform or ""
    for route in dict.fromkeys((None, ready.call.route)):
        try:
            got, want = works[name](scene, ready, route)
        except Exception as error:  # noqa: BLE001  any error is a finding
            if not refuses(error, route):
                yield error_finding(error, f" ({name})")
            continue
        yield from compare(got, want, f" ({name})")


def _call(scene: Scene, ready: Ready, route: str | None, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    given: dict[str, Any] = {
        "mask": ready.sight.mask, "positions": ready.positions, "head_gate": ready.gate, "route": route
    }  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    return functional_call(scene.module, parameters, (x,), given)


def _towards(scene: Scene, ready: Ready) -> Tensor:
    """The gradient of the loss with respect to the output."""
    generator, width = torch.Generator().manual_seed(ready.call.seed), scene.module.d_out
    return torch.randn(*ready.query.shape[:2], width, generator=generator, dtype=torch.float64)


def _oracle(scene: Scene, ready: Ready, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    scene = replace(scene, parameters=parameters)
    return oracle(scene, [replace(ready, query=x)], torch.float64)[0]["out"]


def _copies(x: Tensor) -> Tensor:
    """Different numbers of the same size."""
    return torch.stack([x.detach() * (1 + 0.3 * i) for i in range(COPIES)])


def _parameters(scene: Scene, ready: Ready, route: str | None) -> tuple[Numbers, Numbers]:
    stacked = {name: _copies(p) for name, p in scene.parameters.items()}
    out = vmap(lambda parameters: _call(scene, ready, route, parameters, ready.query))(stacked)
    one = [{name: p[i] for name, p in stacked.items()} for i in range(COPIES)]
    return {"out": out.detach()}, {
        "out": torch.stack([_oracle(scene, ready, p, ready.query) for p in one]).detach()
    }


def _inputs(scene: Scene, ready: Ready, route: str | None) -> tuple[Numbers, Numbers]:
    xs = _copies(ready.query)
    out = vmap(lambda x: _call(scene, ready, route, scene.parameters, x))(xs)
    return {"out": out.detach()}, {
        "out": torch.stack([_oracle(scene, ready, scene.parameters, x) for x in xs]).detach()
    }


def _grad(scene: Scene, ready: Ready, route: str | None) -> tuple[Numbers, Numbers]:
    towards = _towards(scene, ready)

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return (_call(scene, ready, route, parameters, x) * towards).sum()

    plain = {name: p.detach() for name, p in scene.parameters.items()}
    by_name, by_x = grad(loss, argnums=(0, 1))(plain, ready.query.detach())
    got = {f"gradient of {name}": g for name, g in by_name.items()} | {"gradient of query": by_x}
    return got, _oracle_grads(scene, ready, ready.query.detach())


def _per_sample(scene: Scene, ready: Ready, route: str | None) -> tuple[Numbers, Numbers]:
    towards = _towards(scene, ready)

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return (_call(scene, ready, route, parameters, x) * towards).sum()

    plain = {name: p.detach() for name, p in scene.parameters.items()}
    xs = _copies(ready.query)
    by_name, by_x = vmap(grad(loss, argnums=(0, 1)), in_dims=(None, 0))(plain, xs)
    got = {f"gradient of {name}": g for name, g in by_name.items()} | {"gradient of query": by_x}
    each = [_oracle_grads(scene, ready, x) for x in xs]
    return got, {name: torch.stack([one[name] for one in each]) for name in got}


def _oracle_grads(scene: Scene, ready: Ready, x: Tensor) -> Numbers:
    x = x.clone().requires_grad_()
    out = _oracle(scene, ready, scene.parameters, x)
    leaves = {**scene.parameters, "query": x}
    grads = torch.autograd.grad(
        (out * _towards(scene, ready)).sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
    )
    return {f"gradient of {name}": g for name, g in zip(leaves, grads, strict=True)}
