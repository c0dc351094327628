"""`d_k = d_v = d_model/h`: each head works in d_model/h dimensions.

**Holds** if the layer was made so, as in BERT, GPT-2 and LLaMA.

## What is computed

The size of a head's query, key and value is compared with d_model/h. Then the rank of every W_Qⁱ and W_Vⁱ
(singular values above 1e-6 of the largest), and how many of the d_model input coordinates each head reads.

Many current models choose the head size freely: Gemma 2 2B has 8 heads of 256 at d_model 2304, Qwen3 0.6B 16 of 128
at 1024, and there it *fails*. If the rank is lower than the number of rows, it is *holds only if*. The d_k
dimensions are not a slice of the input: each mixes all d_model coordinates. MiniLM: d_k 32 = 384/12, full rank,
100 % of the coordinates are read.

```python
import torch
import multihead as mh

x = torch.randn(2, 7, 24)
for options in ({}, {"head_dim": 10}):
    result = mh.theory(mh.MultiHeadAttention(24, 4, **options), x, only=["T3"])["T3"].result
    print(result.verdict, "|", result.lhs, "|", result.rhs)
    assert result.verdict == ("fails" if options else "holds")
# holds | d_k 6, rank 6 | d_model/h 6
# fails | d_k 10, rank 10 | d_model/h 6
```
"""

from __future__ import annotations

from multihead._base.number_text import number
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Result, Side, statement
from multihead.statements.subspaces import basis


@statement(
    "T3",
    "a head works in d_model/h dimensions",
    formula="d_k = d_v = d_model/h",
    holds_when="the layer is made so, and W_Qⁱ, W_Vⁱ have full rank; each dimension is a mix of all d_model "
    "coordinates",
)
def head_dimension(layer: LayerSample) -> Result:
    w, d_k, d_v = layer.weights, layer.key_dim, layer.value_dim
    expected = layer.d_model / layer.heads
    rank_q, rank_v = ([len(basis(head)) for head in projection] for projection in (w.q, w.v))
    right = Side(f"d_model/h {number(expected)}", expected)
    comparison = Comparison(
        Side(f"d_k {d_k}, rank {min(rank_q)}", (d_k, d_v)),
        "=",
        right,
        always=Comparison(Side("ranks", (*rank_q, *rank_v)), "=", right),
    )
    read = float((w.q.abs().amax(1) > 0).double().mean())
    sizes = f"{d_k}" if d_k == d_v else f"d_k {d_k}, d_v {d_v}"
    because = {
        "holds": f"Every W_Qⁱ and W_Vⁱ has rank d_model/h; each reads {read:.0%} of the input coordinates.",
        "holds only if": f"Rows are d_model/h, but some heads use fewer: rank {min(rank_q + rank_v)}.",
        "fails": f"Heads are of {sizes}, not of {number(expected)}: h times that is not d_model.",
    }[comparison.verdict]
    numbers = {"key_dim": d_k, "expected": expected, "rank_q": rank_q, "rank_v": rank_v, "read": read}
    return Result(comparison, because, numbers)
