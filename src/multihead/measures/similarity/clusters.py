"""Clusters of heads that are alike: average linkage (scipy), and the order in which a dendrogram shows them.

>>> import torch
>>> from multihead.measures.similarity.clusters import grouped
>>> far = torch.tensor([[0.0, 0.9, 0.1], [0.9, 0.0, 0.9], [0.1, 0.9, 0.0]])
>>> found = grouped(far, within=0.5)
>>> found.cluster, sorted(found.order)
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
    """heads from left to right, so that those beside each other are alike"""
    linkage: list[list[float]]
    """scipy's: (first, second, distance, size) of every merge"""

    def members(self) -> list[tuple[int, ...]]:
        """The clusters of two heads or more."""
        found: dict[int, list[int]] = {}
        for head, cluster in enumerate(self.cluster):
            found.setdefault(cluster, []).append(head)
        return [tuple(heads) for heads in found.values() if len(heads) > 1]


def grouped(distance: Float[Tensor, "head head"], *, within: float) -> Clusters:
    """Heads whose mean distance is below `within`; where there is no distance (NaN) it counts as the largest, 1."""
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
    numbers = fcluster(tree, within, "distance").tolist()
    first: dict[int, int] = {}
    cluster = [first.setdefault(n, len(first)) for n in numbers]
    order = [int(i) for i in leaves_list(tree)]
    return Clusters(cluster, order, torch.tensor(tree).tolist())
