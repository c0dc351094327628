"""The attention sites of a model, and the name of every head: L3H7, decoder.L3H7, cross.L0H1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from multihead.errors import SizeError
from multihead.table.head_names import HeadName, parse

Key = tuple[str, int]
"""(module path, call_index): identifies one attention of the model."""


# (word in a module's path, stack it belongs to)
_STACKS = (("vision", "vision"), ("visual", "vision"), ("image", "vision"), ("text", "text"), ("audio", "audio"))
_CROSS = ("cross", "encoder_attn", "encdec")


@dataclass(frozen=True)
class Site:
    """One attention of a model: its module, its stack ("" if the model has only one), and its layer, from 0."""

    path: str
    call_index: int
    stack: str
    layer: int
    heads: int
    cross: bool = False

    @property
    def key(self) -> Key:
        return self.path, self.call_index

    @property
    def label(self) -> str:
        """`L3`, or `decoder.L3`."""
        return f"{self.stack}.L{self.layer}" if self.stack else f"L{self.layer}"

    def name(self, head: int) -> str:
        """`L3H7`, or `decoder.L3H7`."""
        return f"{self.label}H{head}"


class Sites:
    """The attentions of a model, in the order in which they run: `sites[key]` is a `Site`.

    Names depend on all sites: the layers of a model with one stack are L0, L1, ...; those of the decoder in an
    encoder–decoder are decoder.L0, ...
    """

    def __init__(self, seen: Mapping[Key, tuple[int, bool]] | None = None) -> None:
        """`seen`: {key: (heads, cross)}."""
        self._seen = dict(seen or {})
        self._named: dict[Key, Site] | None = None

    def register(self, key: Key, heads: int, cross: bool) -> None:
        """Add an attention. If it is already known, it keeps its position."""
        if self._seen.get(key) != (heads, cross):
            self._seen[key] = heads, cross
            self._named = None

    @property
    def named(self) -> Mapping[Key, Site]:
        if self._named is None:
            self._named = name_sites(self._seen)
        return self._named

    def __getitem__(self, which: Key | int) -> Site:
        """By key, or by position."""
        return list(self.named.values())[which] if isinstance(which, int) else self.named[which]

    def __contains__(self, key: Key) -> bool:
        return key in self._seen

    def __iter__(self) -> Iterator[Site]:
        return iter(self.named.values())

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def heads(self) -> list[str]:
        """The name of every head."""
        return [site.name(head) for site in self for head in range(site.heads)]

    def layer(self, label: str) -> Site:
        """The attention with this label: `L3`, `decoder.L3`."""
        site = next((site for site in self if site.label == label), None)
        if site is None:
            labels = ", ".join(site.label for site in self)
            raise SizeError(f"unknown layer {label!r}; the model has {labels}", hint="layers count from 0")
        return site

    def resolve_heads(self, names: Iterable[HeadName] | str) -> dict[Key, list[int]]:
        """{key: heads} for the named heads. Raises for unknown names."""
        heads: dict[Key, list[int]] = {}
        for name in [names] if isinstance(names, str) else names:
            site, head = find(name, self)
            heads.setdefault(site.key, []).append(head)
        return heads

    def merge(self, later: Sites) -> None:
        """Add the attentions of a later run of the same model."""
        for key, (heads, cross) in later._seen.items():
            if key not in self:
                self.register(key, heads, cross)

    def state(self) -> list[list[str | int]]:
        return [[*key, heads, int(cross)] for key, (heads, cross) in self._seen.items()]

    @staticmethod
    def from_state(state: Iterable[Sequence[str | int]]) -> Sites:
        return Sites({(str(path), int(index)): (int(heads), bool(cross)) for path, index, heads, cross in state})


def is_cross(path: str) -> bool:
    """Whether a module's path marks it as cross-attention, whose keys come from a different sequence."""
    parts = path.lower().split(".")
    return any(word in part for part in parts for word in _CROSS)


def name_sites(attentions: Mapping[Key, tuple[int, bool]]) -> dict[Key, Site]:
    """The stack and layer of every attention, from {key: (heads, cross)} in the order of the run."""
    stacks: dict[str, list[Key]] = {}
    for (path, call_index), (_, cross) in attentions.items():
        stacks.setdefault(stack_of(path, cross), []).append((path, call_index))
    if "cross" in stacks and "main" in stacks and "decoder" not in stacks:
        stacks["decoder"] = stacks.pop("main")  # a stack with cross-attention is a decoder
    single_stack = len(stacks) == 1
    named: dict[Key, Site] = {}
    for stack, keys in stacks.items():
        for key, layer in zip(keys, _layers(keys), strict=True):
            heads, cross = attentions[key]
            named[key] = Site(*key, "" if single_stack else stack, layer, heads, cross)
    return {key: named[key] for key in attentions}


def stack_of(path: str, cross: bool) -> str:
    """The stack that a module belongs to, inferred from the words of its path."""
    parts = path.lower().split(".")
    for word, stack in _STACKS:
        if any(word in p.split("_") for p in parts):
            return f"{stack}_cross" if cross else stack
    if cross:
        return "cross"
    for stack in ("decoder", "encoder"):
        if any(p.startswith(stack) for p in parts):
            return stack
    return "main"


def _layers(keys: Sequence[Key]) -> list[int]:
    """Layer indices of a stack's modules: the one number in which their paths differ, else their order."""
    numbers = [[int(p) for p in path.split(".") if p.isdigit()] + [call_index] for path, call_index in keys]
    if len({len(n) for n in numbers}) == 1:
        varying = [i for i in range(len(numbers[0])) if len({n[i] for n in numbers}) > 1]
        if len(varying) == 1 and len({n[varying[0]] for n in numbers}) == len(keys):
            return [n[varying[0]] for n in numbers]
    return list(range(len(keys)))


def find(name: HeadName, sites: Iterable[Site]) -> tuple[Site, int]:
    """The site and head index of a name. Raises, and lists the sites, if no site or more than one matches."""
    stack, layer, head = parse(name)
    sites = list(sites)
    matches = [s for s in sites if s.layer == layer and (stack is None or s.stack == stack)]
    labels = ", ".join(f"{s.label} ({s.heads} heads)" for s in sites[:6]) + (", ..." if len(sites) > 6 else "")
    if len(matches) > 1:
        raise SizeError(
            f"{name!r} is ambiguous: {', '.join(s.label for s in matches)} match",
            hint=f"name the stack: {matches[0].name(head)!r}",
        )
    if not matches:
        raise SizeError(f"unknown layer in {name!r}; the model has {labels or 'none'}", hint="layers count from 0")
    site = matches[0]
    if not 0 <= head < site.heads:
        raise SizeError(f"{site.label} has {site.heads} heads, got head {head}", hint="heads count from 0")
    return site, head
