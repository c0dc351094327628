"""Rebuild the structure of a cut model from its config and its steps, which may come from an untrusted folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from multihead.edit.surgery.record import Record
from multihead.edit.surgery.steps import KINDS, Step, apply
from multihead.errors import MultiheadError, SizeError
from multihead.store.manifest import MANIFEST
from multihead.store.skeleton import config_of, skeleton
from multihead.store.tensors import DAMAGED

Shapes = Mapping[str, tuple[int, ...]]
"""tensor → its shape"""


def rebuild(
    cls: type[nn.Module], config: Mapping[str, Any], attention: str | None, record: Record | None, shapes: Shapes
) -> nn.Module:
    """A model without weights that takes tensors of these shapes."""
    model = skeleton(cls, config_of(cls, config, "the config"), attention)
    replay(model, record, shapes)
    return model


def replay(model: nn.Module, record: Record | None, shapes: Shapes) -> None:
    """Give a model of the original sizes the structure of the cut one."""
    steps = [] if record is None else record.steps
    _check_steps(steps, shapes)
    try:
        apply(model, steps)
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:
        if isinstance(error, MultiheadError):
            raise
        raise MultiheadError(
            f"the steps in {MANIFEST} do not fit {type(model).__name__}: {type(error).__name__}: {error}",
            hint="steps need the class and the config of the model that was cut",
        ) from error


def shape_difference(model: nn.Module, shapes: Shapes) -> str | None:
    """The first tensor of a rebuilt model that is missing or has a different shape; None if all fit."""
    rebuilt = {name: tuple(t.shape) for name, t in model.state_dict(keep_vars=True).items()}
    for name in sorted(rebuilt.keys() | shapes.keys()):
        if rebuilt.get(name) != shapes.get(name):
            old, new = ("no" if x is None else f"shape {x} of" for x in (rebuilt.get(name), shapes.get(name)))
            return f"{type(model).__name__} by its config has {old} {name}, this model has {new} {name}"
    return None


_VALUES: dict[str, tuple[type, ...]] = {
    "resize": (list,),
    "choose": (list,),
    "patch": (dict,),
    "argument": (dict,),
    "kv_of_head": (list,),
}
"""The types of value that a kind of step takes."""


def _check_steps(steps: Sequence[Step], shapes: Shapes) -> None:
    """Raise, before any step is replayed, for unknown steps and for shapes other than those of the weights."""
    last: dict[str, Step] = {}
    for step in steps:
        if step.do not in KINDS:
            raise MultiheadError(
                f"unknown step {step.do!r} (at {step.at})",
                hint=f"known are {', '.join(KINDS)}; pip install -U multihead if a later version cut this model",
            )
        if step.do == "set" and (step.name.startswith("_") or callable(getattr(nn.Module, step.name, None))):
            raise MultiheadError(f"a step must not set {step.at}.{step.name}: it is not a size", hint=DAMAGED)
        if not isinstance(step.value, _VALUES.get(step.do, object)):
            raise MultiheadError(
                f"the value of step {step.do} {step.at}.{step.name} has the wrong type, got {step.value!r}",
                hint=DAMAGED,
            )
        if step.do == "resize":
            last[f"{step.at}.{step.name}" if step.at else step.name] = step
    for name, step in last.items():
        if name in shapes and step.value != list(shapes[name]):
            raise SizeError(
                f"{MANIFEST} sets the shape of {name} to {step.value}, the stored one has {list(shapes[name])}",
                hint=f"the two files do not belong together: {DAMAGED}",
            )
