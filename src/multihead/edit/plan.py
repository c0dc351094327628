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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from torch import nn

from multihead._base.arguments import check_instance, check_model, check_path
from multihead._base.atomic_files import write_atomically
from multihead._base.json_files import read_json_object
from multihead._base.plural import plural
from multihead.edit import plan_text
from multihead.edit.calibration import Calibration, check_not_quantised
from multihead.edit.layer_plan import (
    DAMAGED,
    GROUPS,
    LayerPlan,
    edited,
    groups_of,
    indices_of,
    read_layer,
    read_number,
    read_text,
)
from multihead.edit.weight_sets import weight_sets
from multihead.errors import MultiheadError, SizeError
from multihead.model.compiled import inner
from multihead.model.fingerprint import fingerprint
from multihead.model.layer_anatomy import LayerAnatomy
from multihead.model.sites import Site, find
from multihead.table.head_names import HeadName

FORMAT = "multihead plan"
VERSION = 3
BY_HAND = "by hand"


@dataclass(frozen=True, repr=False)
class Plan:
    """The kept heads of every layer, for the model whose class and fingerprint it names.

    `mh.plan` makes one, and `mh.cut` carries it out. A plan does not change: `edit` returns a different one.

    >>> import multihead as mh
    >>> model, _ = mh.embedded()
    >>> plan = mh.plan(model, remove=["L0H2"]).edit(remove=["L2H0"], keep=["L0H2"])
    >>> plan["L2"].keep, plan.kept
    ((1, 2, 3), 11)
    """

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
        for field_name in ("name", "path"):
            counts = Counter(getattr(layer, field_name) for layer in self.layers)
            twice = [name for name, count in counts.items() if count > 1]
            if twice:
                raise SizeError(f"a plan must name every layer once, got {twice[0]!r} twice", hint="remove one")
        if self.heads and not self.kept:
            raise SizeError(
                f"a plan must keep a head, got none of {plural(self.heads, 'head')} (request: {self.request})",
                hint="keep or budget a larger share, or min_heads=1: one head in every layer",
            )

    @staticmethod
    def whole(model: nn.Module, layers: Iterable[LayerAnatomy]) -> Plan:
        """The plan that changes nothing."""
        return Plan(_layer_plans(layers), type(inner(model)).__name__, fingerprint(model))

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
        return plan_text.text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return plan_text.html(self)

    # ---- by hand ------------------------------------------------------------------------------

    def edit(
        self,
        *,
        remove: HeadName | Iterable[HeadName] = (),
        keep: HeadName | Iterable[HeadName] = (),
        groups: Mapping[str, Sequence[Sequence[int]]] | None = None,
    ) -> Plan:
        """A plan that removes more heads, keeps some after all, or has different groups in some layers.

        Heads are named L3H7, 3.7 or (3, 7). Groups are {"L3": [[0, 5], [1, 2, 7]]}, with every kept head in one;
        they have the numbers of these names.
        """
        out, back = self._resolve("remove", remove), self._resolve("keep", keep)
        check_instance("groups", groups, Mapping | None, "a dict or None", hint=GROUPS)
        both = sorted(out & back)
        if both:
            path, head = both[0]
            raise SizeError(f"{self[path].head(head)} must be in remove or in keep, got both", hint="name it once")
        new_groups = {
            self[name].path: indices_of(self[name], groups_of(name, new)) for name, new in (groups or {}).items()
        }
        layers = [
            edited(
                layer,
                {h for path, h in out if path == layer.path},
                {h for path, h in back if path == layer.path},
                new_groups.get(layer.path),
            )
            for layer in self.layers
        ]
        request = self.request if self.request.endswith(BY_HAND) else f"{self.request}, then {BY_HAND}"
        return replace(self, layers=tuple(layers), request=request)

    def _resolve(self, argument: str, names: HeadName | Iterable[HeadName]) -> set[tuple[str, int]]:
        """(path, head) of the names of heads in the plan."""
        single = isinstance(names, str) or (
            isinstance(names, tuple) and len(names) > 1 and isinstance(names[-1], int)
        )
        check_instance(argument, names, Iterable, "names of heads", hint=f'{argument}=["L3H7", (4, 1)]')
        listed = [cast(HeadName, names)] if single else cast(Iterable[HeadName], names)
        sites = [_site(x) for x in self.layers]
        return {(site.path, head) for site, head in (find(name, sites) for name in listed)}

    # ---- the model it is for ------------------------------------------------------------------

    def check(self, model: nn.Module) -> None:
        """Raise if the plan was made for a different model or different weights."""
        check_model(model)
        check_not_quantised(model)
        theirs, weights = type(inner(model)).__name__, fingerprint(model)
        if (theirs, weights) != (self.model, self.fingerprint):
            raise MultiheadError(
                f"the plan is for {self.model} with fingerprint {self.fingerprint}, got {theirs} with fingerprint "
                f"{weights}",
                hint="load the model that it was made for, in the same dtype, or make a plan for this one",
            )

    def check_layers(self, layers: Iterable[LayerAnatomy]) -> None:
        """Raise unless the plan's layers are those of the model, in its order and with its sizes."""
        expected = _layer_plans(layers)
        if [x.name for x in self.layers] != [x.name for x in expected]:
            named, needed = (", ".join(x.name for x in side) or "none" for side in (self.layers, expected))
            raise SizeError(f"the layers of the plan must be {needed}, got {named}", hint=DAMAGED)
        for layer, right in zip(self.layers, expected, strict=True):
            for name in ("path", "heads", "kv_heads", "kv_of_head", "times_used", "numbers"):
                if getattr(layer, name) != getattr(right, name):
                    raise SizeError(
                        f"{name} of {layer.name} must be {getattr(right, name)}, the model's, got "
                        f"{getattr(layer, name)}",
                        hint="edit keep and groups of a plan only",
                    )

    # ---- files --------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data, as `from_json` reads it and saved models contain it."""
        layers = [
            {
                "name": x.name, "path": x.path, "heads": x.heads, "kv_heads": x.kv_heads, "keep": list(x.keep),
                "groups": None if x.groups is None else [list(g) for g in x.groups],
                "kv_of_head": list(x.kv_of_head), "times_used": x.times_used, "numbers": list(x.numbers),
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
        check_instance("data", data, Mapping, "the object of a plan file", hint="Plan.load(path) reads a file")
        if data.get("format") != FORMAT or data.get("version") != VERSION:
            raise MultiheadError(
                f"a plan must have format {FORMAT!r} and version {VERSION}, got {data.get('format')!r} and "
                f"{data.get('version')!r}",
                hint="make the plan again with this version",
            )
        try:
            check_instance("layers", data["layers"], list, "a list of layers", hint=DAMAGED)
            check_instance("scores", data["scores"], Mapping, "an object of costs by head", hint=DAMAGED)
            check_instance("notes", data["notes"], list, "a list of texts", hint=DAMAGED)
            return Plan(
                tuple(map(read_layer, data["layers"])),
                read_text("model", data["model"]),
                read_text("fingerprint", data["fingerprint"]),
                read_text("method", data["method"]),
                read_text("request", data["request"]),
                {name: read_number(f"the score of {name}", x) for name, x in data["scores"].items()},
                tuple(read_text("a note", note) for note in data["notes"]),
            )
        except KeyError as missing:
            raise MultiheadError(f"the plan has no {missing}", hint=DAMAGED) from missing

    def save(self, path: Path | str) -> None:
        """Write the plan as JSON, completely or not at all."""
        check_path("path", path, hint="path='plan.json'")
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n"
        try:
            write_atomically(Path(path), text.encode())
        except (OSError, ValueError) as error:  # ValueError: a null character in the path
            raise MultiheadError(
                f"the plan was not written to {path}: {getattr(error, 'strerror', error)}",
                hint="choose the path of a file, in a folder that you may write to",
            ) from error

    @staticmethod
    def load(path: Path | str) -> Plan:
        """The plan in a file that `save` or `multihead prune --plan` wrote."""
        check_path("path", path, hint="path='plan.json'")
        return Plan.from_json(read_json_object(Path(path), hint="plan.save(path) writes a plan file"))


# ---- layers ---------------------------------------------------------------------------------------------


def _layer_plans(layers: Iterable[LayerAnatomy]) -> tuple[LayerPlan, ...]:
    """A plan for every weight set of a model, with all of its heads."""
    return tuple(
        LayerPlan(
            first.name, first.path, first.num_heads, first.num_kv_heads, tuple(range(first.num_heads)),
            kv_of_head=tuple(first.groups.kv_of_head), times_used=1 + len(others), numbers=first.site.numbers,
        )
        for first, *others in weight_sets(layers)
    )  # fmt: skip


def _site(layer: LayerPlan) -> Site:
    stack, _, number = layer.name.rpartition("L")
    return Site(layer.path, 0, stack.removesuffix("."), int(number), layer.heads, numbers=layer.numbers)
