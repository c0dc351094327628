"""`Σ head_i(x) ≠ head_h(… head_1(x))`: many heads are not the same as stacked layers.

**Holds** if some head reads directions that another writes.

## What is computed

The same heads, with the same weights, run twice on the layer's inputs: side by side, x + Σ head_i(x), as in the
layer; and one after the other, x ← x + head_i(x). The left side is the relative difference of what is added to x;
`numbers["order"]` is how much it changes when the order of the stack is reversed.

Side by side, no head reads the output of another and their order does not matter; in a stack each builds on those
before. The two agree for one head, and for heads that read and write separate parts of the stream; then the verdict
is *fails*. In MiniLM's layer 3 they differ by 0.79 of what the layer adds. Norms and positions are excluded.
Cross-attention does not write the sequence that its keys come from, so there the statement is *not applicable*.

```python
import torch
import multihead as mh

x = torch.randn(2, 7, 24)
result = mh.theory(mh.MultiHeadAttention(24, 4), x, only=["T2"])["T2"].result
print(result.verdict, "|", result.lhs)                 # holds | differ by 0.9
assert result.numbers["difference"] > 0.01 and result.numbers["order"] > 0.01
print(mh.theory(mh.MultiHeadAttention(24, 1), x, only=["T2"])["T2"].result.because)    # There is one head.
```
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.number_text import number
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Needs, Result, Side, statement
from multihead.statements.toy_layer import causal_softmax

SAME = 1e-6
TOKENS = 12


@statement(
    "T2",
    "heads are not stacked layers",
    formula="Σ head_i(x) ≠ head_h(… head_1(x))",
    holds_when="there are two heads or more, and some head reads what another writes",
    needs=Needs(one_stream=True),
)
def not_stacked_layers(layer: LayerSample) -> Result:
    x, _ = layer.batch(sequences=2, tokens=TOKENS)
    side_by_side = sum((_part(layer, x, head) for head in range(layer.heads)), torch.zeros_like(x))
    stacked, reversed_ = _stacked(layer, x, range(layer.heads)), _stacked(layer, x, reversed(range(layer.heads)))
    size = float(side_by_side.norm())
    difference = float((stacked - side_by_side).norm()) / size if size else 0.0
    order = float((stacked - reversed_).norm()) / size if size else 0.0
    comparison = Comparison(
        Side(f"differ by {number(difference, 2)}", difference), "!=", Side("0 if the same", 0.0), atol=SAME
    )
    if comparison.true:
        matters = "matters" if order >= SAME else "does not matter"
        because = f"In a stack, each head reads the outputs of those before, and their order {matters}."
    else:
        because = "There is one head." if layer.heads == 1 else "No head reads what another writes."
    return Result(comparison, because, {"difference": difference, "order": order, "heads": float(layer.heads)})


def _stacked(layer: LayerSample, x: Float[Tensor, "batch token d_model"], order: Iterable[int]) -> Tensor:
    """The change of the stream x by heads that run one after the other."""
    stream = x
    for head in order:
        stream = stream + _part(layer, stream, head)
    return stream - x


def _part(layer: LayerSample, x: Float[Tensor, "batch token d_model"], head: int) -> Tensor:
    """The change of the stream x by one head."""
    w, kv = layer.weights, layer.kv_of_head[head]
    q = x @ w.q[head].T + w.bias("q")[head]
    k = x @ w.k[kv].T + w.bias("k")[kv]
    v = x @ w.v[kv].T + w.bias("v")[kv]
    return causal_softmax(q @ k.mT * layer.scores.scale, causal=layer.causal) @ v @ w.o[head].T
