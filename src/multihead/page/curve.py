"""How good a model is without its least important heads: they are ablated together, as pruning does.

>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from multihead.corpus.documents import Corpus
>>> from multihead.measures.importance.losses import LanguageModel
>>> from multihead.page.curve import quick_curve
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=50)).eval()
>>> corpus, order = Corpus(model, [[3, 1, 4, 1, 5]]), ["L0H1", "L1H2", "L0H0", "L0H2", "L1H0", "L1H1"]
>>> found = quick_curve(model, corpus, order, LanguageModel(), points=3)
>>> [point["kept"] for point in found["curves"][0]["points"]][0]
6
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from multihead.corpus.accumulator import Accumulator, Batch, BatchRun, Inputs, State
from multihead.corpus.documents import Corpus
from multihead.corpus.run import run
from multihead.measures.importance.ablation import LossChanges
from multihead.measures.importance.losses import Loss
from multihead.model.reruns import Reruns

LIMIT = 0.05
"""The share of quality that may be lost for heads to be called prunable."""


def quick_curve(
    model: nn.Module,
    corpus: Corpus,
    order: Sequence[str],
    loss: Loss,
    *,
    points: int = 11,
    limit: float = LIMIT,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Quality against the number of heads kept, `order` being pruned from its front; and how many fit in `limit`.

    Lost quality is the growth of perplexity, or, for a model without a vocabulary, the squared distance of its
    outputs to its own, relative to their size. Nothing is trained or fitted: real pruning does better.
    """
    count, lost = len(order), dict[int, float]()
    reruns = Reruns()  # one for all passes: a strategy is proven once

    def measure(counts: Sequence[int]) -> None:
        ablated = AblatedSets(loss, [order[:pruned] for pruned in counts], reruns)
        run(model, corpus, [ablated], progress=progress)
        more = ablated.increase()
        lost.update(zip(counts, more if loss.own else [math.expm1(min(x, 50.0)) for x in more], strict=True))

    steps = sorted({round(count * i / points) for i in range(points)})
    lost[0] = 0.0
    measure([pruned for pruned in steps if pruned])
    low = max(pruned for pruned in steps if lost[pruned] <= limit)
    high = min((pruned for pruned in steps if pruned > low), default=count)
    while high - low > 1:  # between two points of the curve: the loss mostly grows with every head
        middle = (low + high) // 2
        measure([middle])
        low, high = (middle, high) if lost[middle] <= limit else (low, middle)
    line = [{"kept": count - pruned, "lost": lost[pruned], "gone": pruned} for pruned in sorted(lost)]
    unit = "distance of the outputs (share of their size, squared)" if loss.own else "growth of perplexity"
    return {
        "curves": [{"method": "least important first, nothing refitted", "points": line, "order": list(order)}],
        "unit": unit,
        "loss": loss.name,
        "prunable": low,
        "limit": limit,
    }


class AblatedSets(Accumulator):
    """The mean loss over documents with each of some sets of heads ablated, and with none."""

    name = "curve"
    record = True

    def __init__(self, loss: Loss, sets: Sequence[Sequence[str]], reruns: Reruns | None = None) -> None:
        super().__init__()
        self.loss, self.changes = loss, LossChanges(loss, reruns=reruns)
        self.sets = list(sets)
        self.forwards = 1.0 + len(sets)
        self.documents = 0
        self.total = torch.zeros(len(sets) + 1, dtype=torch.double)  # the intact model last

    def inputs(self, batch: Batch) -> Inputs:
        return self.loss.inputs(batch.inputs, batch.index)

    def end(self, batch: Batch, run: BatchRun) -> None:
        seen, target, intact = self.changes.intact(batch, run)
        ablated = [(run.forward.sites.resolve_heads(heads), "zero") for heads in self.sets]
        losses = self.changes.without(batch, run, ablated, seen, target)
        counted = torch.cat([losses, intact[None]])[:, target.counts]
        self.total = self.total + counted.sum(1).cpu()
        self.documents += counted.shape[1]

    def increase(self) -> list[float]:
        """By how much the mean loss grows without each set."""
        mean = self.total / max(self.documents, 1)
        return (mean[:-1] - mean[-1]).tolist()

    def merge(self, later: AblatedSets) -> None:
        self.total, self.documents = self.total + later.total, self.documents + later.documents

    def state(self) -> State:
        return {"total": self.total.clone(), "documents": self.documents}

    def load(self, state: State) -> None:
        self.total, self.documents = state["total"], int(state["documents"])
