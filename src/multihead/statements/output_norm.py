"""`E‖MultiHead‖² = d_model` for inputs of mean 0 and variance 1.

**Fails** for new and for trained layers. Nothing ties the size of the output to d_model: attention averages, and
averages are smaller.

## What is computed

Each token of the layer's input is normalised: mean 0 and variance 1, so ‖x‖² = d_model. Two layers read it:

- a new layer of the same shape, drawn from the seed (with the layer's own `init` if it is ours, else the default of
  multihead), and
- the layer itself.

Equal means within 10 %. If only one of the two fits, the verdict is "holds only if". The size in the model's own
run, with its real inputs, is shown too.

## What the size is

With M_i = W_O[i] W_V[i] and attention rows a_i, the output is Σ_i Σ_s a_i(s) M_i x_s. For white, independent tokens

`E‖MultiHead‖² = Σ_ij E[a_i · a_j] tr(M_i M_jᵀ)` (plus ‖b_O + Σ_i W_O[i] b_V[i]‖², which is constant).

A head with uniform attention over n tokens has ‖a‖² = 1/n: averaging loses a factor n. Real tokens have a common
mean, which survives averaging, and lie in few directions, so the measured size is neither.

The statement is true if each head looks at one token and Σ_i M_i M_iᵀ has trace d_model: orthogonal W_V and W_O.

```python
import torch
import multihead as mh


class Orthogonal:
    def __call__(self, attn):
        for projection in (attn.q_proj, attn.k_proj, attn.v_proj, attn.o_proj):
            torch.nn.init.orthogonal_(projection.weight)


torch.manual_seed(0)
layer = mh.MultiHeadAttention(12, 3, init=Orthogonal())
single = torch.randn(50, 1, 12)                         # sequences of one token: every head looks at it
assert mh.theory(layer, single, only=[7])["7"].verdict == "holds"

with torch.no_grad():
    layer.q_proj.weight.zero_()                         # uniform attention over 13 tokens
result = mh.theory(layer, torch.randn(50, 13, 12), only=[7])["7"].result
assert result.verdict == "fails"
assert abs(result.numbers["independent_tokens"] - 12 / 13) < 1e-6
```
"""

from __future__ import annotations

import torch

from multihead._base.number_text import number
from multihead.statements.float64_copy import Float64Copy
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Result, Side, statement

NEAR = 0.1
"""Two sizes are equal if they differ by no more than this share."""


@statement(
    "7",
    "normalised inputs give outputs of size √d_model",
    formula="E‖MultiHead‖² = d_model",
    holds_when="every head looks at one token, and W_O W_V keeps lengths; attention that averages n tokens loses "
    "1/n",
)
def output_norm(layer: LayerSample) -> Result:
    copied = Float64Copy.of(layer, sequences=8, tokens=64).normalised()
    new, trained = (float(c.run().detach().square().sum(-1).mean()) for c in (copied.redrawn(layer.seed), copied))
    goal = float(layer.d_out)
    side = Side(f"d_model {number(goal)}", goal)
    nearest = min(new, trained, key=lambda value: abs(value - goal))
    comparison = Comparison(
        Side(f"fresh {number(new)}, this {number(trained)}", nearest),
        "=",
        side,
        rtol=NEAR,
        always=Comparison(Side("both", (new, trained)), "=", side, rtol=NEAR),
    )
    predicted = _size_for_independent_tokens(layer, copied)
    as_run = float(layer.output.square().sum(1).mean())
    because = (
        f"In the model, inputs of ‖x‖² {number(float(layer.inputs.square().sum(1).mean()))} have outputs of "
        f"{number(as_run)}. For white, independent tokens it is Σ_ij E[a_i·a_j] tr(M_i M_jᵀ), M = W_O W_V: here "
        f"{number(predicted)}. Nothing ties that to d_model."
    )
    because += f" The copy lacks {copied.missing}." if copied.missing else ""
    numbers = {
        "fresh": new, "trained": trained, "independent_tokens": predicted, "as_run": as_run, "d_model": goal,
    }  # fmt: skip
    return Result(comparison, because, numbers)


def _size_for_independent_tokens(layer: LayerSample, copied: Float64Copy) -> float:
    """Σ_ij E[a_i · a_j] tr(M_i M_jᵀ) with the layer's own attention a, and the size of its constant part."""
    maps = copied.maps()
    together = torch.einsum("bhqk,bgqk->hg", maps, maps) / (maps.shape[0] * maps.shape[2])
    w, kv = layer.weights, list(layer.kv_of_head)
    M = torch.einsum("hov,hvd->hod", w.o, w.v[kv]).flatten(1)
    constant = w.bias("o") + torch.einsum("hov,hv->o", w.o, w.bias("v")[kv])  # rows of a add up to 1
    return float((together * (M @ M.T)).sum() + constant.square().sum())
