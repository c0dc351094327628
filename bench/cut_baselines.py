"""Baselines that the package does not ship: two ways to rank heads, and mean-pooling of key and value heads.

| baseline | |
|---|---|
| `norm` | a head costs ‖W_V,h‖‖W_O,h‖ |
| `gauss-newton` | G_hh + 2 Σ_s∈S G_hs with the heads S removed, G = E[Jᵀ AᵀA J], J = ∂y/∂gates: heads interact |
| mean-pooling | a shared kv head is the mean of its members (Ainslie et al. 2023) |
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor


def removed_by_norm(model: Any, keep: float) -> list[str]:
    """The heads that `keep` removes, those of the smallest weights first."""
    import multihead as mh

    costs: dict[str, float] = {}
    for layer in mh.anatomy(model):
        for h, kv in enumerate(layer.groups.kv_of_head):
            costs[f"{layer.name}H{h}"] = float(layer.W_V[kv].detach().norm() * layer.W_O[h].detach().norm())
    return sorted(costs, key=lambda name: costs[name])[: removals(len(costs), keep)]


def removed_by_gauss_newton(model: Any, text: Any, keep: float, seed: int) -> list[str]:
    """The heads that `keep` removes, one after the other, each with its interactions with those before."""
    from multihead.edit.choosing.curvature import curvature
    from multihead.edit.planning import anatomy_on, distinct

    found = curvature(model, distinct(anatomy_on(model, text)), text, seed=seed)
    names = [f"{layer}H{h}" for layer, rows in found.places.items() for h in range(len(rows))]
    gone: list[int] = []
    for _ in range(removals(len(names), keep)):
        costs = found.matrix.diagonal() + 2 * found.matrix[:, gone].sum(1)
        costs[gone] = math.inf
        gone.append(int(costs.argmin()))
    return [names[i] for i in gone]


def removals(heads: int, keep: float) -> int:
    """The fewest heads to remove so that at most the share `keep` is left."""
    return next(n for n in range(heads + 1) if heads - n <= keep * heads * (1 + 1e-12))


@contextmanager
def mean_pooling() -> Generator[None]:
    """Within the block `multihead.cut` averages the kv heads of a group."""

    def pooled(own: Any, clusters: Sequence[Sequence[int]], *_: Any) -> Any:
        group_of = {head: group for group, heads in enumerate(clusters) for head in heads}
        return mean_pooled(own, [group_of[head] for head in own.origin])

    with patch("multihead.edit.cut.grouped", pooled):
        yield


def mean_pooled(own: Any, kv_of: Sequence[int]) -> Any:
    """Each new kv head is the mean of those that its query heads read; query head h reads kv_of[h]."""
    from multihead.layer import Groups

    count = max(kv_of) + 1
    old = [sorted({own.groups.kv_of_head[h] for h in range(own.heads) if kv_of[h] == g}) for g in range(count)]

    def mean(x: Tensor | None) -> Tensor | None:
        return None if x is None else torch.stack([x[heads].mean(0) for heads in old])

    return replace(
        own, k=mean(own.k), v=mean(own.v), b_k=mean(own.b_k), b_v=mean(own.b_v),
        groups=Groups(tuple(kv_of), count), kv_origin=tuple(own.kv_origin[heads[0]] for heads in old),
    )  # fmt: skip
