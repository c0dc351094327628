"""What a model's output loses without each head: heads are ablated one by one, exactly.

>>> import torch, multihead as mh
>>> from multihead.model.find_sites import find_sites
>>> layer = mh.MultiHeadAttention(12, 3)
>>> batch = {"query": torch.randn(2, 7, 12)}
>>> ablation(layer, [batch], ["L0H0", "L0H1", "L0H2"], find_sites(layer, batch)).shape
torch.Size([3])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.model.compiled import inner
from multihead.model.eval_mode import plain_inputs
from multihead.model.forward import Forward
from multihead.model.interventions import ablate
from multihead.model.sites import Sites
from multihead.model.traced_run import tensors_in

Batch = Mapping[str, Any]

ABLATION_TOKENS = 256
"""Tokens on which heads are taken out one by one."""


@torch.no_grad()
def ablation(
    model: nn.Module, given: Sequence[Batch], heads: Sequence[str], sites: Sites
) -> Float[Tensor, " head"]:
    """‖output − output without the head‖² / ‖output‖² over real tokens, heads set to zero one by one."""
    small: list[dict[str, Any]] = []
    count = 0
    for batch in given:
        if small and count >= ABLATION_TOKENS:
            break
        few = _fewer(batch, ABLATION_TOKENS)
        small.append(plain_inputs(model, few))  # with labels the first output would be a loss
        count += count_tokens(few)
    whole = [_answer(model, batch) for batch in small]
    size = sum(float(out.square().sum()) for out in whole)
    lost: list[float] = []
    for head in heads:
        with ablate(model, [head], sites=sites):
            changed = [_answer(model, batch) for batch in small]
        off = sum(float((a - b).square().sum()) for a, b in zip(whole, changed, strict=True))
        lost.append(off / size if size else off)
    return torch.tensor(lost, dtype=torch.float64)


def _fewer(batch: Batch, tokens: int) -> Batch:
    """The first rows of a batch of token ids, with about so many tokens."""
    ids = batch.get("input_ids")
    if not isinstance(ids, Tensor) or ids.ndim != 2:
        return batch
    rows = max(1, tokens // ids.shape[1])
    return {
        name: x[:rows] if isinstance(x, Tensor) and x.shape[:1] == ids.shape[:1] else x for name, x in batch.items()
    }


def _answer(model: nn.Module, batch: Batch) -> Tensor:
    """The model's first output, without the rows of padding."""
    out = next(tensors_in(Forward(model)(batch)), None)
    if out is None:
        raise MultiheadError(
            f"{type(inner(model)).__name__} returns no tensor", hint="statement 14 needs an output"
        )
    mask = batch.get("attention_mask")
    if isinstance(mask, Tensor) and mask.shape == out.shape[:2]:
        out = out[mask.bool()]
    return out.double()


def placed(model: nn.Module, batch: Batch) -> dict[str, Any]:
    """The batch on the device and in the precision of the model."""
    like = next(iter(model.parameters()), torch.empty(0))

    def moved(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return x.to(like) if x.is_floating_point() else x.to(like.device)

    return {name: moved(x) for name, x in batch.items()}


def count_tokens(batch: Batch) -> int:
    """Real tokens of a batch."""
    mask = batch.get("attention_mask")
    if isinstance(mask, Tensor) and mask.ndim == 2:
        return int(mask.sum())
    return max((x.shape[0] * x.shape[1] for x in batch.values() if isinstance(x, Tensor) and x.ndim > 1), default=0)
