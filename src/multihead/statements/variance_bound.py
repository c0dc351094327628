"""`Var(Σ p_i) ≤ Σ Var(p_i)`, with p_i = head_i W_O[i]ᵀ, the part of the output that head i adds.

**It depends**: it holds if the heads are negatively correlated on the whole, and fails if positively.

## What is computed

Var is the trace of the covariance over tokens. Both sides are of the parts p_i of the output; `--json` has the
variances before W_O too, which are in different spaces and bound nothing.

`Var(Σ p_i) = Σ Var(p_i) + Σ_{i≠j} Cov(p_i, p_j)`

The statement holds exactly where the last sum is ≤ 0. By Cauchy–Schwarz it always holds that

`Var(Σ p_i) ≤ (Σ σ_i)² ≤ h Σ Var(p_i)`

with equality on the left for parts that are multiples of each other, and on the right for h copies.

```python
import torch
import multihead as mh

torch.manual_seed(0)
x = torch.randn(6, 13, 12)
twins = mh.MultiHeadAttention(12, 2)
with torch.no_grad():
    for projection in (twins.q_proj, twins.k_proj, twins.v_proj):
        projection.weight[6:] = projection.weight[:6]
    twins.o_proj.weight[:, 6:] = twins.o_proj.weight[:, :6]
result = mh.theory(twins, x, only=[16])["16"].result
assert result.verdict == "fails"                        # Var(2p) = 4 Var(p), and the sum is 2 Var(p)
assert abs(result.numbers["variance"] / result.numbers["sum_of_variances"] - 2) < 1e-6
assert abs(result.numbers["variance"] / result.numbers["loose_bound"] - 1) < 1e-6

with torch.no_grad():
    twins.o_proj.weight[:, 6:] *= -1                    # the second head subtracts what the first adds
assert mh.theory(twins, x, only=[16])["16"].verdict == "holds"
```
"""

from __future__ import annotations

from multihead._base.number_text import number
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Needs, Result, Side, not_applicable, statement

ROUNDING = 1e-6
"""Weights are mostly of fp32."""


@statement(
    "16",
    "heads' variances bound that of the layer",
    formula="Var(MultiHead) ≤ Σ Var(head_i)",
    holds_when="Σ_{i≠j} Cov(p_i, p_j) ≤ 0; always Var(Σ p_i) ≤ (Σ σ_i)² ≤ h Σ Var(p_i)",
    needs=Needs(tokens=2),
)
def variance_bound(layer: LayerSample) -> Result:
    covariance = layer.part_covariance
    variances = covariance.diagonal()
    total, summed = float(covariance.sum()), float(variances.sum())
    if summed <= 0:
        raise not_applicable("Var 0", "Σ Var 0", "No head's output changes from token to token.")
    bound, loose = float(variances.clamp_min(0).sqrt().sum() ** 2), layer.heads * summed
    comparison = Comparison(
        Side(f"Var {number(total)}", total), "<=", Side(f"Σ Var {number(summed)}", summed), rtol=ROUNDING
    )
    if layer.heads == 1:
        because = "There is one head, and nothing to add up."
    elif abs(total - summed) <= ROUNDING * summed:
        because = "Heads are uncorrelated on the whole: both sides are equal up to rounding."
    else:
        sign = "negatively" if total < summed else "positively"
        because = f"Heads are {sign} correlated on the whole: Σ Cov(p_i, p_j) over i≠j is {number(total - summed)}."
    because += f" The bound that always holds is (Σσ)² = {number(bound)} ≤ h Σ Var = {number(loose)}."
    numbers = {
        "variance": total,
        "sum_of_variances": summed,
        "bound": bound,
        "loose_bound": loose,
        "variances": variances.tolist(),
        "variances_before_W_O": layer.outputs.var(0, correction=0).sum(-1).tolist(),
    }
    return Result(comparison, because, numbers)
