"""`ℝ^d_model = ⊕ span(W_i^O)`, also written `= ⊕ ℝ^d_k`.

**Holds** for most layers with h · d_k = d_model: it says only that the square matrix W_O can be inverted.

## What is computed

There are two readings, and both must hold:

- ⊕ span(W_i^O): we put orthonormal bases of the columns of each W_O side by side. The sum of the spans is *direct*
  if the rank of all bases together is the sum of the ranks, and it is the *whole* space if that is d_model.
  Singular values below 10⁻⁶ of the largest do not count.
- ⊕ ℝ^d_k: a count of dimensions, h · d_k = d_model. It makes the spaces isomorphic and does not depend on W_O.

The condition number of these bases tells how far the sum is from orthogonal: 1 for orthogonal spans, 900 to 3,000
in MiniLM's layers and 71,000 in its last. A direct sum of nearly parallel spans is still direct, and of little use.

It fails for copies of a head, after pruning, and for h · d_k ≠ d_model (T5, Qwen3 and Gemma choose head sizes
freely).

```python
import torch
import multihead as mh

torch.manual_seed(0)
x = torch.randn(4, 9, 12)
layer = mh.MultiHeadAttention(12, 3)
assert mh.theory(layer, x, only=[2])["2"].verdict == "holds"

with torch.no_grad():
    layer.o_proj.weight[:, 4:8] = layer.o_proj.weight[:, :4]    # head 1 writes the directions of head 0
result = mh.theory(layer, x, only=[2])["2"].result
assert (result.verdict, result.lhs) == ("fails", "rank 8, Σ ranks 12, Σ d_k 12")

small = mh.MultiHeadAttention(12, 3, head_dim=2)
assert "No head writes 6 of 12 directions" in mh.theory(small, x, only=[2])["2"].result.because
```
"""

from __future__ import annotations

import math

import torch

from multihead._base.number_text import number
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Result, Side, statement
from multihead.statements.subspaces import basis, rank_of


@statement(
    "2",
    "the model's space is the direct sum of its heads'",
    formula="ℝ^d_model = ⊕ span(W_i^O) = ⊕ ℝ^d_k",
    holds_when="the columns of all W_O together are independent and h · d_k = d_model",
)
def direct_sum(layer: LayerSample) -> Result:
    bases = [basis(w.T) for w in layer.weights.o]  # not columns: a head of small weights has a span like any other
    stacked = torch.cat(bases)
    s = torch.linalg.svdvals(stacked)
    rank, ranks = rank_of(s), [len(b) for b in bases]
    width, total, dims = stacked.shape[1], sum(ranks), layer.heads * layer.key_dim
    condition = float(s.max() / s.min()) if rank and rank == len(stacked) else math.inf
    comparison = Comparison(
        Side(f"rank {rank}, Σ ranks {total}, Σ d_k {dims}", (rank, total, dims)),
        "=",
        Side(f"d_model {layer.d_model}", (width, width, layer.d_model)),
    )
    if rank != total:
        because = f"The spans share directions: their ranks add up to {total}, together they have rank {rank}."
    elif rank != width:
        because = f"No head writes {width - rank} of {width} directions."
    else:
        because = "Every direction is written by exactly one combination of heads; "
        because += f"condition number {number(condition)}: {_text(condition)}."
    if dims != layer.d_model:
        because += f" ⊕ ℝ^d_k has {dims} dimensions, not {layer.d_model}."
    numbers = {
        "rank": float(rank),
        "ranks": [float(r) for r in ranks],
        "condition": condition,
        "sum_key_dim": float(dims),
        "d_model": float(layer.d_model),
    }
    return Result(comparison, because, numbers)


def _text(condition: float) -> str:
    if condition < 1.01:
        return "the spans are orthogonal too"
    return "direct, not orthogonal" if condition < 1e4 else "direct, with directions that are nearly shared"
