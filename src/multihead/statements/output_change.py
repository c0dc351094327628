"""How much the output of a model changes without each head.

>>> import torch, multihead as mh
>>> from multihead.model.find_sites import find_sites
>>> from multihead.statements.output_change import output_change
>>> layer = mh.MultiHeadAttention(12, 3)
>>> batch = {"query": torch.randn(2, 7, 12)}
>>> output_change(layer, [batch], ["L0H0", "L0H1", "L0H2"], find_sites(layer, batch)).shape
torch.Size([3])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead.corpus.accumulator import Inputs
from multihead.errors import MultiheadError
from multihead.model.compiled import inner
from multihead.model.eval_mode import plain_inputs
from multihead.model.forward import Forward
from multihead.model.interventions import ablate
from multihead.model.sites import Sites
from multihead.model.traced_run import tensors_in

TOKENS = 256
"""Tokens on which heads are ablated one by one."""


@torch.no_grad()
def output_change(
    model: nn.Module, batches: Sequence[Inputs], heads: Sequence[str], sites: Sites
) -> Float[Tensor, " head"]:
    """‖output − output without the head‖² / ‖output‖² over real tokens, of the first batches."""
    chosen: list[Inputs] = []
    count = 0
    for batch in batches:
        if count >= TOKENS:
            break
        rows = _first_rows(batch, TOKENS)
        chosen.append(plain_inputs(model, rows))  # with labels the first output would be a loss
        count += count_tokens(rows)
    intact = [_output(model, batch) for batch in chosen]
    size = sum(float(out.square().sum()) for out in intact)
    changes: list[float] = []
    for head in heads:
        with ablate(model, [head], sites=sites):
            ablated = [_output(model, batch) for batch in chosen]
        change = sum(float((a - b).square().sum()) for a, b in zip(intact, ablated, strict=True))
        changes.append(change / size if size else change)
    return torch.tensor(changes, dtype=torch.float64)


def _first_rows(batch: Inputs, tokens: int) -> Inputs:
    """The first rows of a batch of token ids, with about so many tokens."""
    ids = batch.get("input_ids")
    if not isinstance(ids, Tensor) or ids.ndim != 2:
        return batch
    rows = max(1, tokens // ids.shape[1])
    return {
        name: x[:rows] if isinstance(x, Tensor) and x.shape[:1] == ids.shape[:1] else x for name, x in batch.items()
    }


def _output(model: nn.Module, batch: Inputs) -> Tensor:
    """The first output of the model, without the rows of padding."""
    out: Any = next(tensors_in(Forward(model)(batch)), None)
    if out is None:
        raise MultiheadError(
            f"{type(inner(model)).__name__} returns no tensor", hint="the effect of a head is read from the output"
        )
    mask = batch.get("attention_mask")
    if isinstance(mask, Tensor) and mask.shape == out.shape[:2]:
        out = out[mask.bool()]
    return out.double()


def count_tokens(batch: Inputs) -> int:
    """Real tokens of a batch."""
    mask = batch.get("attention_mask")
    if isinstance(mask, Tensor) and mask.ndim == 2:
        return int(mask.sum())
    return max((x.shape[0] * x.shape[1] for x in batch.values() if isinstance(x, Tensor) and x.ndim > 1), default=0)
