"""`E‖∇L(W_t)‖² ≤ C/√t`: under SGD the expected squared norm of the gradient falls at least as fast as 1/√t.

**Holds** for the average or the smallest gradient up to t, by theorem; mostly for the gradient itself too.

## What is computed

The student of [statement 12](12-hessian-at-minimum.md) learns from one sequence at a time, with steps 1/(λ √t), λ
the largest curvature at the start; three runs of 96 steps. At every step the gradient of the whole loss is
measured. Any finite run is below C/√t for a large enough C, so the exponent is tested: the slope of log ‖∇L‖² over
log t from the eighth step on, with a 95 % interval over the runs. The same is computed for the average and for the
smallest gradient up to t.

The theorem (Ghadimi & Lan 2013) is about a smooth loss, steps ∝ 1/√t, and the *average* or the *smallest* gradient
up to t; a single ‖∇L(W_t)‖² may rise.

- *holds*: the gradient itself falls as t^-0.5 or faster, within the interval.
- *holds only if*: only its average or its smallest does.
- *fails*: none does, as with steps that are too small.
- *not enough data*: the interval contains −0.5.

MiniLM's layer 3: t^-1.02 ± 0.29, average t^-0.79.

```python
import torch
import multihead as mh

attn, x = mh.MultiHeadAttention(12, 3), torch.randn(4, 7, 12)
result = mh.theory(attn, x, only=["13"])["13"].result
print(result.verdict, "|", result.lhs, "|", result.because)
assert result.numbers["average_exponent"] < 0
print(result.numbers["exponent"], "±", result.numbers["interval"])
```
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from multihead.statements.curvature import curvature
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, NoVerdict, Result, Side, statement
from multihead.statements.toy_layer import ToyLayer, Weights

STEPS, RUNS = 96, 3
STUDENT_T = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's t at 97.5 %, by number of runs."""


@statement(
    "13",
    "gradients shrink like 1/√t",
    formula="E‖∇L(W_t)‖² ≤ C/√t",
    holds_when="SGD on a smooth loss, steps ∝ 1/√t, for the average or the smallest over t (Ghadimi & Lan 2013)",
)
def gradient_decay(layer: LayerSample) -> Result:
    runs = _squared_norms(ToyLayer.of(layer), layer.seed)
    steps = torch.arange(1, STEPS + 1, dtype=torch.float64)
    average, smallest = runs.cumsum(1) / steps, runs.cummin(1).values
    slopes = [decay_exponent(x) for x in (runs, average, smallest)]
    (slope, width), (mean_slope, _), (least_slope, _) = slopes
    finite = bool(runs.isfinite().all())
    upper = min(a + b for a, b in slopes) if finite else math.inf
    lower = min(a - b for a, b in slopes) if finite else math.inf
    limit, itself = Side("t^-0.5", -0.5), Side(f"t^{slope:.2f} ± {width:.2f}", slope + width)
    comparison = Comparison(Side(itself.text, upper), "<=", limit, always=Comparison(itself, "<=", limit))
    numbers = {
        "exponent": slope,
        "interval": width,
        "average_exponent": mean_slope,
        "smallest_exponent": least_slope,
        "constant": float((runs.mean(0) * steps.sqrt()).max()),
        "squared_norms": runs.mean(0).tolist(),
    }
    exponents = f" Average: t^{mean_slope:.2f}, smallest: t^{least_slope:.2f}."
    if not comparison.true and lower <= -0.5:
        because = f"{RUNS} runs differ too much to tell whether it is as fast as 1/√t.{exponents}"
        raise NoVerdict("not enough data", itself.text, limit.text, because, numbers)
    because = {
        "holds": "The squared gradient itself falls at least as fast as 1/√t.",
        "holds only if": "The average or the smallest so far falls as 1/√t, which the theorem bounds.",
        "fails": "Neither the squared gradient, nor its average, nor its smallest falls as fast as 1/√t here."
        if finite
        else "The run diverged: the loss is not smooth at this step size.",
    }[comparison.verdict]
    return Result(comparison, because + exponents, numbers)


def _squared_norms(toy: ToyLayer, seed: int) -> Float[Tensor, "run step"]:
    """‖∇L‖² of the whole loss along runs of SGD on one sequence at a time; all runs at once."""
    batch = toy.x.shape[0]
    generators = [torch.Generator().manual_seed(seed + run) for run in range(RUNS)]
    drawn = [toy.draw(generator) for generator in generators]
    largest = curvature(toy.imitation_loss(), drawn[0], drawn[1], lowest=False)[1]
    rate = 1 / max(largest, 1e-12)
    weights = cast(Weights, tuple(torch.stack(parts) for parts in zip(*drawn, strict=True)))
    gradients = torch.func.vmap(torch.func.grad(toy.imitation_losses()))
    even = torch.full((RUNS, batch), 1 / batch, dtype=torch.float64)
    norms = torch.zeros(RUNS, STEPS, dtype=torch.float64)
    for t in range(STEPS):
        sequence = torch.cat([torch.randint(batch, (1,), generator=g) for g in generators])
        shares = torch.cat((even, torch.nn.functional.one_hot(sequence, batch).double()))
        both = gradients(cast(Weights, tuple(torch.cat((w, w)) for w in weights)), shares)
        norms[:, t] = sum(g[:RUNS].flatten(1).square().sum(1) for g in both)
        moved = (w - rate / math.sqrt(t + 1) * g[RUNS:] for w, g in zip(weights, both, strict=True))
        weights = cast(Weights, tuple(moved))
    return norms


def decay_exponent(norms: Float[Tensor, "run step"]) -> tuple[float, float]:
    """Slope of log ‖∇L‖² over log t from the eighth step on: its mean over runs, and half of its 95 % interval."""
    steps = torch.arange(1, norms.shape[1] + 1, dtype=torch.float64)
    late = steps >= 8
    x = steps[late].log().numpy()
    slopes = [float(np.polyfit(x, run[late].clamp(min=1e-300).log().numpy(), 1)[0]) for run in norms]
    spread = float(np.std(slopes, ddof=1)) / math.sqrt(len(slopes)) if len(slopes) > 1 else 0.0
    return float(np.mean(slopes)), spread * STUDENT_T.get(len(slopes), 1.96)
