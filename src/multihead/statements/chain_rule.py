"""`∂L/∂W_Qⁱ = ∂L/∂head_i · ∂head_i/∂W_Qⁱ`: the gradient reaches W_Qⁱ through head i.

**Holds** wherever the loss is differentiable.

## What is computed

With P = softmax(q kᵀ · scale) of head i, z = P v and the loss L = mean(output²)/2:

    dZ = dOut W_Oⁱ
    dP = dZ vᵀ
    dS = P ∘ (dP − rowsum(dP ∘ P))      the softmax
    dQ = dS k · scale
    dW_Qⁱ = dQᵀ x

The left side is this closed form. The right sides are autograd, and the slope between two runs of the layer with
W_Qⁱ moved a little to either side (central differences). All is in fp64, on up to eight heads of the layer and up
to 4 × 8 of its own inputs, written in an orthonormal basis of their span, which approximates nothing. Positions (a
rotation R between W_Q and the kernel) add a factor Rᵀ and are excluded. On layer 3 of MiniLM the closed form and
autograd differ by 1.5e-16 of the norm of the gradient, the differences by 2.8e-9.

`numbers["norms"]` has ‖∂L/∂W_Qⁱ‖ of every head. A head whose softmax is one-hot or constant has no gradient, nor
does one with W_O = 0: it cannot learn where to look. `norms_before_training` and `norms_after_training` are those
of a student that learns for twenty steps to imitate the layer.

```python
import torch
import multihead as mh

attn, x = mh.MultiHeadAttention(24, 3), torch.randn(4, 11, 24)
result = mh.theory(attn, x, only=["8"])["8"].result
print(result.verdict, result.lhs, result.rhs)      # holds off by 2e-16 slopes by 1e-09
assert result.numbers["relative_error"] < 1e-8

single = mh.theory(attn, x[:, :1], only=["8"])["8"].result   # one key: its weight is 1, whatever W_Q
assert max(single.numbers["norms"]) == 0
print(single.because)                              # ... 3 of 3 heads have no gradient
```
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.number_text import number
from multihead.statements.curvature import curvature
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Result, Side, statement
from multihead.statements.toy_layer import Loss, ToyLayer, Weights, descend, trainable

EXACT = 1e-8
"""Relative difference of two ways to compute one value in fp64."""
NEAR = 1e-5
"""The same for central differences."""


@statement(
    "8",
    "the chain rule gives every head's gradient",
    formula="∂L/∂W_Qⁱ = Σ ∂L/∂head_i · ∂head_i/∂W_Qⁱ",
    holds_when="the loss is differentiable; a rotation R between W_Q and the kernel adds its own factor Rᵀ",
)
def chain_rule(layer: LayerSample) -> Result:
    toy = ToyLayer.of(layer, heads=8)
    loss: Loss = lambda w: toy.run(w).square().mean() / 2
    weights = trainable(toy.weights)
    out = toy.run(weights)
    auto, *others = torch.autograd.grad(out.square().mean() / 2, weights)
    # Where all keys are equal it is 0 up to rounding, which is measured by the gradients of the other weights.
    size = max(float(auto.norm()), 1e-6 * math.sqrt(sum(float(g.square().sum()) for g in others)))
    with torch.no_grad():
        closed = query_gradient(toy, weights, out / out.numel())
        error = _relative(float((closed - auto).norm()), size)
        slope_error = max(_slope_error(loss, weights, auto, size, head, layer.seed) for head in range(toy.heads))
    norms = auto.flatten(1).norm(dim=1)
    before, after = _norms_of_a_student(toy, layer.seed)
    comparison = Comparison(
        Side(f"off by {number(error, 2)}", (error, slope_error)),
        "=",
        Side(f"slopes by {number(slope_error, 2)}", 0.0),
        atol=(EXACT, NEAR),
    )
    if comparison.true:
        because = "The product of the Jacobians through head i equals autograd, and the slope between two runs."
        no_gradient = int((norms < 1e-9 * max(size, 1e-300)).sum())
        if no_gradient:
            because += f" {no_gradient} of {toy.heads} heads have no gradient: where they look makes no difference "
            because += "(softmax one-hot or constant, equal values, or W_O 0)."
    else:
        because = "The chain rule, autograd and differences do not agree: the layer is not smooth here."
    numbers = {
        "relative_error": error,
        "difference_error": slope_error,
        "norms": norms.tolist(),
        "norms_before_training": before.tolist(),
        "norms_after_training": after.tolist(),
    }
    return Result(comparison, because, numbers)


def query_gradient(toy: ToyLayer, weights: Weights, d_out: Float[Tensor, "batch query out"]) -> Tensor:
    """∂L/∂W_Qⁱ by the chain rule: dP = dZ Vᵀ, dS = P ∘ (dP − rowsum(dP ∘ P)), dQ = dS K · scale, dW_Q = dQᵀ X."""
    q, k, v = toy.project(weights)
    p = toy.maps(q, k)
    d_z = torch.einsum("bto,hov->bhtv", d_out, weights[3])
    d_p = d_z @ v.mT
    d_s = p * (d_p - (d_p * p).sum(-1, keepdim=True))
    d_q = d_s @ k * toy.scale
    return torch.einsum("bhtd,btw->hdw", d_q, toy.x)


def _slope_error(loss: Loss, weights: Weights, gradient: Tensor, size: float, head: int, seed: int) -> float:
    """|⟨∇, u⟩ − (L(W + εu) − L(W − εu)) / 2ε| / ‖∇‖ along a direction of one head's W_Q.

    Half of the direction is random and half the gradient: a random direction alone is nearly orthogonal to it.
    """
    generator = torch.Generator().manual_seed(seed + head)
    step = torch.zeros_like(gradient)
    step[head] = torch.randn(gradient[head].shape, dtype=gradient.dtype, generator=generator)
    step[head] /= step[head].norm()
    if float(gradient[head].norm()) > 0:
        step[head] += gradient[head] / gradient[head].norm()
    epsilon = 1e-5 * max(float(weights[0][head].norm()), 1e-3)
    ahead, behind = (float(loss((weights[0] + s * step, *weights[1:]))) for s in (epsilon, -epsilon))
    measured, predicted = (ahead - behind) / (2 * epsilon), float((gradient * step).sum())
    return _relative(abs(measured - predicted), max(size, 1e-9 * abs(ahead) / epsilon))


def _norms_of_a_student(toy: ToyLayer, seed: int) -> list[Tensor]:
    """The chain rule's ‖∂L/∂W_Qⁱ‖ per head of a student at the start, and after twenty steps."""
    generator = torch.Generator().manual_seed(seed)
    loss, start, first = toy.imitation_loss(), toy.draw(generator), toy.draw(generator)
    _, largest = curvature(loss, start, first, lowest=False)
    after = descend(loss, start, rate=0.5 / max(largest, 1e-12), steps=20)
    students = (trainable(weights) for weights in (start, after))
    return [torch.autograd.grad(loss(w), w[0])[0].flatten(1).norm(dim=1) for w in students]


def _relative(error: float, size: float) -> float:
    return error / size if size > 0 else (0.0 if error == 0 else math.inf)
