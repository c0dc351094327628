"""Run a model in eval mode: dropout off, running statistics frozen, no gradients of its parameters.

>>> import torch
>>> from multihead._base.eval_mode import eval_mode
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True)
>>> with eval_mode(model) as notes:
...     _ = model(torch.ones(1, 5, 12))
>>> notes
['the model was in training mode; it was measured in eval mode, without dropout']
>>> model.training, model.linear1.weight.requires_grad
(True, True)
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from torch import nn


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
