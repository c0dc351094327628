"""The least-squares problems of sharing keys and values: maps W_h, weights N_h and metrics C_h of the heads.

A head's metric is drawn towards the mean of all heads: a head that attends to few keys has seen few directions and
would fit noise. A ridge holds the maps where the text has no variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float64
from torch import Tensor

from multihead._base.float64 import float64
from multihead.edit.kv_sharing.input_moments import HeadMoment, Moments
from multihead.edit.kv_sharing.low_rank import Maps, Metrics, Squares
from multihead.edit.kv_sharing.rotary import Pairs
from multihead.model.head_weights import HeadWeights

VALUE_SHRINK, KEY_SHRINK = 0.2, 0.5
"""The share of the mean of all heads in a head's metric."""
RIDGE = 1e-3
"""Of the mean variance, added in every direction: no row of a map grows without bound."""

ROUNDING = 1e-5
"""Of E‖x̃‖²: a smaller variance of the inputs of a head is rounding, since their means are computed in fp32."""

Dims = slice | list[int]


@dataclass(frozen=True)
class SharingProblem:
    """min over T, B of Σ_h tr N_h (W_h − T_h B) C_h (W_h − T_h B)ᵀ, in the coordinates of the layer's input."""

    maps: Maps
    weights: Squares
    metrics: Metrics


def value_problem(
    own: HeadWeights, moments: Moments, heads: Sequence[int]
) -> tuple[SharingProblem, Float64[Tensor, "head width"] | None]:
    """The problem of sharing values, and means; metrics are around the means if a bias takes constants.

    Otherwise there are no means, and a value bias is a column of the maps.
    """
    moment, coordinates = moments.context_moment, moments.value_coordinates
    kv, weights = [own.groups.kv_of_head[h] for h in heads], outer(own.o[list(heads)])
    origin = [own.origin[h] for h in heads]
    mean, spread = moment.mean[origin], _shrunk(_covariance(moment, origin), _mean_covariance(moment), VALUE_SHRINK)
    if own.b_o is not None and moments.sums_to_one:
        problem = SharingProblem(coordinates.of_maps(own.v[kv]), weights, _without_one(spread))
        return problem, torch.cat([mean[:, : coordinates.leading], mean[:, coordinates.leading + 1 :]], dim=1)
    metrics = _plus_square(spread, mean)
    if own.b_v is None:
        return SharingProblem(coordinates.of_maps(own.v[kv]), weights, _without_one(metrics)), None
    return SharingProblem(coordinates.of_maps(own.v[kv], own.b_v[kv]), weights, metrics), None


def key_problem(
    own: HeadWeights, moments: Moments, heads: Sequence[int], dims: Dims = slice(None)
) -> SharingProblem:
    """The problem of sharing keys: N = E[q qᵀ], C the covariance of the keys that a query attends to."""
    kv, coordinates = [own.groups.kv_of_head[h] for h in heads], moments.key_coordinates
    origin = [own.origin[h] for h in heads]
    q = _with_bias(own.q, own.b_q, heads)[:, dims]
    weights = q @ moments.query @ q.mT
    if moments.shift_free:
        metrics = _shrunk(attended_covariance(moments, origin), _mean_attended_covariance(moments), KEY_SHRINK)
        return SharingProblem(coordinates.of_maps(own.k[kv][:, dims]), weights, metrics)
    moment = moments.attended_key_moment
    mean = Metrics(moment.block.mean(0), moment.diagonal.mean(0))
    metrics = _shrunk(Metrics(moment.block[origin], moment.diagonal[origin]), mean, KEY_SHRINK)
    bias = torch.zeros_like(own.k[kv][..., 0]) if own.b_k is None else own.b_k[kv]
    return SharingProblem(coordinates.of_maps(own.k[kv], bias)[:, dims], weights, metrics)


def rotary_problem(
    own: HeadWeights, moments: Moments, heads: Sequence[int], pairs: Pairs
) -> tuple[
    Complex[Tensor, "kv_head pair width_and_1"],
    Complex[Tensor, "pair kv_head other"],
    Float64[Tensor, "pair kv_head"],
]:
    """The problem of sharing rotary keys: (complex maps, E[k_j k̄_l] per pair, E|q|² per pair)."""
    kv = sorted({own.groups.kv_of_head[h] for h in heads})
    maps = pairs.complex(_with_bias(own.k, own.b_k, kv).mT).mT
    moment = torch.einsum("jfw,wx,lfx->fjl", maps, moments.key.to(maps.dtype), maps.conj())
    weights = maps.real.new_zeros(len(pairs.first), len(kv))
    for h in heads:
        q = pairs.complex(_with_bias(own.q, own.b_q, [h])[0].mT).mT
        size = torch.einsum("fw,wx,fx->f", q, moments.query.to(q.dtype), q.conj()).real
        weights[:, kv.index(own.groups.kv_of_head[h])] += size
    return maps, moment, weights


def attended_covariance(moments: Moments, heads: Sequence[int]) -> Metrics:
    """The mean over queries of the covariance of the inputs that a query attends to; heads of the uncut layer."""
    attended, context = moments.attended_key_moment, moments.key_context_moment
    block = attended.block[list(heads)]
    for one, head in zip(block, heads, strict=True):  # one by one: no second copy of the block
        one -= context.block[head]
    covariance = Metrics(block, attended.diagonal[list(heads)] - context.diagonal[list(heads)])
    return _without_one(_positive(covariance, _size(attended)[list(heads)]))


def outer(o: Tensor) -> Squares:
    """N_h = W_O,hᵀ W_O,h."""
    return float64(o).mT @ float64(o)


def _with_bias(w: Tensor, b: Tensor | None, heads: Sequence[int]) -> Float64[Tensor, "head dim width_and_1"]:
    """[W b] of some heads, as a problem has it; b = 0 if there is none."""
    w = w[list(heads)]
    column = torch.zeros_like(w[..., :1]) if b is None else b[list(heads)][:, :, None]
    return float64(torch.cat([w, column], dim=-1))


# ---- metrics of the coordinates with the 1 ------------------------------------------------------------


def _covariance(moment: HeadMoment, heads: Sequence[int]) -> Metrics:
    """The covariance of a sharing problem: input moments of some heads around their means."""
    block, mean = moment.block[list(heads)], moment.block[list(heads), :, -1]
    block.baddbmm_(mean[:, :, None], mean[:, None, :], alpha=-1)
    covariance = Metrics(block, (moment.diagonal - moment.rest_mean.square())[list(heads)])
    return _positive(covariance, _size(moment)[list(heads)])


def _mean_covariance(moment: HeadMoment) -> Metrics:
    """The mean covariance over the heads of a sharing problem."""
    mean = moment.block[:, :, -1]
    block = moment.block.mean(0) - mean.mT @ mean / len(mean)
    covariance = Metrics(block, (moment.diagonal - moment.rest_mean.square()).mean(0))
    return _positive(covariance, _size(moment).mean())


def _mean_attended_covariance(moments: Moments) -> Metrics:
    """The mean over heads and queries of the covariance of attended inputs."""
    attended, context = moments.attended_key_moment, moments.key_context_moment
    block = attended.block.mean(0) - context.block.mean(0)
    covariance = Metrics(block, (attended.diagonal - context.diagonal).mean(0))
    return _without_one(_positive(covariance, _size(attended).mean()))


def _size(moment: HeadMoment) -> Float64[Tensor, " head"]:
    """E‖x̃‖²"""
    return Metrics(moment.block, moment.diagonal).trace


def _positive(covariance: Metrics, size: Float64[Tensor, "*head"]) -> Metrics:
    """The problem's metric with a ridge if inputs are all equal: rounding may make their covariance negative."""
    ridge = torch.where(covariance.trace < ROUNDING * size, ROUNDING * size / covariance.width, 0.0)
    covariance.block.diagonal(dim1=-2, dim2=-1).add_(ridge[..., None])
    return Metrics(covariance.block, covariance.diagonal + ridge[..., None])


def _shrunk(own: Metrics, mean: Metrics, share: float) -> Metrics:
    """The problem's metrics, shrunk: (1 − a) C_h + a C, C of the size of C_h, and a ridge. Changes `own`."""
    trace = own.trace
    size = trace / mean.trace.clamp_min(1e-300)
    ridge = RIDGE * trace / own.width
    block = own.block.mul_(1 - share).addcmul_(size[:, None, None], mean.block, value=share)
    block.diagonal(dim1=1, dim2=2).add_(ridge[:, None])
    return Metrics(block, (1 - share) * own.diagonal + share * size[:, None] * mean.diagonal + ridge[:, None])


def _plus_square(own: Metrics, mean: Float64[Tensor, "head width_and_1"]) -> Metrics:
    """The problem's metrics C_h + mean meanᵀ. Changes `own`."""
    full = own.block.shape[-1]
    leading, rest = mean[:, :full], mean[:, full:]
    return Metrics(own.block.baddbmm_(leading[:, :, None], leading[:, None, :]), own.diagonal + rest.square())


def _without_one(own: Metrics) -> Metrics:
    return Metrics(own.block[..., :-1, :-1], own.diagonal)
