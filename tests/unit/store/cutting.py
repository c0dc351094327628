"""Cut models to save, without a plan: heads are dropped by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import multihead as mh
from multihead.edit.surgery.install import install
from multihead.errors import MultiheadError
from multihead.layer import Groups
from multihead.model.head_weights import HeadWeights


def drop(model: nn.Module, keep: Callable[[int, int, int], list[int]], inputs: Any = None) -> nn.Module:
    """keep(layer, heads, heads of one kv head) → the heads that stay; in place."""
    for i, layer in enumerate(mh.anatomy(model, inputs)):
        own = HeadWeights.of(layer)
        install(model, layer, own.keep(keep(i, own.heads, own.heads // own.kv_heads)))
    return model


def mixed(model: nn.Module, inputs: Any = None) -> nn.Module:
    """Every other layer loses its first kv head; in the others, the first two become one, where they can."""
    for i, layer in enumerate({layer.path: layer for layer in mh.anatomy(model, inputs)}.values()):
        own = HeadWeights.of(layer)
        read = tuple(max(kv - 1, 0) for kv in own.groups.kv_of_head)
        first = [0, *range(2, own.kv_heads)]
        shared = replace(
            own,
            k=own.k[first],
            v=own.v[first],
            b_k=None if own.b_k is None else own.b_k[first],
            b_v=None if own.b_v is None else own.b_v[first],
            groups=Groups(read, len(first)),
            kv_origin=tuple(first),
        )
        lost = own.keep([h for h, kv in enumerate(own.groups.kv_of_head) if kv or own.kv_heads == 1])
        try:
            install(model, layer, lost if i % 2 or own.kv_heads == 1 else shared)
        except MultiheadError:  # relative positions of its own for every key head
            install(model, layer, lost)
    return model


def even(i: int, heads: int, group: int) -> list[int]:
    """All layers lose their last kv head."""
    return list(range(heads - group))


def uneven(i: int, heads: int, group: int) -> list[int]:
    """The first layer stays whole, the others lose their first kv head."""
    return list(range(group if i else 0, heads))


def outputs(model: nn.Module, given: Mapping[str, Any]) -> list[Tensor]:
    with torch.no_grad():
        made = model(**given)
    parts = made.values() if isinstance(made, dict) else made if isinstance(made, tuple) else [made]
    return [t for t in parts if isinstance(t, Tensor)]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) > 0 and all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(a, b, strict=True))


def same_state(a: nn.Module, b: nn.Module) -> bool:
    """Names, dtypes and bits, of what a state dict holds and of every other buffer."""
    one = dict(a.state_dict()) | dict(a.named_buffers())
    other = dict(b.state_dict()) | dict(b.named_buffers())
    return list(one) == list(other) and equal(list(one.values()), list(other.values()))


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
