"""`ρ_ij = Cov(head_i, head_j) / (σ_i σ_j) ≈ 0` for all pairs of heads.

**Fails** in trained layers: a few pairs are clearly correlated, with either sign, while the mean |ρ| is small.

## What is computed

The output of a head is a vector, and the coordinates of two heads have nothing in common until W_O maps both into
one space. So ρ is that of the heads' parts of the output, p_i = head_i W_O[i]ᵀ, with
Cov(p_i, p_j) = E[(p_i − E p_i) · (p_j − E p_j)] over tokens. It is 1 for a copy, and −1 for a head that subtracts
the part of a different head.

The limit is 0.05, or chance if that is more: the largest |ρ| of neighbouring heads after the tokens of one are
shuffled. If chance is above 0.05 and no pair is above chance, there are too few tokens to tell. Heads whose output
never changes have no ρ and are excluded.

The statement is true for heads that write into orthogonal directions, or that depend on independent parts of the
input.

```python
import torch
import multihead as mh

torch.manual_seed(0)
x = torch.randn(8, 17, 12)

orthogonal = mh.MultiHeadAttention(12, 3)
torch.nn.init.orthogonal_(orthogonal.o_proj.weight)     # heads write into orthogonal directions
assert mh.theory(orthogonal, x, only=[5])["5"].verdict == "holds"

twins = mh.MultiHeadAttention(12, 2)
with torch.no_grad():
    for projection in (twins.q_proj, twins.k_proj, twins.v_proj):
        projection.weight[6:] = projection.weight[:6]
    twins.o_proj.weight[:, 6:] = -twins.o_proj.weight[:, :6]
result = mh.theory(twins, x, only=[5])["5"].result
assert result.verdict == "fails"
assert abs(result.numbers["rho"][0] + 1) < 1e-6
```
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch

from multihead._base.number_text import number
from multihead._base.plural import plural
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import (
    Comparison,
    Needs,
    Result,
    Side,
    not_applicable,
    not_enough_data,
    statement,
)
from multihead.statements.subspaces import pairs

UNCORRELATED = 0.05


@statement(
    "5",
    "heads are uncorrelated",
    formula="ρ_ij = Cov(head_i, head_j) / (σ_i σ_j) ≈ 0",
    holds_when="E[p_i · p_j] = E[p_i] · E[p_j] for all pairs of heads' parts p of the output",
    needs=Needs(heads=2),
)
def uncorrelated_heads(layer: LayerSample) -> Result:
    covariance = layer.part_covariance
    variances = covariance.diagonal()
    changing = (variances > 1e-18 * variances.max().clamp_min(1e-300)).nonzero().squeeze(-1).tolist()
    constant = layer.heads - len(changing)
    if len(changing) < 2:
        because = f"{constant} of {layer.heads} heads have the same output for every token: σ is 0."
        raise not_applicable("σ 0", "no correlation", because)
    covariance = covariance[changing][:, changing]
    sigma = covariance.diagonal().sqrt()
    rho = pairs(covariance / (sigma[:, None] * sigma[None]))
    worst = int(rho.abs().argmax())
    mean, largest = float(rho.abs().mean()), float(rho[worst].abs())
    chance = _chance(layer, changing)
    limit = max(UNCORRELATED, chance)
    if largest <= chance and chance > UNCORRELATED:  # chance falls as 1/√tokens
        needed = math.ceil(layer.tokens * (chance / UNCORRELATED) ** 2)
        raise not_enough_data(layer.tokens, needed, f"Telling a correlation of {number(largest, 2)} from chance")
    comparison = Comparison(
        Side(f"mean |ρ| {number(mean, 2)}, largest {number(largest, 2)}", largest),
        "=",
        Side(f"0 (within {number(limit, 2)})", 0.0),
        atol=limit,
    )
    index = torch.triu_indices(len(changing), len(changing), offset=1)[:, worst].tolist()
    because = (
        f"The largest |ρ| is that of {' and '.join(f'H{changing[i]}' for i in index)}, ρ "
        f"{number(float(rho[worst]), 2)}; with the tokens of one head shuffled it is {number(chance, 2)}."
    )
    because += f" Excluded, as their output never changes: {plural(constant, 'head')}." if constant else ""
    return Result(comparison, because, {"rho": rho.tolist(), "largest": largest, "chance": chance, "mean": mean})


def _chance(layer: LayerSample, heads: Sequence[int]) -> float:
    """The largest correlation |ρ| of neighbouring heads after the tokens of the second are shuffled."""
    generator = torch.Generator().manual_seed(layer.seed)
    largest = 0.0
    for i, j in pairwise(heads):
        a, b = layer.part(i), layer.part(j)[torch.randperm(layer.tokens, generator=generator)]
        a, b = a - a.mean(0), b - b.mean(0)
        largest = max(largest, abs(float((a * b).sum()) / float(a.norm() * b.norm())))
    return largest
