"""Attention by the book: one loop over batch, head and query, hidden keys never touched.

Written from the formula and the papers, with nothing of the package but a layer's parameters by name: what
the `reference` route is itself held to. Slow, differentiable, any float dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Allowed = Callable[[int, int, int, int, int], bool]  # (batch, head, query place, key place, query row)
Added = Callable[[int, int, int, int, int], Tensor]


@dataclass(frozen=True)
class Turn:
    """Rotary: pairs of the first `dim` dimensions turn by place / base^(2i/dim) / factor."""

    base: float = 10_000.0
    interleaved: bool = False
    dim: int | None = None
    factor: float = 1.0


@dataclass(frozen=True)
class Slopes:
    """ALiBi: −slope_h |query − key|; the slopes of a power of two of heads, unless given."""

    slopes: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Buckets:
    """T5: a learned number per head and bucket of distance."""

    buckets: int = 8
    max_distance: int = 16
    bidirectional: bool = True


@dataclass(frozen=True)
class Variant:
    """What was said to the constructor, in plain data."""

    heads: int
    head_dim: int
    value_dim: int
    kv_of_head: tuple[int, ...]
    position: Turn | Slopes | Buckets | None = None
    norm: tuple[Literal["rms", "layer"], Literal["before", "after"]] | None = None
    scale: float | None = None
    softcap: float | None = None


@dataclass(frozen=True)
class Answer:
    out: Tensor  # (batch, query, d_out)
    weights: Tensor  # (batch, head, query, key)
    lse: Tensor  # (batch, head, query)
    heads: Tensor  # (batch, head, query, value_dim), after the gate


def attention(
    variant: Variant,
    parameters: Mapping[str, Tensor],
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    *,
    allowed: Allowed | None = None,
    added: Sequence[Added] = (),
    gate: Tensor | None = None,
    positions: Sequence[Sequence[int]] | None = None,
) -> Answer:
    """softmax over the visible keys, row by row.

    Places are bottom-right aligned. `positions[batch]` says other ones for the position encoding of
    self-attention alone.
    """
    key = query if key is None else key
    value = key if value is None else value
    batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    place = [keys - queries + i for i in range(queries)]
    scale = variant.head_dim**-0.5 if variant.scale is None else variant.scale

    rows_out: list[Tensor] = []
    rows_weights: list[Tensor] = []
    rows_lse: list[Tensor] = []
    for b in range(batch):
        query_at = place if positions is None else positions[b]
        key_at = list(range(keys)) if positions is None else positions[b]
        for h in range(variant.heads):
            kv = variant.kv_of_head[h]
            qs = _ready(variant, parameters, "q", h, query[b], query_at)
            ks = _ready(variant, parameters, "k", kv, key[b], key_at)
            vs = _projected(parameters, "v", kv, variant.value_dim, value[b])
            for i in range(queries):
                seen = [j for j in range(keys) if allowed is None or allowed(b, h, place[i], j, i)]
                sink = [parameters["sink_logits"][h]] if "sink_logits" in parameters else []
                weights = query.new_zeros(keys)
                if not seen:  # nothing to attend to, and the sink has no value
                    rows_weights.append(weights)
                    rows_lse.append(sink[0] if sink else query.new_tensor(-torch.inf))
                    rows_out.append(query.new_zeros(variant.value_dim))
                    continue
                scores = ks[seen] @ qs[i] * scale
                if variant.softcap is not None:
                    scores = variant.softcap * torch.tanh(scores / variant.softcap)
                bias = _bias(variant, parameters, h, query_at[i], [key_at[j] for j in seen])
                scores = scores if bias is None else scores + bias
                for number in added:
                    scores = scores + torch.stack([number(b, h, place[i], j, i) for j in seen])
                top = float(scores.detach().max())
                total = (scores - top).exp().sum() + sum((s - top).exp() for s in sink)
                share = (scores - top).exp() / total
                rows_weights.append(weights.index_put((torch.tensor(seen),), share))
                rows_lse.append(top + total.log())
                rows_out.append(share @ vs[seen])
    shape = (batch, variant.heads, queries)
    heads = _stacked(rows_out, query, variant.value_dim).view(*shape, variant.value_dim)
    if gate is not None:
        full = gate.reshape({1: (1, -1, 1, 1), 2: (*gate.shape, 1, 1), 3: (*gate.shape, 1)}[gate.ndim])
        heads = heads * full
    out = heads.transpose(1, 2).reshape(batch, queries, variant.heads * variant.value_dim)
    out = out @ parameters["o_proj.weight"].T
    if "o_proj.bias" in parameters:
        out = out + parameters["o_proj.bias"]
    lse = torch.stack(rows_lse).view(shape) if rows_lse else query.new_zeros(shape)
    return Answer(out, _stacked(rows_weights, query, keys).view(*shape, keys), lse, heads)


def _stacked(rows: list[Tensor], like: Tensor, width: int) -> Tensor:
    return torch.stack(rows) if rows else like.new_zeros(0, width)


def _projected(parameters: Mapping[str, Tensor], name: str, head: int, dim: int, x: Tensor) -> Tensor:
    mine = slice(head * dim, (head + 1) * dim)
    y = x @ parameters[f"{name}_proj.weight"][mine].T
    return y + parameters[f"{name}_proj.bias"][mine] if f"{name}_proj.bias" in parameters else y


def _ready(
    variant: Variant, parameters: Mapping[str, Tensor], name: str, head: int, x: Tensor, at: Sequence[int]
) -> Tensor:
    """Project, normalise and turn the tokens of one head."""
    y = _projected(parameters, name, head, variant.head_dim, x)
    if variant.norm is not None and variant.norm[1] == "before":
        y = _normal(variant.norm[0], parameters, name, y)
    if isinstance(variant.position, Turn):
        y = _turned(variant.position, y, at)
    if variant.norm is not None and variant.norm[1] == "after":
        y = _normal(variant.norm[0], parameters, name, y)
    return y


def _normal(kind: str, parameters: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    if kind == "layer":
        x = x - x.mean(-1, keepdim=True)
    y = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * parameters[f"{name}_norm.weight"]
    return y + parameters[f"{name}_norm.bias"] if kind == "layer" else y


def _turned(turn: Turn, x: Tensor, at: Sequence[int]) -> Tensor:
    """(a + bi) e^{i at θ} for each pair (a, b)."""
    dim = x.shape[1] if turn.dim is None else turn.dim
    y = list(x.unbind(1))
    for i in range(dim // 2):
        first, second = (2 * i, 2 * i + 1) if turn.interleaved else (i, i + dim // 2)
        angle = [p / turn.factor * turn.base ** (-2 * i / dim) for p in at]
        cos, sin = x.new_tensor([math.cos(a) for a in angle]), x.new_tensor([math.sin(a) for a in angle])
        y[first], y[second] = (
            x[:, first] * cos - x[:, second] * sin,
            x[:, first] * sin + x[:, second] * cos,
        )
    return torch.stack(y, dim=1)


def _bias(
    variant: Variant, parameters: Mapping[str, Tensor], head: int, query: int, keys: Sequence[int]
) -> Tensor | None:
    position, like = variant.position, parameters["q_proj.weight"]
    if isinstance(position, Slopes):
        distances = like.new_tensor([abs(query - key) for key in keys])
        if "position.weight" in parameters:
            return -parameters["position.weight"][head] * distances
        if position.slopes is not None:
            return -position.slopes[head] * distances
        return -(2.0 ** (-8.0 * (head + 1) / variant.heads)) * distances
    if isinstance(position, Buckets):
        return torch.stack([parameters["position.weight"][bucket(position, k - query), head] for k in keys])
    return None


def bucket(rule: Buckets, distance: int) -> int:
    """Raffel et al. 2020: near distances one by one, far ones by their logarithm."""
    count, start = rule.buckets, 0
    if rule.bidirectional:
        count //= 2
        start = count if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    near = count // 2
    if distance < near:
        return start + distance
    far = math.log(distance / near) / math.log(rule.max_distance / near)
    return start + min(near + int(far * (count - near)), count - 1)
