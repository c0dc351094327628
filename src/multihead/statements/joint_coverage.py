"""`𝒜 = ∪ span(A_i)`: together, the attention maps of the heads span more than the map of one head.

**Holds** for heads that look at different positions, if small directions do not count. Up to rounding, one head
often covers everything: the softmax maps of n tokens usually have full rank n.

## What is computed

A_i is the n × n attention map of head i on one sequence. Its row space holds all mixtures of tokens that the head
can pass on. A union of spaces is not a space; its span is meant, the row space of all maps stacked, h·n × n. Its
rank is compared with that of the best single head. Singular values count

- above 1 % of the largest (for the verdict), and
- above 10⁻¹⁰ of the largest (all that fp64 can tell).

The sample has sequences of at most 256 tokens and about 2 million cells per layer, none shorter than 8 tokens. The
statement holds if the stack has the higher rank in most sequences. It fails for copies of one head, and for a layer
in which one head has full rank.

```python
import torch
import multihead as mh

torch.manual_seed(0)
x = torch.randn(3, 11, 12)

layer = mh.MultiHeadAttention(12, 3)
with torch.no_grad():
    layer.q_proj.weight.mul_(2)                         # sharper maps
assert mh.theory(layer, x, only=[4])["4"].result.numbers["rank_stacked_fine"] == [11.0, 11.0, 11.0]

with torch.no_grad():
    layer.q_proj.weight.zero_()                         # every map is uniform: rank 1, three times
result = mh.theory(layer, x, only=[4])["4"].result
assert (result.verdict, result.lhs, result.rhs) == ("fails", "rank 1 of 11 tokens", "best head 1")

with torch.no_grad():                                   # head i looks at the tokens with a large coordinate i
    for i in range(3):
        layer.q_proj.bias.view(3, 4)[i] = torch.tensor([20.0, 0, 0, 0])
        layer.k_proj.weight.view(3, 4, 12)[i] = 0
        layer.k_proj.weight.view(3, 4, 12)[i, 0, i] = 1
result = mh.theory(layer, x, only=[4])["4"].result
assert (result.verdict, result.rhs) == ("holds", "best head 1")
```
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from multihead._base.number_text import number
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Needs, Result, Side, statement

FINE, COARSE = 1e-10, 1e-2
"""Singular values that count: all that fp64 can tell, and those above 1 % of the largest."""
SHORTEST = 8
"""Tokens below which the rank of a map says nothing."""


@statement(
    "4",
    "heads together cover more than one does",
    formula="𝒜 = ∪ span(A_i)",
    holds_when="heads look at different positions: no head's rows span the rows of all others",
    needs=Needs(heads=2, map_size=SHORTEST),
)
def joint_coverage(layer: LayerSample) -> Result:
    maps = [m for m in layer.maps if min(m.shape[1:]) >= SHORTEST]
    ranks = torch.tensor([_ranks(m) for m in maps], dtype=torch.float64)
    best, best_fine, stacked, stacked_fine = ranks.T
    keys = torch.tensor([float(m.shape[2]) for m in maps])
    gain = stacked - best
    middle = int(gain.argsort(stable=True)[(len(maps) - 1) // 2])  # above 0 if most are
    rank, best_rank = float(stacked[middle]), float(best[middle])
    comparison = Comparison(
        Side(f"rank {number(rank)} of {number(float(keys[middle]))} tokens", rank),
        ">",
        Side(f"best head {number(best_rank)}", best_rank),
    )
    share = float((gain > 0).double().mean())
    because = (
        "Counting singular values above 1 % of the largest, all heads together have a higher rank than the best "
        f"one in {number(100 * share)} % of {len(maps)} sequences; up to rounding "
        f"{number(float(stacked_fine[middle]))} against {number(float(best_fine[middle]))}. The union is not a "
        "space; its span is meant."
    )
    numbers = {
        "rank": rank,
        "rank_stacked": stacked.tolist(),
        "rank_best_head": best.tolist(),
        "rank_stacked_fine": stacked_fine.tolist(),
        "rank_best_head_fine": best_fine.tolist(),
        "tokens": keys.tolist(),
    }
    return Result(comparison, because, numbers)


def _ranks(maps: Float[Tensor, "head query key"]) -> list[float]:
    """Coarse and fine rank of the best head's map, then of all maps stacked: their coverage."""
    single, stacked = torch.linalg.svdvals(maps), torch.linalg.svdvals(maps.flatten(0, 1))
    best = [float((single > cut * single[:, :1]).sum(1).max()) for cut in (COARSE, FINE)]
    return best + [float((stacked > cut * stacked[0]).sum()) for cut in (COARSE, FINE)]
