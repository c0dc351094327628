"""How far a cut model is from the original on a batch: what healing makes smaller.

    loss = hidden · mean over blocks of Σ‖h_S − h_T‖² / Σ‖h_T‖²  +  what comes out  +  relations · KL(p_T ‖ p_S)

h are the outputs of the blocks that hold attention, over real tokens. What comes out is compared as KL of logits,
else by the cosine of mean-pooled vectors; there relations count too: p = softmax over documents j of
cos(own vector, the original's vector of j) / τ, what the nearest documents are (after Koohpayegani et al. 2020, who
distil the similarity to a set of anchors). Logits have no such part: relations are of pooled vectors.

>>> import torch, multihead as mh
>>> from multihead.edit.fitting.distance import Distance
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 2, 24, 0, batch_first=True), 2).eval()
>>> batch = {"src": torch.randn(3, 7, 12)}
>>> same = Distance(model, model, mh.anatomy(model, batch), [batch])
>>> bool(same(batch).abs() < 1e-6)
True
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from multihead.corpus.accumulator import Inputs
from multihead.measures.importance.losses import OutputDistance, Seen, Target, tensor_in
from multihead.model.anatomy import LayerAnatomy
from multihead.model.compiled import inner
from multihead.model.forward import Forward

ANCHORS = 1024
"""Documents that others are near to or far from; more are not kept."""
TEMPERATURE = 0.05
"""Of cosines: the few nearest of a thousand documents are what counts."""

_BLOCK = re.compile(r"^(.*\.)?\d+(?=\.|$)")

Vectors = Float[Tensor, "document width"]


class Distance:
    """Teacher and student on the same batch, and how far they are apart: a number to go down from."""

    def __init__(
        self,
        teacher: nn.Module,
        student: nn.Module,
        layers: Iterable[LayerAnatomy],
        batches: Iterable[Inputs],
        *,
        hidden: float = 1.0,
        relations: float = 0.0,
    ) -> None:
        """`batches` of text: the first says what the model puts out, and all are what relations are to."""
        self.teacher, self.student = Forward(inner(teacher)), Forward(inner(student))
        self.learning_student = Forward(inner(student), grad=True, learning=True)
        self.hidden, self.relations = hidden, relations
        two = bool(getattr(getattr(inner(teacher), "config", None), "is_encoder_decoder", False))
        self.blocks = blocks_of(layers) if hidden else []
        self.inside, self.outside = OutputDistance("hidden", two=two), OutputDistance("sentence", two=two)
        read = iter(batches)
        first = next(read)
        if getattr(self.teacher(first), "logits", None) is not None:
            self.outside, self.relations = OutputDistance("logits", two=two), 0.0
        self.anchors = self._anchors(chain([first], read)) if self.relations else None

    def __call__(self, batch: Inputs) -> Tensor:
        """The loss of a batch, the mean over its documents."""
        student = self.learning_student if torch.is_grad_enabled() else self.student
        (there, old), (here, new) = self._run(self.teacher, batch), self._run(student, batch)
        target = self.outside.target(batch, batch, old)
        total = _mean(self.outside, new, target)
        if self.anchors is not None:
            total = total + self.relations * self._related(new, target)
        if self.blocks:
            apart = [
                _mean(self.inside, here[b], self.inside.target(batch, batch, there[b]))
                for b in self.blocks
                if b in there
            ]
            total = total + self.hidden * torch.stack(apart).mean()
        return total

    def over(self, batches: Iterable[Inputs]) -> float:
        """The mean over batches, without gradients."""
        with torch.no_grad():
            found = [float(self(batch)) for batch in batches]
        return sum(found) / len(found)

    def _related(self, new: Seen, target: Target) -> Tensor:
        """KL between how the teacher's vector of a document and the student's are like those of the anchors."""
        assert self.anchors is not None
        old, own = (self._near(self.outside.pooled(x, target)) for x in (target.what, new.to(target.what.dtype)))
        return (old.exp() * (old - own)).sum(1)[target.counts].mean()

    def _near(self, vectors: Vectors) -> Float[Tensor, "document anchor"]:
        assert self.anchors is not None
        return (F.normalize(vectors, dim=1) @ self.anchors.T / TEMPERATURE).log_softmax(1)

    def _anchors(self, batches: Iterator[Inputs]) -> Vectors:
        """The teacher's vectors of documents, of length 1."""
        found: list[Tensor] = []
        for batch in batches:
            seen = self.outside.read(self.teacher(batch))
            target = self.outside.target(batch, batch, seen)
            found.append(F.normalize(self.outside.pooled(target.what, target), dim=1)[target.counts])
            if sum(map(len, found)) >= ANCHORS:
                break
        return torch.cat(found)[:ANCHORS]

    def _run(self, forward: Forward, batch: Inputs) -> tuple[dict[str, Seen], Seen]:
        """(Outputs of the blocks, output of the model.)"""
        seen: dict[str, Seen] = {}
        with _watched(forward.model, self.blocks, seen):
            output = forward(batch)
        return seen, self.outside.read(output)


def _mean(how: OutputDistance, new: Seen, target: Target) -> Tensor:
    return how.documents(new, target)[target.counts].mean()


@contextmanager
def _watched(model: nn.Module, paths: Sequence[str], seen: dict[str, Seen]) -> Generator[None]:
    """Within the block, `seen` gets the first tensor of what each of these modules returns."""

    def keep(path: str, _: nn.Module, __: Any, output: Any) -> None:
        seen[path] = tensor_in(output)

    hooks = [model.get_submodule(path).register_forward_hook(partial(keep, path)) for path in paths]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def blocks_of(layers: Iterable[LayerAnatomy]) -> list[str]:
    """The repeated blocks that attention lives in: `encoder.layer.3` of `encoder.layer.3.attention.self`."""
    found = [match.group() for layer in layers if (match := _BLOCK.match(layer.path))]
    return list(dict.fromkeys(found))
