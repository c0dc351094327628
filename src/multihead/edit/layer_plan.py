"""The plan of one layer: the heads that it keeps, and those that share keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from multihead._base.arguments import MOST_ITEMS, check_count, check_instance, integers
from multihead.errors import MultiheadError, SizeError

DAMAGED = "make the plan again"

GROUPS = 'groups={"L3": [[0, 5], [1, 2, 7]]}'


@dataclass(frozen=True)
class LayerPlan:
    """One set of attention weights: its heads now, and those that are kept, by their indices.

    `groups`: the kept heads that share a kv head afterwards; if None, they read the same kv heads as now.
    """

    name: str
    path: str
    heads: int
    kv_heads: int
    keep: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...] | None = None
    kv_of_head: tuple[int, ...] = ()
    """the kv head that each query head reads now; by default evenly, in order"""
    times_used: int = 1
    """how often the model uses these weights in one forward"""
    numbers: tuple[int, ...] = ()
    """the number of each head in the uncut model; by default 0, 1, ..."""

    def __post_init__(self) -> None:
        if not self.numbers:
            object.__setattr__(self, "numbers", tuple(range(self.heads)))
        if len({*self.numbers}) != self.heads or len(self.numbers) != self.heads:
            raise SizeError(
                f"numbers of {self.name} must be {self.heads} different ones, got {list(self.numbers)}",
                hint="one for every head, as in the uncut model",
            )
        if not self.kv_of_head:
            even = tuple(h * self.kv_heads // self.heads for h in range(self.heads))
            object.__setattr__(self, "kv_of_head", even)
        if len(self.kv_of_head) != self.heads or not {*self.kv_of_head} <= {*range(self.kv_heads)}:
            raise SizeError(
                f"kv_of_head of {self.name} must be {self.heads} of the {self.kv_heads} kv heads, got "
                f"{list(self.kv_of_head)}",
                hint="one kv head for every query head",
            )
        if len({*self.keep}) < len(self.keep) or not {*self.keep} <= {*range(self.heads)}:
            raise SizeError(
                f"keep of {self.name} must be different heads of its {self.heads}, got {list(self.keep)}",
                hint=f"name each once, from 0 to {self.heads - 1}",
            )
        grouped = sorted(h for group in self.groups or () for h in group)
        if self.groups is not None and grouped != sorted(self.keep):
            raise SizeError(
                f"groups of {self.name} must contain the kept heads {sorted(self.keep)}, got {grouped}",
                hint="put every kept head into exactly one group",
            )
        if not all(self.groups or (True,)):
            raise SizeError(f"groups of {self.name} must not be empty, got {list(self.groups or ())}", hint=GROUPS)

    @property
    def removed(self) -> tuple[int, ...]:
        return tuple(h for h in range(self.heads) if h not in self.keep)

    @property
    def kv_after(self) -> int:
        """The number of kv heads afterwards."""
        return len({self.kv_of_head[h] for h in self.keep}) if self.groups is None else len(self.groups)

    @property
    def changes(self) -> bool:
        return len(self.keep) < self.heads or self.kv_after < self.kv_heads

    def head(self, i: int) -> str:
        """The name of a head; heads of a cut model keep their original names."""
        return f"{self.name}H{self.numbers[i]}"


def indices_of(layer: LayerPlan, groups: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """The plan's groups by the indices of their heads."""
    unknown = [number for group in groups for number in group if number not in layer.numbers]
    if unknown:
        raise SizeError(
            f"groups of {layer.name} must contain its heads {sorted(layer.numbers)}, got {unknown[0]}",
            hint="put every kept head into exactly one group",
        )
    return tuple(tuple(layer.numbers.index(number) for number in group) for group in groups)


def edited(
    layer: LayerPlan, out: set[int], back: set[int], groups: tuple[tuple[int, ...], ...] | None
) -> LayerPlan:
    """The plan of a layer without some heads, with others again, and with new groups."""
    keep = tuple(h for h in range(layer.heads) if h in back or (h in layer.keep and h not in out))
    if groups is None and layer.groups is not None:
        ungrouped = [layer.head(h) for h in keep if h not in layer.keep]
        if ungrouped:
            raise SizeError(
                f"{ungrouped[0]} must be in a group: {layer.name} has groups {[list(g) for g in layer.groups]}",
                hint=f"pass all of them: groups={{{layer.name!r}: [[...], ...]}}",
            )
        groups = tuple(left for g in layer.groups if (left := tuple(h for h in g if h in keep)))
    return replace(layer, keep=keep, groups=groups)


_FIELDS = ("name", "path", "heads", "kv_heads", "keep", "groups", "kv_of_head", "times_used", "numbers")
"""Of a layer in a plan file."""


def _check_fields(where: str, x: Mapping[str, Any], fields: Sequence[str]) -> None:
    """Raise for a field that a plan file does not have: it may be misspelt, and would be ignored."""
    unknown = [name for name in x if name not in fields]
    if unknown:
        raise MultiheadError(
            f"{where} has an unknown field {unknown[0]!r}", hint=f"its fields are {', '.join(fields)}"
        )


def read_layer(x: Mapping[str, Any]) -> LayerPlan:
    """The plan of a layer from JSON, checked."""
    check_instance("a layer", x, Mapping, "an object", hint=DAMAGED)
    name = read_text("the name of a layer", x["name"])
    _check_fields(f"layer {name} of the plan", x, _FIELDS)
    for count in ("heads", "kv_heads", "times_used"):
        check_count(f"{count} of {name}", x[count], least=0, most=MOST_ITEMS)
    return LayerPlan(
        name,
        read_text(f"path of {name}", x["path"]),
        x["heads"],
        x["kv_heads"],
        integers(f"keep of {name}", x["keep"]),
        None if x["groups"] is None else groups_of(name, x["groups"]),
        integers(f"kv_of_head of {name}", x["kv_of_head"]),
        x["times_used"],
        integers(f"numbers of {name}", x["numbers"]),
    )


def groups_of(layer: str, groups: object) -> tuple[tuple[int, ...], ...]:
    check_instance(f"groups of {layer}", groups, list | tuple, "a list of lists of heads", hint=GROUPS)
    return tuple(integers(f"groups of {layer}", group) for group in cast(Sequence[object], groups))


def read_text(name: str, value: object) -> str:
    check_instance(name, value, str, "a text", hint=DAMAGED)
    return cast(str, value)


def read_number(name: str, value: object) -> float:
    check_instance(name, value, int | float, "a number", hint=DAMAGED)
    return float(cast(float, value))
