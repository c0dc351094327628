"""`R_ij = ‖head_iᵀ head_j‖_F / (‖head_i‖_F ‖head_j‖_F)` is 1 for a copy.

**Fails** as a measure of redundancy: R of a head with itself is less than 1, by its own spectrum.

## What is computed

Z_i is the n × d_v matrix of the outputs of head i over all tokens. There are two readings:

- `Z_i Z_jᵀ`, n × n, pairs coordinate 1 of head i with coordinate 1 of head j, which have nothing in common. It
  changes if the coordinates of one head are turned.
- `Z_iᵀ Z_j`, d_v × d_v, the Gram form. It does not depend on coordinates, and is linear in tokens.

**The second is used**; `--json` has the first as `R_ij_n_by_n`. By Cauchy–Schwarz R_ij ≤ 1, but R_ii = ‖Z_iᵀ Z_i‖_F
/ ‖Z_i‖²_F = (Σ s⁴)^½ / Σ s², with s the singular values of Z_i. This is 1 only for a head of rank one, and 1/√d_v
if all singular values are equal. So a copy can score less than two different heads of low rank. The statement holds
if every R_ii is at least 0.9.

`R_ij² / (R_ii R_jj)` is 1 for two equal heads. For centred outputs it is linear CKA (Kornblith et al. 2019), which
`mh.similarity` uses.

```python
import torch
import multihead as mh

torch.manual_seed(0)
x = torch.randn(6, 13, 12)

thin = mh.MultiHeadAttention(12, 3, value_dim=1)        # outputs of one dimension have rank one
assert mh.theory(thin, x, only=[15])["15"].verdict == "holds"

twins = mh.MultiHeadAttention(12, 2)
with torch.no_grad():
    for projection in (twins.q_proj, twins.k_proj, twins.v_proj):
        projection.weight[6:] = projection.weight[:6]
result = mh.theory(twins, x, only=[15])["15"].result
assert result.verdict == "fails"
assert result.numbers["R_ij"][0] < 0.9                  # copies of each other
assert abs(result.numbers["normalised"][0] - 1) < 1e-6
```
"""

from __future__ import annotations

import torch

from multihead._base.number_text import number
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Result, Side, not_applicable, statement
from multihead.statements.subspaces import pairs

NEAR = 0.1


@statement(
    "15",
    "R says how redundant two heads are",
    formula="R_ij = ‖head_iᵀ head_j‖_F / (‖head_i‖_F ‖head_j‖_F)",
    holds_when="every head's output has rank 1: R_ii = 1/√(participation ratio of its singular values²)",
)
def redundancy_ratio(layer: LayerSample) -> Result:
    norms = layer.outputs.transpose(0, 1).flatten(1).norm(dim=1)
    nonzero = norms > 0
    if not bool(nonzero.any()):
        raise not_applicable("‖head‖ 0", "0/0", "The output of every head is 0.")
    z, scale = layer.outputs[:, nonzero], norms[nonzero]
    products = torch.einsum("tia,tjb->ijab", z, z).flatten(2).norm(dim=2)
    R = products / (scale[:, None] * scale[None])
    normalised = products.square() / (products.diagonal()[:, None] * products.diagonal()[None])
    flat = torch.einsum("tia,tib->iab", z, z)
    n_by_n = torch.einsum("iab,jab->ij", flat, flat).sqrt() / (scale[:, None] * scale[None])
    itself, others = R.diagonal(), pairs(R)
    lowest, highest = float(itself.min()), float(itself.max())
    comparison = Comparison(
        Side(f"R_ii {number(float(itself.median()), 2)} (median)", lowest),
        ">=",
        Side("1 for a copy", 1.0),
        atol=NEAR,
    )
    because = f"A head with itself has R {number(lowest, 2)} to {number(highest, 2)}"
    if len(others):
        because += (
            f", two heads up to {number(float(others.max()), 2)}; R_ij² / (R_ii R_jj), which is 1 for twins, "
        )
        because += f"up to {number(float(pairs(normalised).max()), 2)}"
    because += ". The n×n form, head_i head_jᵀ, compares coordinates that heads do not share."
    numbers = {
        "R_ii": itself.tolist(),
        "R_ij": others.tolist(),
        "R_ij_n_by_n": pairs(n_by_n).tolist(),
        "normalised": pairs(normalised).tolist(),
    }
    return Result(comparison, because, numbers)
