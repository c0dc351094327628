"""The attention sites of a model, and the name of every head: L3H7, decoder.L3H7, cross.L0H1.

A head of a cut model keeps its original name: without L3H2, the heads of L3 are L3H0, L3H1, L3H3, ... All functions
that take or return names of heads use these; tensors per head are in the order of the heads that remain.

>>> from multihead.model.sites import Site, find
>>> cut = Site("layers.3.attention", 0, "", 3, heads=3, numbers=(0, 1, 3))
>>> cut.name(2), find("L3H3", [cut])[1]
('L3H3', 2)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from multihead._base.arguments import check_list
from multihead._base.plural import plural
from multihead.errors import SizeError
from multihead.table.head_names import HeadName, parse

Key = tuple[str, int]
"""(module path, call_index): identifies one attention of the model."""

CUT = "multihead_heads"
"""The attribute in which a cut module records its heads: {"q": {"heads": original numbers, "of": n}, "kv": ...}."""


def original_numbers(module: Any, heads: int) -> tuple[int, ...]:
    """The original numbers of the heads at a site, before any cut."""
    record = getattr(module, CUT, None)
    numbers = range(heads) if record is None else record["q"]["heads"]
    return tuple(numbers) if len(numbers) == heads else tuple(range(heads))


@dataclass(frozen=True)
class Site:
    """One attention of a model: its module, its stack ("" if the model has only one), and its layer, from 0."""

    path: str
    call_index: int
    stack: str
    layer: int
    heads: int
    cross: bool = False
    numbers: tuple[int, ...] = ()
    """the number of each head in the uncut model; by default 0, 1, ..."""

    def __post_init__(self) -> None:
        if not self.numbers:
            object.__setattr__(self, "numbers", tuple(range(self.heads)))

    @property
    def key(self) -> Key:
        return self.path, self.call_index

    @property
    def label(self) -> str:
        """`L3`, or `decoder.L3`."""
        return f"{self.stack}.L{self.layer}" if self.stack else f"L{self.layer}"

    def name(self, index: int) -> str:
        """`L3H7`, or `decoder.L3H7`."""
        return f"{self.label}H{self.numbers[index]}"

    @property
    def names(self) -> list[str]:
        """The name of every head."""
        return [self.name(index) for index in range(self.heads)]


class Sites:
    """The attentions of a model, in the order in which they run: `sites[key]` is a `Site`.

    A site has its name from the module tree of the model (see `layer_labels.py`), whatever else has run.
    """

    def __init__(self, sites: Iterable[Site] = ()) -> None:
        self._sites = {site.key: site for site in sites}

    def register(self, site: Site) -> None:
        """Add an attention. If it is already known, it keeps its position and its name."""
        self._sites.setdefault(site.key, site)

    def __getitem__(self, which: Key | int) -> Site:
        """By key, or by position."""
        return list(self._sites.values())[which] if isinstance(which, int) else self._sites[which]

    def __contains__(self, key: Key) -> bool:
        return key in self._sites

    def __iter__(self) -> Iterator[Site]:
        return iter(self._sites.values())

    def __len__(self) -> int:
        return len(self._sites)

    @property
    def heads(self) -> list[str]:
        """The name of every head."""
        return [name for site in self for name in site.names]

    def layer(self, label: str) -> Site:
        """The site of the attention with this label: `L3`, `decoder.L3`."""
        site = next((site for site in self if site.label == label), None)
        if site is None:
            labels = ", ".join(site.label for site in self)
            raise SizeError(f"unknown layer {label!r}; the model has {labels}", hint="layers count from 0")
        return site

    def resolve_heads(self, names: Iterable[HeadName] | str) -> dict[Key, list[int]]:
        """{key: indices of heads} for the named heads. Raises for unknown names."""
        heads: dict[Key, list[int]] = {}
        listed = [names] if isinstance(names, str) else names
        check_list("heads", listed, "names", hint='["L3H7", (4, 1)]')
        for name in listed:
            site, head = find(name, self)
            heads.setdefault(site.key, []).append(head)
        return heads

    def merge(self, later: Sites) -> None:
        """Add the attentions of a later run of the same model."""
        for site in later:
            self.register(site)

    def state(self) -> list[list[Any]]:
        return [[s.path, s.call_index, s.stack, s.layer, s.heads, int(s.cross), list(s.numbers)] for s in self]

    @staticmethod
    def from_state(state: Iterable[Sequence[Any]]) -> Sites:
        return Sites(Site(*row[:5], cross=bool(row[5]), numbers=tuple(row[6])) for row in state)


def find(name: HeadName, sites: Iterable[Site]) -> tuple[Site, int]:
    """The site and head index of a head's name. Raises, and lists the sites, unless exactly one matches."""
    stack, layer, number = parse(name)
    sites = list(sites)
    matches = [s for s in sites if s.layer == layer and s.stack == (stack or "")]
    if stack is None and not matches:
        matches = [s for s in sites if s.layer == layer]
    labels = ", ".join(f"{s.label} ({plural(s.heads, 'head')})" for s in sites[:6]) + (
        ", ..." if len(sites) > 6 else ""
    )
    if len(matches) > 1:
        raise SizeError(
            f"{name!r} is ambiguous: {', '.join(s.label for s in matches)} match",
            hint=f"name the stack: {f'{matches[0].label}H{number}'!r}",
        )
    if not matches:
        raise SizeError(f"unknown layer in {name!r}; the model has {labels or 'none'}", hint="layers count from 0")
    site = matches[0]
    if number not in site.numbers:
        raise _unknown_head(site, number)
    return site, site.numbers.index(number)


def _unknown_head(site: Site, number: int) -> SizeError:
    """The error for a head that a site does not have."""
    if site.numbers == tuple(range(site.heads)):
        return SizeError(
            f"{site.label} has {plural(site.heads, 'head')}, got head {number}", hint="heads count from 0"
        )
    numbers = ", ".join(map(str, sorted(site.numbers)))
    return SizeError(
        f"{site.label} has heads {numbers}, got head {number}", hint="heads of a cut model keep their names"
    )
