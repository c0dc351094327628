"""A plan: which heads are removed and which share keys and values, with the reasons. Nothing is cut yet.

A plan prints, can be edited, is saved as JSON, and applies only to the weights that it was made for.

>>> import torch, multihead as mh
>>> from multihead.edit.plan import Plan
>>> model = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True).eval()
>>> plan = Plan.whole(model, mh.anatomy(model)).edit(remove=["L0H1"])
>>> print(plan)
TransformerEncoderLayer: 2 of 3 heads kept (request: by hand)
layer  heads  removed
L0     3 → 2  H1
>>> Plan.from_json(plan.to_json()) == plan
True
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from torch import nn

from multihead._base.arguments import check_count, check_instance, integers
from multihead._base.atomic_files import write_atomically
from multihead.edit.calibration import Calibration
from multihead.edit.weight_sets import weight_sets
from multihead.errors import MultiheadError, SizeError
from multihead.model.anatomy import LayerAnatomy
from multihead.model.compiled import inner
from multihead.model.fingerprint import fingerprint
from multihead.model.sites import Site, find
from multihead.table.head_names import HeadName

FORMAT = "multihead plan"
VERSION = 2
BY_HAND = "by hand"


@dataclass(frozen=True)
class LayerPlan:
    """One set of attention weights: its heads now, and those that are kept.

    `groups`: the kept heads that share a kv head afterwards; None: they read the same kv heads as now.
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

    def __post_init__(self) -> None:
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
        return f"{self.name}H{i}"


@dataclass(frozen=True, repr=False)
class Plan:
    """The kept heads of every layer, for the model whose class and fingerprint it names."""

    layers: tuple[LayerPlan, ...]
    model: str
    """the class of the model"""
    fingerprint: str
    """of its weights"""
    method: str = ""
    """how heads were scored"""
    request: str = BY_HAND
    """the arguments of `mh.plan`"""
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    """the cost of every head, by name, in the unit of the method"""
    notes: tuple[str, ...] = ()
    calibration: Calibration | None = field(default=None, compare=False)
    """the text it was made with, which `cut` fits to by default; not saved"""

    def __post_init__(self) -> None:
        for what in ("name", "path"):
            counts = Counter(getattr(layer, what) for layer in self.layers)
            twice = [name for name, count in counts.items() if count > 1]
            if twice:
                raise SizeError(f"a plan must name every layer once, got {twice[0]!r} twice", hint="remove one")

    @staticmethod
    def whole(model: nn.Module, layers: Iterable[LayerAnatomy]) -> Plan:
        """The plan that changes nothing."""
        made = tuple(_layer_plan(same) for same in weight_sets(layers))
        return Plan(made, type(inner(model)).__name__, fingerprint(model))

    # ---- reading ------------------------------------------------------------------------------

    @property
    def heads(self) -> int:
        return sum(x.heads for x in self.layers)

    @property
    def kept(self) -> int:
        return sum(len(x.keep) for x in self.layers)

    @property
    def kv_heads(self) -> int:
        return sum(x.kv_heads for x in self.layers)

    @property
    def kv_kept(self) -> int:
        return sum(x.kv_after for x in self.layers)

    @property
    def changes(self) -> bool:
        """Whether the plan changes the model at all."""
        return any(x.changes for x in self.layers)

    def __getitem__(self, layer: str) -> LayerPlan:
        for x in self.layers:
            if layer in (x.name, x.path):
                return x
        raise SizeError(f"unknown layer {layer!r}", hint=f"the plan has {', '.join(x.name for x in self.layers)}")

    def __str__(self) -> str:
        from multihead.edit.plan_text import text  # it reads the classes of this module

        return text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from multihead.edit.plan_text import html

        return html(self)

    # ---- by hand ------------------------------------------------------------------------------

    def edit(
        self,
        *,
        remove: HeadName | Iterable[HeadName] = (),
        keep: HeadName | Iterable[HeadName] = (),
        groups: Mapping[str, Sequence[Sequence[int]]] | None = None,
    ) -> Plan:
        """Remove more heads, keep some after all, or replace the groups of some layers.

        Heads are named L3H7, 3.7 or (3, 7). Groups are {"L3": [[0, 5], [1, 2, 7]]}, with every kept head in one.
        """
        out, back = self._resolve(remove), self._resolve(keep)
        both = sorted(out & back)
        if both:
            path, head = both[0]
            raise SizeError(f"{self[path].head(head)} must be in remove or in keep, got both", hint="name it once")
        new_groups = {self[name].path: tuple(map(tuple, new)) for name, new in (groups or {}).items()}
        layers = [
            _edited(
                layer,
                {h for path, h in out if path == layer.path},
                {h for path, h in back if path == layer.path},
                new_groups.get(layer.path),
            )
            for layer in self.layers
        ]
        request = self.request if self.request.endswith(BY_HAND) else f"{self.request}, then {BY_HAND}"
        return replace(self, layers=tuple(layers), request=request)

    def _resolve(self, names: HeadName | Iterable[HeadName]) -> set[tuple[str, int]]:
        """(path, head) of the names of heads."""
        single = isinstance(names, str) or (
            isinstance(names, tuple) and len(names) > 1 and isinstance(names[-1], int)
        )
        listed = [cast(HeadName, names)] if single else cast(Iterable[HeadName], names)
        sites = [_site(x) for x in self.layers]
        return {(site.path, head) for site, head in (find(name, sites) for name in listed)}

    # ---- the model it is for ------------------------------------------------------------------

    def check(self, model: nn.Module) -> None:
        """Raise if the plan was made for a different model or different weights."""
        theirs, weights = type(inner(model)).__name__, fingerprint(model)
        if (theirs, weights) != (self.model, self.fingerprint):
            raise MultiheadError(
                f"the plan is for {self.model} with fingerprint {self.fingerprint}, got {theirs} with fingerprint "
                f"{weights}",
                hint="load the model that it was made for, in the same dtype, or make a plan for this one",
            )

    # ---- files --------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Plain data, as `from_json` reads it and saved models contain it."""
        layers = [
            {
                "name": x.name, "path": x.path, "heads": x.heads, "kv_heads": x.kv_heads, "keep": list(x.keep),
                "groups": None if x.groups is None else [list(g) for g in x.groups],
                "kv_of_head": list(x.kv_of_head), "times_used": x.times_used,
            }
            for x in self.layers
        ]  # fmt: skip
        return {
            "format": FORMAT, "version": VERSION, "model": self.model, "fingerprint": self.fingerprint,
            "method": self.method, "request": self.request, "layers": layers, "scores": dict(self.scores),
            "notes": list(self.notes),
        }  # fmt: skip

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Plan:
        """The plan of `to_json`; every value is checked."""
        if data.get("format") != FORMAT or data.get("version") != VERSION:
            raise MultiheadError(
                f"a plan must have format {FORMAT!r} and version {VERSION}, got {data.get('format')!r} and "
                f"{data.get('version')!r}",
                hint="make the plan again with this version",
            )
        try:
            return Plan(
                tuple(map(_read_layer, data["layers"])),
                str(data["model"]),
                str(data["fingerprint"]),
                str(data["method"]),
                str(data["request"]),
                {str(k): float(v) for k, v in data["scores"].items()},
                tuple(map(str, data["notes"])),
            )
        except KeyError as missing:
            raise MultiheadError(f"the plan has no {missing}", hint="make the plan again") from missing
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, MultiheadError):
                raise
            raise MultiheadError(f"the plan is not readable: {error}", hint="make the plan again") from error

    def save(self, path: Path | str) -> None:
        """Write it as JSON, completely or not at all."""
        _check_path(path)
        write_atomically(Path(path), (json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n").encode())

    @staticmethod
    def load(path: Path | str) -> Plan:
        _check_path(path)
        hint = "plan.save(path) and multihead prune --plan write one"
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise MultiheadError(f"there is no plan file {path}", hint=hint) from error
        except OSError as error:
            raise MultiheadError(f"the plan file {path} is not readable: {error.strerror}", hint=hint) from error
        except ValueError as error:
            raise MultiheadError(f"the plan file {path} is not JSON: {error}", hint=hint) from error
        if not isinstance(data, dict):
            raise MultiheadError(f"the plan file {path} must hold an object, got {data!r:.40}", hint=hint)
        return Plan.from_json(data)  # pyright: ignore[reportUnknownArgumentType]  # JSON


def _check_path(path: object) -> None:
    check_instance("path", path, str | os.PathLike, "a path", hint="path='plan.json'")


# ---- layers ---------------------------------------------------------------------------------------------


def _layer_plan(same: Sequence[LayerAnatomy]) -> LayerPlan:
    first, everything = same[0], tuple(range(same[0].num_heads))
    return LayerPlan(
        first.name, first.path, first.num_heads, first.num_kv_heads, everything,
        kv_of_head=tuple(first.groups.kv_of_head), times_used=len(same),
    )  # fmt: skip


def _site(layer: LayerPlan) -> Site:
    stack, _, number = layer.name.rpartition("L")
    return Site(layer.path, 0, stack.removesuffix("."), int(number), layer.heads)


def _edited(
    layer: LayerPlan, out: set[int], back: set[int], groups: tuple[tuple[int, ...], ...] | None
) -> LayerPlan:
    keep = tuple(h for h in range(layer.heads) if h in back or (h in layer.keep and h not in out))
    if groups is None and layer.groups is not None:
        new = [layer.head(h) for h in keep if h not in layer.keep]
        if new:
            raise SizeError(
                f"{new[0]} must be in a group: {layer.name} has groups {[list(g) for g in layer.groups]}",
                hint=f"pass all of them: groups={{{layer.name!r}: [[...], ...]}}",
            )
        groups = tuple(left for g in layer.groups if (left := tuple(h for h in g if h in keep)))
    return replace(layer, keep=keep, groups=groups)


def _read_layer(x: Mapping[str, Any]) -> LayerPlan:
    for what in ("heads", "kv_heads", "times_used"):
        check_count(f"{what} of {x['name']}", x[what], least=0)
    groups = x["groups"]
    return LayerPlan(
        str(x["name"]),
        str(x["path"]),
        x["heads"],
        x["kv_heads"],
        integers(f"keep of {x['name']}", x["keep"]),
        None if groups is None else tuple(integers(f"groups of {x['name']}", g) for g in groups),
        integers(f"kv_of_head of {x['name']}", x["kv_of_head"]),
        x["times_used"],
    )
