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
    names, matrix = curvature(model, text, seed)
    removed: list[int] = []
    for _ in range(removals(len(names), keep)):
        costs = matrix.diagonal() + 2 * matrix[:, removed].sum(1)
        costs[removed] = math.inf
        removed.append(int(costs.argmin()))
    return [names[i] for i in removed]


def curvature(model: Any, text: Any, seed: int) -> tuple[list[str], Tensor]:
    """G over all heads, on the documents that `multihead.edit.sensitivity` reads."""
    from multihead.corpus.accumulator import Batch
    from multihead.corpus.run import BatchRunner
    from multihead.edit.sensitivity import DOCUMENTS, output_distance
    from multihead.measures.importance.gradients import Gradients
    from multihead.model.model_inputs import documents_in

    class Curvature(Gradients):
        total: Any = 0.0

        def slopes(self, batch: Any, run: Any) -> Tensor:
            rows = super().slopes(batch, run)  # probe, head, document
            self.total = self.total + torch.einsum("phd,pgd->hg", rows, rows) / len(rows)
            return rows

    gradients = Curvature(output_distance(model, text.example()), seed=seed)
    runner, documents = BatchRunner(model, [gradients]), 0
    for index, batch in enumerate(text.fit()):
        if documents >= DOCUMENTS:
            break
        runner.run(Batch(batch, index))
        documents += documents_in(batch)
    return gradients.heads, gradients.total / documents


def removals(heads: int, keep: float) -> int:
    """The fewest heads to remove so that at most the share `keep` is left."""
    return next(n for n in range(heads + 1) if heads - n <= keep * heads * (1 + 1e-12))


@contextmanager
def mean_pooling() -> Generator[None]:
    """Within the block `multihead.cut` averages the kv heads of a group."""

    def pooled(own: Any, clusters: Sequence[Sequence[int]], *_: Any) -> Any:
        group_of = {head: group for group, heads in enumerate(clusters) for head in heads}
        return mean_pooled(own, [group_of[head] for head in own.origin])

    with patch("multihead.edit.cut.share_kv", pooled):
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
