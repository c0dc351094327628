"""How golden values are kept: flat paths with names that never change, and tensors as a norm and a projection.

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

Value = int | float | str | None
Values = dict[str, Value]

FOLDER = Path(__file__).parent / "values"
NAMES = Path(__file__).with_name("names.json")

SECTIONS = ("columns", "keys", "labels", "parameters")
DIGITS = 10
LONG = 12
"""A list of more numbers than this is kept as a tensor is: by its norm and a projection."""


# ---- names ------------------------------------------------------------------------------------


class Names:
    """The canonical name of everything that the package calls by another name today.

    Args:
        sections: as in names.json, {section: {canonical name: today's name}}. What is not listed has not changed.
            Names that end in * stand for all that begin so: {"offset*": "distance*"}.
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
        """What a name of today was when the golden values began.

        A name that something else had then, which is called otherwise today, counts as a new one.
        """
        known = self._canonical[section]
        for now, then in known.items():
            if now.endswith("*") and today.startswith(now[:-1]):
                return then[:-1] + today[len(now) - 1 :]
        taken = {then for now, then in known.items() if now != then}
        return known.get(today, f"{today} (new)" if today in taken else today)

    def label(self, today: str) -> str:
        """The canonical name of a label; `window ±2` is the label `window` with a detail."""
        if today in self._canonical["labels"]:
            return self._canonical["labels"][today]
        word, space, detail = today.partition(" ")
        return self.canonical(word, "labels") + space + detail

    def parameter(self, today: str) -> str:
        """The canonical name of a parameter; an entry without dots renames a part of all names that have it."""
        if today in self._canonical["parameters"]:
            return self._canonical["parameters"][today]
        return ".".join(self.canonical(part, "parameters") for part in today.split("."))


# ---- tensors ----------------------------------------------------------------------------------


def whole_numbers(shape: Sequence[int], seed: int, spread: float = 1.0) -> Tensor:
    """Random float64 numbers of standard deviation `spread`.

    They are drawn as whole numbers: every machine then has the same ones to the last bit, which normal draws,
    with their logarithms and cosines, do not promise.
    """
    largest = 1000
    drawn = torch.randint(-largest, largest + 1, tuple(shape), generator=torch.Generator().manual_seed(seed))
    return drawn.double() * (spread / math.sqrt(largest * (largest + 1) / 3))


@cache
def _direction(size: int) -> Tensor:
    """The vector that tensors of so many numbers are projected on."""
    return whole_numbers([size], seed=size)


def fingerprint(x: Tensor) -> dict[str, Value]:
    """The size, Frobenius norm and direction of a tensor, whatever its shape; in float64.

    The projection is that of x / max(‖x‖, 1). So it is about 1 for any large tensor, and stays small where x is
    nothing but rounding errors, such as the gradient of a bias that cannot matter.
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
        """A number, a word, or None; NaN is None. The path, and a word, are canonical."""
        if path in self.values:
            raise ValueError(f"{path} is recorded twice")
        self.values[path] = _plain(x)

    def tensor(self, path: str, x: Tensor) -> None:
        for name, number in fingerprint(x).items():
            self.value(f"{path}/{name}", number)

    def tensors(self, path: str, tensors: Mapping[str, Tensor]) -> None:
        """Tensors with the names of parameters."""
        for name, x in tensors.items():
            self.tensor(f"{path}/{self.names.parameter(name)}", x)

    def table(self, heads: Sequence[str], columns: Mapping[str, Iterable[Any]]) -> None:
        """A value for every head and column; words are labels."""
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
        """All numbers of plain data, as JSON has it; of its words only those that are labels, never sentences.

        Args:
            labels: canonical keys whose words are kept.
            dropped: canonical keys that are left out, with all that they hold.
            identity: canonical keys that tell the items of a list apart, so that their order does not matter.
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
        """Whole numbers, which are choices and counts, as one word; a long list by its norm and projection."""
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
    """As JSON can hold it: NaN is None, infinity a word, and of other numbers ten digits."""
    if isinstance(x, Tensor):
        x = x.item()
    if x is None or isinstance(x, int | str):
        return x
    if math.isnan(x):
        return None
    return float(f"{x:.{DIGITS}g}") if math.isfinite(x) else str(float(x))


def _key(path: str) -> str:
    """The last part of a path that is not a place in a list."""
    return next((part for part in reversed(path.split("/")) if not part.isdigit()), "")


def _is_numbers(data: list[Any]) -> bool:
    """Whether a list, perhaps of lists, holds numbers and nothing else; None is a number that is missing."""
    flat = _flat(data)
    return bool(flat) and all(x is None or isinstance(x, int | float) for x in flat)


def _flat(data: Any) -> list[Any]:
    return [x for inner in data for x in _flat(inner)] if isinstance(data, list) else [data]


# ---- files ------------------------------------------------------------------------------------


def read_values(subject: str) -> Values:
    """The golden values of a subject; none where there is no file yet."""
    path = FOLDER / f"{subject}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_values(subject: str, values: Values) -> None:
    """A line for every value, so that a change can be read in a diff."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(values, indent=0, ensure_ascii=False, allow_nan=False)
    (FOLDER / f"{subject}.json").write_text(text + "\n", encoding="utf-8")
