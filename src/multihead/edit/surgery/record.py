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
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from torch import nn

from multihead.edit.surgery.steps import OF_THE_CUT, Step
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
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Record:
        """The record of `to_json`, checked."""
        steps, plan = data.get("steps"), data.get("plan")
        if not isinstance(steps, list) or not isinstance(plan, dict | None):
            raise MultiheadError("its steps or its plan are missing", hint=OF_THE_CUT)
        record = Record([Step.from_json(step) for step in cast(list[object], steps)], plan)
        try:
            record.texts()
        except (KeyError, TypeError, ValueError) as error:
            raise MultiheadError(f"its texts are not sketches: {error!r}", hint=OF_THE_CUT) from error
        return record

    def texts(self) -> tuple[TextSketch, ...]:
        """Sketches of the calibration texts, of earlier cuts too."""
        return tuple(TextSketch.from_json(sketch) for sketch in (self.plan or {}).get("texts", ()))


def record_of(model: nn.Module) -> Record | None:
    """The record of a model; None if it was not cut."""
    record = getattr(inner(model), NAME, None)
    return record if isinstance(record, Record) else None


def texts_of(model: nn.Module) -> tuple[TextSketch, ...]:
    """Sketches of the calibration texts in a model's record, of earlier cuts too."""
    record = record_of(model)
    return () if record is None else record.texts()


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
        setattr(root, "save_pretrained", _refuse_save_pretrained)  # noqa: B010


def _refuse_save_pretrained(*_: Any, **__: Any) -> None:
    """Raise for a model with a record: transformers would write the original's config with cut weights."""
    raise MultiheadError(
        "save_pretrained would write the original's config with the cut weights, which then do not load",
        hint="mh.save(model, folder) and mh.load(folder); if all layers have the same sizes, from_pretrained may "
        "load the folder too, and mh.save says so",
    )
