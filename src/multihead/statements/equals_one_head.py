"""`MultiHead(x) = SingleHead(x)` with the same W_Q, W_K, W_V and W_O.

**Fails** unless, for each query, all heads share one row that is uniform over the same keys or one-hot on one key.

## What is computed

Both sides are computed on the q, k and v that the layer's kernel saw. On the left, every head has its own map P_i.
On the right, one head of h · d_k dimensions has the scores Σ_i q_i k_iᵀ / √(h d_k), and its single map P is used
for all values. After W_O, the relative difference of the outputs is taken. A bias on the scores, a window, a cap or
a sink is excluded on both sides; the result says how much of the heads' outputs that is. Also: how often the heads
agree on their first key, how sharp they are, and the difference with all scores a million times larger (one-hot by
force).

The scores of one head are the sum of those of the heads, so its map is their product: P ∝ Π_i P_i^(1/√h). For P to
be P_i for every head and any values, all heads must have the same map, and raising it to √h must not change it. So
its rows are uniform over the same keys (all of them or some), or one-hot on the same key. Saturation alone is not
enough; the heads must agree on the key. [One head or many](../../learn/2-one-head-or-many.md) shows how
`torch.rand` makes it look true, and how the gradients differ. In MiniLM's layer 3 the outputs differ by as much as
they are large (1.0), all twelve heads agree on the first key in 9 % of rows, and made one-hot they still differ by
1.0.

```python
import torch
import multihead as mh

attn, x = mh.MultiHeadAttention(24, 3), torch.randn(2, 7, 24)
result = mh.theory(attn, x, only=["18"])["18"].result
print(result.verdict, "|", result.lhs)                 # fails | outputs differ 0.9

same = mh.theory(attn, torch.zeros(2, 7, 24), only=["18"])["18"].result   # equal keys: uniform rows
assert (result.verdict, same.verdict) == ("fails", "holds")
print(same.verdict, "|", same.because)                 # holds
```
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from multihead._base.number_text import number
from multihead.statements.layer_sample import LayerSample, SequenceSample
from multihead.statements.statement import Comparison, Result, Side, statement
from multihead.statements.toy_layer import causal_softmax

SAME = 1e-5
NEAR = 1e-3
"""Recomputed heads are those of the run if they differ by no more: the run is of fp32, or less."""
LENGTH = 64

ManyAndOne = tuple[Tensor, Tensor, Tensor, Tensor]
"""the outputs of many heads and of one, and their maps"""


@statement(
    "18",
    "one head would do the same",
    formula="MultiHead = SingleHead with the same projections",
    holds_when="in each row all heads are uniform over the same keys (one-hot on one): one head's map is "
    "Π P_i^(1/√h)",
)
def equals_one_head(layer: LayerSample) -> Result:
    longest = sorted(layer.sequences, key=lambda s: -s.x.shape[0])[:4]
    sequences = [
        SequenceSample(s.x[:LENGTH], s.memory[:LENGTH], *(t[:, :LENGTH] for t in (s.q, s.k, s.v, s.z)))
        for s in longest
    ]
    as_is, sharpened = ([many_and_one(layer, s, sharpen) for s in sequences] for sharpen in (1.0, 1e6))
    difference, one_hot = _difference(as_is), _difference(sharpened)
    maps = [(many, one) for _, _, many, one in as_is]
    first_keys = [many.argmax(-1) for many, _ in maps]
    agree = float(torch.cat([(keys == keys[0]).all(0).double() for keys in first_keys]).mean())
    comparison = Comparison(
        Side(f"outputs differ {number(difference, 2)}", difference), "=", Side("0", 0.0), atol=SAME
    )
    if comparison.true and layer.heads == 1:
        because = "There is one head."
    elif comparison.true:
        because = "Every row of every head is the row that one head has."
    elif agree == 1:
        because = "Heads agree on their first keys, but the map of one head differs: for equal heads it is P^√h."
    else:
        because = f"Heads look at different keys (all agree in {agree:.0%} of rows), one head has one map for all."
    because += f" Made one-hot by force they differ by {number(one_hot, 2)}."
    left_out = _left_out(layer)
    if left_out > NEAR:
        because += " Operations on scores besides scaling (bias, window, cap, sink) are excluded: "
        because += f"{left_out:.0%} of the heads' outputs."
    numbers = {
        "difference": difference,
        "difference_saturated": one_hot,
        "largest_weight": float(torch.cat([many.max(-1).values.flatten() for many, _ in maps]).mean()),
        "heads_agree": agree,
        "maps_differ": max(float((many - one).abs().sum(-1).max() / 2) for many, one in maps),
        "left_out": left_out,
    }
    return Result(comparison, because, numbers)


def many_and_one(layer: LayerSample, s: SequenceSample, sharpen: float = 1.0) -> ManyAndOne:
    """Both sides of the statement: outputs and maps of many heads, and of one with their projections.

    One head of h · d_k dimensions has the scores Σ_i q_i k_iᵀ / √(h d_k): its map is the normalised product of the
    heads' maps, each to the power 1/√h.
    """
    kv = list(layer.kv_of_head)
    scores = sharpen * layer.scores.scale * s.q @ s.k[kv].mT
    many = causal_softmax(scores, causal=layer.causal)
    one = causal_softmax(scores.sum(0) / math.sqrt(layer.heads), causal=layer.causal)
    out = [torch.einsum("hqk,hkv,hov->qo", p, s.v[kv], layer.weights.o) for p in (many, one.expand_as(many))]
    return out[0], out[1], many, one


def _difference(runs: Sequence[ManyAndOne]) -> float:
    """‖many − one‖ / ‖many‖ over the outputs of some sequences."""
    difference = sum(float((many - one).square().sum()) for many, one, _, _ in runs)
    size = sum(float(many.square().sum()) for many, _, _, _ in runs)
    return math.sqrt(difference / size) if size > 0 else math.sqrt(difference)


def _left_out(layer: LayerSample) -> float:
    """How far the heads' outputs of `many_and_one` are from those of the run, relative to their size."""
    s = layer.sequences[0]
    recomputed = many_and_one(layer, s)[2] @ s.v[list(layer.kv_of_head)]
    size = float(s.z.norm())
    return float((recomputed - s.z).norm()) / size if size > 0 else float(recomputed.norm())
