"""Losses per document, in whose units the importance of a head is measured.

>>> import torch
>>> from multihead.measures.importance.losses import LanguageModel
>>> loss, ids = LanguageModel(), torch.tensor([[3, 1, 4]])
>>> logits = 100.0 * torch.nn.functional.one_hot(ids.roll(-1), 5)    # predicts every next token
>>> loss.documents(logits, loss.target({"input_ids": ids}, {"input_ids": ids}, logits))
tensor([0.])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from multihead._base.plural import plural
from multihead.corpus.accumulator import Inputs
from multihead.corpus.batch_generator import batch_generator
from multihead.errors import MultiheadError, SizeError
from multihead.model.model_inputs import documents_in
from multihead.model.pooling import Pooling

IGNORED = -100
"""The label of a token that the loss ignores: PyTorch's default `ignore_index`."""

MEAN = Pooling(("mean",))

PerDocument = Float[Tensor, " document"]
Seen = Float[Tensor, "document ..."]


@dataclass(frozen=True)
class Target:
    """The reference for the model's outputs, and which documents count towards the loss."""

    what: Shaped[Tensor, "..."]
    counts: Bool[Tensor, " document"]
    real: Bool[Tensor, "document token"] | None = None


class Loss:
    """A loss per document: the mean over its tokens. The loss of a corpus is the mean over documents."""

    name = "loss"
    is_distance = False
    """whether it is the distance to the intact model's outputs, where it and its gradient are 0"""
    splits = True
    """whether it reads one tensor whose first axis is documents, so several batches can run as one"""
    two = False
    """whether the model has an encoder and a decoder, and may derive decoder inputs from the labels"""

    def inputs(self, batch: Inputs, index: int) -> dict[str, Any]:
        """The inputs of the model: without labels, or it would compute its own loss."""
        needs_labels = self.two and "decoder_input_ids" not in batch
        return {name: x for name, x in batch.items() if name != "labels" or needs_labels}

    def read(self, output: Any) -> Seen:
        """The tensor that the loss is computed from; its first axis is documents."""
        return tensor_in(output, "logits")

    def target(self, batch: Inputs, inputs: Mapping[str, Any], seen: Seen) -> Target:
        """The reference to compare with; `seen` is the result of `read` for the intact model."""
        raise NotImplementedError

    def documents(self, seen: Seen, target: Target) -> PerDocument:
        """The loss of every document; NaN for documents that do not count."""
        raise NotImplementedError

    def checked(self, seen: Seen, target: Target, index: int) -> PerDocument:
        """The loss of every document. Raises, and names the batch and the document, if one is NaN or inf."""
        losses = self.documents(seen, target)
        bad = (~losses.isfinite() & target.counts).nonzero()
        if len(bad):
            document = int(bad[0])
            raise MultiheadError(
                f"the loss ({self.name}) of document {document} in batch {index} is {float(losses[document])}",
                hint="run the model on that batch: does it return NaN or inf? half precision may overflow",
            )
        return losses


class _Labelled(Loss):
    """The mean of −log p(label) over the labelled tokens of a document."""

    def documents(self, seen: Seen, target: Target) -> PerDocument:
        """The loss of every document: the mean cross-entropy of its labels."""
        labels = target.what
        if seen.shape[:-1] != labels.shape:
            raise SizeError(
                f"logits must be (document, token, class) for labels of shape {tuple(labels.shape)}, got shape "
                f"{tuple(seen.shape)}",
                hint="for other outputs, pass your own loss=...",
            )
        logits = seen.to(torch.promote_types(seen.dtype, torch.float32)).flatten(0, -2)
        per_token = F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="none")
        labelled = (labels != IGNORED).flatten(1)
        mean = per_token.view(labels.shape).flatten(1).sum(1) / labelled.sum(1).clamp_min(1)
        return mean.masked_fill(~target.counts, torch.nan)


def _labels(labels: Tensor) -> Target:
    return Target(labels, (labels != IGNORED).view(len(labels), -1).any(1))


class LanguageModel(_Labelled):
    """−log p(next token). Labels in a batch follow Hugging Face: the token ids, −100 for tokens to ignore.

    In an encoder–decoder the sequence is the decoder's, and its labels are at the positions that predict them.
    """

    name = "language model: cross entropy of the next token"

    def __init__(self, *, two: bool = False) -> None:
        self.two = two

    def target(self, batch: Inputs, inputs: Mapping[str, Any], seen: Seen) -> Target:
        """The target of a language model's loss: the next token, or the labels of the batch."""
        if "labels" in batch and self.two:
            return _labels(batch["labels"])
        name = "decoder_input_ids" if self.two else "input_ids"
        if "labels" not in batch and name not in batch:
            raise MultiheadError(f"the batch has no {name} to predict", hint=f"it has {', '.join(batch)}")
        ids: Tensor = batch["labels"] if "labels" in batch else batch[name].long()
        mask = batch.get(name.replace("input_ids", "attention_mask"))
        following = F.pad(ids[:, 1:], (0, 1), value=IGNORED)
        if isinstance(mask, Tensor) and mask.shape == ids.shape:
            # With padding on the left, the last padded position would predict the first token without a context.
            padded = (mask == 0) | (F.pad(mask[:, 1:], (0, 1)) == 0)
            following = following.masked_fill(padded, IGNORED)
        return _labels(following)


class MaskedLanguageModel(_Labelled):
    """−log p(token) of the tokens replaced by the mask token: a `share` of each document, at least one token.

    The tokens are drawn from (seed, index of the batch). All of them are masked. BERT's training leaves or swaps
    some, which matters only for training.
    """

    def __init__(self, mask_id: int, special: tuple[int, ...] = (), *, share: float = 0.15, seed: int = 0) -> None:
        self.mask_id, self.special, self.share, self.seed = mask_id, special, share, seed
        self.name = f"masked language model: cross entropy of the {share:.0%} of tokens that were masked"

    def inputs(self, batch: Inputs, index: int) -> dict[str, Any]:
        """The inputs of a masked language model's loss: some tokens are replaced by the mask."""
        ids: Tensor = batch["input_ids"]
        maskable = torch.ones_like(ids, dtype=torch.bool)
        mask = batch.get("attention_mask")
        if isinstance(mask, Tensor) and mask.shape == ids.shape:
            maskable &= mask != 0
        for token in (self.mask_id, *self.special):
            maskable &= ids != token
        draw = torch.rand(ids.shape, generator=batch_generator(self.seed, index)).to(ids.device)
        draw = draw.masked_fill(~maskable, 2.0)
        masked = (draw < self.share) | (draw == draw.amin(1, keepdim=True))
        return super().inputs(batch, index) | {"input_ids": ids.masked_fill(masked & maskable, self.mask_id)}

    def target(self, batch: Inputs, inputs: Mapping[str, Any], seen: Seen) -> Target:
        ids: Tensor = batch["input_ids"].long()
        return _labels(ids.masked_fill(inputs["input_ids"] == batch["input_ids"], IGNORED))


class Classification(_Labelled):
    """−log p(label) of a document, or of its labelled tokens; for real-valued labels, the squared error."""

    name = "classification: cross entropy of the labels"

    def target(self, batch: Inputs, inputs: Mapping[str, Any], seen: Seen) -> Target:
        """The target of a classification loss: the labels of the batch."""
        if "labels" not in batch:
            raise MultiheadError(
                f"the batch must have labels, got {', '.join(batch)}", hint="{'input_ids': ..., 'labels': ...}"
            )
        labels: Tensor = batch["labels"]
        if labels.is_floating_point():
            return Target(labels, torch.ones(labels.shape[0], dtype=torch.bool, device=labels.device))
        return _labels(labels)

    def documents(self, seen: Seen, target: Target) -> PerDocument:
        """The classification loss of every document, or the squared error of float labels."""
        labels = target.what
        if not labels.is_floating_point():
            if labels.ndim == 1:  # one label per document: add a token axis of length 1
                return super().documents(seen.unsqueeze(1), Target(labels.unsqueeze(1), target.counts))
            return super().documents(seen, target)
        predicted = seen.to(torch.promote_types(seen.dtype, torch.float32))
        return (predicted.view(labels.shape[0], -1) - labels.view(labels.shape[0], -1)).square().mean(1)


class OutputDistance(Loss):
    """The distance to the intact model's outputs, which needs no labels; 0 for the intact model.

    - "logits": KL(softmax y₀ ‖ softmax y), the mean over real tokens;
    - "hidden": Σ_t ‖y_t − y₀_t‖² / Σ_t ‖y₀_t‖², over the real tokens of the document;
    - "sentence": 1 − cos(ȳ, ȳ₀) of the pooled vectors, by default the means over real tokens (`pooling_of(model)`
      is the pooling of a sentence encoder).

    Near y₀ each is ½ ‖A (y − y₀)‖² for a matrix A that `probe` applies: rᵀ A y with random signs r.
    """

    is_distance = True

    def __init__(
        self,
        of: Literal["logits", "hidden", "sentence"] = "hidden",
        *,
        two: bool = False,
        pooling: Pooling = MEAN,
    ) -> None:
        if of not in ("logits", "hidden", "sentence"):
            raise SizeError(f"of must be logits, hidden or sentence, got {of!r}", hint='of="hidden"')
        self.of, self.two, self.pooling = of, two, pooling
        descriptions = {
            "logits": "KL from the intact model's distribution",
            "hidden": "squared distance to the intact model's last hidden states, relative to their size",
            "sentence": f"cosine distance to the intact model's {pooling}-pooled sentence vector",
        }
        self.name = f"own outputs: {descriptions[of]}"

    def read(self, output: Any) -> Seen:
        return tensor_in(output, "logits" if self.of == "logits" else "last_hidden_state")

    def target(self, batch: Inputs, inputs: Mapping[str, Any], seen: Seen) -> Target:
        """The target of a loss without labels: the outputs of the intact model."""
        seen = seen.detach().to(torch.promote_types(seen.dtype, torch.float32))
        real = real_tokens(batch, seen, "decoder_" if self.two else "")
        all_documents = torch.ones(seen.shape[0], dtype=torch.bool, device=seen.device)
        return Target(seen, all_documents if real is None else real.any(1), real)

    def documents(self, seen: Seen, target: Target) -> PerDocument:
        """The loss of every document without labels: how far its outputs have moved."""
        old, new = target.what, seen.to(target.what.dtype)
        if self.of == "logits":
            log_p = old.log_softmax(-1)
            divergence = (log_p.exp() * (log_p - new.log_softmax(-1))).sum(-1).clamp_min(0.0)
            return self._mean(divergence, target)
        if self.of == "sentence":
            return 1 - F.cosine_similarity(self.pooled(new, target), self.pooled(old, target), dim=1)
        return self._sum((new - old).square(), target) / self._size(target)

    def probe(self, seen: Seen, target: Target, signs: torch.Generator) -> PerDocument:
        """rᵀ A y of every document, r random signs: E_r (∂ rᵀAy/∂g)² = ‖A ∂y/∂g‖², twice the loss to 2nd order."""
        old, new = target.what, seen.to(target.what.dtype)
        if self.of == "sentence":
            old, new = self.pooled(old, target), self.pooled(new, target)
        r = torch.randint(0, 2, new.shape, generator=signs).to(new) * 2 - 1
        if self.of == "sentence":
            length = old.norm(dim=1, keepdim=True).clamp_min(torch.finfo(old.dtype).tiny)
            orthogonal = r - old * ((r * old).sum(1, keepdim=True) / length.square())  # to the old vector
            return (orthogonal * new).sum(1) / length[:, 0]
        if self.of == "hidden":
            return self._sum(r * new, target) * (2 / self._size(target)).sqrt()
        p = old.softmax(-1)
        per_token = (r * p.sqrt() * (new - (p * new).sum(-1, keepdim=True))).sum(-1)  # diag(p) − ppᵀ = AᵀA
        return self._sum(per_token, target) / self._tokens(target, per_token).sqrt()

    def _without_padding(self, x: Tensor, target: Target) -> Tensor:
        """x with zeros at padded tokens, which no loss counts."""
        if target.real is None or target.real.shape != x.shape[:2]:
            return x
        return x.masked_fill(~target.real.view(*x.shape[:2], *[1] * (x.ndim - 2)), 0.0)

    def _sum(self, x: Tensor, target: Target) -> PerDocument:
        return self._without_padding(x, target).flatten(1).sum(1) if x.ndim > 1 else x

    def _tokens(self, target: Target, per_token: Tensor) -> PerDocument:
        """The number of values of `per_token` that a document's mean is over."""
        return self._sum(torch.ones_like(per_token), target).clamp_min(1.0)

    def _mean(self, per_token: Tensor, target: Target) -> PerDocument:
        return self._sum(per_token, target) / self._tokens(target, per_token)

    def pooled(self, x: Tensor, target: Target) -> Float[Tensor, "document width"]:
        """One vector per document; x itself if it has no token axis."""
        return self.pooling(x, target.real)

    def _size(self, target: Target) -> PerDocument:
        """Σ ‖y₀‖²; 1 if the model's outputs are all zero."""
        size = self._sum(target.what.square(), target)
        return torch.where(size > 0, size, torch.ones_like(size))


class CustomLoss(Loss):
    """A user-defined function: (output, batch) → the loss of every document."""

    splits = False

    def __init__(self, function: Callable[[Any, Inputs], Tensor], *, two: bool = False) -> None:
        self.function, self.two = function, two
        self.name = f"given: {getattr(function, '__name__', type(function).__name__)}"

    def inputs(self, batch: Inputs, index: int) -> dict[str, Any]:
        self.batch = batch
        return super().inputs(batch, index)

    def read(self, output: Any) -> Seen:
        """The losses that the user's function returns, checked."""
        losses, count = self.function(output, self.batch), documents_in(self.batch)
        if not isinstance(losses, Tensor) or losses.shape != (count,):  # pyright: ignore[reportUnnecessaryIsInstance]  # users return anything
            shape = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else f"{losses!r}"  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SizeError(
                f"a custom loss must return shape ({count},) for {plural(count, 'document')}, got {shape}",
                hint="return one value per document: loss(output, batch) → (document,)",
            )
        return losses

    def target(self, batch: Inputs, inputs: Mapping[str, Any], seen: Seen) -> Target:
        return Target(seen.detach(), torch.ones(len(seen), dtype=torch.bool, device=seen.device))

    def documents(self, seen: Seen, target: Target) -> PerDocument:
        return seen


def tensor_in(output: Any, *names: str) -> Seen:
    """The tensor of a model's output that a loss reads: the first of these names, else the first of floats."""
    if isinstance(output, Tensor):
        return output
    for name in (*names, "logits", "last_hidden_state"):
        value = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(value, Tensor):
            return value
    values = output.values() if isinstance(output, Mapping) else output
    parts = values if isinstance(values, list | tuple) or isinstance(output, Mapping) else ()
    tensor = next((x for x in parts if isinstance(x, Tensor) and x.is_floating_point() and x.ndim), None)
    if tensor is None:
        raise MultiheadError(
            f"the model's output must contain a float tensor, got a {type(output).__name__}",
            hint="pass loss=lambda output, batch: ..., which returns one value per document",
        )
    return tensor


def real_tokens(batch: Inputs, seen: Seen, prefix: str) -> Bool[Tensor, "document token"] | None:
    """Which output tokens a loss counts, those that are not padding; None if the batch has no mask that fits."""
    for name in (f"{prefix}attention_mask", "src_key_padding_mask", "key_padding_mask"):
        mask = batch.get(name)
        if isinstance(mask, Tensor) and seen.ndim > 2 and mask.shape == seen.shape[:2]:
            return ~mask.bool() if "padding" in name else mask.bool()
    return None
