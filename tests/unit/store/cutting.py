"""Cut models to save, without a plan: heads are dropped by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import multihead as mh
from multihead.edit.surgery import install
from multihead.edit.weights import HeadWeights


def drop(model: nn.Module, keep: Callable[[int, int, int], list[int]], inputs: Any = None) -> nn.Module:
    """keep(layer, heads, heads of one kv head) → the heads that stay; in place."""
    for i, layer in enumerate(mh.anatomy(model, inputs)):
        own = HeadWeights.of(layer)
        install(model, layer, own.keep(keep(i, own.heads, own.heads // own.kv_heads)))
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
