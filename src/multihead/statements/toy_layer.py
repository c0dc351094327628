"""A few heads of a layer on a few of its own tokens, small enough to train; nothing is approximated.

n tokens span at most n dimensions, so W x = (W U)(Uᵀ x) with an orthonormal basis U of their span. The outputs
lie in the span of the heads' W_O. A bias is the column of an input that is always 1. Positions and norms between
projection and kernel are excluded.

Random weights are drawn in the coordinates of the model and then projected: U is one of many bases of the span
(equal tokens leave some of its directions to rounding), and W U of the same W computes the same in each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.statements.layer_sample import LayerSample

Weights = tuple[Tensor, Tensor, Tensor, Tensor]
"""W_Q (head, key_dim, width), W_K and W_V (kv_head, …, key_width), W_O (head, out, value_dim)"""

Basis = Float[Tensor, "d_model dim"]
"""Orthonormal columns."""

Loss = Callable[[Weights], Tensor]


@dataclass(frozen=True)
class ToyLayer:
    """softmax(q kᵀ · scale) v W_O of some heads, as a function of their weights."""

    x: Float[Tensor, "batch query width"]
    y: Float[Tensor, "batch key key_width"]
    """the input of keys and values: x itself in self-attention"""
    weights: Weights
    bases: tuple[Basis, Basis, Basis]
    """of x, of y and of the outputs, in the coordinates of the model"""
    kv_of_head: tuple[int, ...]
    scale: float
    causal: bool

    @staticmethod
    def of(layer: LayerSample, heads: int = 2, sequences: int = 4, tokens: int = 8) -> ToyLayer:
        """A toy layer: the first heads of a layer on the first tokens of its longest sequences."""
        x, memory = layer.batch(sequences, tokens)
        w, read = layer.weights, list(layer.kv_of_head[:heads])
        kv = sorted(set(read))
        x, basis = _in_basis(x)
        y, key_basis = (x, basis) if memory is None else _in_basis(memory)
        o = w.o[:heads]
        out_basis = _basis_of(o.transpose(0, 1).flatten(1))
        weights = (
            _with_bias(w.q[:heads], w.bias("q")[:heads], basis),
            _with_bias(w.k[kv], w.bias("k")[kv], key_basis),
            _with_bias(w.v[kv], w.bias("v")[kv], key_basis),
            (out_basis.mT @ o).contiguous(),  # keeps norms and products of outputs
        )
        bases, kv_of_head = (basis, key_basis, out_basis), tuple(kv.index(h) for h in read)
        return ToyLayer(x, y, weights, bases, kv_of_head, layer.scores.scale, layer.causal)

    @property
    def heads(self) -> int:
        return len(self.kv_of_head)

    def project(self, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v of every query head of the toy layer: (batch, head, token, dim)."""
        inputs = (self.x, self.y, self.y)
        q, k, v = (torch.einsum("btw,hdw->bhtd", x, w) for x, w in zip(inputs, weights[:3], strict=True))
        kv = list(self.kv_of_head)
        return q, k[:, kv], v[:, kv]

    def maps(self, q: Float[Tensor, "batch head query dim"], k: Float[Tensor, "batch head key dim"]) -> Tensor:
        """Softmax over the keys that a query may see."""
        return causal_softmax(q @ k.mT * self.scale, causal=self.causal)

    def run(self, weights: Weights) -> Float[Tensor, "batch query out"]:
        q, k, v = self.project(weights)
        return torch.einsum("bhtv,hov->bhto", self.maps(q, k) @ v, weights[3]).sum(1)

    def draw(self, generator: torch.Generator) -> Weights:
        """Weights of the toy layer before training, normal with variance 1 / fan-in."""

        def normal(*size: int) -> Tensor:
            return torch.randn(size, dtype=torch.float64, generator=generator)

        def reading(w: Tensor, basis: Basis) -> Tensor:
            heads, dim, width = w.shape
            drawn = _with_bias(normal(heads, dim, basis.shape[0]), normal(heads, dim), basis)
            return drawn * width**-0.5

        q, k, v, o = self.weights
        x_basis, y_basis, out_basis = self.bases
        drawn_q, drawn_k, drawn_v = reading(q, x_basis), reading(k, y_basis), reading(v, y_basis)
        heads, _, value_dim = o.shape
        drawn_o = out_basis.mT @ normal(heads, out_basis.shape[0], value_dim) * (heads * value_dim) ** -0.5
        # Inputs of real layers may be large or small; the scores of a new layer have a spread of about 1.
        size_x, size_y = (x.square().sum(-1).mean().sqrt() / x.shape[2] ** 0.5 for x in (self.x, self.y))
        return drawn_q / size_x, drawn_k / size_y, drawn_v / size_y, drawn_o

    def in_model_coordinates(self, weights: Weights) -> list[Tensor]:
        """Weights or gradients of the toy layer as those of the layer itself, biases as a last column."""
        q, k, v, o = weights
        x_basis, y_basis, out_basis = self.bases
        pairs = ((q, x_basis), (k, y_basis), (v, y_basis))
        return [*(torch.cat((w[..., :-1] @ basis.mT, w[..., -1:]), -1) for w, basis in pairs), out_basis @ o]

    def imitation_losses(self) -> Callable[[Weights, Float[Tensor, " batch"]], Tensor]:
        """‖student − teacher‖² / ‖teacher‖² / 2 per sequence; the teacher is this toy layer.

        So a minimum is known: the teacher's own weights, where the loss is 0.
        """
        with torch.no_grad():
            target = self.run(self.weights)
            size = float(target.square().mean()) or 1.0
        return lambda w, shares: ((self.run(w) - target).square().mean((1, 2)) * shares).sum() / (2 * size)

    def imitation_loss(self) -> Loss:
        """The same with equal weights."""
        losses, batch = self.imitation_losses(), self.x.shape[0]
        return lambda w: losses(w, torch.full((batch,), 1 / batch, dtype=torch.float64))


def trainable(weights: Weights) -> Weights:
    """A copy that records gradients."""
    q, k, v, o = (w.detach().clone().requires_grad_() for w in weights)
    return q, k, v, o


def descend(loss: Loss, start: Weights, *, rate: float, steps: int) -> Weights:
    """Train a toy layer: gradient descent with momentum, which unlike Adam does not depend on the basis."""
    weights = trainable(start)
    optimiser = torch.optim.SGD(weights, lr=rate, momentum=0.9)
    for _ in range(steps):
        for w, g in zip(weights, torch.autograd.grad(loss(weights), weights), strict=True):
            w.grad = g
        optimiser.step()
    q, k, v, o = (w.detach() for w in weights)
    return q, k, v, o


def causal_softmax(scores: Float[Tensor, "*batch query key"], *, causal: bool) -> Tensor:
    """The softmax of a toy layer over keys; with `causal` over those up to the query, aligned at the last key."""
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + scores.shape[-1] - scores.shape[-2])
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1)


def _in_basis(x: Float[Tensor, "batch token d_model"]) -> tuple[Tensor, Basis]:
    """Tokens in an orthonormal basis of their span, with a last column of ones; and that basis."""
    basis = _basis_of(x.flatten(0, 1).T)
    return torch.cat((x @ basis, torch.ones_like(x[..., :1])), -1), basis


def _basis_of(columns: Float[Tensor, "d_model column"]) -> Basis:
    """An orthonormal basis of the span of the columns; the directions of rounding errors are not in it."""
    left, sizes, _ = torch.linalg.svd(columns, full_matrices=False)
    return left[:, sizes > 1e-10 * sizes.max()] if sizes.any() else left[:, :1]


def _with_bias(w: Float[Tensor, "head dim d_model"], b: Float[Tensor, "head dim"], basis: Tensor) -> Tensor:
    return torch.cat((w @ basis, b[..., None]), -1).contiguous()
