"""What heads lose if they share keys and values: the least-squares problems of a layer, and the cost of a cluster.

>>> import torch, multihead as mh
>>> from multihead.edit.sharing.group_cost import costs
>>> from multihead.edit.sharing.moments import moments_of
>>> from multihead.model.head_weights import HeadWeights
>>> encoder = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True).eval()
>>> layer = mh.anatomy(encoder)[0]
>>> cost = costs(HeadWeights.of(layer), moments_of(encoder, layer, [{"src": torch.randn(9, 13, 24)}]))
>>> cost((1,)), cost((0, 1)) < cost((0, 1, 2))
(0.0, True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.edit.sharing import factor
from multihead.edit.sharing.factor import Maps, Metrics
from multihead.edit.sharing.moments import Moments
from multihead.edit.sharing.rotary_factor import Pairs, shared_turn
from multihead.model.head_weights import HeadWeights

VALUE_SHRINK, KEY_SHRINK = 0.2, 0.5
"""How far the metric of a head is drawn to the mean of all heads: its own has few directions where it looks at few
keys, and would fit noise."""
RIDGE = 1e-3
"""Of the mean variance, added in every direction: where the text says nothing a map stays near what it was, and no
row of it grows without bound."""


def value_problem(
    own: HeadWeights, moments: Moments, heads: Sequence[int]
) -> tuple[Maps, Metrics, Float[Tensor, "head width"] | None]:
    """(maps, metrics, means). Where the output bias can take constants up, maps and metrics are without them.

    Else there are no means, and a value bias is the last column of the maps.
    """
    origin = [own.origin[h] for h in heads]
    kv = [own.groups.kv_of_head[h] for h in heads]
    maps, mean = own.v[kv].double(), moments.averaged[:, :, -1]
    spread = moments.averaged - mean[:, :, None] * mean[:, None, :]
    mean, spread = mean[origin], _shrunk(spread[origin], spread.mean(0), VALUE_SHRINK)
    if own.b_o is not None and moments.sums_to_one:
        return maps, spread[:, :-1, :-1], mean[:, :-1]
    metric = spread + mean[:, :, None] * mean[:, None, :]
    if own.b_v is None:
        return maps, metric[:, :-1, :-1], None
    return torch.cat([maps, own.b_v[kv].double()[:, :, None]], dim=2), metric, None


def key_problem(
    own: HeadWeights, moments: Moments, heads: Sequence[int], dims: slice | list[int] = slice(None)
) -> tuple[Tensor, Tensor, Tensor]:
    """(maps, weights, metrics) of the scores: E[q qᵀ], and the covariance of keys within what a query sees."""
    origin = [own.origin[h] for h in heads]
    kv = [own.groups.kv_of_head[h] for h in heads]
    q = with_bias(own.q[heads], own.b_q, heads)[:, dims]
    weights = q @ moments.query @ q.mT
    maps = own.k[kv].double()[:, dims]
    if moments.shift_free:
        spread = (moments.looked - moments.centre)[:, :-1, :-1]
        return maps, weights, _shrunk(spread[origin], spread.mean(0), KEY_SHRINK)
    looked = _shrunk(moments.looked[origin], moments.looked.mean(0), KEY_SHRINK)
    return with_bias(own.k[kv], own.b_k, kv)[:, dims], weights, looked


def turned_problem(
    own: HeadWeights, moments: Moments, heads: Sequence[int], pairs: Pairs
) -> tuple[Tensor, Tensor, Tensor]:
    """(complex maps of the kv heads, E[k_j k̄_l] per pair, E|q|² per pair of all who read them)."""
    kv = sorted({own.groups.kv_of_head[h] for h in heads})
    k = with_bias(own.k[kv], own.b_k, kv)
    maps = pairs.complex(k.mT).mT  # kv head, pair, width
    metric = moments.key.to(maps.dtype)
    moment = torch.einsum("jfw,wx,lfx->fjl", maps, metric, maps.conj())
    weights = maps.real.new_zeros(len(pairs.first), len(kv))
    for h in heads:
        q = pairs.complex(with_bias(own.q[[h]], own.b_q, [h])[0].mT).mT
        size = torch.einsum("fw,wx,fx->f", q, moments.query.to(q.dtype), q.conj()).real
        weights[:, kv.index(own.groups.kv_of_head[h])] += size
    return maps, moment, weights


def _shrunk(own: Tensor, mean: Tensor, share: float) -> Tensor:
    """(1 − a) C_h + a C, with C of the size of C_h; and a ridge."""
    whole = own.diagonal(dim1=1, dim2=2).sum(1)
    size = whole / mean.diagonal().sum().clamp_min(1e-300)
    ridge = RIDGE * whole[:, None, None] / len(mean) * torch.eye(len(mean), dtype=own.dtype, device=own.device)
    return (1 - share) * own + share * size[:, None, None] * mean + ridge


def costs(own: HeadWeights, moments: Moments) -> Callable[[tuple[int, ...]], float]:
    """What it costs the layer's output if these kv heads become one: E‖o − o'‖² of values, and of scores.

    An error of the scores moves the output by at most its variance within what a query sees, times the variance of
    the values there.
    """
    units = units_of(own)
    reads = list(range(own.heads))
    maps, metrics, _ = value_problem(own, moments, reads)
    squares = outer(own.o)
    values = factor.gram(maps, squares, factor.pool(squares, maps, metrics))
    origin = [own.origin[h] for h in reads]
    spread = (moments.looked[origin] - moments.centre[origin])[:, :-1, :-1]
    v = own.v[list(own.groups.kv_of_head)].double()
    wide = torch.ones(own.heads, dtype=torch.float64)
    if spread.shape[-1] == v.shape[-1]:
        wide = factor.said_by(v, squares, spread).clamp_min(0)
    turned = moments.kind == "rotary" and moments.pairs is not None
    plain = moments.kind == "plain" or (turned and moments.pairs is not None and bool(moments.pairs.rest))
    keys: Tensor | None = None
    if plain:
        dims = list(moments.pairs.rest) if turned and moments.pairs is not None else slice(None)
        k_maps, k_weights, k_metrics = key_problem(own, moments, reads, dims)
        k_weights = k_weights * (moments.scale**2 * wide)[:, None, None]
        keys = factor.gram(k_maps, k_weights, factor.pool(k_weights, k_maps, k_metrics))

    @cache
    def cost(some: tuple[int, ...]) -> float:
        if len(some) == 1:
            return 0.0
        heads = [h for u in some for h in units[u]]
        total = _tail(values, heads, own.v.shape[1])
        if keys is not None:
            total += _tail(keys, heads, keys.shape[1])
        if turned and moments.pairs is not None:
            _, moment, weights = turned_problem(own, moments, heads, moments.pairs)
            total += _moved(moments.scale**2 * shared_turn(moment, weights).loss, wide[heads])
        if moments.kind == "normed" and moments.keys_seen is not None:
            old = sorted({own.groups.kv_of_head[h] for h in heads})
            total += _moved(moments.scale**2 * float(moments.keys_seen[old][:, old].sum(0).min()), wide[heads])
        return total

    return cost


def _moved(off: float, wide: Float[Tensor, " head"]) -> float:
    """How far scores that are off by so much in all move the output: by no more than all that the values vary."""
    each = off / len(wide)
    return float(wide.sum()) * each / (1 + each)


def _tail(gram: Float[Tensor, "head dim other dim"], heads: Sequence[int], rank: int) -> float:
    part = gram[list(heads)][:, :, list(heads)].flatten(2).flatten(0, 1)
    return float(torch.linalg.eigvalsh((part + part.mT) / 2)[:-rank].clamp_min(0).sum())


def units_of(own: HeadWeights) -> list[tuple[int, ...]]:
    """Query heads that share a kv head, by kv head."""
    return [tuple(h for h in range(own.heads) if own.groups.kv_of_head[h] == i) for i in range(own.kv_heads)]


def outer(o: Float[Tensor, "head d_out value_dim"]) -> Float[Tensor, "head value_dim value_dim"]:
    return o.double().mT @ o.double()


def with_bias(w: Tensor, b: Tensor | None, heads: Sequence[int]) -> Tensor:
    """[W b] in fp64; b = 0 where there is none."""
    column = torch.zeros_like(w[..., :1]) if b is None else b[list(heads)][:, :, None]
    return torch.cat([w, column], dim=-1).double()
