"""How good a model is without its least important heads: they are ablated together, as pruning does.

>>> import torch
>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from multihead.page.curve import quick_curve
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> batch = {"input_ids": torch.tensor([[3, 1, 4, 1, 5]])}
>>> found = quick_curve(model, [batch], ["L0H1", "L1H2", "L0H0", "L0H2", "L1H0", "L1H1"], points=3)
>>> [point["kept"] for point in found["curves"][0]["points"]][0]
6
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from torch import nn

from multihead.corpus.accumulator import Batch
from multihead.measures.importance.choose_loss import loss_of
from multihead.measures.importance.losses import Loss, Target
from multihead.model.forward import Forward
from multihead.model.interventions import ablate

LOST = 0.05
"""Share of quality that may go for a head to be called one that can go."""


def quick_curve(
    model: nn.Module,
    read: Sequence[Batch],
    order: Sequence[str],
    *,
    tokenizer: Any = None,
    points: int = 11,
    lost: float = LOST,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Quality against heads kept, the heads of `order` going from its front; and how many can go for `lost`.

    Quality lost is the growth of perplexity, or, for a model without a vocabulary, the squared distance of its
    outputs to its own, relative to their size. Nothing is trained or fitted: a real cut does better.
    """
    curve = _Curve(model, read, loss_of(None, model, read[0], tokenizer, seed=seed))
    count = len(order)
    steps = sorted({round(count * i / points) for i in range(points)})
    asked = len(steps) + max(1, math.ceil(math.log2(max(2, count // points + 1))))
    found: dict[int, float] = {}

    def lost_without(goes: int) -> float:
        if goes not in found:
            found[goes] = curve.lost(order[:goes])
            if progress is not None:
                progress(len(found), max(asked, len(found)))
        return found[goes]

    for goes in steps:
        lost_without(goes)
    low = max((g for g in steps if found[g] <= lost), default=0)
    high = min((g for g in steps if g > low), default=count)
    while high - low > 1:  # between two points of the curve: the quality lost mostly grows with every head
        middle = (low + high) // 2
        low, high = (middle, high) if lost_without(middle) <= lost else (low, middle)
    line = [{"kept": count - g, "lost": found[g], "gone": g} for g in sorted(found)]
    return {
        "curves": [{"method": "least important first, nothing refitted", "points": line, "order": list(order)}],
        "unit": curve.unit,
        "loss": curve.loss.name,
        "prunable": low,
        "limit": lost,
    }


class _Curve:
    """The loss of a model over some batches, with heads ablated; the intact model's is taken first."""

    def __init__(self, model: nn.Module, read: Sequence[Batch], loss: Loss) -> None:
        self.model, self.read, self.loss = model, read, loss
        self.targets: list[Target] = []
        self.intact = self._mean([])

    @property
    def unit(self) -> str:
        return "distance of the outputs (share of their size, squared)" if self.loss.own else "growth of perplexity"

    def lost(self, gone: Sequence[str]) -> float:
        """Share of quality that is lost without these heads."""
        more = self._mean(gone) - self.intact if gone else 0.0
        return more if self.loss.own else math.expm1(min(more, 50.0))

    def _mean(self, gone: Sequence[str]) -> float:
        """The mean over documents."""
        total, documents = 0.0, 0
        for index, batch in enumerate(self.read):
            inputs = self.loss.inputs(batch, index)
            with ablate(self.model, list(gone)) if gone else nullcontext():
                seen = self.loss.read(Forward(self.model)(inputs))
            if index == len(self.targets):
                self.targets.append(self.loss.target(batch, inputs, seen))
            target = self.targets[index]
            each = self.loss.checked(seen, target, index)[target.counts]
            total, documents = total + float(each.sum()), documents + len(each)
        return total / max(documents, 1)
