"""The metrics of a check, and those of quality: both models run on the same held-out text.

- models that return vectors (sentence encoders): the mean cosine of pooled vectors, and nn10, the overlap of the
  ten nearest neighbours of every document, which is the more sensitive of the two;
- language models: perplexity of both, and how often the most likely next token is the same;
- others: the relative error of the output, and how often its largest value has the same index.

>>> import torch
>>> from multihead.edit.check.metrics import METRICS, neighbours_kept
>>> METRICS["perplexity"].lost(20.0, 21.0), METRICS["nn10"].lost(1.0, 0.75)
(0.05, 0.25)
>>> x = torch.randn(23, 5, generator=torch.Generator().manual_seed(0))
>>> neighbours_kept(x, 3 * x), neighbours_kept(x, x.roll(1, 0)) < 0.8
(1.0, True)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from multihead._base.arguments import check_data, check_function, check_instance, check_model
from multihead._base.progress import Progress
from multihead.corpus.accumulator import Inputs
from multihead.corpus.batches import BATCH_SIZE, Document, batches, vocabulary_size
from multihead.edit.calibration import PIECE
from multihead.edit.surgery.record import calibration_overlap
from multihead.edit.text_sketch import whole_documents
from multihead.errors import MultiheadError, SizeError
from multihead.measures.importance.choose_loss import loss_for
from multihead.measures.importance.losses import IGNORED, LanguageModel, OutputDistance, real_tokens, tensor_in
from multihead.model.forward import Forward
from multihead.model.model_inputs import is_encoder_decoder
from multihead.model.pooling import Pooling, pooling_of
from multihead.model.token_limit import learned_positions
from multihead.table.condition import Condition

Pair = tuple[float, float]
"""A value of the original, and of the cut model."""


# ---- the table --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A value that is compared: what it is called, which way is better, and how it is written.

    Args:
        loss: what a cut loses of it, in words.
        ratio: whether a loss is a ratio to the original's value; such values are drawn on a logarithmic axis.
    """

    label: str
    of: Literal["size", "quality", "speed"]
    better: Literal["higher", "lower"]
    unit: str = ""
    spec: str = ".4g"
    loss: str = ""
    ratio: bool = False

    def lost(self, before: float, after: float) -> float:
        """How much worse the cut model is; negative if it is better."""
        worse = after - before if self.better == "lower" else before - after
        return round(worse / before, 12) if self.ratio else worse

    def format(self, x: float) -> str:
        return f"{x:{self.spec}}".replace(",", " ") + self.unit


_COUNT = ",.0f"
METRICS = {
    "parameters": Metric("parameters", "size", "lower", spec=_COUNT),
    "attention_parameters": Metric("parameters of attention", "size", "lower", spec=_COUNT),
    "heads": Metric("heads", "size", "lower", spec=_COUNT),
    "kv_heads": Metric("kv heads", "size", "lower", spec=_COUNT),
    "kv_bytes": Metric("KV cache", "size", "lower", " B", _COUNT),
    "nn10": Metric("10 nearest neighbours kept", "quality", "higher", loss="nearest neighbours lost"),
    "perplexity": Metric("perplexity", "quality", "lower", loss="growth of perplexity", ratio=True),
    "cosine": Metric("cosine of pooled vectors", "quality", "higher", loss="cosine lost"),
    "relative_error": Metric(
        "relative error of the output", "quality", "lower", loss="relative error of the output"
    ),
    "agreement": Metric("same most likely output", "quality", "higher", loss="agreement lost"),
    "speed_model": Metric("whole model", "speed", "higher", "×", ".2f"),
    "speed_attention": Metric("attention layers alone", "speed", "higher", "×", ".2f"),
}  # fmt: skip
"""Every metric by its name. Of those of quality, a curve draws the first that was measured."""


def check_metric(name: str, measured: Iterable[str] = METRICS) -> None:
    """Raise unless a metric has this name and is among the measured ones."""
    check_instance("the name of a metric", name, str, "a text", hint="'nn10'")
    if name not in METRICS:
        close = get_close_matches(name, METRICS, n=2)
        hint = f"did you mean {' or '.join(close)}?" if close else f"the metrics are {', '.join(METRICS)}"
        raise SizeError(f"unknown metric {name!r}", hint=hint)
    names = list(measured)
    if name not in names:
        timing = "timing needs rounds of 1 or more; " if METRICS[name].of == "speed" else ""
        raise SizeError(f"{name} was not measured", hint=f"{timing}measured: {', '.join(names)}")


def read_condition(condition: str | Condition, measured: Iterable[str] = METRICS) -> Condition:
    """A condition such as `nn10<0.8` or `perplexity:relative>5%`, checked: a measured metric against a number."""
    hint = "'nn10<0.8', 'perplexity:relative>5%'"
    check_instance("a condition", condition, str | Condition, "text", hint=hint)
    parsed = Condition.of(condition) if isinstance(condition, str) else condition
    check_metric(parsed.column, measured)
    if parsed.how == "changed" or isinstance(parsed.value, str):
        raise SizeError(f"{parsed!r} must compare a metric with a number", hint=hint)
    return parsed


# ---- quality ----------------------------------------------------------------------------------

NEIGHBOURS = 10
MIN_DOCUMENTS = 2 * NEIGHBOURS + 1
"""With fewer documents, nn10 is not measured: most documents would be neighbours by chance."""
BLOCK = 2**24
"""Values of an output that are widened to fp32 at a time: logits of a batch may be gigabytes."""

Kind = Literal["vectors", "language model", "outputs"]
Vectors = Float[Tensor, "document width"]
Output = Float[Tensor, "document *token width"]


@dataclass(frozen=True)
class Quality:
    """Metrics by name: a model compared with itself has cosine 1 and relative error 0."""

    kind: Kind
    metrics: Mapping[str, Pair]
    documents: int
    tokens: int
    """0 if the model returns a row for each document"""
    notes: tuple[str, ...] = ()
    calibration_overlap: int = 0
    """documents that the cut was fitted to, which makes it look better than it is"""
    pooling: str = ""
    """how vectors are pooled; empty for other kinds"""


def quality(
    before: nn.Module,
    after: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    batch_size: int = BATCH_SIZE,
    max_tokens: int | None = None,
    progress: Progress | None = None,
) -> Quality:
    """Run both models on the same documents and compare their outputs; one vector per document is kept."""
    check_pair(before, after)
    check_data(data)
    check_function("progress", progress)
    documents: list[Any] = [data] if isinstance(data, Mapping) else list(data)
    piece = min(PIECE, learned_positions(before) or PIECE) if max_tokens is None else max_tokens
    prepared = list(batches(before, documents, tokenizer=tokenizer, batch_size=batch_size, max_tokens=piece))
    longest = max(prepared, key=_length)  # one token does not show whether a model predicts the next one
    kind = _kind_of(before, longest, tokenizer)
    compare = {"vectors": _Vectors, "language model": _LanguageModel, "outputs": _Outputs}[kind](before)
    original, cut = Forward(before), Forward(after)
    with original.listening(), cut.listening():
        for i, batch in enumerate(prepared):
            compare.add(batch, original.run(batch), cut.run(batch))
            if progress is not None:
                progress("quality", i + 1, len(prepared))
    metrics, notes = compare.metrics()
    if any(math.isnan(x) for pair in metrics.values() for x in pair):
        notes.append("a model returns NaN or infinite values on this text: are its weights finite?")
    if kind == "outputs" and _length(longest) == 1:
        notes.append("no document has two tokens, so no token is predicted and perplexity is not measured")
    uncut = whole_documents(documents, tokenizer)
    overlap = calibration_overlap(after, uncut)
    if overlap:
        notes.append(
            f"{overlap} of {len(uncut)} documents are calibration text of this cut, which makes it look better "
            "than it is: use other text"
        )
    pooling = str(compare.pooling) if isinstance(compare, _Vectors) else ""
    return Quality(kind, metrics, compare.documents, compare.tokens, tuple(notes), overlap, pooling)


def _length(batch: Inputs) -> int:
    """The tokens of the longest document of a batch; 0 if it has no token ids."""
    ids = batch.get("input_ids")
    return ids.shape[-1] if isinstance(ids, Tensor) else 0


def check_pair(before: object, after: object) -> None:
    """Raise unless both are models with one vocabulary."""
    check_model(before, "before")
    check_model(after, "after")
    assert isinstance(before, nn.Module)
    assert isinstance(after, nn.Module)
    sizes = vocabulary_size(before), vocabulary_size(after)
    if None not in sizes and sizes[0] != sizes[1]:
        raise SizeError(
            f"before and after must have the same vocabulary, got {sizes[0]} and {sizes[1]} token embeddings",
            hint="compare a model with its cut copy",
        )


def _kind_of(model: nn.Module, batch: Inputs, tokenizer: Any = None) -> Kind:
    """What a model returns, which decides its metrics, by its output and its behaviour."""
    loss = loss_for(model, batch, tokenizer)
    if isinstance(loss, LanguageModel):
        return "language model"
    return "vectors" if isinstance(loss, OutputDistance) and loss.of == "hidden" else "outputs"


def neighbours_kept(before: Vectors, after: Vectors, count: int = NEIGHBOURS, rows: int = 512) -> float:
    """The metric nn10: the share of a document's nearest others that are the same; `rows` at a time."""
    sides = [F.normalize(x.double(), dim=1) for x in (before, after)]
    same = 0
    for start in range(0, len(before), rows):
        near = [_nearest(x, slice(start, start + rows), count) for x in sides]
        same += int((near[0][:, :, None] == near[1][:, None, :]).sum())
    return same / (count * len(before))


def _nearest(x: Vectors, rows: slice, count: int) -> Int[Tensor, "row neighbour"]:
    """The nearest documents by cosine, for the metric nn10."""
    cosine = x[rows] @ x.T
    row = torch.arange(len(cosine), device=x.device)
    cosine[row, row + rows.start] = -math.inf  # a document is not its own neighbour
    return cosine.topk(count, dim=1).indices


class _Comparison:
    """Sums over batches."""

    def __init__(self, model: nn.Module) -> None:
        self.two = is_encoder_decoder(model)
        self.documents = self.tokens = 0

    def add(self, batch: Inputs, old: Any, new: Any) -> None:
        raise NotImplementedError

    def metrics(self) -> tuple[dict[str, Pair], list[str]]:
        raise NotImplementedError

    def _count(self, batch: Inputs, before: Output, after: Output) -> Bool[Tensor, "document token"] | None:
        """Count documents and tokens that the metrics compare. Returns which tokens are real; None if all are."""
        if before.shape != after.shape:
            raise SizeError(
                f"the outputs of before and after must have one shape, got {tuple(before.shape)} and "
                f"{tuple(after.shape)}",
                hint="compare a model with its cut copy",
            )
        real = real_tokens(batch, before, "decoder_" if self.two else "")
        self.documents += before.shape[0]
        if before.ndim > 2:
            self.tokens += before.shape[:-1].numel() if real is None else int(real.sum())
        return real


class _Vectors(_Comparison):
    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.pooling: Pooling = pooling_of(model)
        self.error = _RelativeError()
        self.pooled: tuple[list[Vectors], list[Vectors]] = ([], [])

    def add(self, batch: Inputs, old: Any, new: Any) -> None:
        """Add a batch to the metrics of an encoder's vectors."""
        outputs = [tensor_in(x, "last_hidden_state") for x in (old, new)]
        real = self._count(batch, outputs[0], outputs[1])
        for _, before, after in _token_blocks(outputs[0], outputs[1], real):
            self.error.add(before, after)
        for side, x in zip(self.pooled, outputs, strict=True):
            side.append(self.pooling(x.float(), real).cpu())

    def metrics(self) -> tuple[dict[str, Pair], list[str]]:
        """The metrics of an encoder: cosine, nn10, relative error; and notes."""
        before, after = (torch.cat(side) for side in self.pooled)
        metrics = {"cosine": (1.0, float(F.cosine_similarity(before, after, dim=1).double().mean()))}
        notes: list[str] = []
        if len(before) >= MIN_DOCUMENTS:
            metrics["nn10"] = (1.0, neighbours_kept(before, after))
        else:
            notes.append(f"nn10 needs at least {MIN_DOCUMENTS} documents, got {len(before)}")
        return metrics | {"relative_error": self.error.value()}, notes


class _LanguageModel(_Comparison):
    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.loss = LanguageModel(two=self.two)
        self.negative_log_likelihood = [0.0, 0.0]
        self.same = self.predicted = 0

    def add(self, batch: Inputs, old: Any, new: Any) -> None:
        """Add a batch to the metrics of a language model."""
        before, after = (tensor_in(x, "logits") for x in (old, new))
        self._count(batch, before, after)
        labels = self.loss.target(batch, batch, before).what
        for index, *block in _token_blocks(before, after, labels != IGNORED):
            for side, logits in enumerate(block):
                loss = F.cross_entropy(logits, labels.flatten()[index], reduction="sum")
                self.negative_log_likelihood[side] += float(loss)
            self.same += int((block[0].argmax(-1) == block[1].argmax(-1)).sum())
            self.predicted += len(index)

    def metrics(self) -> tuple[dict[str, Pair], list[str]]:
        """The metrics of a language model: perplexity and agreement."""
        if not self.predicted:
            raise MultiheadError("no document has two tokens, so no token is predicted", hint="use longer texts")
        before, after = (_exp(x / self.predicted) for x in self.negative_log_likelihood)
        return {"perplexity": (before, after), "agreement": (1.0, self.same / self.predicted)}, []


class _Outputs(_Comparison):
    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.error = _RelativeError()
        self.same = self.compared = 0

    def add(self, batch: Inputs, old: Any, new: Any) -> None:
        """Add a batch to the metrics of other outputs."""
        outputs = [tensor_in(x, "logits") for x in (old, new)]
        real = self._count(batch, outputs[0], outputs[1])
        for index, before, after in _token_blocks(outputs[0], outputs[1], real):
            self.error.add(before, after)
            self.same += int((before.argmax(-1) == after.argmax(-1)).sum())
            self.compared += len(index)

    def metrics(self) -> tuple[dict[str, Pair], list[str]]:
        return {"relative_error": self.error.value(), "agreement": (1.0, self.same / max(1, self.compared))}, []


class _RelativeError:
    """‖after − before‖ / ‖before‖ over all tokens."""

    def __init__(self) -> None:
        self.difference = self.size = 0.0

    def add(self, before: Float[Tensor, "token width"], after: Float[Tensor, "token width"]) -> None:
        self.difference += float((after - before).square().sum())
        self.size += float(before.square().sum())

    def value(self) -> Pair:
        return 0.0, math.sqrt(self.difference / self.size) if self.size else 0.0


def _token_blocks(
    before: Output, after: Output, counted: Bool[Tensor, "document token"] | None
) -> Iterator[tuple[Int[Tensor, " token"], Float[Tensor, "token width"], Float[Tensor, "token width"]]]:
    """(Index of the tokens, both outputs) of the counted tokens, in fp32 or wider, `BLOCK` values at a time."""
    width = before.shape[-1]
    flat = [x.reshape(-1, width) for x in (before, after)]
    index = torch.arange(len(flat[0]), device=before.device).reshape(before.shape[:-1])
    index = index.flatten() if counted is None else index[counted].flatten()
    wide = torch.promote_types(before.dtype, torch.float32)
    for some in index.split(max(1, BLOCK // width)):
        yield some, flat[0][some].to(wide), flat[1][some].to(wide)


def _exp(x: float) -> float:
    return math.inf if x >= 700 else math.exp(x)  # exp(nan) is nan
