"""The oracle: attention as one dense einsum, written from the formula and the papers.

Of a layer it reads the parameters, by name. Any float dtype; differentiable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fuzz.layers import Buckets, Layer, Rope, Slopes

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class Answer:
    out: Float[Tensor, "batch query d_out"]
    weights: Float[Tensor, "batch head query key"]
    lse: Float[Tensor, "batch head query"]
    heads: Float[Tensor, "batch head query value_dim"]


def queries_of(
    layer: Layer, parameters: Parameters, x: Tensor, positions: Int[Tensor, "batch token"], length: int
) -> Float[Tensor, "batch head query key_dim"]:
    """W_Q x, normalised and rotated; `length` is that of the call, for DynamicNTK."""
    return _encoded(layer, parameters, "q", _projected(parameters, "q", x, layer.heads), positions, length)


def keys_of(
    layer: Layer, parameters: Parameters, x: Tensor, positions: Int[Tensor, "batch token"], length: int
) -> Float[Tensor, "batch kv_head key key_dim"]:
    """W_K x, normalised and rotated."""
    return _encoded(layer, parameters, "k", _projected(parameters, "k", x, layer.kv_count), positions, length)


def values_of(layer: Layer, parameters: Parameters, x: Tensor) -> Float[Tensor, "batch kv_head key value_dim"]:
    """W_V x."""
    return _projected(parameters, "v", x, layer.kv_count)


def attend(
    layer: Layer,
    parameters: Parameters,
    q: Float[Tensor, "batch head query key_dim"],
    k: Float[Tensor, "batch kv_head key key_dim"],
    v: Float[Tensor, "batch kv_head key value_dim"],
    *,
    allowed: Bool[Tensor, "batch head query key"],
    added: Float[Tensor, "batch head query key"] | None,
    query_at: Int[Tensor, "batch query"],
    key_at: Int[Tensor, "batch key"],
    gate: Tensor | None,
) -> Answer:
    """softmax(softcap(q kᵀ · scale) + bias, masked) v, gated, through W_O. A row without a key gives zeros."""
    scale = layer.head_dim**-0.5 if layer.scale is None else layer.scale
    k, v = k[:, layer.kv_map], v[:, layer.kv_map]
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * scale
    if layer.softcap is not None:
        scores = layer.softcap * torch.tanh(scores / layer.softcap)
    bias = position_bias(layer, parameters, query_at, key_at)
    scores = scores if bias is None else scores + bias
    scores = scores if added is None else scores + added
    scores = scores.masked_fill(~allowed, -torch.inf)
    if "sink_logits" in parameters:
        sink = parameters["sink_logits"][None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, sink), dim=-1)
    top = scores.new_zeros(*scores.shape[:3], 1)
    if scores.shape[-1] > 0:
        top = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    exp = (scores - top).exp()
    total = exp.sum(-1, keepdim=True)
    weights = (exp / total.masked_fill(total == 0, 1.0))[..., : k.shape[2]]
    lse = (top + total.log()).squeeze(-1)
    heads = torch.einsum("bhqk,bhkd->bhqd", weights, v)
    if gate is not None:
        heads = heads * gate.reshape(
            (1, *gate.shape, 1, 1) if gate.ndim == 1 else gate.shape + (1,) * (4 - gate.ndim)
        )
    w_o = parameters["o_proj.weight"].unflatten(1, (layer.heads, layer.values))
    out = torch.einsum("bhqd,ohd->bqo", heads, w_o)
    if "o_proj.bias" in parameters:
        out = out + parameters["o_proj.bias"]
    return Answer(out, weights, lse, heads)


class Memory:
    """A key/value cache as the list of its rows, each (kv_head, tokens, dim)."""

    def __init__(self) -> None:
        self.k: list[Tensor] = []
        self.v: list[Tensor] = []

    def append(self, k: Tensor, v: Tensor, counts: Sequence[int]) -> None:
        """Store the first counts[b] new tokens of row b behind the others."""
        if not self.k:
            self.k, self.v = list(k[:, :, :0]), list(v[:, :, :0])
        for row, count in enumerate(counts):
            self.k[row] = torch.cat((self.k[row], k[row, :, :count]), dim=1)
            self.v[row] = torch.cat((self.v[row], v[row, :, :count]), dim=1)

    def padded(self, keys: int) -> tuple[Tensor, Tensor, Bool[Tensor, "batch key"]]:
        """(k, v, which slots hold a token), all rows `keys` long."""
        k, v = (
            torch.stack([torch.nn.functional.pad(row, (0, 0, 0, keys - row.shape[1])) for row in rows])
            for rows in (self.k, self.v)
        )
        lengths = torch.tensor([row.shape[1] for row in self.k])
        return k, v, torch.arange(keys) < lengths[:, None]

    def crop(self, tokens: int) -> None:
        self.k, self.v = [row[:, :tokens] for row in self.k], [row[:, :tokens] for row in self.v]

    def reorder(self, index: Sequence[int]) -> None:
        if self.k:
            self.k, self.v = [self.k[i] for i in index], [self.v[i] for i in index]

    def reset(self) -> None:
        self.k, self.v = [], []


# ---- position -------------------------------------------------------------------------------------


def frequencies(rope: Rope, dim: int, length: int) -> tuple[Float[Tensor, " pair"], float]:
    """(radians per position of each pair of dimensions, factor on cos and sin) in a call of `length` positions."""
    pairs = torch.arange(0, dim, 2, dtype=torch.float64)

    def theta(base: float) -> Tensor:
        return base ** (-pairs / dim)

    match rope.scaling:
        case None:
            return theta(rope.base), 1.0
        case ("Linear", factor):
            return theta(rope.base) / factor, 1.0
        case ("NTK", factor):
            return theta(rope.base * factor ** (dim / (dim - 2))), 1.0
        case ("DynamicNTK", factor, original):
            stretch = factor * max(length, original) / original - (factor - 1)
            return theta(rope.base * stretch ** (dim / (dim - 2))), 1.0
        case ("Llama3", factor, low, high, original):
            turns = original * theta(rope.base) / (2 * math.pi)  # within the original length
            keep = ((turns - low) / (high - low)).clamp(0, 1)
            return theta(rope.base) * (keep + (1 - keep) / factor), 1.0
        case ("YaRN", factor, original):
            first, last = (
                dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope.base)) for turns in (32, 1)
            )
            first, last = max(math.floor(first), 0), min(math.ceil(last), dim - 1)
            ramp = ((pairs / 2 - first) / (last - first or 0.001)).clamp(0, 1)
            return theta(rope.base) * (1 - ramp + ramp / factor), 0.1 * math.log(max(factor, 1)) + 1
    raise NotImplementedError(rope.scaling)


def rotate(rope: Rope, x: Tensor, positions: Int[Tensor, "batch token"], length: int) -> Tensor:
    """(a, b) → (a cos − b sin, a sin + b cos) of each pair of the first `dim` dimensions."""
    size = x.shape[-1]
    dim = size if rope.dim is None else int(size * rope.dim) if isinstance(rope.dim, float) else rope.dim
    theta, gain = frequencies(rope, dim, length)
    angle = positions[:, None, :, None].to(torch.float64) * theta
    cos, sin = (angle.cos() * gain).to(x.dtype), (angle.sin() * gain).to(x.dtype)
    turning, rest = x[..., :dim], x[..., dim:]
    if rope.interleaved:
        a, b = turning[..., 0::2], turning[..., 1::2]
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
    else:
        a, b = turning[..., : dim // 2], turning[..., dim // 2 :]
        turned = torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
    return torch.cat((turned, rest), dim=-1)


def position_bias(
    layer: Layer, parameters: Parameters, query_at: Int[Tensor, "batch query"], key_at: Int[Tensor, "batch key"]
) -> Float[Tensor, "batch head query key"] | None:
    """What ALiBi or T5's buckets add to the scores."""
    distance = key_at[:, None, None, :] - query_at[:, None, :, None]
    like = parameters["q_proj.weight"]
    match layer.position:
        case Slopes(slopes, learned):
            slope = torch.tensor(alibi(layer.heads) if slopes is None else slopes, dtype=like.dtype)
            slope = parameters["position.weight"] if learned else slope
            return -slope[:, None, None] * distance.abs().to(like.dtype)
        case Buckets():
            table = parameters["position.weight"]
            return table[bucket(layer.position, distance.squeeze(1))].permute(0, 3, 1, 2)
    return None


def alibi(heads: int) -> list[float]:
    """2^(−8/n), 2^(−16/n), … of the power of two n below; then every second one of 2n (Press et al. 2022)."""
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return slopes + [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)][: heads - power]


def bucket(rule: Buckets, distance: Tensor) -> Tensor:
    """Near distances one by one, far ones by their logarithm, in float32 (Raffel et al. 2020)."""
    count, start = rule.buckets, torch.zeros_like(distance)
    if rule.bidirectional:
        count //= 2
        start = (distance > 0) * count
        steps = distance.abs()
    else:
        steps = (-distance).clamp(min=0)
    near = count // 2
    far = torch.log(steps.float().clamp(min=1) / near) / math.log(rule.max_distance / near) * (count - near)
    return start + torch.where(steps < near, steps, (near + far.long()).clamp(max=count - 1))


# ---- projections ----------------------------------------------------------------------------------


def _projected(parameters: Parameters, name: str, x: Tensor, heads: int) -> Tensor:
    weight = parameters[f"{name}_proj.weight"].unflatten(0, (heads, -1))
    y = torch.einsum("btw,hdw->bhtd", x, weight)
    if f"{name}_proj.bias" in parameters:
        y = y + parameters[f"{name}_proj.bias"].view(heads, 1, -1)
    return y


def _encoded(layer: Layer, parameters: Parameters, name: str, x: Tensor, positions: Tensor, length: int) -> Tensor:
    if layer.norm is not None and layer.norm[1] == "before":
        x = _normal(layer, parameters, name, x)
    if isinstance(layer.position, Rope):
        x = rotate(layer.position, x, positions, length)
    if layer.norm is not None and layer.norm[1] == "after":
        x = _normal(layer, parameters, name, x)
    return x


def _normal(layer: Layer, parameters: Parameters, name: str, x: Tensor) -> Tensor:
    assert layer.norm is not None
    kind, _, eps = layer.norm
    if kind == "layer":
        x = x - x.mean(-1, keepdim=True)
    y = x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * parameters[f"{name}_norm.weight"]
    return y + parameters[f"{name}_norm.bias"] if kind == "layer" else y
