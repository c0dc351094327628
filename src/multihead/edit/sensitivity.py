"""E ‖A ∂y/∂g‖² of every head: how far the model's output moves, to first order, when the head's gate g closes.

y is the model's output and ½ ‖A Δy‖² its distance to the intact model's (`OutputDistance`). The gates, one per head
and document, and the random probes that estimate the norm are those of `multihead.measures.importance.gradients`,
where this is called fisher.

>>> import torch, multihead as mh
>>> from multihead.edit.sensitivity import head_sensitivity
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> batches = [{"src": torch.randn(4, 7, 12)} for _ in range(8)]
>>> sensitivity = head_sensitivity(model, [[mh.anatomy(model)[0]]], batches)
>>> sensitivity["L0"].shape, bool((sensitivity["L0"] > 0).all())
(torch.Size([3]), True)
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from multihead._base.progress import Progress
from multihead.corpus.accumulator import Batch, Inputs
from multihead.corpus.data_parallel import shard
from multihead.corpus.run import BatchRunner
from multihead.edit.weight_sets import WeightSets
from multihead.errors import MultiheadError
from multihead.measures.importance.choose_loss import loss_for
from multihead.measures.importance.gradients import PROBES, Gradients
from multihead.measures.importance.losses import LanguageModel, OutputDistance
from multihead.model.model_inputs import documents_in
from multihead.model.pooling import pooling_of

DOCUMENTS = 256
"""Documents that are enough: every one costs a backward pass for each probe."""


def output_distance(model: nn.Module, batch: Inputs) -> OutputDistance:
    """The distance to the intact model's output: KL of its distribution if it has a head, else of its states.

    The states of an encoder without a head are pooled to one vector per document, as the encoder itself pools them.
    """
    loss = loss_for(model, batch)
    if not isinstance(loss, OutputDistance):
        return OutputDistance("logits", two=isinstance(loss, LanguageModel) and loss.two)
    if loss.of == "hidden" and not loss.two:
        return OutputDistance("sentence", pooling=pooling_of(model))
    return loss


def head_sensitivity(
    model: nn.Module,
    layers: WeightSets,
    batches: Iterable[Inputs],
    *,
    documents: int = DOCUMENTS,
    probes: int = PROBES,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Float64[Tensor, " head"]]:
    """The sensitivity to every head on the first `documents`, by the name of its weight set."""
    first: list[tuple[int, Inputs]] = []
    count = 0
    for index, batch in enumerate(batches):
        if count >= documents:
            break
        first.append((index, batch))
        count += documents_in(batch)
    mine, all_reduce = shard(first)
    shared = {layer.site.key: same[0].site.key for same in layers for layer in same}
    gradients = Gradients(output_distance(model, first[0][1]), probes=probes, seed=seed, shared=shared)
    runner = BatchRunner(model, [gradients])
    for done, (index, batch) in enumerate(mine, start=1):
        runner.run(Batch(batch, index))
        if progress is not None:
            progress("sensitivity", done, len(mine))
    moments, fisher = gradients.moments, 1
    counted = moments.count[fisher].double()
    total = moments.mean[fisher] * counted
    all_reduce(total, counted)
    of_head = dict(zip(gradients.heads, (total / counted.clamp_min(1)).tolist(), strict=True))
    try:
        return {
            same[0].name: torch.tensor([of_head[name] for name in same[0].site.names], dtype=torch.float64)
            for same in layers
        }
    except KeyError as missing:
        raise MultiheadError(
            f"{missing.args[0]} did not run on the calibration text", hint="use text that reaches every layer"
        ) from None
