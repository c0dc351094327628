"""Multi-head → grouped attention: the heads of a group get one key map and one value map.

Both come from a joint low-rank factorisation in the metric of the heads' activations; queries and W_O take up the
change of basis. Rotated keys become the principal component of their complex pairs; normed keys, one of themselves.

>>> import torch, multihead as mh
>>> from multihead.edit.kv_sharing.cluster import cluster
>>> from multihead.edit.kv_sharing.input_moments import moments_of
>>> from multihead.edit.kv_sharing.share import share_kv
>>> from multihead.model.head_weights import HeadWeights
>>> encoder = torch.nn.TransformerEncoderLayer(24, 6, batch_first=True).eval()
>>> layer = mh.anatomy(encoder)[0]
>>> own, moments = HeadWeights.of(layer), moments_of(encoder, layer, [{"src": torch.randn(9, 13, 24)}])
>>> share_kv(own, cluster(layer, own, moments, 2), moments).k.shape                  # 2 kv heads
torch.Size([2, 4, 24])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float64
from torch import Tensor

from multihead._base.float64 import float64
from multihead.edit.kv_sharing.cluster import KVGroups, readers_of
from multihead.edit.kv_sharing.coordinates import PrincipalCoordinates
from multihead.edit.kv_sharing.input_moments import Moments
from multihead.edit.kv_sharing.low_rank import JointLowRank, joint_low_rank
from multihead.edit.kv_sharing.rotary import Pairs, complex_pca
from multihead.edit.kv_sharing.sharing_problems import Dims, key_problem, rotary_problem, value_problem
from multihead.errors import MultiheadError, SizeError
from multihead.layer import Groups
from multihead.model.head_weights import HeadWeights


def share_kv(own: HeadWeights, kv_groups: KVGroups, moments: Moments) -> HeadWeights:
    """The layer with one kv head per group; a group of one kv head keeps its weights, to the bit."""
    kv_of_head = _kv_of_head(own, kv_groups)
    if moments.key_path.kind == "normed over heads":
        raise MultiheadError(
            "the norm of the keys runs over all heads at once: with fewer heads it would be a different norm",
            hint="prune query heads instead, or keep the kv heads of this layer",
        )
    shared = _SharedHeads(own, kv_of_head, moments)
    for group, members in enumerate(shared.members):
        if len(members) > 1:
            shared.share_keys(group)
            shared.share_values(group)
    return shared.weights


class _SharedHeads:
    """Copies of the weights, which change group by group."""

    def __init__(self, own: HeadWeights, kv_of_head: Sequence[int], moments: Moments) -> None:
        self.own, self.moments = own, moments
        count = max(kv_of_head) + 1
        self.readers = [[h for h in range(own.heads) if kv_of_head[h] == g] for g in range(count)]
        self.members = [sorted({own.groups.kv_of_head[h] for h in heads}) for heads in self.readers]
        """the kv heads that become one"""
        first = [members[0] for members in self.members]
        self.weights = replace(
            own,
            q=own.q.clone(),
            k=own.k[first],
            v=own.v[first],
            o=own.o.clone(),
            b_q=None if own.b_q is None else own.b_q.clone(),
            b_k=None if own.b_k is None else own.b_k[first],
            b_v=None if own.b_v is None else own.b_v[first],
            b_o=None if own.b_o is None else own.b_o.clone(),
            groups=Groups(tuple(kv_of_head), count),
            kv_origin=tuple(own.kv_origin[i] for i in first),
        )

    # ---- values --------------------------------------------------------------------------------------

    def share_values(self, group: int) -> None:
        """Give a group one value map, the best for its heads."""
        heads, own, new = self.readers[group], self.own, self.weights
        problem, mean = value_problem(own, self.moments, heads)
        solution = joint_low_rank(problem.maps, problem.weights, problem.metrics, own.v.shape[1])
        v, b_v, coefficients = _balanced(solution, self.moments.value_coordinates, own.v[self.members[group]])
        new.o[heads] = (float64(own.o[heads]) @ coefficients).to(own.o)
        new.v[group] = v.to(own.v)
        if b_v is not None and new.b_v is not None:
            new.b_v[group] = b_v.to(new.b_v)
        if mean is None or new.b_o is None:
            return
        # P 1 = 1: a value bias is a constant of the output, and so is the mean of the error.
        error = ((problem.maps - solution.coefficients @ solution.basis) @ mean[:, :, None])[..., 0]
        if new.b_v is not None and own.b_v is not None:
            error = error + float64(own.b_v[[own.groups.kv_of_head[h] for h in heads]])
            new.b_v[group] = 0.0
        new.b_o.add_(torch.einsum("hov,hv->o", float64(own.o[heads]), error).to(new.b_o))

    # ---- keys ----------------------------------------------------------------------------------------

    def share_keys(self, group: int) -> None:
        """Give a group one key map, along the path of its keys to the kernel."""
        path = self.moments.key_path
        if path.kind == "plain":
            self._share_plain_keys(group, slice(None))
        elif path.pairs is not None:
            if path.pairs.rest:
                self._share_plain_keys(group, list(path.pairs.rest))
            self._share_rotary_keys(group, path.pairs)
        else:
            self._share_normed_keys(group)

    def _share_plain_keys(self, group: int, dims: Dims) -> None:
        """Share keys that reach the kernel as they are projected."""
        heads, own, new = self.readers[group], self.own, self.weights
        problem = key_problem(own, self.moments, heads, dims)
        solution = joint_low_rank(problem.maps, problem.weights, problem.metrics, problem.maps.shape[1])
        old = own.k[self.members[group]][:, dims]
        k, b_k, coefficients = _balanced(solution, self.moments.key_coordinates, old)
        new.q[heads] = _replaced(own.q[heads], dims, coefficients.mT @ float64(own.q[heads][:, dims]))
        if new.b_q is not None and own.b_q is not None:
            b_q = own.b_q[heads]
            new.b_q[heads] = _replaced(b_q, dims, (coefficients.mT @ float64(b_q[:, dims, None]))[..., 0])
        new.k[group, dims] = k.to(own.k)
        if new.b_k is not None:
            new.b_k[group, dims] = 0.0 if b_k is None else b_k.to(new.b_k)

    def _share_rotary_keys(self, group: int, pairs: Pairs) -> None:
        """Share keys that are rotated, pair by pair."""
        heads, own, new, members = self.readers[group], self.own, self.weights, self.members[group]
        maps, moment, weights = rotary_problem(own, self.moments, heads, pairs)
        solution = complex_pca(moment, weights)
        key = torch.einsum("fj,jfw->fw", solution.combination, maps)  # pair, width + 1
        first, second = list(pairs.first), list(pairs.second)
        new.k[group, first], new.k[group, second] = key.real[:, :-1].to(own.k), key.imag[:, :-1].to(own.k)
        if new.b_k is not None:
            new.b_k[group, first] = key.real[:, -1].to(new.b_k)
            new.b_k[group, second] = key.imag[:, -1].to(new.b_k)
        for h in heads:
            scale = solution.scale[:, members.index(own.groups.kv_of_head[h])].conj()
            q = scale[:, None] * pairs.complex(float64(own.q[h]).mT).mT
            new.q[h, first], new.q[h, second] = q.real.to(own.q), q.imag.to(own.q)
            if new.b_q is not None and own.b_q is not None:
                b_q = scale * pairs.complex(float64(own.b_q[h]))
                new.b_q[h, first], new.b_q[h, second] = b_q.real.to(new.b_q), b_q.imag.to(new.b_q)

    def _share_normed_keys(self, group: int) -> None:
        """Share normed keys of a group: no factor commutes with a norm, so the best head's key is taken."""
        members, distances = self.members[group], self.moments.key_distances
        cost = [0.0] * len(members) if distances is None else distances[members][:, members].sum(0).tolist()
        best = members[min(range(len(members)), key=cost.__getitem__)]
        self.weights.k[group] = self.own.k[best]
        if self.weights.b_k is not None and self.own.b_k is not None:
            self.weights.b_k[group] = self.own.b_k[best]


def _kv_of_head(own: HeadWeights, kv_groups: KVGroups) -> list[int]:
    """The shared kv head of every query head."""
    listed = [h for group in kv_groups for h in group]
    if sorted(listed) != sorted(own.origin):
        raise SizeError(
            f"kv groups {kv_groups} must hold the heads {tuple(sorted(own.origin))}",
            hint="put every head into exactly one group, by its index in the uncut layer",
        )
    group_of = {h: g for g, group in enumerate(kv_groups) for h in group}
    kv_of_head = [group_of[h] for h in own.origin]
    for i, heads in enumerate(readers_of(own)):
        groups = {kv_of_head[h] for h in heads}
        if len(groups) > 1:
            names = [own.origin[h] for h in heads]
            raise SizeError(
                f"heads {names} share kv head {own.kv_origin[i]} and must be in one group, "
                f"got groups {sorted(groups)}",
                hint="in a model that is grouped already, group whole kv heads",
            )
    return kv_of_head


def _balanced(
    solution: JointLowRank, coordinates: PrincipalCoordinates, old: Tensor
) -> tuple[Float64[Tensor, "rank width"], Float64[Tensor, " rank"] | None, Float64[Tensor, "head dim rank"]]:
    """A shared map, bias and coefficients: the rows are as large as those of the old maps.

    Any size is the same function; a similar one keeps fp16 accurate.
    """
    basis, bias = coordinates.restored(solution.basis)
    rows = basis.square().mean(1).sqrt()
    size = torch.where(rows > 0, float64(old).square().mean().sqrt() / rows, 1.0)
    return basis * size[:, None], None if bias is None else bias * size, solution.coefficients / size


def _replaced(x: Tensor, dims: Dims, new: Tensor) -> Tensor:
    out = x.clone()
    out[:, dims] = new.to(out)
    return out
