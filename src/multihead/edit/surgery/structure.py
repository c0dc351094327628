"""Which parameters, attributes and classes of a model change when one of its attentions gets other heads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from multihead.edit.surgery.head_order import Pack, Piece, check_covered, out_bias, out_values, packs_of
from multihead.edit.surgery.kv_reuse import on_interface
from multihead.edit.surgery.patched_modules import CACHES, NoHeads, RepeatKV, SharedBias, is_patched
from multihead.edit.surgery.steps import Step
from multihead.errors import MultiheadError
from multihead.layer import Groups
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.position import PositionBias
from multihead.model.families import SIZES, Cutting
from multihead.model.head_weights import HeadWeights
from multihead.model.layer_anatomy import LayerAnatomy
from multihead.model.sites import CUT

Way = Literal["sizes", "kernel", "copies"]
"""How heads share keys and values: by the module's own code, by our kernel behind it, by copies in front of it."""

CutHeads = dict[str, Any]
"""The heads of a cut layer, by their indices in the uncut one: {"q": {"heads": [...], "of": n}, "kv": ...}"""


@dataclass
class Structure:
    """Steps, and the values of the parameters after them."""

    steps: list[Step] = field(default_factory=list[Step])
    weights: dict[str, Callable[[HeadWeights], Tensor]] = field(
        default_factory=dict[str, Callable[[HeadWeights], Tensor]]
    )
    """parameter → how it stores the weights of the new heads"""
    values: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """of other parameters that have rows for every head"""

    def add(self, do: str, at: str, name: str, value: Any) -> None:
        """Add a step to the structure."""
        self.steps.append(Step(do, at, name, value))

    def resize(self, name: str, values: Tensor) -> None:
        """Add the step that gives a parameter the shape of its new values."""
        path, _, leaf = name.rpartition(".")
        self.add("resize", path, leaf, list(values.shape))


@dataclass(frozen=True)
class Chosen:
    """The kept heads: their indices in the model as it is now, and in the uncut one, which had `of`."""

    now: list[int]
    count: int
    """how many there are now"""
    ids: list[int]
    """of all heads in the uncut model"""
    of: int

    @property
    def first(self) -> list[int]:
        """The indices of the kept heads in the uncut model."""
        return [self.ids[h] for h in self.now]


class Attention:
    """One attention of a model, about to get other heads."""

    def __init__(self, root: nn.Module, layer: LayerAnatomy, new: HeadWeights, cutting: Cutting) -> None:
        self.root, self.layer, self.new, self.cutting = root, layer, new, cutting
        self.module = root.get_submodule(layer.path)
        self.q = self._chosen("q", new.origin, layer.num_heads)
        self.kv = self._chosen("kv", new.kv_origin, layer.num_kv_heads)

    def _chosen(self, what: str, origin: Sequence[int], count: int) -> Chosen:
        """The chosen heads of the structure; `origin` are their indices in the model now."""
        cut_heads: CutHeads | None = getattr(self.module, CUT, None)
        uncut: dict[str, Any] = {"heads": list(range(count)), "of": count}
        before = uncut if cut_heads is None else cut_heads[what]
        return Chosen(list(origin), count, before["heads"], before["of"])

    def ways(self) -> list[Way]:
        """The ways to change the structure that fit the module and these heads, best first."""
        grouped = any(name in self.module.__dict__ for x in ("kv_heads", "group") for name in SIZES[x].split())
        if self.cutting.grouped_if:
            grouped = any(getattr(self.module, name, False) for name in self.cutting.grouped_if.split())
        if isinstance(self.module, nn.MultiheadAttention | MultiHeadAttention):
            return ["sizes"]
        if hasattr(self.module, "kv_of_head"):
            return ["kernel"]
        copies = any(isinstance(self._home(self.layer.weights[x].parameter), RepeatKV) for x in "qkv")
        if not copies and (self.new.groups.size == 1 or (grouped and self.new.groups.size is not None)):
            return ["sizes"]
        if not copies and on_interface(self.module) and not self.cutting.copies:
            return ["kernel", "copies"]
        return ["copies"]

    def own_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters of q, k, v and o, of the model that is cut."""
        return {name: self.root.get_parameter(name) for name in self.layer.parameters}

    def structure(self, way: Way, *, returns: str | None = None) -> Structure:
        """All changes of structure; `returns` if unknown for the class: the output of a module without heads."""
        structure = Structure()
        layer, new = self.layer, self.new
        uncut = self._between(structure) if new.heads else set[str]()
        copied: set[str] = set()
        for pack in packs_of(layer.storage, layer.path):
            if pack.letters in uncut:
                structure.weights[pack.parameter] = partial(self._kept_rows, pack)
                continue
            if any(letter in uncut for letter in pack.letters):
                raise MultiheadError(
                    f"{layer.where}: {pack.parameter} holds {', '.join(pack.letters)}, "
                    "and a norm behind it takes all heads together",
                    hint="separate the weights of q, k and v: such a norm also needs the rows of removed heads",
                )
            check_covered(pack, layer.storage, layer.parameters[pack.parameter], layer.path)
            if way == "copies" and set(pack.letters) & set("kv"):
                pack = self._with_copies(structure, pack, copied)
            structure.resize(pack.parameter, pack.values(new))
            structure.weights[pack.parameter] = pack.values
        part = layer.weights["o"]
        structure.resize(part.parameter, out_values(new, part.axis))
        structure.weights[part.parameter] = partial(out_values, axis=part.axis)
        if part.bias is not None:
            structure.weights[part.bias] = out_bias
        self._per_head(structure)
        self._set_sizes(structure, way)
        if not new.heads:
            self._no_heads(structure, returns or self.cutting.returns)
        return structure

    # ---- attributes of the module --------------------------------------------------------------

    def _set_sizes(self, structure: Structure, way: Way) -> None:
        """Structural steps that set the number of heads in the attributes of the module."""
        module, path, new = self.module, self.layer.path, self.new
        origin = {"q": {"heads": self.q.first, "of": self.q.of}, "kv": {"heads": self.kv.first, "of": self.kv.of}}
        structure.add("set", path, CUT, origin)
        kv_of_head = list(new.groups.kv_of_head)
        if isinstance(module, MultiHeadAttention):
            self._set_own_groups(structure)
            return
        if isinstance(module, nn.MultiheadAttention):
            structure.add("set", path, "num_heads", new.heads)
            structure.add("patch", path, "torch", {"kv_of_head": kv_of_head})
            return
        kv_heads = new.heads if way == "copies" else new.kv_heads
        sizes: dict[str, Any] = {
            "heads": new.heads,
            "kv_heads": kv_heads,
            "group": 1 if way != "sizes" else new.groups.size or 1,
            "width": new.heads * self.layer.key_dim,
            "widths": self._widths(kv_heads),
        }
        meant = {name: what for what, names in SIZES.items() for name in names.split()} | dict(self.cutting.sizes)
        for name, what in meant.items():
            if name in module.__dict__ and type(module.__dict__[name]) in (int, list):
                structure.add("set", path, name, sizes[what])
        for name, what in self.cutting.config.items():
            structure.add("set", path, f"config.{name}", sizes[what])
        for name in self.cutting.selects.split():
            structure.add("argument", path, name, {"select": {"heads": self.q.first, "of": self.q.of}})
        if isinstance(module, SharedBias) or {"position_bias", "mask"} <= _arguments(module):  # T5
            structure.add("patch", path, "shared bias", {"heads": self.q.first})
        if way == "kernel":
            structure.add("kv_of_head", path, "", kv_of_head)
        if new.heads and (way == "copies" or getattr(module, self.cutting.caches_copies_if or "_", False)):
            taken = _arguments(module)
            for name in CACHES:
                if name in taken:
                    structure.add("argument", path, name, {"dedup": kv_of_head})

    def _set_own_groups(self, structure: Structure) -> None:
        """Structural steps that set the groups and the position bias of our own layer."""
        path, ours = self.layer.path, self.module
        assert isinstance(ours, MultiHeadAttention)
        structure.add("kv_of_head", path, "", list(self.new.groups.kv_of_head))
        if isinstance(ours.position, nn.Module) and isinstance(ours.position, PositionBias):
            structure.add("patch", f"{path}.position", "select bias", {"heads": self.q.first})

    def _widths(self, kv_heads: int) -> int | list[int]:
        """The widths of the parts of a joint projection in the new structure: an int if they are equal."""
        layer = self.layer
        counts = {
            "q": self.new.heads * layer.key_dim,
            "k": kv_heads * layer.key_dim,
            "v": kv_heads * layer.value_dim,
            "g": 0 if self.new.g is None else self.new.heads * self.new.g.shape[1],
        }
        packs = [p for p in packs_of(layer.storage, layer.path) if len(p.letters) > 1 and not p.bias]
        widths = [counts[letter] for pack in packs[:1] for letter in pack.letters]
        return widths[0] if len(set(widths)) == 1 else widths

    def _no_heads(self, structure: Structure, returns: str) -> None:
        """The structure of an attention without heads."""
        if isinstance(self.module, MultiHeadAttention):
            returns = "=o"
        elif isinstance(self.module, NoHeads):  # W_O's bias was fitted: it still returns the same output
            returns = self.module.multihead_patch["returns"]
        out = self.layer.weights["o"].module.removeprefix(f"{self.layer.path}." if self.layer.path else "")
        # A module that runs none of its code needs no sizes; our own layer has its groups.
        kinds = ("resize", "kv_of_head") if isinstance(self.module, MultiHeadAttention) else ("resize",)
        structure.steps = [s for s in structure.steps if s.do in kinds or s.name in (CUT, "num_heads")]
        data = {"returns": returns, "out": out, "width": self.new.o.shape[1]}
        structure.add("patch", self.layer.path, "no heads", data)

    # ---- parameters ----------------------------------------------------------------------------

    def _home(self, parameter: str) -> nn.Module:
        return self.root.get_submodule(parameter.rpartition(".")[0])

    def _with_copies(self, structure: Structure, pack: Pack, done: set[str]) -> Pack:
        """The layout of few kv heads in blocks; the module that holds them gives every reader its copy."""
        new, path = self.new, pack.parameter.rpartition(".")[0]
        home = self._home(pack.parameter)
        seen = home.multihead_patch["packing"] if isinstance(home, RepeatKV) else pack.order
        stored = Pack(pack.parameter, pack.letters, pack.axis, "blocks", pack.bias)
        pieces = stored.pieces(new.groups)
        if path not in done and not pack.bias:
            done.add(path)
            apart = Groups(tuple(range(new.heads)), new.heads)
            wanted = Pack("", pack.letters, pack.axis, seen).pieces(apart)
            stored_as: list[Piece] = [(x, i if x == "q" else new.groups.kv_of_head[i]) for x, i in wanted]
            dims = {"q": self.layer.key_dim, "k": self.layer.key_dim, "v": self.layer.value_dim}
            data = {
                "sizes": [dims[x] for x, _ in pieces],
                "order": [pieces.index(piece) for piece in stored_as],
                "packing": seen,
            }
            structure.add("patch", path, "repeat kv", data)
        return stored

    def _kept_rows(self, pack: Pack, weights: HeadWeights) -> Tensor:
        """All rows of the uncut layer, for structures with a norm over all heads, which needs them.

        Of k, those of all kv heads that became one are that one's: the norm sees what it would see with copies.
        """
        letter, size = pack.letters, self.layer.key_dim
        values = self.root.get_parameter(pack.parameter).detach().clone()
        rows = values.mT if pack.axis == 1 and not pack.bias else values
        new: Tensor | None = getattr(weights, f"b_{letter}" if pack.bias else letter)
        for head, i in self._sources(letter).items():
            rows[head * size : (head + 1) * size] = 0.0 if new is None else new[i]
        return values

    def _sources(self, letter: str) -> dict[int, int]:
        """{head of the uncut layer: the new head that replaces it in the structure}."""
        if letter == "q":
            return {head: i for i, head in enumerate(self.q.first)}
        ids, old = self.kv.ids, self.layer.groups.kv_of_head
        merged = {ids[old[h]]: kv for h, kv in zip(self.new.origin, self.new.groups.kv_of_head, strict=True)}
        return merged | {head: i for i, head in enumerate(self.kv.first)}

    def _between(self, structure: Structure) -> set[str]:
        """Structure of norms of q and k; returns the letters whose norm is over all heads: they keep all rows."""
        uncut: set[str] = set()
        lists: set[str] = set()
        for letter in "qkv":
            chosen = self.q if letter == "q" else self.kv
            for name in self.layer.between[letter]:
                path = name.rpartition(".")[0]
                above = path.rpartition(".")[0]
                several = self.root.get_submodule(above) if above else None
                if isinstance(several, nn.ModuleList):
                    if above not in lists and chosen.now != list(range(chosen.count)):
                        structure.add("choose", above, "", chosen.now)
                        structure.add("set", above.rpartition(".")[0], "num_heads", len(chosen.now))
                    lists.add(above)
                    continue
                norm, weight = self.root.get_submodule(path), self.root.get_parameter(name)
                if is_patched(norm, "select heads") or weight.shape == (chosen.count * self.layer.key_dim,) != (
                    self.layer.key_dim,
                ):
                    uncut.add(letter)
                    data = {"size": self.layer.key_dim, "heads": chosen.first}
                    structure.add("patch", path, "select heads", data)
                elif weight.shape == (chosen.count, self.layer.key_dim):
                    structure.values[name] = weight.detach()[chosen.now]
                    structure.resize(name, structure.values[name])
                elif weight.numel() not in (1, self.layer.key_dim):
                    raise MultiheadError(
                        f"{self.layer.where}: {name} of shape {tuple(weight.shape)} is between W_{letter.upper()} "
                        f"and the kernel, with {chosen.count} heads of {self.layer.key_dim}",
                        hint="it cannot be cut: which of its values belong to which head is unknown",
                    )
        return uncut

    def _per_head(self, structure: Structure) -> None:
        """Other parameters of the structure that have a value, or rows, for every head."""
        if self.layer.sinks is not None:
            self._rows_of(structure, self.layer.sinks)
        for linear in self.cutting.rows.split():
            for leaf in ("weight", "bias"):
                name = f"{self.layer.path}.{linear}.{leaf}"
                if name in dict(self.root.named_parameters()):
                    self._rows_of(structure, name)

    def _rows_of(self, structure: Structure, name: str) -> None:
        """Change the structure of a parameter with rows for each head, such as a bias of the queries."""
        rows = self.root.get_parameter(name).detach()
        size = rows.shape[0] // max(self.q.count, 1)  # not -1: a layer may have no heads left
        structure.values[name] = rows.unflatten(0, (self.q.count, size))[self.q.now].flatten(0, 1)
        structure.resize(name, structure.values[name])


def _arguments(module: nn.Module) -> set[str]:
    return set(inspect.signature(type(module).forward).parameters)
