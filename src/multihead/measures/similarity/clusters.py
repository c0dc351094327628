"""Clusters of similar heads by average linkage (scipy), and the order of heads in the dendrogram.

>>> import torch
>>> from multihead.measures.similarity.clusters import grouped
>>> distance = torch.tensor([[0.0, 0.9, 0.1], [0.9, 0.0, 0.9], [0.1, 0.9, 0.0]])
>>> clusters = grouped(distance, within=0.5)
>>> clusters.cluster, sorted(clusters.order)
([0, 1, 0], [0, 1, 2])
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Clusters:
    """The cluster of each head, numbered from 0 in the order of their first heads; and the dendrogram."""

    cluster: list[int]
    order: list[int]
    """heads from left to right; neighbours are similar"""
    linkage: list[list[float]]
    """scipy's linkage matrix: (first, second, distance, size) of every merge"""

    def members(self) -> list[tuple[int, ...]]:
        """The heads of each cluster of two or more."""
        heads_of: dict[int, list[int]] = {}
        for head, cluster in enumerate(self.cluster):
            heads_of.setdefault(cluster, []).append(head)
        return [tuple(heads) for heads in heads_of.values() if len(heads) > 1]


def grouped(distance: Float[Tensor, "head head"], *, within: float) -> Clusters:
    """Cluster heads whose mean distance is below `within`. NaN counts as 1, the largest distance."""
    from scipy.cluster.hierarchy import (  # pyright: ignore[reportMissingTypeStubs]
        fcluster,
        leaves_list,
        linkage,
    )
    from scipy.spatial.distance import squareform

    count = len(distance)
    if count < 2:
        return Clusters([0] * count, list(range(count)), [])
    filled = distance.double().nan_to_num(1.0)
    filled = ((filled + filled.T) / 2).clamp(0.0, 1.0).fill_diagonal_(0.0)
    tree = linkage(squareform(filled.numpy(), checks=False), "average", optimal_ordering=True)
    scipy_ids = fcluster(tree, within, "distance").tolist()
    renumbered: dict[int, int] = {}
    cluster = [renumbered.setdefault(i, len(renumbered)) for i in scipy_ids]
    order = [int(i) for i in leaves_list(tree)]
    return Clusters(cluster, order, torch.tensor(tree).tolist())
