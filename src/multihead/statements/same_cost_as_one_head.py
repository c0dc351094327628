"""`FLOPs(h heads) ≈ FLOPs(1 head)`: the total computation is similar to that of one head of full size.

**Holds** for h · d_k = d_model with keys and values for every head.

## What is computed

FLOPs by torch's counter at the length of the data: of the layer, and of one head with d_k = d_v = d_model.
*Similar* is within 10 %.

For h · d_k = d_model and as many kv heads as heads, the FLOPs are equal to the last digit: the matrices are only
cut into pieces. The count excludes the softmax, which is taken over h maps instead of one. Shared keys (grouped and
multi-query heads) make a layer cheaper, freely chosen head sizes more or less costly: then it *fails*, and the
reason says by which of the two. MiniLM: 29.2 MFLOP on both sides for a sentence of 24 tokens.

```python
import torch
import multihead as mh

x = torch.randn(2, 7, 24)
for options in ({}, {"num_kv_heads": 1}):
    result = mh.theory(mh.MultiHeadAttention(24, 4, **options), x, only=["T4"])["T4"].result
    print(result.verdict, "|", result.numbers["ratio"])
    assert result.verdict == ("fails" if options else "holds")
# holds | 1.0
# fails | 0.67
```
"""

from __future__ import annotations

from dataclasses import replace

from multihead._base.number_text import number
from multihead.statements.layer_shape import LayerShape
from multihead.statements.statement import Comparison, Result, Side, statement

SIMILAR = 0.1


@statement(
    "T4",
    "h heads cost what one costs",
    formula="FLOPs(h heads) ≈ FLOPs(1 head)",
    holds_when="h · d_k = d_model and every head has keys and values of its own",
    shape_only=True,
)
def same_cost_as_one_head(shape: LayerShape) -> Result:
    single = replace(shape, key_dim=shape.d_model, value_dim=shape.d_model, kv_of_head=(0,), kv_heads=1)
    many, one = (some.flops(shape.tokens)["all"] for some in (shape, single))
    comparison = Comparison(
        Side(f"{number(many / 1e6)} MFLOP", many), "=", Side(f"{number(one / 1e6)} MFLOP", one), rtol=SIMILAR
    )
    because = (
        "The same matrices in smaller pieces; only the softmax is taken h times."
        if comparison.true
        else f"h · d_k is {shape.heads * shape.key_dim} and d_model {shape.d_model}, on {shape.kv_heads} kv heads."
    )
    numbers = {
        "ratio": many / one,
        "flops": many,
        "flops_single": one,
        "softmax_ratio": shape.heads,
        "tokens": shape.tokens,
    }
    return Result(comparison, because, numbers)
