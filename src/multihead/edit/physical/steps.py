"""What was done to the structure of a model, as plain data that can be done again.

A step changes shapes, attributes or classes, never numbers: `apply` makes a model of the original shapes, also one
on the meta device, take the state dict of the cut one.

>>> import torch
>>> from multihead.edit.physical.steps import Step, apply
>>> model = torch.nn.Sequential(torch.nn.Linear(6, 4))
>>> _ = apply(model, [Step("resize", "0", "weight", [2, 6]), Step("resize", "0", "bias", [2])])
>>> model[0]
Linear(in_features=6, out_features=2, bias=True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import torch
from torch import nn

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
        try:
            return Step(str(data["do"]), str(data["at"]), str(data["name"]), data["value"])
        except KeyError as missing:
            raise MultiheadError(
                f"a step has {sorted(data)} and no {missing}", hint="a step is {do, at, name, value}"
            ) from None

    def __str__(self) -> str:
        return f"{self.do} {self.at}.{self.name}: {self.value}"


def apply(model: nn.Module, steps: Iterable[Step]) -> list[Step]:
    """Do these steps, in order and in place; returns those that were not done already."""
    done: list[Step] = []
    for step in steps:
        kind = KINDS.get(step.do)
        if kind is None:
            raise MultiheadError(
                f"there is no step {step.do!r} (at {step.at})",
                hint=f"known are {', '.join(KINDS)}; was this cut by a later version of multihead?",
            )
        if kind(_module(model, step), step.name, step.value):
            done.append(step)
    return done


def _module(model: nn.Module, step: Step) -> nn.Module:
    try:
        return inner(model).get_submodule(step.at)
    except AttributeError:
        raise MultiheadError(
            f"{type(inner(model)).__name__} has no module {step.at!r}, in which {step.name} was to {step.do}",
            hint="steps belong to the model that was cut: same class, same config",
        ) from None


Kind = Callable[[nn.Module, str, Any], bool]
"""Does a step to one module; False: it was so already."""

KINDS: dict[str, Kind] = {}


def kind(name: str) -> Callable[[Kind], Kind]:
    """A new kind of step."""

    def remember(do: Kind) -> Kind:
        KINDS[name] = do
        return do

    return remember


@kind("resize")
def resize(module: nn.Module, name: str, shape: Any) -> bool:
    """Give a parameter another shape; its numbers are gone."""
    own = module.get_parameter(name)
    if list(own.shape) == list(shape):
        return False
    if len(own.shape) != len(shape):
        raise SizeError(
            f"{type(module).__name__}.{name} has shape {tuple(own.shape)} and was to get {tuple(shape)}",
            hint="steps belong to the model that was cut: same class, same config",
        )
    new = torch.empty(list(shape), dtype=own.dtype, device=own.device)
    module.register_parameter(name, nn.Parameter(new, requires_grad=own.requires_grad))
    _say_sizes(module)
    return True


def _say_sizes(module: nn.Module) -> None:
    """The attributes in which modules of torch and transformers say the sizes of their weight."""
    weight: Any = getattr(module, "weight", None)
    if not isinstance(weight, nn.Parameter):
        return
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = weight.shape
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
        module.normalized_shape = tuple(weight.shape)
    elif hasattr(module, "nf") and hasattr(module, "nx"):  # transformers' Conv1D
        other: Any = module
        other.nx, other.nf = weight.shape


@kind("set")
def set_attribute(module: nn.Module, name: str, value: Any) -> bool:
    """module.name = value."""
    if getattr(module, name, None) == value and type(getattr(module, name, None)) is type(value):
        return False
    setattr(module, name, value)
    return True


@kind("choose")
def choose(module: nn.Module, name: str, places: Any) -> bool:
    """Of a list of modules, one per head, those at these places stay, in this order."""
    listed: Any = module
    kept = [listed[i] for i in places]
    del listed[:]
    listed.extend(kept)
    return True


for _more in ("arguments", "kernels", "shells"):  # which bring kinds of their own, and import this module first
    import_module(f"multihead.edit.physical.{_more}")
