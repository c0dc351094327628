"""Rebuild the structure of a cut model from its config and its steps, which may come from an untrusted folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from multihead.edit.surgery.record import Record
from multihead.edit.surgery.steps import apply
from multihead.errors import MultiheadError, SizeError
from multihead.store.skeleton import config_of, skeleton

Shapes = Mapping[str, tuple[int, ...]]
"""tensor → its shape, by every name of tied ones"""

_HINT = (
    "the class and its sizes must be those of the saved model; if a file was changed, copy or save the folder again"
)


def rebuild(
    cls: type[nn.Module], config: Mapping[str, Any], attention: str | None, record: Record | None, shapes: Shapes
) -> nn.Module:
    """A model without weights that takes tensors of these shapes; raises if its config gives others."""
    model = skeleton(cls, config_of(cls, config), attention)
    replay(model, record, shapes)
    return model


def replay(model: nn.Module, record: Record | None, shapes: Shapes) -> None:
    """Give a model of the original sizes the structure of the cut one; raises unless it takes these tensors."""
    try:
        apply(model, [] if record is None else record.steps)
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:
        if isinstance(error, MultiheadError):
            raise
        raise MultiheadError(
            f"the steps of the cut do not fit {type(model).__name__}: {type(error).__name__}: {error}", hint=_HINT
        ) from error
    _check_shapes(model, shapes)


def _check_shapes(model: nn.Module, shapes: Shapes) -> None:
    """Raise unless the tensors of a rebuilt model have these names and shapes."""
    rebuilt = {name: tuple(t.shape) for name, t in model.state_dict(keep_vars=True).items()}
    missing, unknown = rebuilt.keys() - shapes.keys(), shapes.keys() - rebuilt.keys()
    if missing or unknown:
        parts = [f"{kind} {_some(names)}" for kind, names in (("missing", missing), ("unknown", unknown)) if names]
        raise MultiheadError(f"the weights do not fit {type(model).__name__}: {'; '.join(parts)}", hint=_HINT)
    for name, shape in rebuilt.items():
        if shape != shapes[name]:
            raise SizeError(
                f"{name} of {type(model).__name__} has shape {shape}, the stored one {shapes[name]}", hint=_HINT
            )


def _some(names: Iterable[str]) -> str:
    first, *others = sorted(names)
    return ", ".join([first, *others[:2]]) + (f", ... ({len(others) + 1})" if len(others) > 2 else "")
