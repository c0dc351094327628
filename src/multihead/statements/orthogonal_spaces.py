"""`span(W_i^Q) ⟂ span(W_j^Q)` for all pairs of heads, and the same for K, V and O.

**Fails** for trained layers and for new ones; true only by construction.

## What is computed

W_Q, W_K and W_V of a head are matrices of d_k rows: the directions that the head reads. W_O has d_k columns: the
directions that it writes. Two spans are orthogonal if *all*
[principal angles](https://en.wikipedia.org/wiki/Angles_between_flats) between them are 90°. For each pair of heads
we take the smallest angle (its cosine is the largest singular value of one orthonormal basis times the other), and
then the smallest over all pairs. Cosines up to 0.01, an angle of 89.4°, count as orthogonal.

Random spans of the same sizes, drawn from the seed, are shown for comparison: two random planes of 32 dimensions in
384 have a smallest angle of about 55°, not of 90°. Their mean cos² over all principal angles is exactly
d_k / d_model. Trained heads of MiniLM overlap *more* than that.

Orthogonal heads need Σ ranks ≤ d_model, so heads with h · d_k > d_model cannot be orthogonal. In grouped attention
K and V are compared per kv head.

```python
import torch
import multihead as mh

torch.manual_seed(0)
x = torch.randn(6, 13, 12)
assert mh.theory(mh.MultiHeadAttention(12, 3), x, only=[1])["1"].verdict == "fails"

orthogonal = mh.MultiHeadAttention(12, 3)
for projection in (orthogonal.q_proj, orthogonal.k_proj, orthogonal.v_proj, orthogonal.o_proj):
    torch.nn.init.orthogonal_(projection.weight)        # the rows of all heads together are orthogonal
line = mh.theory(orthogonal, x, only=[1])["1"]
assert line.verdict == "holds"
assert line.result.numbers["smallest_angle_Q"] > 89.9

crowded = mh.MultiHeadAttention(12, 3, head_dim=5)      # 15 dimensions do not fit into 12
assert "add up to more than d_model" in mh.theory(crowded, x, only=[1])["1"].result.because
```

Two planes with one direction in common:

```python
from multihead.statements.subspaces import basis, largest_cosines

planes = [basis(rows) for rows in (torch.eye(5)[:2], torch.eye(5)[1:3])]
assert float(largest_cosines(planes)[0, 1]) == 1.0      # the smallest angle is 0
```
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from multihead._base.number_text import number
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Needs, Result, Side, not_applicable, statement
from multihead.statements.subspaces import basis, largest_cosines, overlaps, pairs, random_spans

COSINE = 0.01
"""Spans count as orthogonal if no cosine between them is above this: every angle is above 89.4°."""


@dataclass(frozen=True)
class Spans:
    """The spans of one projection of all heads, compared with random spans of the same sizes."""

    cosines: Tensor
    """of the smallest angle, for every pair"""
    random_cosine: float
    overlap: float
    random_overlap: float
    crowded: bool
    """whether the ranks add up to more than the width"""


def _spans(matrices: Tensor, seed: int) -> Spans | None:
    """Spans to test for orthogonality; None for fewer than two: one kv head for all, or weights of zeros."""
    bases, width = [basis(w) for w in matrices], matrices.shape[2]
    ranks = [len(b) for b in bases]
    if sum(rank > 0 for rank in ranks) < 2:
        return None
    return Spans(
        pairs(largest_cosines(bases)),
        float(pairs(largest_cosines(random_spans(ranks, width, seed))).max()),
        float(pairs(overlaps(bases)).mean()),
        max(ranks) / width,
        sum(ranks) > width,
    )


@statement(
    "1",
    "heads read and write orthogonal spaces",
    formula="span(W_i^Q) ⟂ span(W_j^Q), also K, V, O",
    holds_when="W_i W_jᵀ = 0 for all pairs, which needs Σ ranks ≤ d_model",
    needs=Needs(heads=2),
)
def orthogonal_spaces(layer: LayerSample) -> Result:
    w = layer.weights
    matrices = {"Q": w.q, "K": w.k, "V": w.v, "O": w.o.mT}
    spans = {name: x for name, some in matrices.items() if (x := _spans(some, layer.seed)) is not None}
    if not spans:
        raise not_applicable("no spans", "90°", "The weights are 0: they span nothing.")
    largest = {letter: float(x.cosines.max()) for letter, x in spans.items()}
    angles = "/".join(number(_degrees(cosine), 2) for cosine in largest.values())
    random = "/".join(number(_degrees(x.random_cosine), 2) for x in spans.values())
    comparison = Comparison(
        Side(f"least angle {'/'.join(spans)} {angles}°", list(largest.values())),
        "=",
        Side(f"90° (random {random}°)", 0.0),
        atol=COSINE,
    )
    crowded = [letter for letter, x in spans.items() if x.crowded]
    if comparison.true:
        because = f"No two spans have an angle below {number(_degrees(COSINE))}°."
    elif crowded:
        because = f"The ranks of {', '.join(crowded)} add up to more than d_model."
    else:
        overlap = "/".join(number(x.overlap, 2) for x in spans.values())
        expected = "/".join(dict.fromkeys(number(x.random_overlap, 2) for x in spans.values()))
        because = f"Spans of {'/'.join(spans)} overlap by {overlap} (mean cos²), random ones by {expected}."
    if layer.kv_heads < layer.heads:
        because += f" K and V are compared per kv head ({layer.kv_heads} of them)."
    numbers: dict[str, float | list[float]] = {}
    for letter, x in spans.items():
        numbers |= {
            f"smallest_angle_{letter}": _degrees(largest[letter]),
            f"smallest_angle_random_{letter}": _degrees(x.random_cosine),
            f"mean_overlap_{letter}": x.overlap,
            f"mean_overlap_random_{letter}": x.random_overlap,
            f"largest_cosines_{letter}": x.cosines.tolist(),
        }
    return Result(comparison, because, numbers)


def _degrees(cosine: float) -> float:
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
