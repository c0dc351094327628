"""Calls that must be refused with a MultiheadError and leave a cache as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fuzz.layers import Layer, Rope
from multihead import mask
from multihead.layer import Cells

TOKENS = 2


@dataclass(frozen=True)
class Site:
    """The layer that a mistake is made with, and what its cache holds."""

    layer: Layer
    batch: int
    cache: str | None = None
    held: tuple[int, ...] | None = None
    """tokens per row of the cache; None: it is empty, or there is none"""
    capacity: int = 0

    @property
    def crosses(self) -> bool:
        """Whether the call needs a key."""
        wide = (self.layer.key_width, self.layer.value_width) != (self.layer.d_model, self.layer.d_model)
        return self.held is None and self.cache in (None, "cross") and (self.cache == "cross" or wide)

    @property
    def keys(self) -> int:
        """Keys of a call of TOKENS new tokens."""
        if self.cache == "cross" and self.held is not None:
            return max(self.held)
        return TOKENS if self.held is None else max(self.held) + TOKENS

    def x(self, width: int | None = None, tokens: int = TOKENS, batch: int | None = None) -> Tensor:
        batch = self.batch if batch is None else batch
        return torch.ones(batch, tokens, self.layer.d_model if width is None else width, dtype=self.layer.dtype)

    def call(self, **wrong: Any) -> dict[str, Any]:
        """A call that would be fine, with the arguments that are not."""
        right: dict[str, Any] = {"query": self.x()}
        if self.crosses:
            right |= {"key": self.x(self.layer.key_width), "value": self.x(self.layer.value_width)}
        return right | wrong


def _route(site: Site) -> dict[str, Any] | None:
    return site.call(route="fused") if site.layer.softcap is not None else None


def _new_key(site: Site) -> dict[str, Any] | None:
    if site.cache != "cross" or site.held is None or len(set(site.held)) > 1:
        return None
    key, value = (torch.full_like(site.x(w, max(site.held)), 0.5) for w in _widths(site))
    return site.call(key=key, value=value)


def _widths(site: Site) -> tuple[int, int]:
    return site.layer.key_width, site.layer.value_width


def _other_batch(site: Site) -> dict[str, Any] | None:
    return site.call(query=site.x(batch=site.batch + 1)) if site.held is not None or site.crosses else None


def _own_key(site: Site) -> dict[str, Any] | None:
    own = site.cache in ("growing", "static", "ring")
    return site.call(key=torch.zeros_like(site.x())) if own else None


def _uneven(site: Site) -> dict[str, Any] | None:
    return site.call(value=site.x(site.layer.value_width, TOKENS + 1)) if site.crosses else None


def _overflow(site: Site) -> dict[str, Any] | None:
    return site.call(query=site.x(tokens=site.capacity + 1)) if site.cache == "static" else None


def _rope(positions: Callable[[Site], Tensor]) -> Callable[[Site], dict[str, Any] | None]:
    def mistake(site: Site) -> dict[str, Any] | None:
        return site.call(positions=positions(site)) if isinstance(site.layer.position, Rope) else None

    return mistake


def _bias_positions(site: Site) -> dict[str, Any] | None:
    """The keys of a cache or of another sequence stand elsewhere."""
    biased = site.layer.position is not None and not isinstance(site.layer.position, Rope)
    return site.call(positions=torch.arange(TOKENS)) if biased and (site.cache or site.crosses) else None


def _bias_shape(site: Site) -> dict[str, Any] | None:
    biased = site.layer.position is not None and not isinstance(site.layer.position, Rope)
    fits = biased and site.cache is None and not site.crosses
    return site.call(positions=torch.arange(TOKENS + 1)) if fits else None


def _ragged_cross(site: Site) -> dict[str, Any] | None:
    if not site.crosses:
        return None
    key, value = (site.x(w, TOKENS + 1) for w in _widths(site))
    return site.call(key=key, value=value, mask=mask.ragged([1] * site.batch))


def _causal_cross(site: Site) -> dict[str, Any] | None:
    if not site.crosses:
        return None
    key, value = (site.x(w, TOKENS - 1) for w in _widths(site))
    return site.call(key=key, value=value, mask=mask.causal())


def _masked(make: Callable[[Site], Any]) -> Callable[[Site], dict[str, Any] | None]:
    """A mask written for the keys of the call. What those are in a full ring nobody can say."""
    return lambda site: None if site.cache == "ring" and site.held else site.call(mask=make(site))


def _bools(*shape: int, device: str = "cpu") -> Tensor:
    return torch.ones(shape, dtype=torch.bool, device=device)


MISTAKES: dict[str, Callable[[Site], dict[str, Any] | None]] = {
    # ---- inputs
    "wrong width": lambda site: site.call(query=site.x(site.layer.d_model + 1)),
    "four axes": lambda site: site.call(query=site.x()[None]),
    "other float dtype": lambda site: site.call(query=site.x().half()),
    "integers": lambda site: site.call(query=site.x().long()),
    "query on meta": lambda site: site.call(query=site.x().to("meta")),
    "other batch": _other_batch,
    "key with a cache of own tokens": _own_key,
    "value without key": lambda site: site.call(key=None, value=site.x(site.layer.value_width)),
    "key and value of different length": _uneven,
    "other key for a filled Cross": _new_key,
    "too many tokens for Static": _overflow,
    # ---- routes, requests, gates, positions
    "unknown route": lambda site: site.call(route="fast"),
    "route that cannot": _route,
    "unknown request": lambda site: site.call(ask="scores"),
    "request of a head out of range": lambda site: site.call(ask=Cells(heads=[site.layer.heads])),
    "request of a row out of range": lambda site: site.call(ask=Cells(rows=[TOKENS])),
    "gate of other heads": lambda site: site.call(head_gate=torch.ones(site.layer.heads + 2)),
    "gate of four axes": lambda site: site.call(head_gate=torch.ones(1, 1, 1, 1)),
    "gate on meta": lambda site: site.call(head_gate=torch.ones(site.layer.heads, device="meta")),
    "positions of other length": _rope(lambda site: torch.arange(TOKENS + 1)),
    "positions of other rows": _rope(lambda site: torch.zeros(site.batch + 2, TOKENS, dtype=torch.long)),
    "float positions": _rope(lambda site: torch.zeros(TOKENS)),
    "positions on meta": _rope(lambda site: torch.arange(TOKENS, device="meta")),
    "positions with a bias and a cache": _bias_positions,
    "positions of other length with a bias": _bias_shape,
    # ---- masks
    "mask is a list": lambda site: site.call(mask=[True]),
    "mask of integers": lambda site: site.call(mask=_bools(TOKENS, site.keys).long()),
    "mask of one axis": lambda site: site.call(mask=_bools(site.keys)),
    "mask of other keys": lambda site: site.call(mask=_bools(TOKENS, site.keys + 2)),
    "mask of other heads": lambda site: site.call(mask=_bools(1, site.layer.heads + 2, TOKENS, site.keys)),
    "float mask of zeros and ones": _masked(lambda site: torch.eye(TOKENS, site.keys)),
    "mask on meta": _masked(lambda site: mask.tensor(_bools(TOKENS, site.keys, device="meta"))),
    "padding on meta": _masked(lambda site: mask.padding(_bools(site.batch, site.keys, device="meta"))),
    "additive on meta": _masked(lambda site: mask.additive(torch.zeros(TOKENS, site.keys, device="meta"))),
    "lengths on meta": lambda site: site.call(mask=mask.lengths(torch.ones(site.batch, device="meta").long())),
    "ragged on meta": lambda site: site.call(mask=mask.ragged(torch.ones(site.batch, device="meta").long())),
    "documents on meta": _masked(lambda site: mask.documents(torch.zeros(site.keys, device="meta").long())),
    "lengths beyond the keys": lambda site: site.call(mask=mask.lengths([1000] * site.batch)),
    "negative lengths": lambda site: site.call(mask=mask.causal() & mask.lengths([-1] * site.batch)),
    "lengths of other rows": lambda site: site.call(mask=mask.lengths([1] * (site.batch + 2))),
    "prefix beyond the keys": lambda site: site.call(mask=mask.prefix(1000)),
    "ragged beyond the tokens": lambda site: site.call(mask=mask.causal() & mask.ragged([1000] * site.batch)),
    "ragged of other rows": lambda site: site.call(mask=mask.ragged([1] * (site.batch + 2))),
    "ragged of keys that are not the queries": _ragged_cross,
    "causal queries before the first key": _causal_cross,
    "padding of other keys": lambda site: site.call(mask=mask.padding(_bools(site.batch, site.keys + 2))),
    "too few document ids": _masked(lambda site: mask.documents([0] * (site.keys - 1))),
    "too short offsets": _masked(lambda site: mask.documents(offsets=[0, site.keys - 1])),
    "rule of numbers": lambda site: site.call(mask=mask.where(lambda b, h, q, k: q - k)),
    "rule of another shape": lambda site: site.call(mask=mask.where(lambda b, h, q, k: _bools(TOKENS + 1, 1))),
    "rule of no tensor": lambda site: site.call(mask=mask.where(lambda b, h, q, k: True)),  # pyright: ignore[reportArgumentType]
}
