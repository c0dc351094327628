"""What was cut, carried by the model itself: `model.multihead_cut`.

>>> import torch
>>> from multihead.edit.surgery.record import Record, record_of
>>> from multihead.edit.surgery.steps import Step
>>> model = torch.nn.Linear(3, 2)
>>> record_of(model) is None
True
>>> record = Record([Step("set", "", "in_features", 3)], plan={"keep": 0.5})
>>> Record.from_json(record.to_json()) == record
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from multihead.edit.surgery.steps import Step
from multihead.edit.text_sketch import TextSketch
from multihead.errors import MultiheadError
from multihead.model.compiled import inner

NAME = "multihead_cut"


@dataclass
class Record:
    """The steps from the original's structure to this one's, and the plan behind them, as JSON."""

    steps: list[Step] = field(default_factory=list[Step])
    plan: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {"steps": [step.to_json() for step in self.steps], "plan": self.plan}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Record:
        return Record([Step.from_json(step) for step in data["steps"]], data["plan"])


def record_of(model: nn.Module) -> Record | None:
    """The record of a model that was cut; None: it was not."""
    found = getattr(inner(model), NAME, None)
    return found if isinstance(found, Record) else None


def texts_of(model: nn.Module) -> tuple[TextSketch, ...]:
    """Sketches of the calibration texts in a model's record, of earlier cuts too."""
    record = record_of(model)
    plan = {} if record is None or record.plan is None else record.plan
    return tuple(TextSketch.from_json(sketch) for sketch in plan.get("texts", ()))


def calibration_overlap(model: nn.Module, documents: Sequence[Sequence[int]]) -> int:
    """How many of these documents, as token ids, are calibration text of a cut model."""
    return min(len(documents), sum(sketch.overlap(documents) for sketch in texts_of(model)))


def remember(model: nn.Module, steps: list[Step], plan: dict[str, Any] | None = None) -> Record:
    """Add steps to a model's record, which is made if there is none, and replace its plan if one is given."""
    record = record_of(model) or Record()
    record.steps.extend(steps)
    record.plan = record.plan if plan is None else plan
    attach(model, record)
    return record


def attach(model: nn.Module, record: Record) -> None:
    """Make this the record of a model, which `save_pretrained` then no longer saves."""
    root = inner(model)
    setattr(root, NAME, record)
    if record.steps and hasattr(root, "save_pretrained"):
        # A function without the model in it: copies of the model share it.
        setattr(root, "save_pretrained", refuse_save_pretrained)  # noqa: B010


def refuse_save_pretrained(*_: Any, **__: Any) -> None:
    """Raise for a model with a record: transformers would write the original's config beside cut weights."""
    raise MultiheadError(
        "save_pretrained would write the original's config with the cut weights, which then do not load",
        hint="mh.save(model, folder) and mh.load(folder); if all layers have the same sizes, from_pretrained may "
        "load the folder too, and mh.save says so",
    )
