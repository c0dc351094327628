"""The changes of a cut to the structure of a model, as plain data that can be applied again.

A step changes shapes, attributes or classes, never values: `apply` gives a model of the original shapes, also one
on the meta device, the shapes of the cut one, whose state dict it then takes. Steps may come from an untrusted
folder: they set sizes only.

>>> import torch
>>> from multihead.edit.surgery.steps import Step, apply
>>> model = torch.nn.Sequential(torch.nn.Linear(6, 4))
>>> _ = apply(model, [Step("resize", "0", "weight", [2, 6]), Step("resize", "0", "bias", [2])])
>>> model[0]
Linear(in_features=6, out_features=2, bias=True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, cast

import torch
from torch import nn

from multihead.edit.surgery.kv_reuse import override_config, set_argument, set_kv_of_head
from multihead.edit.surgery.patched_modules import own_copy, patch
from multihead.errors import MultiheadError, SizeError
from multihead.model.compiled import inner

OF_THE_CUT = "steps belong to the model that was cut: same class, same config"


@dataclass(frozen=True)
class Step:
    """do(module at this path, name, value): all of it JSON."""

    do: str
    at: str
    name: str
    value: Any

    @staticmethod
    def from_json(data: object) -> Step:
        """A step from plain data, checked."""
        values = cast(dict[str, Any], data) if isinstance(data, dict) else {}
        names = {field.name for field in fields(Step)}
        if values.keys() != names or not all(isinstance(values[name], str) for name in names - {"value"}):
            raise MultiheadError(f"a step must be {{do, at, name, value}}, got {data!r}", hint=OF_THE_CUT)
        return Step(**values)


def apply(model: nn.Module, steps: Iterable[Step]) -> list[Step]:
    """Apply these steps, in order and in place; returns those that changed something."""
    done: list[Step] = []
    for step in steps:
        if step.do not in KINDS:
            raise MultiheadError(
                f"unknown step {step.do!r} at {step.at}",
                hint=f"known are {', '.join(KINDS)}; was this cut by a later version of multihead?",
            )
        kind, change = KINDS[step.do]
        if not isinstance(step.value, kind):
            raise MultiheadError(
                f"the value of step {step.do} {step.at}.{step.name} must be a {kind.__name__}, got {step.value!r}",
                hint=OF_THE_CUT,
            )
        if change(_module(inner(model), step), step.name, step.value):
            done.append(step)
    return done


def _module(model: nn.Module, step: Step) -> Any:
    """The module that a step changes; of a position bias that other layers may use too, a copy."""
    try:
        if step.name == "select bias":
            parent, _, leaf = step.at.rpartition(".")
            return own_copy(model.get_submodule(parent), leaf)
        return model.get_submodule(step.at)
    except AttributeError:
        raise MultiheadError(
            f"{type(model).__name__} has no module {step.at!r}, in which {step.name} was to {step.do}",
            hint=OF_THE_CUT,
        ) from None


def _resize(module: nn.Module, name: str, shape: list[int]) -> bool:
    """Step: give a parameter a different shape; its values are lost."""
    old = module.get_parameter(name)
    if list(old.shape) == shape:
        return False
    if len(old.shape) != len(shape):
        raise SizeError(
            f"{type(module).__name__}.{name} has shape {tuple(old.shape)} and was to get {tuple(shape)}",
            hint=OF_THE_CUT,
        )
    new = torch.empty(shape, dtype=old.dtype, device=old.device)
    module.register_parameter(name, nn.Parameter(new, requires_grad=old.requires_grad))
    _update_sizes(module)
    return True


def _update_sizes(module: Any) -> None:
    """Step: update attributes in which modules of torch and transformers repeat the sizes of their weight."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, nn.Parameter):
        return
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = weight.shape
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
        module.normalized_shape = tuple(weight.shape)
    elif hasattr(module, "nf") and hasattr(module, "nx"):  # transformers' Conv1D
        module.nx, module.nf = weight.shape


def _set(module: nn.Module, name: str, value: Any) -> bool:
    """Step: module.name = value; "config.name" is a field of the config, for this module only."""
    if name.startswith("_") or callable(getattr(nn.Module, name, None)):
        raise MultiheadError(
            f"a step must not set {type(module).__name__}.{name}: it is not a size", hint=OF_THE_CUT
        )
    if name.startswith("config."):
        return override_config(module, {name.removeprefix("config."): value})
    before = getattr(module, name, None)
    if before == value and type(before) is type(value):
        return False
    setattr(module, name, value)
    return True


def _choose(modules: Any, name: str, heads: list[int]) -> bool:
    """Step: of a list of modules, one per head, keep those at these indices, in this order."""
    chosen = [modules[i] for i in heads]
    del modules[:]
    modules.extend(chosen)
    return True


def _kv_of_head(module: nn.Module, name: str, kv_of_head: list[int]) -> bool:
    """Step: which kv head each query head reads."""
    return set_kv_of_head(module, kv_of_head)


KINDS: dict[str, tuple[type, Callable[[Any, str, Any], bool]]] = {
    "resize": (list, _resize),
    "set": (object, _set),
    "choose": (list, _choose),
    "patch": (dict, patch),
    "argument": (dict, set_argument),
    "kv_of_head": (list, _kv_of_head),
}
"""The type of a step's value, and the function that changes a module; it returns False if nothing has changed."""
