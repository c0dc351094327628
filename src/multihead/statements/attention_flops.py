"""`C = O(h n² d_k + h n m d_k)`: h heads on n queries and m keys cost h times what one head costs.

**Holds only** for long sequences: the formula excludes the projections, which cost most of the FLOPs below.

## What is computed

torch's FLOP counter runs over a layer of the same sizes with 64 to 1024 tokens. The closed form of
[mh.cost](../../guides/cost.md) must be equal to the last digit:

    projections   2 n (h d_model d_k + kv d_model (d_k + d_v) + h d_v d_model)
    attention     2 n² h (d_k + d_v)

Then exponents: of attention in n, of everything in h at fixed width, and of everything in n at the length of the
data.

q kᵀ and P v grow exactly as n², and at fixed d_model = h d_k the number of heads makes no difference. The
projections are n · d_model² and dominate until n passes weights / (h (d_k + d_v)): 2 d_model in plain multi-head
attention, 24,576 tokens for GPT-3. The verdict is *holds* if the longest sequence of the data is above that length,
*holds only if* below. MiniLM on sentences of 24 tokens grows as n^1.04; its crossover is at 768.

```python
import torch
import multihead as mh

for d_model, tokens in ((64, 7), (4, 101)):
    attn = mh.MultiHeadAttention(d_model, 2)
    result = mh.theory(attn, torch.randn(2, tokens, d_model), only=["10"])["10"].result
    print(result.verdict, "|", result.lhs, "|", result.rhs)
    assert result.numbers["flops"] == result.numbers["closed_form"]
# holds only if | n^1.07 at n = 7 | n^2.00, h^0.00
# holds | n^1.94 at n = 101 | n^2.00, h^0.00
```
"""

from __future__ import annotations

import math

from multihead._base.number_text import number
from multihead.measures.cost.cost import cost
from multihead.statements.layer_shape import LayerShape, exponent
from multihead.statements.statement import Comparison, Result, Side, statement

LENGTHS = (64, 128, 256, 512, 1024)


@statement(
    "10",
    "attention costs O(n²)",
    formula="C = O(h n² d_k + h n m d_k)",
    holds_when="n is above weights / h(d_k + d_v), which is 2 d_model in plain attention",
    shape_only=True,
)
def attention_flops(shape: LayerShape) -> Result:
    n, spec, widths = shape.tokens, shape.spec, shape.head_counts
    counted = [shape.flops(length) for length in LENGTHS]
    closed = [cost(spec, tokens=length) for length in LENGTHS]
    by_heads = [shape.flops(256, heads)["all"] for heads in widths]
    in_n, in_h = exponent(LENGTHS, [c["attention"] for c in counted]), exponent(widths, by_heads)
    exponent_here = exponent([n, 2 * n], [cost(spec, tokens=n).flops, cost(spec, tokens=2 * n).flops])
    errors = [c["all"] - form.flops for c, form in zip(counted, closed, strict=True)]
    crossover = closed[0].crossover
    comparison = Comparison(
        Side(f"n^{exponent_here:.2f} at n = {n}", (in_n - 2, in_h, *errors)),
        "=",
        Side(f"n^{in_n:.2f}, h^{abs(in_h):.2f}", 0.0),
        atol=1e-6,
        always=Comparison(Side(f"n {n}", n), ">=", Side(number(crossover), crossover)),
    )
    because = {
        "fails": "torch's count differs from the closed form.",
        "holds": "q kᵀ and P v dominate at this length, and splitting d_model into more heads is free.",
        "holds only if": f"At {n} tokens the projections, h n d_model d_k, dominate, which the formula excludes; "
        f"above {number(math.ceil(crossover))} tokens q kᵀ and P v do.",
    }[comparison.verdict]
    numbers = {
        "tokens": LENGTHS,
        "flops": [c["all"] for c in counted],
        "attention_flops": [c["attention"] for c in counted],
        "closed_form": [form.flops for form in closed],
        "heads": widths,
        "flops_by_heads": by_heads,
        "exponent_in_n": in_n,
        "exponent_in_h": in_h,
        "exponent_here": exponent_here,
        "crossover": crossover,
    }
    return Result(comparison, because, numbers)
