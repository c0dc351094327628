"""`M = h(3 n d_k + m d_k + n m)`: memory for q, k, v and the output of every head, and for one n × m map per head.

**Holds only** if the maps are written out, and then only as an order of growth.

## What is computed

The layer runs with growing n while every tensor that it allocates is watched: the largest sum of bytes alive at
once, without weights and input. Twice: with maps written out (`route="reference"`) and with the fused kernel.
Memory that a kernel allocates internally is not seen; the fused one keeps a few blocks per thread.

The statement fails if the bytes with maps written out are below half of M or above four times M. It holds without a
condition if the fused kernel needs more than n^1.5 too.

Two maps are alive at once if they are written out, before and after the softmax, so long sequences need about 2 M.
With the fused kernel no map exists and memory is linear in n: the term n m is gone. A layer of MiniLM's sizes with
256 tokens: 4.72 MB by M, 7.88 MB measured; growth n^1.58 (n² for longer sequences) against n^1.00 fused.

```python
import torch
import multihead as mh

attn, x = mh.MultiHeadAttention(32, 4), torch.randn(2, 7, 32)
result = mh.theory(attn, x, only=["11"])["11"].result
print(result.verdict, "|", result.because)
# holds only if | Written out, 2.0 maps are alive at once (before and after the softmax); fused, none is. ...
assert result.numbers["maps_alive"] > 1.5 and result.numbers["exponent_fused"] < 1.2
for n, explicit, fused in zip(*(result.numbers[k] for k in ("tokens", "explicit_bytes", "fused_bytes"))):
    print(n, explicit, fused)
```
"""

from __future__ import annotations

from multihead._base.number_text import number
from multihead.statements.layer_shape import LayerShape, exponent
from multihead.statements.statement import Comparison, Result, Side, statement

LOWEST, HIGHEST = 0.5, 4.0
"""Bytes by count over bytes by the formula, which is an order of growth."""


@statement(
    "11",
    "memory is M numbers",
    formula="M = h(3 n d_k + m d_k + n m)",
    holds_when="the maps are written out; M counts q, k, v, the output and one map, the softmax needs a second",
    shape_only=True,
)
def attention_memory(shape: LayerShape) -> Result:
    h, d_k, most = shape.heads, shape.key_dim, shape.map_size(shape.heads)
    lengths = [n for n in (most // 8, most // 4, most // 2, most) if n >= 4]
    formula = [4 * h * (3 * n * d_k + n * d_k + n * n) for n in lengths]
    explicit, fused = ([shape.bytes(n, route) for n in lengths] for route in ("reference", "fused"))
    in_n, fused_in_n = exponent(lengths, explicit), exponent(lengths, fused)
    ratios = [counted / expected for counted, expected in zip(explicit, formula, strict=True)]
    comparison = Comparison(
        Side(f"{number(explicit[-1] / 1e6)} MB at n = {lengths[-1]}", ratios),
        "=",
        Side(f"{number(formula[-1] / 1e6)} MB by M", (HIGHEST + LOWEST) / 2),
        atol=(HIGHEST - LOWEST) / 2,
        always=Comparison(Side(f"n^{fused_in_n:.2f} fused", fused_in_n), ">", Side("n^1.5", 1.5)),
    )
    # The bytes per cell above the linear part: how many maps are alive at once.
    a, b = lengths[-2:]
    maps = (explicit[-1] / b - explicit[-2] / a) / (b - a) / (4 * h)
    because = {
        "fails": "The bytes are below half of M or above four times M.",
        "holds": "Both ways of computing hold a map of n m values per head.",
        "holds only if": f"Written out, {maps:.1f} maps are alive at once (before and after the softmax); fused, "
        "none is.",
    }[comparison.verdict]
    because += f" Growth: n^{in_n:.2f} and n^{fused_in_n:.2f}."
    numbers = {
        "tokens": lengths,
        "explicit_bytes": explicit,
        "fused_bytes": fused,
        "formula_bytes": formula,
        "maps_alive": maps,
        "exponent_explicit": in_n,
        "exponent_fused": fused_in_n,
    }
    return Result(comparison, because, numbers)
