"""How far a cut model is from the original on a batch: the loss of distillation.

    loss = mean over blocks of Σ‖h_S − h_T‖² / Σ‖h_T‖²  +  distance of the outputs

h are the outputs of the blocks that hold attention, over real tokens. Outputs are compared by the KL divergence of
logits, else by the cosine of mean-pooled vectors.

>>> import torch, multihead as mh
>>> from multihead.edit.distill_loss import DistillLoss
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 2, 24, 0, batch_first=True), 2).eval()
>>> batch = {"src": torch.randn(3, 7, 12)}
>>> same = DistillLoss(model, model, mh.anatomy(model, batch), batch)
>>> bool(same(batch).abs() < 1e-6)
True
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from multihead.corpus.accumulator import Inputs
from multihead.measures.importance.losses import OutputDistance, Seen, Target, tensor_in
from multihead.model.compiled import inner
from multihead.model.forward import Forward
from multihead.model.layer_anatomy import LayerAnatomy
from multihead.model.model_inputs import is_encoder_decoder

_BLOCK = re.compile(r"^(.*\.)?\d+(?=\.|$)")


class DistillLoss:
    """Teacher and student on the same batch, and how far they are apart."""

    def __init__(
        self, teacher: nn.Module, student: nn.Module, layers: Iterable[LayerAnatomy], example: Inputs
    ) -> None:
        """`example`: a batch that shows whether the model returns logits."""
        self.teacher, self.student = Forward(inner(teacher)), Forward(inner(student))
        self.learning_student = Forward(inner(student), grad=True, learning=True)
        two = is_encoder_decoder(teacher)
        self.blocks = numbered_blocks(layers)
        self.hidden, self.output = OutputDistance("hidden", two=two), OutputDistance("sentence", two=two)
        if getattr(self.teacher(example), "logits", None) is not None:
            self.output = OutputDistance("logits", two=two)

    def __call__(self, batch: Inputs) -> Tensor:
        """The loss of a batch, the mean over its documents."""
        student = self.learning_student if torch.is_grad_enabled() else self.student
        (hidden_T, output_T), (hidden_S, output_S) = self._run(self.teacher, batch), self._run(student, batch)
        total = _mean(self.output, output_S, self.output.target(batch, batch, output_T))
        apart = [
            _mean(self.hidden, hidden_S[b], self.hidden.target(batch, batch, hidden_T[b]))
            for b in self.blocks
            if b in hidden_T
        ]
        return total + torch.stack(apart).mean() if apart else total

    def over(self, batches: Iterable[Inputs]) -> float:
        """The distillation loss over batches, a mean without gradients."""
        with torch.no_grad():
            losses = [float(self(batch)) for batch in batches]
        return sum(losses) / len(losses)

    def _run(self, forward: Forward, batch: Inputs) -> tuple[dict[str, Seen], Seen]:
        """What the distillation loss compares: (outputs of the blocks, output of the model)."""
        hidden: dict[str, Seen] = {}
        with _recorded(forward.model, self.blocks, hidden):
            output = forward(batch)
        return hidden, self.output.read(output)


def _mean(how: OutputDistance, new: Seen, target: Target) -> Tensor:
    return how.documents(new, target)[target.counts].mean()


@contextmanager
def _recorded(model: nn.Module, paths: Sequence[str], seen: dict[str, Seen]) -> Generator[None]:
    """Inside the block, `seen` gets the first tensor of what each of these modules returns, for the loss."""

    def keep(path: str, _: nn.Module, __: Any, output: Any) -> None:
        seen[path] = tensor_in(output)

    hooks = [model.get_submodule(path).register_forward_hook(partial(keep, path)) for path in paths]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def numbered_blocks(layers: Iterable[LayerAnatomy]) -> list[str]:
    """The numbered blocks that attention is in: `encoder.layer.3` of `encoder.layer.3.attention.self`."""
    return list(dict.fromkeys(match.group() for layer in layers if (match := _BLOCK.match(layer.path))))
