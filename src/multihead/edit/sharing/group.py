"""Multi-head → grouped attention: which heads share keys and values, and the weights that then come nearest.

Heads are clustered by what sharing costs them, not by where they lie. The heads of a cluster get one key map and
one value map from a joint low-rank factorisation in the metric of their activations; queries and W_O take up the
change of basis.

>>> import torch, multihead as mh
>>> from multihead.edit.sharing.group import cluster, grouped
>>> from multihead.edit.sharing.moments import moments_of
>>> from multihead.model.head_weights import HeadWeights
>>> encoder = torch.nn.TransformerEncoderLayer(24, 6, batch_first=True).eval()
>>> layer = mh.anatomy(encoder)[0]
>>> own, found = HeadWeights.of(layer), moments_of(encoder, layer, [{"src": torch.randn(9, 13, 24)}])
>>> groups = cluster(layer, own, found, 2)
>>> [len(heads) for heads in groups]
[3, 3]
>>> grouped(own, groups, found).k.shape                  # 2 kv heads
torch.Size([2, 4, 24])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product

import torch
from torch import Tensor

from multihead.edit.sharing import factor
from multihead.edit.sharing.group_cost import costs, key_problem, outer, turned_problem, units_of, value_problem
from multihead.edit.sharing.moments import Moments
from multihead.edit.sharing.rotary_factor import Pairs, shared_turn
from multihead.errors import MultiheadError, SizeError
from multihead.layer import Groups
from multihead.model.anatomy import LayerAnatomy
from multihead.model.head_weights import HeadWeights

Clusters = tuple[tuple[int, ...], ...]
"""Query heads that share a kv head, by their numbers in the uncut layer (`HeadWeights.origin`)."""


def adjacent(own: HeadWeights, kv_heads: int) -> Clusters:
    """Heads that lie beside each other, the baseline."""
    units, sizes = units_of(own), _sizes(own, kv_heads, "")
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(
        tuple(own.origin[h] for unit in units[a : a + n] for h in unit) for a, n in zip(starts, sizes, strict=True)
    )


def cluster(layer: LayerAnatomy, own: HeadWeights, moments: Moments, kv_heads: int) -> Clusters:
    """Clusters of nearly equal size whose joint factorisation loses least: exchange search on the true cost.

    Heads that share a kv head already stay together: then whole kv heads are clustered.
    """
    units, sizes = units_of(own), _sizes(own, kv_heads, layer.name)
    cost = costs(own, moments)
    found = exchange(len(units), sizes, cost)
    return _named(own, units, found)


def grouped(own: HeadWeights, clusters: Clusters, moments: Moments) -> HeadWeights:
    """The layer with one kv head per cluster; a cluster of one kv head keeps its numbers, to the bit."""
    kv_of = _check(own, clusters)
    if moments.kind == "normed over heads":
        raise MultiheadError(
            "the norm of the keys runs over all heads at once: with fewer of them it would be another norm",
            hint="prune query heads instead, or leave the kv heads of this layer as they are",
        )
    new = _Grouped(own, kv_of, moments)
    for group, old in enumerate(new.members):
        if len(old) > 1:
            new.keys(group)
            new.values(group)
    return new.weights()


class _Grouped:
    """The new weights as they are made, one group at a time, in fp64."""

    def __init__(self, own: HeadWeights, kv_of: Sequence[int], moments: Moments) -> None:
        self.own, self.moments, self.kv_of = own, moments, kv_of
        self.count = max(kv_of) + 1
        self.readers = [[h for h in range(own.heads) if kv_of[h] == g] for g in range(self.count)]
        self.members = [sorted({own.groups.kv_of_head[h] for h in heads}) for heads in self.readers]
        first = [old[0] for old in self.members]
        self.q, self.o = own.q.clone(), own.o.clone()
        self.k, self.v = own.k[first].clone(), own.v[first].clone()
        self.b_q = _copy(own.b_q)
        self.b_k = None if own.b_k is None else own.b_k[first].clone()
        self.b_v = None if own.b_v is None else own.b_v[first].clone()
        self.b_o = _copy(own.b_o)
        self.first = first

    def weights(self) -> HeadWeights:
        return replace(
            self.own,
            q=self.q,
            k=self.k,
            v=self.v,
            o=self.o,
            b_q=self.b_q,
            b_k=self.b_k,
            b_v=self.b_v,
            b_o=self.b_o,
            groups=Groups(tuple(self.kv_of), self.count),
            kv_origin=tuple(self.own.kv_origin[i] for i in self.first),
        )

    # ---- values --------------------------------------------------------------------------------------

    def values(self, group: int) -> None:
        heads, own = self.readers[group], self.own
        maps, metrics, mean = value_problem(own, self.moments, heads)
        found = factor.shared(maps, outer(own.o[heads]), metrics, own.v.shape[1])
        basis, mixes = _sized(found, own.v[self.members[group]])
        self.o[heads] = (own.o[heads].double() @ mixes).to(own.o)
        self.v[group] = basis[:, : own.v.shape[2]].to(own.v)
        if maps.shape[2] > own.v.shape[2] and self.b_v is not None:  # the bias is the last column of the map
            self.b_v[group] = basis[:, -1].to(self.b_v)
        if mean is None or self.b_o is None:
            return
        # P 1 = 1: a value bias is a constant of the output, and so is the mean of what is lost.
        lost = ((maps - mixes @ basis) @ mean[:, :, None])[..., 0]
        if self.b_v is not None and own.b_v is not None:
            lost = lost + own.b_v[[own.groups.kv_of_head[h] for h in heads]].double()
            self.b_v[group] = 0.0
        self.b_o = self.b_o + torch.einsum("hov,hv->o", own.o[heads].double(), lost).to(self.b_o)

    # ---- keys ----------------------------------------------------------------------------------------

    def keys(self, group: int) -> None:
        kind = self.moments.kind
        if kind == "plain":
            self._plain_keys(group, slice(None))
        elif kind == "rotary":
            assert self.moments.pairs is not None
            if self.moments.pairs.rest:
                self._plain_keys(group, list(self.moments.pairs.rest))
            self._turned_keys(group, self.moments.pairs)
        else:
            self._selected_key(group)

    def _plain_keys(self, group: int, dims: slice | list[int]) -> None:
        heads, own = self.readers[group], self.own
        drop = self.moments.shift_free
        maps, weights, metrics = key_problem(own, self.moments, heads, dims)
        found = factor.shared(maps, weights, metrics, maps.shape[1])
        basis, mixes = _sized(found, own.k[self.members[group]][:, dims])
        q, width = own.q[heads], own.k.shape[2]
        turned = mixes.mT @ q[:, dims].double()
        self.q[heads] = _put(q, dims, turned)
        if self.b_q is not None and own.b_q is not None:
            shifted = (mixes.mT @ own.b_q[heads][:, dims, None].double())[..., 0]
            self.b_q[heads] = _put(own.b_q[heads], dims, shifted)
        self.k[group, dims] = basis[:, :width].to(own.k)
        if self.b_k is not None:
            self.b_k[group, dims] = 0.0 if drop else basis[:, width].to(self.b_k)

    def _turned_keys(self, group: int, pairs: Pairs) -> None:
        heads, own, old = self.readers[group], self.own, self.members[group]
        maps, moment, weights = turned_problem(own, self.moments, heads, pairs)
        found = shared_turn(moment, weights)
        made = torch.einsum("fj,jfw->fw", found.mix, maps)  # pair, width + 1
        a, b = list(pairs.first), list(pairs.second)
        width = own.k.shape[2]
        self.k[group, a], self.k[group, b] = made.real[:, :width].to(own.k), made.imag[:, :width].to(own.k)
        if self.b_k is not None:
            self.b_k[group, a], self.b_k[group, b] = made.real[:, -1].to(self.b_k), made.imag[:, -1].to(self.b_k)
        for h in heads:
            scale = found.scale[:, old.index(own.groups.kv_of_head[h])].conj()
            q = scale[:, None] * pairs.complex(own.q[h].double().mT).mT
            self.q[h, a], self.q[h, b] = q.real.to(own.q), q.imag.to(own.q)
            if self.b_q is not None and own.b_q is not None:
                shift = scale * pairs.complex(own.b_q[h].double())
                self.b_q[h, a], self.b_q[h, b] = shift.real.to(self.b_q), shift.imag.to(self.b_q)

    def _selected_key(self, group: int) -> None:
        """Nothing passes through a norm: the key head that stands in best for the others is taken as it is."""
        old, far = self.members[group], self.moments.keys_seen
        cost = [0.0] * len(old) if far is None else far[old][:, old].sum(0).tolist()
        best = old[min(range(len(old)), key=cost.__getitem__)]
        self.k[group] = self.own.k[best]
        if self.b_k is not None and self.own.b_k is not None:
            self.b_k[group] = self.own.b_k[best]


# ---- who goes with whom -------------------------------------------------------------------------------


def exchange(
    count: int, sizes: Sequence[int], cost: Callable[[tuple[int, ...]], float], starts: int = 8
) -> Clusters:
    """Swap members of two clusters while that lowers the sum of costs; the best of several starts."""
    best: tuple[float, Clusters] | None = None
    for seed in range(starts):
        order = list(range(count))
        if seed:
            order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
        edges = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        groups = [tuple(sorted(order[a:b])) for a, b in pairwise(edges)]
        while _improved(groups, cost):
            pass
        total = sum(map(cost, groups))
        if best is None or total < best[0] * (1 - 1e-9):
            best = total, tuple(sorted(groups))
    assert best is not None
    return best[1]


def _improved(groups: list[tuple[int, ...]], cost: Callable[[tuple[int, ...]], float]) -> bool:
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


def _named(own: HeadWeights, units: Sequence[Sequence[int]], found: Clusters) -> Clusters:
    """Clusters of units as clusters of heads, by their numbers in the uncut layer."""
    return tuple(tuple(sorted(own.origin[h] for u in some for h in units[u])) for some in found)


def _sizes(own: HeadWeights, kv_heads: int, place: str) -> list[int]:
    count = own.kv_heads
    if not 1 <= kv_heads <= count:
        where = f" ({place})" if place else ""
        raise SizeError(
            f"{count} kv heads cannot become {kv_heads}{where}",
            hint=f"choose one of {', '.join(str(n) for n in range(1, count + 1) if count % n == 0)}",
        )
    return [count // kv_heads + (i < count % kv_heads) for i in range(kv_heads)]


def _check(own: HeadWeights, clusters: Clusters) -> list[int]:
    """The new kv head of every query head."""
    listed = [h for some in clusters for h in some]
    if sorted(listed) != sorted(own.origin):
        raise SizeError(
            f"clusters {clusters} are not of the heads {tuple(sorted(own.origin))}",
            hint="every head in exactly one cluster, by its number in the uncut layer",
        )
    where = {h: g for g, some in enumerate(clusters) for h in some}
    kv_of = [where[h] for h in own.origin]
    for i, unit in enumerate(units_of(own)):
        apart = {kv_of[h] for h in unit}
        if len(apart) > 1:
            names = [own.origin[h] for h in unit]
            raise SizeError(
                f"heads {names} share kv head {own.kv_origin[i]} and were put into clusters {sorted(apart)}",
                hint="of a model that is grouped already, whole kv heads go together",
            )
    return kv_of


# ---- small things -------------------------------------------------------------------------------------


def _sized(found: factor.Shared, old: Tensor) -> tuple[Tensor, Tensor]:
    """Every row as large as those of the old maps: any size is the same function, a like one is kind to fp16."""
    rows = found.basis[:, : old.shape[-1]].square().mean(1).sqrt()
    size = torch.where(rows > 0, old.double().square().mean().sqrt() / rows, 1.0)
    return found.basis * size[:, None], found.mixes / size


def _put(x: Tensor, dims: slice | list[int], new: Tensor) -> Tensor:
    out = x.clone()
    out[:, dims] = new.to(out)
    return out


def _copy(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.clone()
