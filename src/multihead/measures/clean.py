"""A model as it is when nobody trains it: no dropout, no averages that run, no gradients of its parameters.

>>> import torch
>>> from multihead.measures.clean import clean
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True)
>>> with clean(model) as notes:
...     _ = model(torch.ones(1, 5, 12))
>>> notes
['the model was in training mode; it was measured in eval mode, without dropout']
>>> model.training, model.linear1.weight.requires_grad
(True, True)
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def clean(model: nn.Module) -> Generator[list[str]]:
    """Within the block the model is in eval mode and its parameters need no gradients; afterwards it is as it was.

    The block is given a list of what had to be changed, in words.
    """
    training = [m for m in model.modules() if m.training]
    learning = [p for p in model.parameters() if p.requires_grad and not p.is_inference()]
    try:
        for module in training:
            module.training = False
        for parameter in learning:
            parameter.requires_grad = False
        yield ["the model was in training mode; it was measured in eval mode, without dropout"] if training else []
    finally:
        for module in training:
            module.training = True
        for parameter in learning:
            parameter.requires_grad = True


def plain_inputs(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any]:
    """What a model is called with when nobody asks for a loss: labels only where it makes its input of them."""
    two = bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    kept = {name: x for name, x in batch.items() if name != "labels" or (two and "decoder_input_ids" not in batch)}
    return without_cache(model, kept)


def without_cache(model: nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
    """No keys and values of a cache, which a second run would add to."""
    if getattr(getattr(model, "config", None), "use_cache", None) is not True:
        return inputs
    takes = inspect.signature(model.forward).parameters
    named = "use_cache" in takes or any(p.kind is p.VAR_KEYWORD for p in takes.values())
    return {"use_cache": False} | inputs if named else inputs


def documents_in(batch: Mapping[str, Any]) -> int:
    """Rows of a batch: the length of the first axis of its first tensor."""
    return next((x.shape[0] for x in batch.values() if isinstance(x, Tensor) and x.ndim), 1)


def drawn(seed: int, index: int, *more: int) -> torch.Generator:
    """A generator of (seed, index of the batch, ...): the same numbers whatever ran before."""
    mixed = 0
    for number in (seed, index, *more):
        mixed = (mixed * 1_000_003 + number + 1) % (1 << 61)
    return torch.Generator().manual_seed(mixed)
