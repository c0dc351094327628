"""multihead.json: what a saved model is, as plain data that is checked before anything is done with it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from torch import nn

from multihead.edit.surgery.record import Record
from multihead.edit.surgery.steps import KINDS, Step
from multihead.errors import MultiheadError, SizeError

MANIFEST = "multihead.json"
FORMAT = "multihead model"
VERSION = 1
_DAMAGED = "copy or save the folder again"


@dataclass(frozen=True)
class Manifest:
    """How to build the model again: its class, its original config, what was cut, where its tensors are."""

    model: str
    """the name of its class"""
    known: bool
    """a class that transformers can build from a config, or else one that has to be given to `load`"""
    cut: Mapping[str, Any] | None
    """Record.to_json()"""
    weights: str
    """STEM of STEM.safetensors"""
    shared: Mapping[str, str]
    """names of tied weights → the name under which they are stored"""
    attention: str | None
    plain: bool
    why: str
    """why it is plain, or is not"""
    config: Mapping[str, Any] | None
    """the original's, where config.json says other sizes"""
    versions: Mapping[str, str]

    def record(self) -> Record | None:
        return None if self.cut is None else Record.from_json(self.cut)

    def write(self, folder: Path) -> None:
        data: dict[str, Any] = {"format": FORMAT, "version": VERSION, **asdict(self)}
        lines = [
            f"{_json(key)}: {_cut_lines(value) if key == 'cut' else _json(value)}" for key, value in data.items()
        ]
        (folder / MANIFEST).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> Manifest:
        data = read_json(folder / MANIFEST)
        if data.get("format") != FORMAT:
            raise MultiheadError(f"{folder / MANIFEST} does not describe a saved model", hint=_DAMAGED)
        if data.get("version") != VERSION:
            raise MultiheadError(
                f"{folder} is of version {data.get('version')!r} of the format, this multihead reads {VERSION}",
                hint="pip install -U multihead",
            )
        kinds: dict[str, tuple[type, ...]] = {
            "model": (str,), "known": (bool,), "cut": (dict, type(None)), "weights": (str,), "shared": (dict,),
            "attention": (str, type(None)), "plain": (bool,), "why": (str,), "config": (dict, type(None)),
            "versions": (dict,),
        }  # fmt: skip
        for name, fits in kinds.items():
            if not isinstance(data.get(name), fits):
                raise MultiheadError(
                    f"{folder / MANIFEST} is damaged: {name} is {data.get(name)!r}, not {fits[0].__name__}",
                    hint=_DAMAGED,
                )
        if data["weights"] not in ("model", "multihead"):
            raise MultiheadError(
                f"{folder / MANIFEST} is damaged: weights in {data['weights']!r}", hint="model or multihead"
            )
        if data["cut"] is not None:
            _check_cut(data["cut"], folder / MANIFEST)
        return Manifest(**{name: data[name] for name in kinds})


def _cut_lines(cut: Mapping[str, Any] | None) -> str:
    """A step per line, for people."""
    if cut is None:
        return "null"
    steps = ",\n".join(f"  {_json(step)}" for step in cut["steps"])
    return f'{{\n "plan": {_json(cut["plan"])},\n "steps": [\n{steps}\n ]}}'


def _plain(x: Any) -> Any:
    """Scores may be infinite or none at all, for which JSON has no word but null."""
    if isinstance(x, float) and not math.isfinite(x):
        return None
    if isinstance(x, Mapping):
        return {key: _plain(value) for key, value in cast(Mapping[Any, Any], x).items()}
    return [_plain(value) for value in cast(list[Any], x)] if isinstance(x, list | tuple) else x


def _json(x: object) -> str:
    try:
        return json.dumps(_plain(x), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as wrong:
        raise MultiheadError(
            f"{MANIFEST} cannot hold this: {wrong}", hint="plans and steps are made of JSON only"
        ) from wrong


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MultiheadError(f"there is no {path.name} in {path.parent}", hint="mh.save writes one") from None
    except (ValueError, RecursionError) as wrong:
        raise MultiheadError(f"{path} is not JSON: {wrong}", hint=_DAMAGED) from wrong
    if not isinstance(data, dict):
        raise MultiheadError(f"{path} is damaged: it holds a {type(data).__name__}", hint=_DAMAGED)
    return cast(dict[str, Any], data)


def _check_cut(cut: Mapping[str, Any], place: Path) -> None:
    steps = cut.get("steps")
    if not isinstance(steps, list) or not isinstance(cut.get("plan"), dict | None):
        raise MultiheadError(f"{place} is damaged: its steps or its plan are missing", hint=_DAMAGED)
    for step in cast(list[Any], steps):
        fields = cast(dict[str, Any], step) if isinstance(step, dict) else {}
        if set(fields) != {"do", "at", "name", "value"} or not all(
            isinstance(fields[x], str) for x in ("do", "at", "name")
        ):
            raise MultiheadError(f"{place} is damaged: {step!r} is no step", hint="a step is {do, at, name, value}")


# ---- steps of an untrusted folder -------------------------------------------------------------


_VALUES: dict[str, tuple[type, ...]] = {
    "resize": (list,),
    "choose": (list,),
    "patch": (dict,),
    "argument": (dict,),
    "kv_of_head": (list,),
}
"""What a step of a kind may be told."""


def check_steps(steps: Sequence[Step], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse, before any is done, steps that are none, or that make parameters of other shapes than stored."""
    last: dict[str, Step] = {}
    for step in steps:
        if step.do not in KINDS:
            raise MultiheadError(
                f"there is no step {step.do!r} (at {step.at})",
                hint=f"known are {', '.join(KINDS)}; was this cut by a later version of multihead?",
            )
        if step.do == "set" and (step.name.startswith("_") or callable(getattr(nn.Module, step.name, None))):
            raise MultiheadError(f"a step may not {step.do} {step.at}.{step.name}, which is no size of a module")
        if not isinstance(step.value, _VALUES.get(step.do, object)):
            raise MultiheadError(f"a step may not {step.do} {step.at}.{step.name} by {step.value!r}")
        if step.do == "resize":
            last[f"{step.at}.{step.name}" if step.at else step.name] = step
    for name, step in last.items():
        if name in shapes and step.value != list(shapes[name]):
            raise SizeError(
                f"{name} was to be made {step.value}, the stored one has {list(shapes[name])}",
                hint="the two files do not belong together: copy or save the folder again",
            )
