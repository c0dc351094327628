"""What a cut cost: the same held-out text through both models, and how far their answers are apart.

- models that give vectors (sentence encoders): the mean cosine of mean-pooled vectors, and nn10, the overlap of the
  ten nearest neighbours of every document, which is the more sensitive of the two;
- language models: perplexity of both, and how often the likeliest next token is the same;
- others: the relative error of the output, and how often its largest number is at the same place.

>>> import torch
>>> from multihead.edit.checking.quality import neighbours_kept
>>> x = torch.randn(23, 5, generator=torch.Generator().manual_seed(0))
>>> neighbours_kept(x, 3 * x), neighbours_kept(x, x.roll(1, 0)) < 0.8
(1.0, True)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from multihead.corpus.accumulator import Inputs
from multihead.corpus.batches import Document, batches
from multihead.edit.calibration import PIECE, Progress
from multihead.edit.surgery.record import texts_of
from multihead.edit.text_sketch import documents_of
from multihead.errors import MultiheadError
from multihead.measures.importance.choose_loss import loss_for
from multihead.measures.importance.losses import IGNORED, LanguageModel, OutputDistance, tensor_in
from multihead.model.call_tokens import learned_positions
from multihead.model.compiled import inner
from multihead.model.forward import Forward

NEIGHBOURS = 10
FEWEST = 2 * NEIGHBOURS + 1
"""Documents from which on nn10 says anything."""

Kind = Literal["vectors", "language model", "outputs"]
Vectors = Float[Tensor, "document width"]


@dataclass(frozen=True)
class Quality:
    """Numbers by name, (of the original, of the cut model): an original beside itself has cosine 1 and error 0."""

    kind: Kind
    numbers: Mapping[str, tuple[float, float]]
    documents: int
    tokens: int
    notes: tuple[str, ...] = ()
    fitted_to: int = 0
    """of the documents, how many the cut was made with: they flatter it"""


def quality(
    before: nn.Module,
    after: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    batch_size: int = 16,
    max_tokens: int | None = None,
    progress: Progress | None = None,
) -> Quality:
    """Both models on the same documents; of documents nothing is held but one vector each."""
    piece = min(PIECE, learned_positions(before) or PIECE) if max_tokens is None else max_tokens
    read = list(batches(before, data, tokenizer=tokenizer, batch_size=batch_size, max_tokens=piece))
    kind = kind_of(before, read[0], tokenizer)
    sums = {"vectors": _Vectors, "language model": _LanguageModel, "outputs": _Outputs}[kind](before)
    original, cut = Forward(before), Forward(after)
    with original.listening(), cut.listening():
        for i, batch in enumerate(read):
            sums.add(batch, original.run(batch), cut.run(batch))
            if progress is not None:
                progress("quality", i + 1, len(read))
    numbers, notes = sums.numbers()
    documents = [document for batch in read for document in documents_of(batch)]
    fitted_to = min(len(documents), sum(sketch.overlap(documents) for sketch in texts_of(after)))
    if fitted_to:
        notes.append(
            f"{fitted_to} of {sums.documents} documents are calibration text of this cut, which flatters it: "
            "judge it by others"
        )
    return Quality(kind, numbers, sums.documents, sums.tokens, tuple(notes), fitted_to)


def kind_of(model: nn.Module, batch: Inputs, tokenizer: Any = None) -> Kind:
    """What a model's answers are, by what it puts out and how it behaves."""
    loss = loss_for(model, batch, tokenizer)
    if isinstance(loss, LanguageModel):
        return "language model"
    return "vectors" if isinstance(loss, OutputDistance) and loss.of == "hidden" else "outputs"


def neighbours_kept(before: Vectors, after: Vectors, count: int = NEIGHBOURS, rows: int = 512) -> float:
    """The mean share of a document's `count` nearest others, by cosine, that are the same; rows at a time."""
    sides = [F.normalize(x.double(), dim=1) for x in (before, after)]
    found = 0
    for start in range(0, len(before), rows):
        near = [_near(x, slice(start, start + rows), count) for x in sides]
        found += int((near[0][:, :, None] == near[1][:, None, :]).sum())
    return found / (count * len(before))


def _near(x: Vectors, rows: slice, count: int) -> Tensor:
    like = x[rows] @ x.T
    at = torch.arange(len(like), device=x.device)
    like[at, at + rows.start] = -math.inf  # not itself
    return like.topk(count, dim=1).indices


class _Sums:
    """What is kept of the batches."""

    def __init__(self, model: nn.Module) -> None:
        two = bool(getattr(getattr(inner(model), "config", None), "is_encoder_decoder", False))
        self.whole = OutputDistance("hidden", two=two)
        self.two, self.documents, self.tokens = two, 0, 0
        self.apart = self.size = 0.0

    def add(self, batch: Inputs, old: Any, new: Any) -> None:
        raise NotImplementedError

    def numbers(self) -> tuple[dict[str, tuple[float, float]], list[str]]:
        raise NotImplementedError

    def _compared(self, batch: Inputs, before: Tensor, after: Tensor) -> Tensor | None:
        """Count the batch and its error; which tokens are real, None: all."""
        if before.shape != after.shape:
            raise MultiheadError(
                f"the models put out shapes {tuple(before.shape)} and {tuple(after.shape)}",
                hint="check compares a model with a cut copy of it",
            )
        real = self.whole.target(batch, batch, before).real
        kept = (before.double(), after.double()) if real is None else (before[real].double(), after[real].double())
        self.apart += float((kept[0] - kept[1]).square().sum())
        self.size += float(kept[0].square().sum())
        self.documents += before.shape[0]
        self.tokens += before.shape[:2].numel() if real is None else int(real.sum())
        return real

    def _error(self) -> tuple[float, float]:
        return 0.0, math.sqrt(self.apart / self.size) if self.size else 0.0


class _Vectors(_Sums):
    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.pooled: tuple[list[Tensor], list[Tensor]] = ([], [])

    def add(self, batch: Inputs, old: Any, new: Any) -> None:
        seen = [tensor_in(x, "last_hidden_state") for x in (old, new)]
        real = self._compared(batch, seen[0], seen[1])
        for side, x in zip(self.pooled, seen, strict=True):
            side.append(_pooled(x.float(), real))

    def numbers(self) -> tuple[dict[str, tuple[float, float]], list[str]]:
        before, after = (torch.cat(side) for side in self.pooled)
        found = {"cosine": (1.0, float(F.cosine_similarity(before, after, dim=1).double().mean()))}
        notes: list[str] = []
        if len(before) >= FEWEST:
            found["nn10"] = (1.0, neighbours_kept(before, after))
        else:
            notes.append(f"nn10 needs {FEWEST} documents or more, there are {len(before)}")
        return found | {"relative_error": self._error()}, notes


class _LanguageModel(_Sums):
    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.loss = LanguageModel(two=self.two)
        self.missed = [0.0, 0.0]
        self.same = self.predicted = 0

    def add(self, batch: Inputs, old: Any, new: Any) -> None:
        seen = [tensor_in(x, "logits") for x in (old, new)]
        self._compared(batch, seen[0], seen[1])
        labels = self.loss.target(batch, batch, seen[0]).what
        for side, x in enumerate(seen):
            each = F.cross_entropy(x.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum")
            self.missed[side] += float(each)
        counts = labels != IGNORED
        self.predicted += int(counts.sum())
        self.same += int((seen[0].argmax(-1) == seen[1].argmax(-1))[counts].sum())

    def numbers(self) -> tuple[dict[str, tuple[float, float]], list[str]]:
        if not self.predicted:
            raise MultiheadError("no document has two tokens, so nothing is predicted", hint="longer texts")
        before, after = (_exp(x / self.predicted) for x in self.missed)
        return {"perplexity": (before, after), "agreement": (1.0, self.same / self.predicted)}, []


class _Outputs(_Sums):
    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.same = self.asked = 0

    def add(self, batch: Inputs, old: Any, new: Any) -> None:
        before, after = (tensor_in(x, "logits") for x in (old, new))
        real = self._compared(batch, before, after)
        same = before.argmax(-1) == after.argmax(-1)
        same = same if real is None else same[real]
        self.same, self.asked = self.same + int(same.sum()), self.asked + same.numel()

    def numbers(self) -> tuple[dict[str, tuple[float, float]], list[str]]:
        return {"relative_error": self._error(), "agreement": (1.0, self.same / max(1, self.asked))}, []


def _pooled(x: Tensor, real: Tensor | None) -> Vectors:
    """The mean over real tokens."""
    if x.ndim == 2:
        return x
    if real is None:
        return x.flatten(1, -2).mean(1)
    weight = real[..., None].to(x)
    return (x * weight).sum(1) / weight.sum(1).clamp_min(1.0)


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
