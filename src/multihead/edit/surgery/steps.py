"""The changes of a cut to the structure of a model, as plain data that can be applied again.

A step changes shapes, attributes or classes, never values: `apply` gives a model of the original shapes, also one
on the meta device, the shapes of the cut one, whose state dict it then takes.

>>> import torch
>>> from multihead.edit.surgery.steps import Step, apply
>>> model = torch.nn.Sequential(torch.nn.Linear(6, 4))
>>> _ = apply(model, [Step("resize", "0", "weight", [2, 6]), Step("resize", "0", "bias", [2])])
>>> model[0]
Linear(in_features=6, out_features=2, bias=True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from multihead.edit.surgery.kv_reuse import override_config, set_argument, set_kv_of_head
from multihead.edit.surgery.patched_modules import own_copy, patch
from multihead.errors import MultiheadError, SizeError
from multihead.model.compiled import inner


@dataclass(frozen=True)
class Step:
    """do(module at this path, name, value): all of it JSON."""

    do: str
    at: str
    name: str
    value: Any

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Step:
        """A step from plain data, checked."""
        try:
            return Step(str(data["do"]), str(data["at"]), str(data["name"]), data["value"])
        except KeyError as missing:
            raise MultiheadError(
                f"a step has {sorted(data)} and no {missing}", hint="a step is {do, at, name, value}"
            ) from None

    def __str__(self) -> str:
        return f"{self.do} {self.at}.{self.name}: {self.value}"


def apply(model: nn.Module, steps: Iterable[Step]) -> list[Step]:
    """Apply these steps, in order and in place; returns those that changed something."""
    done: list[Step] = []
    for step in steps:
        kind = KINDS.get(step.do)
        if kind is None:
            raise MultiheadError(
                f"unknown step {step.do!r} at {step.at}",
                hint=f"known are {', '.join(KINDS)}; was this cut by a later version of multihead?",
            )
        if kind(inner(model), step):
            done.append(step)
    return done


def _module(model: nn.Module, step: Step) -> Any:
    """The module that a step changes."""
    try:
        return model.get_submodule(step.at)
    except AttributeError:
        raise MultiheadError(
            f"{type(model).__name__} has no module {step.at!r}, in which {step.name} was to {step.do}",
            hint="steps belong to the model that was cut: same class, same config",
        ) from None


def _resize(model: nn.Module, step: Step) -> bool:
    """Step: give a parameter a different shape; its values are lost."""
    module, shape = _module(model, step), list(step.value)
    own = module.get_parameter(step.name)
    if list(own.shape) == shape:
        return False
    if len(own.shape) != len(shape):
        raise SizeError(
            f"{type(module).__name__}.{step.name} has shape {tuple(own.shape)} and was to get {tuple(shape)}",
            hint="steps belong to the model that was cut: same class, same config",
        )
    new = torch.empty(shape, dtype=own.dtype, device=own.device)
    module.register_parameter(step.name, nn.Parameter(new, requires_grad=own.requires_grad))
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


def _set(model: nn.Module, step: Step) -> bool:
    """Step: module.name = value; "config.name" is a field of the config, for this module only."""
    module = _module(model, step)
    if step.name.startswith("config."):
        return override_config(module, {step.name.removeprefix("config."): step.value})
    before = getattr(module, step.name, None)
    if before == step.value and type(before) is type(step.value):
        return False
    setattr(module, step.name, step.value)
    return True


def _choose(model: nn.Module, step: Step) -> bool:
    """Step: of a list of modules, one per head, keep those at these indices, in this order."""
    modules = _module(model, step)
    kept = [modules[i] for i in step.value]
    del modules[:]
    modules.extend(kept)
    return True


def _patch(model: nn.Module, step: Step) -> bool:
    """Step: give a module a mixin; a "select bias" goes to a copy, since other layers may use the same bias."""
    module = _module(model, step)
    if step.name == "select bias":
        parent, _, leaf = step.at.rpartition(".")
        module = own_copy(model.get_submodule(parent), leaf)
    return patch(module, step.name, step.value)


def _argument(model: nn.Module, step: Step) -> bool:
    """Change an argument at every call: select heads, or store each kv head once."""
    return set_argument(_module(model, step), step.name, step.value)


def _kv_of_head(model: nn.Module, step: Step) -> bool:
    """Which kv head each query head reads."""
    return set_kv_of_head(_module(model, step), step.value)


KINDS: dict[str, Callable[[nn.Module, Step], bool]] = {
    "resize": _resize,
    "set": _set,
    "choose": _choose,
    "patch": _patch,
    "argument": _argument,
    "kv_of_head": _kv_of_head,
}
"""What applies a step of each kind; False: the model had it already."""
