"""`time and space ∝ n²`, whatever the number of heads h.

**Holds only** for the time of q kᵀ and P v; space is quadratic only if the maps are written out.

## What is computed

On a layer of these sizes, torch's counter counts the FLOPs of q kᵀ and P v over n, and over h at fixed width
h · d_k. The largest sum of bytes alive is measured with maps written out and with the fused kernel, over n and for
the smallest and the largest h.

Time is n² and h⁰; the projections are linear in n and excluded, see [10](10-attention-flops.md). Space: written-out
maps take h n² values, so space does depend on h (MiniLM's width in 64 heads instead of one: 10 times the bytes at
128 tokens). Computed in blocks no map is kept, and space is linear in n and hardly depends on h. The sentence is
half true either way.

```python
import torch
import multihead as mh

attn, x = mh.MultiHeadAttention(24, 4), torch.randn(2, 7, 24)
result = mh.theory(attn, x, only=["T1"])["T1"].result
print(result.verdict, "|", result.lhs, "|", result.rhs)
# holds only if | n^2.00 h^0.00 time | n^1.9, n^1.00 space
assert result.numbers["fused_space_exponent"] < 1.2 < result.numbers["space_exponent"]
print(result.because)
```
"""

from __future__ import annotations

from multihead.statements.layer_shape import LayerShape, exponent
from multihead.statements.statement import Comparison, Result, Side, statement


@statement(
    "T1",
    "quadratic in n, not in h",
    formula="time and space ∝ n², whatever h",
    holds_when="time of q kᵀ and P v; space only if maps are written out, and then it grows with h as well",
    shape_only=True,
)
def quadratic_in_length(shape: LayerShape) -> Result:
    widths = shape.head_counts
    n = shape.map_size(max(*widths, shape.heads))
    lengths, few_and_many = [n // 4, n // 2, n], [h for h in widths if h in (widths[0], widths[-1])]
    flops = [shape.flops(length)["attention"] for length in lengths]
    time_n = exponent(lengths, flops)
    time_h = exponent(widths, [shape.flops(n, h)["attention"] for h in widths])
    explicit, fused = ([shape.bytes(length, route) for length in lengths] for route in ("reference", "fused"))
    explicit_by_heads, fused_by_heads = (
        [shape.bytes(n, route, h) for h in few_and_many] for route in ("reference", "fused")
    )
    space_n, fused_n = exponent(lengths, explicit), exponent(lengths, fused)
    growth = explicit_by_heads[-1] / explicit_by_heads[0]
    comparison = Comparison(
        Side(f"n^{time_n:.2f} h^{abs(time_h):.2f} time", (time_n, time_h)),
        "=",
        Side(f"n^{space_n:.2f}, n^{fused_n:.2f} space", (2.0, 0.0)),
        atol=0.05,
        always=Comparison(Side("space in n, in h", (fused_n - 1.5, 1.1 - growth)), ">", Side("0", 0.0)),
    )
    because = {
        "fails": "The FLOPs of q kᵀ and P v do not grow as n² or change with h.",
        "holds": "Time and space grow as n², whatever the number of heads.",
        "holds only if": f"Time: yes. Space: written-out maps take h n² values ({growth:.1f}× from "
        f"{few_and_many[0]} to {few_and_many[-1]} heads), and computed in blocks none is kept: n^{fused_n:.1f}.",
    }[comparison.verdict]
    numbers = {
        "tokens": lengths,
        "attention_flops": flops,
        "explicit_bytes": explicit,
        "fused_bytes": fused,
        "heads": few_and_many,
        "explicit_bytes_by_heads": explicit_by_heads,
        "fused_bytes_by_heads": fused_by_heads,
        "time_exponent": time_n,
        "time_exponent_in_h": time_h,
        "space_exponent": space_n,
        "fused_space_exponent": fused_n,
    }
    return Result(comparison, because, numbers)
