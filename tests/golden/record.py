"""Record golden values: flat paths whose names never change, and tensors as a norm and a projection.

>>> record = Recorder(Names({"columns": {"entropy": "attention_entropy"}}))
>>> record.table(["L0H0", "L0H1"], {"attention_entropy": [0.25, float("nan")]})
>>> record.values
{'L0H0/entropy': 0.25, 'L0H1/entropy': None}
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from multihead._base.labels import without_value

Value = int | float | str | None
Values = dict[str, Value]

FOLDER = Path(__file__).parent / "values"
NAMES = Path(__file__).with_name("names.json")

SECTIONS = ("columns", "keys", "labels", "parameters")
DIGITS = 10
LONG = 12
"""Longer lists of numbers are recorded like tensors, by norm and projection."""


# ---- names ------------------------------------------------------------------------------------


class Names:
    """Translates the names that the package uses today into the canonical names of the golden values.

    Args:
        sections: as in names.json, {section: {canonical name: today's name}}. A name that is not listed has not
            changed. A * at the end stands for any ending: {"offset*": "distance*"} renames 33 columns.
    """

    def __init__(self, sections: Mapping[str, Mapping[str, str]]) -> None:
        self._canonical: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
        for section, names in sections.items():
            for canonical, today in names.items():
                if today in self._canonical[section]:
                    other = self._canonical[section][today]
                    raise ValueError(f"names.json: {other!r} and {canonical!r} are both called {today!r} today")
                self._canonical[section][today] = canonical

    @staticmethod
    def read(path: Path = NAMES) -> Names:
        return Names(json.loads(path.read_text(encoding="utf-8")))

    def canonical(self, today: str, section: str) -> str:
        """The canonical name of today's name.

        If that name used to belong to something else, which has been renamed since, it counts as new.
        """
        known = self._canonical[section]
        for now, then in known.items():
            if now.endswith("*") and today.startswith(now[:-1]):
                return then[:-1] + today[len(now) - 1 :]
        taken = {then for now, then in known.items() if now != then}
        return known.get(today, f"{today} (new)" if today in taken else today)

    def label(self, today: str) -> str:
        """The canonical name of a label. `window ±2` is the label `window` with a detail.

        The value of a share that names a head (`match, 0.18`) is left out: it is recorded as a number, and rounding
        differs between machines. Columns share labels (`position` is a share, and an answer to what drives a head),
        so that one of them may be renamed and the other not: an old name is never taken for a new one.
        """
        known, today = self._canonical["labels"], without_value(today)
        word, space, detail = today.partition(" ")
        return known.get(today, known.get(word, word) + space + detail)

    def parameter(self, today: str) -> str:
        """The canonical name of a parameter. An entry without dots renames that part of every name."""
        if today in self._canonical["parameters"]:
            return self._canonical["parameters"][today]
        return ".".join(self.canonical(part, "parameters") for part in today.split("."))


# ---- tensors ----------------------------------------------------------------------------------


def whole_numbers(shape: Sequence[int], seed: int, spread: float = 1.0) -> Tensor:
    """Random float64 numbers of standard deviation `spread`, a whole number each before scaling.

    Whole numbers are the same on every machine to the last bit; normal draws take logarithms and cosines, which
    are not.
    """
    largest = 1000
    drawn = torch.randint(-largest, largest + 1, tuple(shape), generator=torch.Generator().manual_seed(seed))
    return drawn.double() * (spread / math.sqrt(largest * (largest + 1) / 3))


@cache
def _direction(size: int) -> Tensor:
    """The vector that tensors of this size are projected onto."""
    return whole_numbers([size], seed=size)


def fingerprint(x: Tensor) -> dict[str, Value]:
    """Size, Frobenius norm and a random projection of a tensor, in float64; its shape does not matter.

    The projection is that of x / max(‖x‖, 1): of order 1 for large tensors, yet tiny where x is pure rounding
    error, such as the gradient of a key bias.
    """
    flat = x.detach().double().flatten()
    finite = flat.isfinite()
    hidden = int((~finite).sum())
    flat = torch.where(finite, flat, 0.0)
    norm = float(flat.norm())
    projection = float(flat @ _direction(flat.numel())) / max(norm, 1.0)
    kept: dict[str, Value] = {"size": flat.numel(), "norm": norm, "projection": projection}
    return kept | {"not finite": hidden} if hidden else kept


# ---- values -----------------------------------------------------------------------------------


class Recorder:
    """Collects the values of one subject under their canonical names."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.values: Values = {}

    def value(self, path: str, x: Any) -> None:
        """Record a number, a word or None under a canonical path; NaN becomes None."""
        if path in self.values:
            raise ValueError(f"{path} is recorded twice")
        self.values[path] = _plain(x)

    def tensor(self, path: str, x: Tensor) -> None:
        for name, number in fingerprint(x).items():
            self.value(f"{path}/{name}", number)

    def tensors(self, path: str, tensors: Mapping[str, Tensor]) -> None:
        """Record tensors by the names of their parameters."""
        for name, x in tensors.items():
            self.tensor(f"{path}/{self.names.parameter(name)}", x)

    def table(self, heads: Sequence[str], columns: Mapping[str, Iterable[Any]]) -> None:
        """Record a value for every head and column; words are labels."""
        for name, cells in columns.items():
            column = self.names.canonical(name, "columns")
            for head, cell in zip(heads, cells, strict=True):
                self.value(f"{head}/{column}", self.names.label(cell) if isinstance(cell, str) else cell)

    def plain(
        self,
        data: Any,
        path: str = "",
        *,
        labels: Collection[str] = (),
        dropped: Collection[str] = (),
        identity: Collection[str] = (),
    ) -> None:
        """Record all numbers of JSON data, and those of its strings that are labels; never sentences.

        Args:
            labels: canonical keys whose strings are recorded.
            dropped: canonical keys that are skipped with everything inside.
            identity: canonical keys that identify the items of a list, so that their order does not matter.
        """
        if isinstance(data, Mapping):
            rules = {"labels": labels, "dropped": dropped, "identity": identity}
            for key, inner in self._canonical(data).items():
                if key not in dropped:
                    self.plain(inner, f"{path}/{key}" if path else key, **rules)
        elif isinstance(data, list) and _is_numbers(data):
            self._numbers(path, data)
        elif isinstance(data, list):
            rules = {"labels": labels, "dropped": (*dropped, *identity), "identity": identity}
            for i, item in enumerate(data):
                self.plain(item, f"{path}/{self._identity(item, identity) or i}", **rules)
        elif not isinstance(data, str):
            self.value(path, data)
        elif _key(path) in labels:
            self.value(path, self.names.label(data))

    def _numbers(self, path: str, numbers: list[Any]) -> None:
        """A long list by norm and projection; a short one of whole numbers (choices, counts) as one word."""
        flat = _flat(numbers)
        if len(flat) > LONG:
            known = [math.nan if x is None else float(x) for x in flat]
            self.tensor(path, torch.tensor(known, dtype=torch.float64))
        elif all(isinstance(x, int) for x in flat):
            self.value(path, json.dumps(numbers))
        else:
            for i, x in enumerate(flat):
                self.value(f"{path}/{i}", x)

    def _canonical(self, data: Mapping[Any, Any]) -> dict[str, Any]:
        return {self.names.canonical(str(key), "keys"): inner for key, inner in data.items()}

    def _identity(self, item: Any, keys: Collection[str]) -> str:
        inside = self._canonical(item) if isinstance(item, Mapping) else {}
        return " ".join(self.names.label(str(inside[key])) for key in keys if key in inside)


def _plain(x: Any) -> Value:
    """What JSON can hold: None for NaN, a word for infinity, other floats rounded to ten digits."""
    if isinstance(x, Tensor):
        x = x.item()
    if x is None or isinstance(x, int | str):
        return x
    if math.isnan(x):
        return None
    return float(f"{x:.{DIGITS}g}") if math.isfinite(x) else str(float(x))


def _key(path: str) -> str:
    """The last part of a path that is not an index of a list."""
    return next((part for part in reversed(path.split("/")) if not part.isdigit()), "")


def _is_numbers(data: list[Any]) -> bool:
    """Whether a list, possibly nested, holds only numbers; None is a missing number."""
    flat = _flat(data)
    return bool(flat) and all(x is None or isinstance(x, int | float) for x in flat)


def _flat(data: Any) -> list[Any]:
    return [x for inner in data for x in _flat(inner)] if isinstance(data, list) else [data]


# ---- files ------------------------------------------------------------------------------------


def read_values(subject: str) -> Values:
    """The golden values of a subject; empty if it has no file yet."""
    path = FOLDER / f"{subject}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_values(subject: str, values: Values) -> None:
    """One value per line, so that diffs are readable."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(values, indent=0, ensure_ascii=False, allow_nan=False)
    (FOLDER / f"{subject}.json").write_text(text + "\n", encoding="utf-8")
