"""`∀ A ∃ W: ‖A − softmax(q kᵀ)‖ ≤ ε`: for every attention pattern A there are weights that come as near as wanted.

**Holds only** for d_k ≥ n − 1 and linearly independent tokens.

## What is computed

The pattern has independent random logits, and the n tokens are those of the longest sequence (up to 48).

- *Constructed.* With X the tokens and X⁺ its pseudo-inverse, W_Q = X⁺ and W_K = X⁺ (log A)ᵀ give q = 1 and
  q kᵀ = log A, so the softmax is A. It takes d_k = n dimensions. ε is the largest distance of a row, in total
  variation.
- *The bottleneck.* With d_k < n the scores have rank d_k at most. A truncated SVD of the logits (rows may be
  shifted freely) and then gradient descent look for the best approximation. Its error is an upper bound of
  the smallest ε, for d_k = 1, 2, 4, … n and for the layer's own d_k.
- *Heads.* The same for the layer's total width divided into 1, 2, 4, … heads: more heads are smaller ones.

It *fails* for linearly dependent tokens: equal tokens must have equal rows. d_k = n − 1 is enough, since softmax
ignores a shift of a row and centred logits have rank n − 1. Below, there are patterns that no weights produce
(Bhojanapalli et al. 2020), so at fixed d_model more heads can hurt. Sharp patterns are cheap, though: "look at the
previous token" needs two dimensions, points on a circle, however many tokens there are. The soft and irregular
patterns need rank. MiniLM's heads of 32 can produce any pattern on a sentence of 24 tokens, and not on one of 48
(ε 0.02).

```python
import torch
import multihead as mh

x = torch.randn(2, 23, 24)
for heads in (1, 12):                                  # d_k = 24 and d_k = 2, for 23 tokens
    result = mh.theory(mh.MultiHeadAttention(24, heads), x, only=["17"])["17"].result
    print(result.verdict, "|", result.lhs, "|", result.rhs)
# holds | ε 1e-16 (d_k 24) | ε 1e-14 (d_k 23)
# holds only if | ε 0.7 (d_k 2) | ε 1e-14 (d_k 23)
errors = result.numbers["errors"]
assert errors[0] > 0.3 and errors[-1] < 1e-6
for d, error in zip(result.numbers["dims"], errors):
    print(d, round(error, 3))                          # the curve: 1 dimension … 23
```
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.number_text import number
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Needs, Result, Side, statement

TOKENS = 48
"""Longer sequences are cut to this."""
EPSILON = 1e-3
"""A pattern is represented if every row is off by less, in total variation."""

Pattern = Float[Tensor, "query key"]


@statement(
    "17",
    "heads can make any pattern",
    formula="for every A there are W: ‖A − softmax(q kᵀ)‖ ≤ ε",
    holds_when="d_k ≥ n − 1, independent tokens; else rank(q kᵀ) ≤ d_k is too low (Bhojanapalli et al. 2020): more "
    "heads can hurt",
    needs=Needs(length=2),
)
def any_pattern(layer: LayerSample) -> Result:
    x = max((s.x for s in layer.sequences), key=lambda t: t.shape[0])[:TOKENS]
    n, d_k, width = x.shape[0], layer.key_dim, layer.heads * layer.key_dim
    generator = torch.Generator().manual_seed(layer.seed)
    pattern = (2 * torch.randn(n, n, dtype=torch.float64, generator=generator)).softmax(-1)
    w_q, w_k = construct(x, pattern)
    constructed = distance(pattern, (x @ w_q) @ (x @ w_k).T)
    dims = sorted({d for d in (1, 2, 4, 8, 16, 32) if d < n} | {n})
    head_counts = [h for h in (1, 2, 4, 8, 16, 32) if width % h == 0]
    error = best_of_rank(pattern, min(d_k, n))
    limit = Side(f"ε {number(constructed, 2)} (d_k {n})", EPSILON)
    left = f"ε {number(error, 2)} (d_k {d_k})"
    comparison = Comparison(Side(left, constructed), "<=", limit, always=Comparison(Side(left, error), "<=", limit))
    rank = int(torch.linalg.matrix_rank(x, rtol=1e-12))
    because = {
        "fails": f"The {n} tokens span {rank} dimensions, so scores have rank {rank} at most.",
        "holds": f"d_k = {d_k} is enough for any pattern over {n} tokens.",
        "holds only if": f"Constructed with d_k = {n} it is exact; d_k = {d_k} misses a pattern "
        f"by {number(error, 2)}.",
    }[comparison.verdict]
    numbers = {
        "tokens": n,
        "constructed": constructed,
        "here": error,
        "dims": dims,
        "errors": [best_of_rank(pattern, d) for d in dims],
        "heads": head_counts,
        "errors_by_heads": [best_of_rank(pattern, min(width // h, n)) for h in head_counts],
        "rank_of_inputs": rank,
    }
    return Result(comparison, because, numbers)


def construct(x: Float[Tensor, "token d_model"], pattern: Pattern) -> tuple[Tensor, Tensor]:
    """W_Q = X⁺, W_K = X⁺ log Aᵀ: then q kᵀ = log A and the softmax is A. One key dimension per token."""
    inverse = torch.linalg.pinv(x)  # X X⁺ = 1 for independent tokens
    return inverse, inverse @ pattern.clamp(min=1e-30).log().T


def distance(pattern: Pattern, scores: Pattern) -> float:
    """The largest distance of a row, in total variation: 0 equal, 1 nothing in common."""
    return float((pattern - scores.softmax(-1)).abs().sum(-1).max() / 2)


def best_of_rank(pattern: Pattern, rank: int, steps: int = 60) -> float:
    """How near softmax(q kᵀ) comes to any pattern with `rank` dimensions: an upper bound of the best.

    Truncated SVD of the centred logits (softmax ignores a shift of a row), then gradient descent.
    """
    n = pattern.shape[0]
    logits = pattern.clamp(min=1e-30).log()
    if rank >= n:
        return distance(pattern, logits)
    u, s, v = torch.linalg.svd(logits - logits.mean(-1, keepdim=True))
    q, k = u[:, :rank] * s[:rank].sqrt(), v[:rank].T * s[:rank].sqrt()
    best = distance(pattern, q @ k.T)
    q, k = q.requires_grad_(), k.requires_grad_()
    optimiser = torch.optim.Adam((q, k), lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = -(pattern * (q @ k.T).log_softmax(-1)).sum(-1).mean()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        return min(best, distance(pattern, q @ k.T))
