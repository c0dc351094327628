"""Run a model in eval mode: dropout off, running statistics frozen, no gradients of its parameters.

>>> import torch
>>> from multihead.model.eval_mode import eval_mode
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True)
>>> with eval_mode(model) as notes:
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

from torch import Tensor, nn

from multihead.model.compiled import inner


@contextmanager
def eval_mode(model: nn.Module, *, freeze: bool = True) -> Generator[list[str]]:
    """Eval mode inside the block, with frozen parameters if `freeze`; restores both after it.

    Yields a list of notes on the changes made. Without gradients nothing needs to be frozen, and freezing has an
    effect: torch may multiply by a frozen weight in a different order, which changes the last bits.
    """
    training = [m for m in model.modules() if m.training]
    trainable = [p for p in model.parameters() if freeze and p.requires_grad and not p.is_inference()]
    try:
        for module in training:
            module.training = False
        for parameter in trainable:
            parameter.requires_grad = False
        yield ["the model was in training mode; it was measured in eval mode, without dropout"] if training else []
    finally:
        for module in training:
            module.training = True
        for parameter in trainable:
            parameter.requires_grad = True


def plain_inputs(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs without labels, so the model computes no loss; kept if the model needs them as decoder inputs."""
    encoder_decoder = bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    keep_labels = encoder_decoder and "decoder_input_ids" not in batch
    return without_cache(model, {name: x for name, x in batch.items() if name != "labels" or keep_labels})


def without_cache(model: nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs with the cache switched off: otherwise a second run would append to its keys and values."""
    if getattr(getattr(model, "config", None), "use_cache", None) is not True:
        return inputs
    return {"use_cache": False} | inputs if takes_argument(model, "use_cache") else inputs


def takes_argument(model: nn.Module, name: str) -> bool:
    """Whether a model can be called with this argument."""
    parameters = inspect.signature(inner(model).forward).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def documents_in(batch: Mapping[str, Any]) -> int:
    """The number of documents in a batch: the length of the first axis of its first tensor."""
    return next((x.shape[0] for x in batch.values() if isinstance(x, Tensor) and x.ndim), 1)
