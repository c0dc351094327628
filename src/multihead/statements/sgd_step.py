"""`ΔW = −η ∂L/∂W`: one step of training changes every weight by minus the learning rate times its gradient.

**Holds** for plain SGD: without momentum, weight decay, clipping or a step size per weight.

## What is computed

A student of the layer's sizes, drawn at random, has the loss ‖student − layer‖² / (2‖layer‖²) on the layer's own
inputs. `torch.optim.SGD` takes one step on a copy of its weights; the other side is W − η ∂L/∂W with the gradient
of autograd. They are compared bit for bit (as `torch.add(W, grad, alpha=-η)`, which rounds once). For comparison:
the same step by Adam has a cosine of 0.58 with the gradient on layer 3 of MiniLM.

```python
import torch
import multihead as mh

attn, x = mh.MultiHeadAttention(24, 3), torch.randn(4, 11, 24)
result = mh.theory(attn, x, only=["9"])["9"].result
print(result.because)
# W after one step of torch.optim.SGD is W − η ∂L/∂W, bit for bit. Adam's first step has a cosine of ...
assert result.verdict == "holds" and result.numbers["adam_cosine"] < 1
```
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from multihead._base.number_text import number
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Result, Side, statement
from multihead.statements.toy_layer import ToyLayer, Weights, trainable

RATE = 0.1
ROUNDING = 1e-15


@statement(
    "9",
    "one SGD step is −η ∂L/∂W",
    formula="ΔW = −η ∂L/∂W",
    holds_when="plain SGD, without momentum, weight decay or a step size per weight",
)
def sgd_step(layer: LayerSample) -> Result:
    toy = ToyLayer.of(layer, heads=8)
    loss, before = toy.imitation_loss(), toy.draw(torch.Generator().manual_seed(layer.seed))

    weights = trainable(before)
    gradient = torch.autograd.grad(loss(weights), weights)
    after = _stepped(list(before), gradient, lambda w: torch.optim.SGD(w, lr=RATE))
    exact = all(torch.equal(a, b.add(g, alpha=-RATE)) for a, b, g in zip(after, before, gradient, strict=True))
    difference = max(
        float((a - (b - RATE * g)).abs().max()) / max(float(a.abs().max()), 1e-300)
        for a, b, g in zip(after, before, gradient, strict=True)
    )
    moved = math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(after, before, strict=True)))
    expected = RATE * math.sqrt(sum(float(g.square().sum()) for g in gradient))
    # Adam takes a step per weight, so it depends on the coordinates: those of the model.
    slope = toy.in_model_coordinates(cast(Weights, gradient))
    change = _stepped([torch.zeros_like(g) for g in slope], slope, lambda w: torch.optim.Adam(w, lr=RATE))
    directions = (torch.cat([x.flatten() for x in parts]) for parts in (change, slope))
    cosine = -float(torch.cosine_similarity(*directions, dim=0))
    comparison = Comparison(
        Side(f"‖ΔW‖ {number(moved)}", 0.0 if exact else difference),  # relative, of W after the step
        "=",
        Side(f"η‖∂L/∂W‖ {number(expected)}", 0.0),
        atol=ROUNDING,
    )
    because = (
        f"W after one step of torch.optim.SGD is W − η ∂L/∂W{', bit for bit' if exact else ' up to rounding'}. "
        f"Adam's first step has a cosine of {cosine:.2f} with it."
    )
    numbers = {
        "moved": moved, "rate_times_gradient": expected, "largest_difference": difference, "adam_cosine": cosine,
    }  # fmt: skip
    return Result(comparison, because, numbers)


def _stepped(
    weights: Sequence[Tensor],
    gradient: Sequence[Tensor],
    optimiser: Callable[[list[Tensor]], torch.optim.Optimizer],
) -> list[Tensor]:
    """Copies of the weights after one step of an optimiser."""
    copies = [w.clone().requires_grad_() for w in weights]
    for w, g in zip(copies, gradient, strict=True):
        w.grad = g.clone()
    optimiser(copies).step()
    return [w.detach() for w in copies]
