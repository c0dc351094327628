"""What a cut will do, before it does it: which heads go, which share keys and values afterwards, and why.

A plan is data. It prints, is edited by hand, travels as JSON, and fits only the weights that it was made for.

>>> import torch, multihead as mh
>>> from multihead.edit.plan import Plan
>>> model = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True).eval()
>>> plan = Plan.whole(model, mh.anatomy(model)).edit(remove=["L0H1"])
>>> print(plan)
TransformerEncoderLayer: 2 of 3 heads stay (asked: by hand)
layer  heads  goes
L0     3 → 2  H1
>>> Plan.from_json(plan.to_json()) == plan
True
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from torch import nn

from multihead._base.atomic_files import write_atomically
from multihead.edit.calibration import Calibration
from multihead.errors import MultiheadError, SizeError
from multihead.model.anatomy import LayerAnatomy
from multihead.model.compiled import inner
from multihead.model.fingerprint import fingerprint
from multihead.model.sites import Site, find
from multihead.table.head_names import HeadName

FORMAT = "multihead plan"
VERSION = 1


@dataclass(frozen=True)
class LayerPlan:
    """One set of attention weights: its heads as they are, and what becomes of them.

    `keep` are the query heads that stay; `groups` says which of them share a kv head afterwards (None: they read
    the kv heads they read now).
    """

    name: str
    path: str
    heads: int
    kv_heads: int
    keep: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...] | None = None
    reads: tuple[int, ...] | None = None
    """which kv head each query head reads now; None: evenly, in order"""
    turns: int = 1
    """how often the model uses these weights in one run"""

    def __post_init__(self) -> None:
        wrong = [h for h in self.keep if not 0 <= h < self.heads]
        if wrong or len(set(self.keep)) < len(self.keep):
            raise SizeError(
                f"{self.name} cannot keep heads {list(self.keep)}: it has {self.heads}",
                hint=f"each once, from 0 to {self.heads - 1}",
            )
        if self.groups is not None and sorted(h for g in self.groups for h in g) != sorted(self.keep):
            raise SizeError(
                f"the groups of {self.name} are of heads {sorted(h for g in self.groups for h in g)}, the heads "
                f"that stay are {sorted(self.keep)}",
                hint="every head that stays is in exactly one group",
            )

    @property
    def gone(self) -> tuple[int, ...]:
        return tuple(h for h in range(self.heads) if h not in self.keep)

    @property
    def kv_of_head(self) -> tuple[int, ...]:
        """Which kv head each query head reads now."""
        return (
            tuple(h * self.kv_heads // self.heads for h in range(self.heads)) if self.reads is None else self.reads
        )

    @property
    def kv_after(self) -> int:
        """kv heads afterwards."""
        return len({self.kv_of_head[h] for h in self.keep}) if self.groups is None else len(self.groups)

    @property
    def changes(self) -> bool:
        return len(self.keep) < self.heads or self.kv_after < self.kv_heads

    def head(self, i: int) -> str:
        return f"{self.name}H{i}"


@dataclass(frozen=True, repr=False)
class Plan:
    """Layer by layer what stays; for the model whose class and weights it names, and no other.

    `scores` is what each head costs, by name, in the unit of the method; `asked` what the user said, in words.
    """

    layers: tuple[LayerPlan, ...]
    model: str
    """the class of the model"""
    weights: str
    """the fingerprint of its weights"""
    method: str = ""
    asked: str = "by hand"
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    notes: tuple[str, ...] = ()
    calibration: Calibration | None = field(default=None, compare=False)
    """the text it was made with, which `cut` fits to unless told otherwise; never saved"""

    @staticmethod
    def whole(model: nn.Module, layers: Iterable[LayerAnatomy]) -> Plan:
        """The plan that changes nothing, to be edited."""
        made = tuple(_layer(turns) for turns in distinct(layers))
        return Plan(made, type(inner(model)).__name__, fingerprint(model))

    # ---- what it says -------------------------------------------------------------------------

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
        """Whether anything would be another afterwards."""
        return any(x.changes for x in self.layers)

    def __getitem__(self, layer: str) -> LayerPlan:
        for x in self.layers:
            if layer in (x.name, x.path):
                return x
        raise SizeError(f"the plan has no layer {layer!r}", hint=f"it has {', '.join(x.name for x in self.layers)}")

    def __str__(self) -> str:
        from multihead.edit.plan_text import text

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
        """The plan with some heads gone that stayed, some that stay after all, or other groups in some layers.

        Heads are named L3H7, 3.7 or (3, 7); groups are {"L3": [[0, 5], [1, 2, 7]]}, every head that stays in one.
        """
        out, back = self._named(remove), self._named(keep)
        both = sorted(out & back)
        if both:
            raise SizeError(f"{self._head(both[0])} is to be removed and to be kept", hint="name it once")
        given = {self[name].name: tuple(tuple(g) for g in new) for name, new in (groups or {}).items()}
        layers = [
            _edited(
                layer,
                {h for p, h in out if p == layer.path},
                {h for p, h in back if p == layer.path},
                given.get(layer.name),
            )
            for layer in self.layers
        ]
        asked = self.asked if self.asked.endswith("by hand") else f"{self.asked}, then by hand"
        return replace(self, layers=tuple(layers), asked=asked)

    def _named(self, names: HeadName | Iterable[HeadName]) -> set[tuple[str, int]]:
        return {(site.path, h) for site, h in named([_site(x) for x in self.layers], names)}

    def _head(self, key: tuple[str, int]) -> str:
        return self[key[0]].head(key[1])

    # ---- whose it is --------------------------------------------------------------------------

    def check(self, model: nn.Module) -> None:
        """Raise if the plan was made for another model, or for other weights."""
        theirs, weights = type(inner(model)).__name__, fingerprint(model)
        if (theirs, weights) != (self.model, self.weights):
            raise MultiheadError(
                f"the plan was made for {self.model} with weights {self.weights}, this is {theirs} with weights "
                f"{weights}",
                hint="load the model that it was made for, in the same dtype, or make a plan for this one",
            )

    # ---- files --------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Plain data: what `from_json` reads, and what a saved model carries."""
        layers = [
            {
                "name": x.name, "path": x.path, "heads": x.heads, "kv_heads": x.kv_heads, "keep": list(x.keep),
                "groups": None if x.groups is None else [list(g) for g in x.groups],
                "reads": None if x.reads is None else list(x.reads), "turns": x.turns,
            }
            for x in self.layers
        ]  # fmt: skip
        return {
            "format": FORMAT, "version": VERSION, "model": self.model, "weights": self.weights,
            "method": self.method, "asked": self.asked, "layers": layers, "scores": dict(self.scores),
            "notes": list(self.notes),
        }  # fmt: skip

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Plan:
        if data.get("format") != FORMAT or data.get("version") != VERSION:
            raise MultiheadError(
                f"this is no plan: format {data.get('format')!r}, version {data.get('version')!r}",
                hint=f"a plan says {FORMAT!r} and {VERSION}",
            )
        try:
            return Plan(
                tuple(_read(x) for x in data["layers"]),
                str(data["model"]),
                str(data["weights"]),
                str(data["method"]),
                str(data["asked"]),
                {str(k): float(v) for k, v in data["scores"].items()},
                tuple(map(str, data["notes"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as wrong:
            if isinstance(wrong, MultiheadError):
                raise
            raise MultiheadError(f"the plan cannot be read: {type(wrong).__name__} {wrong}") from wrong

    def save(self, path: Path | str) -> None:
        """Write it as JSON, at once or not at all."""
        write_atomically(Path(path), (json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n").encode())

    @staticmethod
    def load(path: Path | str) -> Plan:
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as wrong:
            raise MultiheadError(f"{path} is not JSON: {wrong}", hint="multihead prune --plan writes it") from wrong
        if not isinstance(data, dict):
            raise MultiheadError(f"{path} is no plan", hint="multihead prune --plan writes it")
        return Plan.from_json(data)  # pyright: ignore[reportUnknownArgumentType]  # JSON


# ---- a model's layers -----------------------------------------------------------------------------------


def distinct(layers: Iterable[LayerAnatomy]) -> list[list[LayerAnatomy]]:
    """Layers by their weights: those that are the same parameters (ALBERT's) come together, in order."""
    found: dict[tuple[str, ...], list[LayerAnatomy]] = {}
    for layer in layers:
        found.setdefault(tuple(p.parameter for p in layer.weights.values()), []).append(layer)
    return list(found.values())


def named(sites: Sequence[Site], names: HeadName | Iterable[HeadName]) -> list[tuple[Site, int]]:
    """The heads that names mean; every one must be there."""
    single = isinstance(names, str) or (isinstance(names, tuple) and len(names) > 1 and isinstance(names[-1], int))
    listed = [cast(HeadName, names)] if single else cast(Iterable[HeadName], names)
    return [find(name, sites) for name in listed]


def _layer(turns: Sequence[LayerAnatomy]) -> LayerPlan:
    first = turns[0]
    reads = tuple(first.groups.kv_of_head)
    even = tuple(h * first.num_kv_heads // first.num_heads for h in range(first.num_heads))
    return LayerPlan(
        first.name,
        first.path,
        first.num_heads,
        first.num_kv_heads,
        tuple(range(first.num_heads)),
        reads=None if reads == even else reads,
        turns=len(turns),
    )


def _site(layer: LayerPlan) -> Site:
    stack, _, number = layer.name.rpartition("L")
    return Site(layer.path, 0, stack.removesuffix("."), int(number), layer.heads)


def _edited(
    layer: LayerPlan,
    out: set[int],
    back: set[int],
    groups: tuple[tuple[int, ...], ...] | None,
) -> LayerPlan:
    keep = tuple(h for h in range(layer.heads) if h in back or (h in layer.keep and h not in out))
    if groups is None and layer.groups is not None:
        new = [layer.head(h) for h in keep if h not in layer.keep]
        if new:
            raise SizeError(
                f"{new[0]} would be in no group: {layer.name} has groups {[list(g) for g in layer.groups]}",
                hint=f"say all of them: groups={{{layer.name!r}: [[...], ...]}}",
            )
        groups = tuple(left for g in layer.groups if (left := tuple(h for h in g if h in keep)))
    return replace(layer, keep=keep, groups=groups)


def _read(x: Mapping[str, Any]) -> LayerPlan:
    return LayerPlan(
        str(x["name"]),
        str(x["path"]),
        int(x["heads"]),
        int(x["kv_heads"]),
        tuple(map(int, x["keep"])),
        None if x["groups"] is None else tuple(tuple(map(int, g)) for g in x["groups"]),
        None if x.get("reads") is None else tuple(map(int, x["reads"])),
        int(x.get("turns", 1)),
    )
