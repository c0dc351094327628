"""`D = 1/(h(h−1)) Σ_{i≠j} (1 − |cos θ_ij|)`, with `cos θ_ij = ⟨W_i^Q, W_j^Q⟩ / (‖W_i^Q‖ ‖W_j^Q‖)`.

**Fails**: D is close to 1 for every layer, trained or random, since long random vectors are nearly orthogonal.

## What is computed

D as written, with the matrices flattened to vectors; and D once more with the largest cosine after turning one
head's coordinates, max_R ⟨W_i, R W_j⟩ = ‖W_i W_jᵀ‖_* (the sum of singular values; the orthogonal Procrustes
problem, Schönemann 1966). The statement holds where the two agree to 0.05.

Turning is fair: a head's scores are x W_Qᵀ W_K xᵀ. If W_Q and W_K are turned by the same orthogonal R, the scores
are the same (before rotary positions), and the span is the same always. D is not.

For random matrices of n values each, D is 1 − Γ(n/2) / (√π Γ((n+1)/2)): 0.993 for 32 × 384. A D of 0.99 says that
heads differ as random matrices do, coordinate by coordinate. It does not say that they read different spaces; that
is [statement 1](01-orthogonal-spaces.md). The two agree for exact copies (D = 0) and for orthogonal spans (D = 1).

```python
import torch
import multihead as mh

torch.manual_seed(0)
x = torch.randn(4, 9, 12)
twins = mh.MultiHeadAttention(12, 2)
with torch.no_grad():
    for projection in (twins.q_proj, twins.k_proj):
        projection.weight[6:] = projection.weight[:6]
result = mh.theory(twins, x, only=[3])["3"].result
assert (result.verdict, round(result.numbers["D"], 6)) == ("holds", 0.0)

# The same twins, the second one in other coordinates: every score as before, and a cosine of exactly 0.
before = twins(x, ask="weights").weights
quarter = torch.block_diag(*[torch.tensor([[0.0, -1.0], [1.0, 0.0]])] * 3)
with torch.no_grad():
    for projection in (twins.q_proj, twins.k_proj):
        projection.weight[6:] = quarter @ projection.weight[6:]
torch.testing.assert_close(twins(x, ask="weights").weights, before)
result = mh.theory(twins, x, only=[3])["3"].result
assert (result.verdict, round(result.numbers["D"], 4)) == ("fails", 1.0)
assert round(result.numbers["D_turned"], 4) == 0.0      # the spans are still the same
```
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.number_text import number
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Needs, Result, Side, not_applicable, statement
from multihead.statements.subspaces import pairs

SAME = 0.05
"""Two diversities agree if they differ by no more."""

Matrices = Float[Tensor, "head row width"]


@statement(
    "3",
    "one cosine tells how different heads are",
    formula="D = mean of 1 − |cos(W_i^Q, W_j^Q)|",
    holds_when="W_i W_jᵀ is symmetric and ⪰ 0 (up to sign) for all pairs, as for twins or orthogonal spans",
    needs=Needs(heads=2),
)
def cosine_diversity(layer: LayerSample) -> Result:
    w = layer.weights.q
    w = w[w.flatten(1).norm(dim=1) > 0]  # a matrix of zeros has no direction
    if len(w) < 2:
        raise not_applicable("0/0", "no cosine", "Fewer than two heads have a W_Q that is not 0.")
    cosines, turned = flat_cosines(w), turned_cosines(w)
    D, best, random = diversity(cosines), diversity(turned), random_diversity(w[0].numel())
    disguised = diversity(flat_cosines(_turned_at_random(w, layer.seed)))
    comparison = Comparison(Side(f"D {number(D)}", D), "=", Side(f"{number(best)} turned to fit", best), atol=SAME)
    because = (
        f"Turning heads within their spans lowers D by no more than {SAME}."
        if comparison.true
        else "One cosine compares coordinates, not spans: the same heads turned in their spans, to fit or at "
        f"random, have D {number(best)} or {number(disguised)}; random matrices {number(random)}."
    )
    numbers = {
        "D": D,
        "D_turned": best,
        "D_random": random,
        "D_disguised": disguised,
        "cosines": pairs(cosines).tolist(),
        "turned_cosines": pairs(turned).tolist(),
    }
    return Result(comparison, because, numbers)


def flat_cosines(w: Matrices) -> Float[Tensor, "head head"]:
    """⟨W_i, W_j⟩ / (‖W_i‖ ‖W_j‖), matrices taken as long vectors."""
    flat = w.double().flatten(1)
    unit = flat / flat.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    return unit @ unit.T


def turned_cosines(w: Matrices) -> Float[Tensor, "head head"]:
    """max over orthogonal R of ⟨W_i, R W_j⟩ / (‖W_i‖ ‖W_j‖) = ‖W_i W_jᵀ‖_* / (‖W_i‖ ‖W_j‖)."""
    products = torch.einsum("ird,jsd->ijrs", w.double(), w.double())
    sizes = w.double().flatten(1).norm(dim=1).clamp_min(torch.finfo(torch.float64).tiny)
    return torch.linalg.svdvals(products).sum(-1) / (sizes[:, None] * sizes[None])


def diversity(cosines: Float[Tensor, "head head"]) -> float:
    """1/(h(h−1)) Σ_{i≠j} (1 − |cos θ_ij|); NaN for fewer than two heads."""
    return float(1 - pairs(cosines).abs().mean()) if len(cosines) > 1 else math.nan


def random_diversity(n: int) -> float:
    """1 − Γ(n/2) / (√π Γ((n+1)/2)): the mean of `diversity` for random matrices of n values."""
    return 1 - math.exp(math.lgamma(n / 2) - math.lgamma((n + 1) / 2)) / math.sqrt(math.pi)


def _turned_at_random(w: Matrices, seed: int) -> Tensor:
    """The same spans in different coordinates: every head is turned by a random orthogonal matrix."""
    generator = torch.Generator().manual_seed(seed)
    size = (w.shape[0], w.shape[1], w.shape[1])
    turns, _ = torch.linalg.qr(torch.randn(size, generator=generator, dtype=torch.float64))
    return turns @ w
