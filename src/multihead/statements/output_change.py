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

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.nested_tensors import CACHES, tensors_in
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Inputs
from multihead.errors import MultiheadError
from multihead.model.compiled import inner
from multihead.model.forward import Forward
from multihead.model.model_inputs import plain_inputs
from multihead.model.rerun_from_attention import Change
from multihead.model.rerun_strategies import Read, Reruns
from multihead.model.sites import Sites
from multihead.model.token_count import TokenCount

TOKENS = 256
"""Tokens on which heads are ablated one by one."""


@torch.no_grad()
def output_change(
    model: nn.Module, batches: Sequence[Inputs], heads: Sequence[str], sites: Sites
) -> Float[Tensor, " head"]:
    """‖output − output without the head‖² / ‖output‖² over real tokens, of the first batches."""
    forward, reruns = Forward(model), Reruns()
    variants = [{key: _zeroed(some) for key, some in sites.resolve_heads(name).items()} for name in heads]
    changes, size = torch.zeros(len(heads), dtype=torch.float64), 0.0
    for index, batch in enumerate(_first_batches(model, batches)):
        with forward.recording() as recording:
            intact = _first_output(model, forward.run(batch))
            ran = {site.key for site in recording.sites}
            of_batch = [i for i, variant in enumerate(variants) if ran.issuperset(variant)]
            read = _change_from(intact, batch, model)
            unchanged = read(intact)
            measured = reruns.outputs(forward, [variants[i] for i in of_batch], read, unchanged, batch=index)
        for i, change in zip(of_batch, measured, strict=True):
            changes[i] += float(change[:, 0].sum())
        size += float(unchanged[:, 1].sum())
    return changes / size if size else changes


def _zeroed(heads: Sequence[int]) -> Change:
    """The change that sets the outputs of some heads to 0."""

    def change(outputs: HeadOutputs) -> HeadOutputs:
        outputs = outputs.clone()
        outputs[:, heads] = 0.0
        return outputs

    return change


def _change_from(intact: Tensor, batch: Inputs, model: nn.Module) -> Read:
    """Reads how the output changes: squared change and squared size of every row.

    The size is read too, because a strategy of `Reruns` is proven relative to the largest value. Outputs themselves
    would not fit into memory for all heads of a model with a large vocabulary.
    """
    mask = batch.get("attention_mask")
    real = mask.bool() if isinstance(mask, Tensor) and mask.shape == intact.shape[:2] else None

    def squared(x: Tensor) -> Tensor:
        x = x.double().square()
        x = x if real is None else x * real.reshape(*real.shape, *[1] * (x.ndim - 2))
        return x.flatten(1).sum(1) if x.ndim > 1 else x

    def read(output: Any) -> Tensor:
        copies = _first_output(model, output).split(len(intact))
        return torch.cat([torch.stack([squared(copy - intact), squared(intact)], -1) for copy in copies])

    return read


def _first_batches(model: nn.Module, batches: Sequence[Inputs]) -> Iterator[Inputs]:
    """Batches with about so many tokens in all, to measure the output change on."""
    tokens_in, count = TokenCount(model, whole=True), 0
    for batch in batches:
        if count >= TOKENS:
            break
        rows = _first_rows(batch, TOKENS)
        count += tokens_in(rows)
        yield plain_inputs(model, rows)  # with labels the first output would be a loss


def _first_rows(batch: Inputs, tokens: int) -> Inputs:
    """The first rows of a batch of token ids, with about so many tokens, to measure the output change on."""
    ids = batch.get("input_ids")
    if not isinstance(ids, Tensor) or ids.ndim != 2:
        return batch
    rows = max(1, tokens // ids.shape[1])
    return {
        name: x[:rows] if isinstance(x, Tensor) and x.shape[:1] == ids.shape[:1] else x for name, x in batch.items()
    }


def _first_output(model: nn.Module, output: Any) -> Tensor:
    """The first tensor of a model's output, whose change is measured."""
    first = next(tensors_in(output, objects=CACHES), None)
    if first is None:
        raise MultiheadError(
            f"{type(inner(model)).__name__} returns no tensor", hint="the effect of a head is read from the output"
        )
    return first
