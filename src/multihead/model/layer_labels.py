"""Stack and layer of every attention, from the module tree alone: L3, decoder.L3, cross.L0, vision.L1.

Modules whose paths differ only in numbers have one *role*: `decoder.layers.0.self_attn` and
`decoder.layers.1.self_attn`. Roles below one list of layers are one *stack*. Words of a path choose the label of a
stack, and nothing else; two stacks never share a label. Which modules have run plays no part.

>>> from multihead.model.layer_labels import StackNames
>>> paths = [f"encoder.layers.{i}.attn" for i in (0, 1)] + ["decoder.layers.0.attn", "decoder.layers.0.attn2"]
>>> names = StackNames(paths, paths)
>>> names.of("encoder.layers.1.attn", 0, cross=False), names.of("decoder.layers.0.attn2", 0, cross=True)
(('encoder', 1), ('cross', 0))
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from multihead.model.attention_modules import is_inside

# (word in a module's path, label of the tower it belongs to)
_TOWERS = (
    ("vision", "vision"), ("visual", "vision"), ("image", "vision"), ("text", "text"), ("language", "text"),
    ("audio", "audio"), ("speech", "audio"),
)  # fmt: skip
_MAIN = "main"
_ORDER = ("decoder", _MAIN, "encoder")
"""In this order, the first stack with cross-attention labels it "cross"; others use `vision_cross` and the like."""
_NAMED_CROSS = ("cross", "encoder_attn", "encdec", "encoder_decoder")


@dataclass
class _Role:
    """Attentions that do the same in different layers."""

    name: str
    """the attribute that holds them in their layer: self_attn"""
    layers: dict[str, int]
    """path → layer"""
    named_cross: bool
    path_name: str
    """words of the path, unique"""
    stack: str = ""
    """of its self-attention"""
    cross_stack: str = ""
    """of its cross-attention"""

    def of(self, path: str, call_index: int, cross: bool) -> tuple[str, int]:
        """(stack, layer) of one attention; layers that run again come after all others."""
        layer = self.layers[path] + call_index * (max(self.layers.values()) + 1)
        return self.cross_stack if cross else self.stack, layer


@dataclass
class _Stack:
    """The roles of one list of layers; the first is the main one."""

    label: str
    roles: list[_Role] = field(default_factory=list[_Role])

    @property
    def has_cross(self) -> bool:
        return len(self.roles) > 1 and any(role.named_cross for role in self.roles)


class StackNames:
    """The stack and layer of every attention of a model."""

    def __init__(self, paths: Iterable[str], attentions: Iterable[str]) -> None:
        """`paths`: of all modules of the model; `attentions`: of those that look like attention."""
        self._paths = list(paths)
        self._roles: dict[str, _Role] = {}
        """path → role"""
        self._apart: dict[str, _Role] = {}
        """the same for modules that do not look like attention: outside of all attentions, or inside one"""
        self._callers: dict[tuple[str, bool], str] = {}
        """(path of an attention, cross) → the module in it that calls the kernel"""
        stacks = _stacks(list(attentions))
        _name_roles(stacks)
        for stack in stacks:
            for role in stack.roles:
                self._roles |= dict.fromkeys(role.layers, role)

    def of(self, path: str, call_index: int, *, cross: bool) -> tuple[str, int]:
        """The label of one attention, (stack, layer); `cross`: its keys come from another sequence."""
        if path not in self._apart:
            known = path if path in self._roles else self._around(path)
            # Two modules inside one attention may call a kernel each: the first has the name of the attention.
            if known is not None and self._callers.setdefault((known, cross), path) == path:
                return self._roles[known].of(known, call_index, cross)
            self._add(path)
        return self._apart[path].of(path, call_index, cross)

    def _around(self, path: str) -> str | None:
        """The attention that a module belongs to: around it, or inside it."""
        return next((known for known in self._roles if is_inside(path, known) or is_inside(known, path)), None)

    def _add(self, path: str) -> None:
        """Label a module that calls a kernel, but does not look like attention, and all modules like it."""
        role = _role([p for p in self._paths if _pattern(p) == _pattern(path)])
        label = _word_label(_pattern(path).partition("#")[0])
        roles = (self._roles | self._apart).values()
        taken = {name for known in roles for name in (known.stack, known.cross_stack)}
        stack = "" if label == _MAIN else label
        role.stack = role.path_name if stack in taken else stack
        cross = "cross" if label in _ORDER else f"{label}_cross"
        role.cross_stack = f"{role.path_name}_cross" if cross in taken else cross
        self._apart |= dict.fromkeys(role.layers, role)


# ---- stacks of the module tree ----------------------------------------------------------------


def _stacks(paths: Sequence[str]) -> list[_Stack]:
    """The stacks of layers to label, and attentions outside of lists."""
    patterns: dict[str, list[str]] = {}
    for path in paths:
        patterns.setdefault(_pattern(path), []).append(path)
    lists: dict[str, list[_Role]] = {}  # path of a list of layers → its roles
    single: dict[str, list[str]] = {}  # word label → attentions outside of lists
    for pattern, members in patterns.items():
        if "#" in pattern:
            lists.setdefault(pattern.partition("#")[0].strip("."), []).append(_role(members))
        else:
            single.setdefault(_word_label(pattern.rpartition(".")[0]), []).extend(members)
    stacks = [_Stack(label, lists[path]) for path, label in _labels(list(lists)).items()]
    for label, members in single.items():
        roles = [_role(some) for some in _self_and_cross(members) if some]
        owner = next((stack for stack in stacks if stack.label.startswith(label)), None)
        if owner is None:
            stacks.append(_Stack(label, roles))
        else:
            owner.roles += [_role([path]) for role in roles for path in role.layers]
    for stack in stacks:
        stack.roles.sort(key=lambda role: role.named_cross)  # stable: self-attention first
    return stacks


def _name_roles(stacks: Sequence[_Stack]) -> None:
    """Label every role of attention, no two the same."""
    if all(stack.label != "decoder" for stack in stacks):
        for stack in stacks:
            if stack.label == _MAIN and stack.has_cross:
                stack.label = "decoder"  # its layers have both self- and cross-attention
    only = len(stacks) == 1 and not stacks[0].has_cross
    labels: set[str] = set()

    def claim(*wanted: str) -> str:
        label = next((label for label in wanted if label not in labels), f"{wanted[-1]}_{len(labels)}")
        labels.add(label)
        return label

    for stack in stacks:
        stack.roles[0].stack = claim("" if only else stack.label)
    for stack in sorted(stacks, key=_cross_rank):
        main, *others = stack.roles
        crossing = next((role for role in others if role.named_cross), others[0] if others else main)
        if not only or others:
            plain = ["cross"] if stack.label in _ORDER else []
            crossing.cross_stack = claim(*plain, f"{stack.label}_cross")
        for role in others:
            name = role.name if stack.label in _ORDER else f"{stack.label}_{role.name}"
            role.stack = claim(name, f"{stack.label}_{role.name}", role.path_name)
        for role in stack.roles:
            if role is not crossing:
                role.cross_stack = f"{role.stack}_cross" if role.stack else claim("cross", f"{role.name}_cross")


def _cross_rank(stack: _Stack) -> tuple[bool, int]:
    return not stack.has_cross, _ORDER.index(stack.label) if stack.label in _ORDER else len(_ORDER)


def _labels(lists: Sequence[str]) -> dict[str, str]:
    """{path of a list of layers: label}: the word of its path, and more of the path where lists share it."""
    by_word: dict[str, list[str]] = {}
    for path in lists:
        by_word.setdefault(_word_label(path), []).append(path)
    labels: dict[str, str] = {}
    for word, members in by_word.items():
        labels |= dict.fromkeys(members, word) if len(members) == 1 else _distinct_labels(word, members)
    return {path: labels[path] for path in lists}


def _distinct_labels(word: str, paths: Sequence[str]) -> dict[str, str]:
    """Labels for lists of layers that share a word, no two the same."""
    labels: dict[str, str] = {}
    for path in paths:
        others = {part for other in paths if other != path for part in other.split(".")}
        name = next((part for part in path.split(".") if part not in others), path.replace(".", "_"))
        labels[path] = name if word == _MAIN or word in name.split("_") else f"{word}_{name}"
    return labels


def _word_label(path: str) -> str:
    """The word that labels a list of layers: vision, text, encoder, decoder, or none."""
    parts = path.lower().split(".")
    for word, tower in _TOWERS:
        if any(word in part.split("_") for part in parts):
            return tower
    for role in ("decoder", "encoder"):
        if any(word.startswith(role) for part in parts for word in part.split("_")):
            return role
    return _MAIN


# ---- roles ------------------------------------------------------------------------------------


def _pattern(path: str) -> str:
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1#", path)


def _role(paths: Sequence[str]) -> _Role:
    """The role of equal attentions in their layers, which labels them."""
    path = paths[0]
    in_layer = [part for part in _pattern(path).rpartition("#")[2].split(".") if part]
    name = in_layer[0] if in_layer and "#" in _pattern(path) else path.rpartition(".")[2]
    path_name = re.sub(r"[.#]+", "_", _pattern(path)).strip("_")
    layers = dict(zip(paths, layers_of(paths), strict=True))
    return _Role(name or "attention", layers, is_named_cross(path), path_name or "attention")


def is_named_cross(path: str) -> bool:
    """Whether the attribute in the layer is named like cross-attention. Modules around the layer do not count."""
    in_layer = _pattern(path).rpartition("#")[2].lower()
    parts = [part for part in in_layer.split(".") if part][-2:]
    return any(word in part for part in parts for word in _NAMED_CROSS) or parts[-1:] == ["multihead_attn"]


def _self_and_cross(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    crossing = [path for path in paths if is_named_cross(path)]
    return [path for path in paths if path not in crossing], crossing


def layers_of(paths: Sequence[str]) -> list[int]:
    """The layers of modules with one role, to label: the number in which their paths differ, else their order."""
    numbers = [[int(part) for part in path.split(".") if part.isdigit()] for path in paths]
    if len({len(n) for n in numbers}) == 1:
        varying = [i for i in range(len(numbers[0])) if len({n[i] for n in numbers}) > 1]
        if len(varying) == 1:
            return [n[varying[0]] for n in numbers]
    return list(range(len(numbers)))
