"""`I_i = ‖E[head_i]‖_F` ranks heads by importance.

**Fails** as a ranking of heads: it is only loosely related to what the model loses without a head.

## What is computed

I_i is the norm of the mean of the head's output over tokens (before W_O, as written). It is compared with exact
ablation: each head in turn is replaced by 0 (`mh.ablate`), the model runs, and
‖out − out without the head‖² / ‖out‖² over real tokens is the change of the model's own output. This uses about 256
tokens and no labels. The statement holds if the rank correlation (Spearman) of the two is 0.9 or more. For
comparison E‖head_i W_O[i]ᵀ‖², the mean size of what the head adds, is ranked too.

The statement is true if what a head adds is the same for every token (the mean is then all there is), and W_O and
the later layers treat all heads the same way. The mean misses a head that varies from token to token around 0, a
W_O that makes a large head small, and later layers that do not read it. `mh.importance` measures the importance of
heads, by ablation and by gradients.

```python
import torch
import multihead as mh

torch.manual_seed(0)
x = torch.randn(4, 9, 12)
layer = mh.MultiHeadAttention(12, 3)
with torch.no_grad():                                   # constant outputs of sizes 1, 2 and 3
    layer.v_proj.weight.zero_()
    layer.v_proj.bias.copy_(torch.tensor([1.0, 0, 0, 0, 2.0, 0, 0, 0, 3.0, 0, 0, 0]))
    torch.nn.init.orthogonal_(layer.o_proj.weight)
result = mh.theory(layer, x, only=[14])["14"].result
assert (result.verdict, result.lhs) == ("holds", "rank correlation 1")

with torch.no_grad():
    layer.o_proj.weight.view(12, 3, 4)[:, 2] *= 0.01    # W_O makes the largest head small
result = mh.theory(layer, x, only=[14])["14"].result
assert (result.verdict, "puts H2 first" in result.because) == ("fails", True)
```
"""

from __future__ import annotations

import torch
from torch import Tensor

from multihead._base.number_text import number
from multihead.statements.layer_sample import LayerSample
from multihead.statements.statement import Comparison, Needs, Result, Side, not_applicable, statement

RANKED = 0.9
"""Two measures rank heads in the same way from this rank correlation on."""


@statement(
    "14",
    "the mean output tells a head's importance",
    formula="I_i = ‖E[head_i]‖_F ranks like ablation",
    holds_when="what a head adds is nearly the same for every token, and W_O and later layers treat heads equally",
    needs=Needs(heads=3),
)
def mean_output_importance(layer: LayerSample) -> Result:
    mean = layer.outputs.mean(0).norm(dim=1)
    sizes = torch.stack([layer.part(i).square().sum(1).mean() for i in range(layer.heads)])
    change = sizes if layer.ablation is None else layer.ablation()
    if float(mean.std()) == 0 or float(change.std()) == 0:
        raise not_applicable("all equal", "no ranking", "All heads have the same value.")
    rho, rho_of_size = _rank_correlation(mean, change), _rank_correlation(sizes, change)
    comparison = Comparison(
        Side(f"rank correlation {number(rho, 2)}", rho), ">=", Side(f"1 (from {RANKED})", RANKED)
    )
    best, named = int(change.argmax()), int(mean.argmax())
    because = (
        f"Without H{best} the output changes most ({number(100 * float(change[best]), 2)} %); ‖E head‖ puts "
        f"{'it first too' if named == best else f'H{named} first'}. E‖W_O head‖² ranks with "
        f"{number(rho_of_size, 2)}."
    )
    numbers = {
        "rank_correlation": rho,
        "rank_correlation_of_size": rho_of_size,
        "importance": mean.tolist(),
        "ablation": change.tolist(),
    }
    return Result(comparison, because, numbers)


def _rank_correlation(a: Tensor, b: Tensor) -> float:
    from scipy.stats import spearmanr  # pyright: ignore[reportMissingTypeStubs]  # slow to import

    return float(spearmanr(a.numpy(), b.numpy()).statistic)  # pyright: ignore[reportAttributeAccessIssue]
