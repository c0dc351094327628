"""`∂²L/∂W² ⪰ 0` at a minimum: no direction bends down, every eigenvalue of the Hessian is at least 0.

**Holds only** at a minimum of a smooth loss.

## What is computed

Two heads of the layer are the teacher. A student of the same sizes learns to have the same outputs on the layer's
own inputs, L = ‖student − teacher‖² / (2‖teacher‖²). So a minimum is known exactly: the teacher's weights, where
L = 0. Lanczos (scipy's eigsh) on Hessian–vector products finds the smallest and the largest eigenvalue, without the
matrix, at three points: a random start, after 200 steps of gradient descent, and the minimum. Values above
−0.001 λ_max count as not negative. The verdict is "holds" if no direction bends down at the start either.

On MiniLM's layer 3, λ_min is 1e-5 λ_max at the minimum and −0.55 λ_max at the start; after training (loss
4.3 → 0.022) −0.0017 λ_max, close but not there. Zeros are usual at a minimum: W_Q → W_Q M, W_K → W_K M⁻ᵀ changes no
score, and W_V and W_O have the same freedom, so a minimum is a flat valley and not a point.

```python
import torch
import multihead as mh

attn, x = mh.MultiHeadAttention(12, 3), torch.randn(4, 7, 12)
result = mh.theory(attn, x, only=["12"])["12"].result
start, trained, minimum = result.numbers["shares"]       # λ_min / λ_max
print(result.verdict, start, trained, minimum)           # holds only if, about −0.2, −0.001 and 0
assert start < 0 and minimum > -0.001
```
"""

from __future__ import annotations

import math

import torch

from multihead._base.number_text import number
from multihead.statements.curvature import curvature
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, NoVerdict, Result, Side, statement
from multihead.statements.toy_layer import ToyLayer, descend

STEPS = 200
FLAT = 1e-3
"""Curvature above −FLAT · (the largest) counts as not negative: Lanczos resolves no more in 200 steps."""


@statement(
    "12",
    "the Hessian is ⪰ 0 at a minimum",
    formula="∂²L/∂W² ⪰ 0",
    holds_when="W is a minimum and L is smooth there; zeros are usual: W_Q → W_Q M, W_K → W_K M⁻ᵀ changes nothing",
)
def hessian_at_minimum(layer: LayerSample) -> Result:
    toy = ToyLayer.of(layer)
    generator = torch.Generator().manual_seed(layer.seed)
    loss, start, first = toy.imitation_loss(), toy.draw(generator), toy.draw(generator)
    at_start = curvature(loss, start, first)
    trained = descend(loss, start, rate=0.5 / max(at_start[1], 1e-12), steps=STEPS)
    others = (curvature(loss, weights, first) for weights in (trained, toy.weights))
    lowest, largest = zip(at_start, *others, strict=True)
    shares = [a / b if b > 0 else 0.0 for a, b in zip(lowest, largest, strict=True)]
    if any(math.isnan(share) for share in shares):
        raise NoVerdict("not enough data", "λ_min –", "0", "Lanczos did not converge in time.")
    starting = Side(f"{number(shares[0], 2)} λ_max at start", shares[0])
    comparison = Comparison(
        Side(f"λ_min {number(shares[2], 2)} λ_max", shares[2]),
        ">=",
        Side(starting.text, 0.0),
        atol=FLAT,
        always=Comparison(starting, ">=", Side("0", 0.0), atol=FLAT),
    )
    because = {
        "fails": "Some direction bends down at the teacher's weights, where the loss is 0: it is not smooth here.",
        "holds": "No direction bends down, at the minimum or at the start.",
        "holds only if": "At the teacher's weights, a minimum, no direction bends down; at the start some do.",
    }[comparison.verdict]
    with torch.no_grad():
        losses = [float(loss(w)) for w in (start, trained)]
    because += f" After training (loss {number(losses[0], 2)} → {number(losses[1], 2)}) "
    because += f"λ_min is {number(shares[1], 2)} λ_max."
    numbers = {
        "shares": shares,
        "lowest": list(lowest),
        "largest": list(largest),
        "loss_start": losses[0],
        "loss_trained": losses[1],
    }
    return Result(comparison, because, numbers)
