"""Which heads share keys and values: clusters of nearly equal size whose joint factorisation loses least.

>>> import torch, multihead as mh
>>> from multihead.edit.kv_sharing.cluster import cluster, sharing_cost
>>> from multihead.edit.kv_sharing.input_moments import moments_of
>>> from multihead.model.head_weights import HeadWeights
>>> encoder = torch.nn.TransformerEncoderLayer(24, 6, batch_first=True).eval()
>>> layer = mh.anatomy(encoder)[0]
>>> own, moments = HeadWeights.of(layer), moments_of(encoder, layer, [{"src": torch.randn(9, 13, 24)}])
>>> cost = sharing_cost(own, moments)
>>> cost((1,)), cost((0, 1)) < cost((0, 1, 2))
(0.0, True)
>>> [len(heads) for heads in cluster(layer, own, moments, 2)]
[3, 3]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, pairwise, product

import torch
from jaxtyping import Float64
from torch import Tensor

from multihead.edit.kv_sharing.input_moments import Moments
from multihead.edit.kv_sharing.low_rank import Metrics, energy, gram, pooled_metric
from multihead.edit.kv_sharing.rotary import complex_pca
from multihead.edit.kv_sharing.sharing_problems import (
    Dims,
    SharingProblem,
    attended_covariance,
    key_problem,
    outer,
    rotary_problem,
    value_problem,
)
from multihead.errors import SizeError
from multihead.model.head_weights import HeadWeights
from multihead.model.layer_anatomy import LayerAnatomy

KVGroups = tuple[tuple[int, ...], ...]
"""Query heads that share a kv head, by their index in the uncut layer (`HeadWeights.origin`)."""
Cost = Callable[[tuple[int, ...]], float]
"""Of kv heads, by index, that become one."""

STARTS = 8
"""Random starts of the search."""


def cluster(layer: LayerAnatomy, own: HeadWeights, moments: Moments, kv_heads: int) -> KVGroups:
    """The clusters of heads that an exchange search on the cost of sharing finds.

    Query heads that share a kv head already stay together: whole kv heads are clustered.
    """
    sizes = _sizes(own, kv_heads, layer.name)
    return _named(own, exchange(own.kv_heads, sizes, sharing_cost(own, moments)))


def adjacent(own: HeadWeights, kv_heads: int) -> KVGroups:
    """Heads in the order of the layer, the baseline."""
    edges = _edges(_sizes(own, kv_heads, ""))
    return _named(own, tuple(tuple(range(a, b)) for a, b in pairwise(edges)))


def readers_of(own: HeadWeights) -> list[tuple[int, ...]]:
    """The query heads of every kv head."""
    return [tuple(h for h in range(own.heads) if own.groups.kv_of_head[h] == i) for i in range(own.kv_heads)]


# ---- the cost of sharing ------------------------------------------------------------------------------


def sharing_cost(own: HeadWeights, moments: Moments) -> Cost:
    """E‖o − o'‖² of the layer's output if some kv heads become one: the loss of the values, and of the scores.

    An error of the scores moves the output by at most its variance over the attended keys, times the variance of
    the values there (`spread`).
    """
    readers, path = readers_of(own), moments.key_path
    everyone = list(range(own.heads))
    values = _gram(value_problem(own, moments, everyone)[0])
    spread = _value_spread(own, moments)
    keys: Tensor | None = None
    if path.kind == "plain" or (path.pairs is not None and path.pairs.rest):
        dims: Dims = slice(None) if path.pairs is None else list(path.pairs.rest)
        problem = key_problem(own, moments, everyone, dims)
        weights = problem.weights * (path.scale**2 * spread)[:, None, None]
        keys = _gram(SharingProblem(problem.maps, weights, problem.metrics))

    @cache
    def cost(kv: tuple[int, ...]) -> float:
        """The cost of a cluster: what its heads lose by sharing keys and values."""
        if len(kv) == 1:
            return 0.0
        heads = [h for i in kv for h in readers[i]]
        total = _tail(values, heads, own.v.shape[1])
        if keys is not None:
            total += _tail(keys, heads, keys.shape[1])
        if path.pairs is not None:
            _, moment, weights = rotary_problem(own, moments, heads, path.pairs)
            total += _output_error(path.scale**2 * complex_pca(moment, weights).loss, spread[heads])
        if path.kind == "normed" and moments.key_distances is not None:
            least = float(moments.key_distances[list(kv)][:, list(kv)].sum(0).min())
            total += _output_error(path.scale**2 * least, spread[heads])
        return total

    return cost


def _gram(problem: SharingProblem) -> Float64[Tensor, "head dim other dim"]:
    pooled = pooled_metric(problem.maps, problem.weights, problem.metrics)
    return gram(problem.maps, problem.weights, pooled)


def _value_spread(own: HeadWeights, moments: Moments) -> Float64[Tensor, " head"]:
    """The cost of sharing all values in a cluster, E[tr W_O Cov(v) W_Oᵀ]: over attended values, else over all."""
    kv = list(own.groups.kv_of_head)
    maps = moments.value_coordinates.of_maps(own.v[kv])
    if moments.same_kv:
        return energy(maps, outer(own.o), attended_covariance(moments, own.origin)).clamp_min(0)
    mean = moments.value[:-1, -1]
    covariance = moments.value[:-1, :-1] - torch.outer(mean, mean)
    plain = moments.value_coordinates.restored(maps)[0]
    return energy(plain, outer(own.o), Metrics.full(covariance)).clamp_min(0)


def _output_error(error: float, spread: Float64[Tensor, " head"]) -> float:
    """How far an error of the scores of all heads moves the output: by at most all that the values vary."""
    each = error / len(spread)
    return float(spread.sum()) * each / (1 + each)


def _tail(gram: Float64[Tensor, "head dim other dim"], heads: Sequence[int], rank: int) -> float:
    """The eigenvalues behind the first `rank`: the loss of a joint factorisation in one metric."""
    part = gram[list(heads)][:, :, list(heads)].flatten(2).flatten(0, 1)
    return float(torch.linalg.eigvalsh((part + part.mT) / 2)[:-rank].clamp_min(0).sum())


# ---- the search ---------------------------------------------------------------------------------------


def exchange(count: int, sizes: Sequence[int], cost: Cost) -> tuple[tuple[int, ...], ...]:
    """Swap members of two clusters while that lowers the sum of costs; the best of several starts."""
    best: tuple[float, tuple[tuple[int, ...], ...]] | None = None
    for seed in range(STARTS):
        order = list(range(count))
        if seed:
            generator = torch.Generator("cpu").manual_seed(seed)
            order = torch.randperm(count, generator=generator, device="cpu").tolist()
        groups = [tuple(sorted(order[a:b])) for a, b in pairwise(_edges(sizes))]
        while _improved(groups, cost):
            pass
        total = sum(map(cost, groups))
        if best is None or total < best[0] * (1 - 1e-9):
            best = total, tuple(sorted(groups))
    assert best is not None
    return best[1]


def _improved(groups: list[tuple[int, ...]], cost: Cost) -> bool:
    """Swap members of two clusters while that is cheaper; whether one was swapped."""
    better = False
    for a, b in combinations(range(len(groups)), 2):
        now = cost(groups[a]) + cost(groups[b])
        for x, y in product(groups[a], groups[b]):
            one = tuple(sorted({*groups[a]} - {x} | {y}))
            two = tuple(sorted({*groups[b]} - {y} | {x}))
            if cost(one) + cost(two) < now * (1 - 1e-9):
                groups[a], groups[b], better = one, two, True
                break
    return better


def _named(own: HeadWeights, clusters: Sequence[Sequence[int]]) -> KVGroups:
    """Clusters of kv heads as groups of query heads, by their index in the uncut layer."""
    readers = readers_of(own)
    return tuple(tuple(sorted(own.origin[h] for i in kv for h in readers[i])) for kv in clusters)


def _edges(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:i]) for i in range(len(sizes) + 1)]


def _sizes(own: HeadWeights, kv_heads: int, place: str) -> list[int]:
    """The sizes of clusters, as equal as possible."""
    count = own.kv_heads
    if not 1 <= kv_heads <= count:
        where = f" ({place})" if place else ""
        raise SizeError(
            f"{count} kv heads cannot become {kv_heads}{where}",
            hint=f"choose one of {', '.join(str(n) for n in range(1, count + 1) if count % n == 0)}",
        )
    return [count // kv_heads + (i < count % kv_heads) for i in range(kv_heads)]
