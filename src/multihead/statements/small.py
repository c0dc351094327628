"""A few heads of a layer on a few of its own tokens, in the coordinates that matter: small enough to train.

n tokens span at most n dimensions, so that W x = (W U)(Uᵀ x) with an orthonormal basis U of them: nothing is
approximated. The same on the other side: outputs lie in the span of the W_O of the heads. A bias is the column of
an input that is always 1. Positions and norms between projection and kernel are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.statements.layer_sample import LayerSample

Weights = tuple[Tensor, Tensor, Tensor, Tensor]
"""W_Q (head, key_dim, width), W_K and W_V (kv_head, …, key_width), W_O (head, out, value_dim)"""


@dataclass(frozen=True)
class Small:
    """softmax(q kᵀ · scale) v W_O of some heads, as a function of their weights."""

    x: Float[Tensor, "batch query width"]
    y: Float[Tensor, "batch key key_width"]
    """where keys and values come from: x itself in self-attention"""
    weights: Weights
    kv_of_head: tuple[int, ...]
    scale: float
    causal: bool

    @property
    def heads(self) -> int:
        return len(self.kv_of_head)

    def maps(self, q: Float[Tensor, "batch head query dim"], k: Float[Tensor, "batch head key dim"]) -> Tensor:
        """softmax over the keys that a query may see."""
        scores = q @ k.mT * self.scale
        if self.causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + k.shape[2] - q.shape[2])
            scores = scores.masked_fill(hidden, -torch.inf)
        return scores.softmax(-1)

    def projected(self, weights: Weights, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v of every query head: (batch, head, token, dim)."""
        q, k, v = (torch.einsum("btw,hdw->bhtd", given, w) for given, w in zip((x, y, y), weights[:3], strict=True))
        own = list(self.kv_of_head)
        return q, k[:, own], v[:, own]

    def parts(self, weights: Weights, x: Tensor, y: Tensor) -> Float[Tensor, "batch head query out"]:
        """What every head adds to the output."""
        q, k, v = self.projected(weights, x, y)
        return torch.einsum("bhtv,hov->bhto", self.maps(q, k) @ v, weights[3])

    def run(self, weights: Weights) -> Float[Tensor, "batch query out"]:
        return self.parts(weights, self.x, self.y).sum(1)

    def drawn(self, generator: torch.Generator) -> Weights:
        """Weights of the same shapes, normal, of variance 1 / fan-in: a layer before training."""

        def draw(w: Tensor, fan_in: int) -> Tensor:
            return torch.randn(w.shape, dtype=w.dtype, generator=generator) * fan_in**-0.5

        q, k, v, o = self.weights
        drawn = draw(q, q.shape[2]), draw(k, k.shape[2]), draw(v, v.shape[2]), draw(o, o.shape[0] * o.shape[2])
        # Inputs of real layers may be large or small; the scores of a new layer have a spread of about 1.
        size = [given.square().sum(-1).mean().sqrt() / given.shape[2] ** 0.5 for given in (self.x, self.y, self.y)]
        return drawn[0] / size[0], drawn[1] / size[1], drawn[2] / size[2], drawn[3]


def small(subject: LayerSample, heads: int = 2, sequences: int = 4, tokens: int = 8) -> Small:
    """The first heads of a layer on the first tokens of its longest sequences."""
    subject.check_one_memory()
    chosen = sorted(subject.sequences, key=lambda s: -min(s.x.shape[0], s.memory.shape[0]))[:sequences]
    length = min(tokens, *(min(s.x.shape[0], s.memory.shape[0]) for s in chosen))
    w, used = subject.weights, list(subject.kv_of_head[:heads])
    kv = sorted(set(used))
    x, into = _coordinates(torch.stack([s.x[:length] for s in chosen]))
    y, into_y = x, into
    if subject.cross:
        y, into_y = _coordinates(torch.stack([s.memory[:length] for s in chosen]))
    o = w.o[:heads]
    out = torch.linalg.qr(o.transpose(0, 1).flatten(1)).R  # norms and products of outputs stay as they are
    weights = (
        _with_bias(w.q[:heads], w.bias("q")[:heads], into),
        _with_bias(w.k[kv], w.bias("k")[kv], into_y),
        _with_bias(w.v[kv], w.bias("v")[kv], into_y),
        out.unflatten(1, (o.shape[0], -1)).transpose(0, 1).contiguous(),
    )
    return Small(x, y, weights, tuple(kv.index(h) for h in used), subject.scores.scale, subject.causal)


def _coordinates(x: Float[Tensor, "batch token d_model"]) -> tuple[Tensor, Float[Tensor, "d_model width"]]:
    """Tokens in an orthonormal basis of their span, with a last column of ones; and that basis."""
    flat = x.flatten(0, 1)
    basis = torch.linalg.qr(flat.T).Q
    return torch.cat((x @ basis, torch.ones_like(x[..., :1])), -1), basis


def _with_bias(w: Float[Tensor, "head dim d_model"], b: Float[Tensor, "head dim"], basis: Tensor) -> Tensor:
    return torch.cat((w @ basis, b[..., None]), -1).contiguous()
