"""What a model loses, document by document: the scale of the importance of a head.

>>> import torch
>>> from multihead.measures.importance.losses import LanguageModel
>>> loss, ids = LanguageModel(), torch.tensor([[3, 1, 4]])
>>> sure = 100.0 * torch.nn.functional.one_hot(ids.roll(-1), 5)      # knows every next token
>>> loss.documents(sure, loss.target({"input_ids": ids}, {"input_ids": ids}, sure))
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

from multihead.corpus.accumulator import Inputs
from multihead.corpus.batch_generator import batch_generator
from multihead.errors import MultiheadError, SizeError
from multihead.model.eval_mode import documents_in

IGNORED = -100
"""The label of a token that does not count, as everywhere in PyTorch."""

PerDocument = Float[Tensor, " document"]
Seen = Float[Tensor, "document ..."]


@dataclass(frozen=True)
class Target:
    """What outputs are compared with, and which documents have anything to compare."""

    what: Shaped[Tensor, "..."]
    counts: Bool[Tensor, " document"]
    real: Bool[Tensor, "document token"] | None = None


class Loss:
    """A number per document. Losses of a document are means over its tokens; a corpus counts by documents."""

    name = "loss"
    own = False
    """whether it is the distance to what the intact model puts out: 0 there, and so is its gradient"""
    splits = True
    """whether it reads one tensor with documents in front, so that several batches can run as one"""
    two = False
    """whether the model has an encoder and a decoder, which may make its input of the labels"""

    def inputs(self, batch: Inputs, index: int) -> dict[str, Any]:
        """What the model is called with: without labels, or it would compute a loss of its own."""
        makes_input = self.two and "decoder_input_ids" not in batch
        return {name: x for name, x in batch.items() if name != "labels" or makes_input}

    def read(self, output: Any) -> Seen:
        """The tensor that the loss is of, documents in front."""
        return tensor_in(output, "logits")

    def target(self, batch: Inputs, inputs: Mapping[str, Any], seen: Seen) -> Target:
        """What to compare with; `seen` is what was read from the intact model."""
        raise NotImplementedError

    def documents(self, seen: Seen, target: Target) -> PerDocument:
        """The loss of every document; NaN where nothing counts."""
        raise NotImplementedError

    def checked(self, seen: Seen, target: Target, index: int) -> PerDocument:
        """`documents`, or an error that names the batch and the document whose loss is no number."""
        found = self.documents(seen, target)
        bad = (~found.isfinite() & target.counts).nonzero()
        if len(bad):
            at = int(bad[0])
            raise MultiheadError(
                f"the loss ({self.name}) of document {at} in batch {index} is {float(found[at])}",
                hint="run the model on that batch: does it give NaN or inf? half precision overflows first",
            )
        return found


class _Labelled(Loss):
    """Mean over the labelled tokens of a document of −log p(label)."""

    def documents(self, seen: Seen, target: Target) -> PerDocument:
        labels = target.what
        if seen.shape[:-1] != labels.shape:
            raise SizeError(
                f"the model gave logits of shape {tuple(seen.shape)} for labels of shape {tuple(labels.shape)}",
                hint="logits are (document, token, class), one per label; else pass loss=... of your own",
            )
        wide = seen.to(torch.promote_types(seen.dtype, torch.float32)).flatten(0, -2)
        each = F.cross_entropy(wide, labels.flatten(), ignore_index=IGNORED, reduction="none")
        kept = (labels != IGNORED).flatten(1)
        mean = each.view(labels.shape).flatten(1).sum(1) / kept.sum(1).clamp_min(1)
        return mean.masked_fill(~target.counts, torch.nan)


def _labels(labels: Tensor) -> Target:
    return Target(labels, (labels != IGNORED).view(len(labels), -1).any(1))


class LanguageModel(_Labelled):
    """−log p(next token). Labels, where a batch has them, are those of Hugging Face: the ids, −100 left out.

    In an encoder–decoder the sequence is the decoder's; its labels stand where they are predicted.
    """

    name = "language model: cross entropy of the next token"

    def __init__(self, *, two: bool = False) -> None:
        self.two = two

    def target(self, batch: Inputs, inputs: Mapping[str, Any], seen: Seen) -> Target:
        if "labels" in batch and self.two:
            return _labels(batch["labels"])
        name = "decoder_input_ids" if self.two else "input_ids"
        if "labels" not in batch and name not in batch:
            raise MultiheadError(f"the batch has no {name} to predict", hint=f"it has {', '.join(batch)}")
        ids: Tensor = batch["labels"] if "labels" in batch else batch[name].long()
        mask = batch.get(name.replace("input_ids", "attention_mask"))
        following = F.pad(ids[:, 1:], (0, 1), value=IGNORED)
        if isinstance(mask, Tensor) and mask.shape == ids.shape:
            # Padding on the left: its last place would predict the first token, from nothing.
            unseen = (mask == 0) | (F.pad(mask[:, 1:], (0, 1)) == 0)
            following = following.masked_fill(unseen, IGNORED)
        return _labels(following)


class MaskedLanguageModel(_Labelled):
    """−log p(token) of the tokens that were replaced by the mask token: `share` of a document's, at least one.

    Which ones is drawn from (seed, index of the batch). All of them are masked; none is left or swapped, as in
    BERT's training, because here nothing learns to trust what it sees.
    """

    def __init__(self, mask_id: int, special: tuple[int, ...] = (), *, share: float = 0.15, seed: int = 0) -> None:
        self.mask_id, self.special, self.share, self.seed = mask_id, special, share, seed
        self.name = f"masked language model: cross entropy of the {share:.0%} of tokens that were masked"

    def inputs(self, batch: Inputs, index: int) -> dict[str, Any]:
        ids: Tensor = batch["input_ids"]
        may = torch.ones_like(ids, dtype=torch.bool)
        mask = batch.get("attention_mask")
        if isinstance(mask, Tensor) and mask.shape == ids.shape:
            may &= mask != 0
        for token in (self.mask_id, *self.special):
            may &= ids != token
        draw = (
            torch.rand(ids.shape, generator=batch_generator(self.seed, index)).to(ids.device).masked_fill(~may, 2.0)
        )
        hit = (draw < self.share) | (draw == draw.amin(1, keepdim=True))
        return super().inputs(batch, index) | {"input_ids": ids.masked_fill(hit & may, self.mask_id)}

    def target(self, batch: Inputs, inputs: Mapping[str, Any], seen: Seen) -> Target:
        ids: Tensor = batch["input_ids"].long()
        return _labels(ids.masked_fill(inputs["input_ids"] == batch["input_ids"], IGNORED))


class Classification(_Labelled):
    """−log p(label) of a document, or of its labelled tokens; for labels that are numbers, squared error."""

    name = "classification: cross entropy of the labels"

    def target(self, batch: Inputs, inputs: Mapping[str, Any], seen: Seen) -> Target:
        if "labels" not in batch:
            raise MultiheadError(
                f"the batch has no labels: it has {', '.join(batch)}", hint="{'input_ids': ..., 'labels': ...}"
            )
        labels: Tensor = batch["labels"]
        if labels.is_floating_point():
            return Target(labels, torch.ones(labels.shape[0], dtype=torch.bool, device=labels.device))
        return _labels(labels)

    def documents(self, seen: Seen, target: Target) -> PerDocument:
        if not target.what.is_floating_point():
            if target.what.ndim == 1:  # one label per document: an axis of one token
                return super().documents(seen.unsqueeze(1), Target(target.what.unsqueeze(1), target.counts))
            return super().documents(seen, target)
        wide = seen.to(torch.promote_types(seen.dtype, torch.float32))
        return (wide.view(target.what.shape[0], -1) - target.what.view(target.what.shape[0], -1)).square().mean(1)


class OutputDistance(Loss):
    """The distance to what the intact model puts out, for want of labels; 0 for the intact model.

    - "logits": KL(softmax y₀ ‖ softmax y), the mean over real tokens;
    - "hidden": Σ_t ‖y_t − y₀_t‖² / Σ_t ‖y₀_t‖², over the real tokens of the document;
    - "sentence": 1 − cos(ȳ, ȳ₀) of the means over real tokens, as sentence encoders pool them.

    Near y₀ each is ½ ‖A (y − y₀)‖² for a matrix A that `probe` applies: rᵀ A y with random signs r.
    """

    own = True

    def __init__(self, of: Literal["logits", "hidden", "sentence"] = "hidden", *, two: bool = False) -> None:
        if of not in ("logits", "hidden", "sentence"):
            raise SizeError(f"of={of!r} is not known", hint="choose logits, hidden or sentence")
        self.of, self.two = of, two
        said = {
            "logits": "KL from the intact model's distribution",
            "hidden": "squared distance to the intact model's last hidden states, relative to their size",
            "sentence": "cosine distance to the intact model's mean-pooled sentence vector",
        }
        self.name = f"own outputs: {said[of]}"

    def read(self, output: Any) -> Seen:
        return tensor_in(output, "logits" if self.of == "logits" else "last_hidden_state")

    def target(self, batch: Inputs, inputs: Mapping[str, Any], seen: Seen) -> Target:
        seen = seen.detach().to(torch.promote_types(seen.dtype, torch.float32))
        real = _real(batch, seen, "decoder_" if self.two else "")
        every = torch.ones(seen.shape[0], dtype=torch.bool, device=seen.device)
        return Target(seen, every if real is None else real.any(1), real)

    def documents(self, seen: Seen, target: Target) -> PerDocument:
        old, new = target.what, seen.to(target.what.dtype)
        if self.of == "logits":
            p = old.log_softmax(-1)
            each = (p.exp() * (p - new.log_softmax(-1))).sum(-1).clamp_min(0.0)
            return self._mean(each, target)
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
            away = r - old * ((r * old).sum(1, keepdim=True) / length.square())  # across the old vector
            return (away * new).sum(1) / length[:, 0]
        if self.of == "hidden":
            return self._sum(r * new, target) * (2 / self._size(target)).sqrt()
        p = old.softmax(-1)
        each = (r * p.sqrt() * (new - (p * new).sum(-1, keepdim=True))).sum(-1)  # diag(p) − ppᵀ = AᵀA
        return self._sum(each, target) / self._tokens(target, each).sqrt()

    def _kept(self, x: Tensor, target: Target) -> Tensor:
        if target.real is None or target.real.shape != x.shape[:2]:
            return x
        return x.masked_fill(~target.real.view(*x.shape[:2], *[1] * (x.ndim - 2)), 0.0)

    def _sum(self, x: Tensor, target: Target) -> PerDocument:
        return self._kept(x, target).flatten(1).sum(1) if x.ndim > 1 else x

    def _tokens(self, target: Target, each: Tensor) -> PerDocument:
        """Over how many numbers of `each` a document's mean is."""
        return self._sum(torch.ones_like(each), target).clamp_min(1.0)

    def _mean(self, each: Tensor, target: Target) -> PerDocument:
        return self._sum(each, target) / self._tokens(target, each)

    def pooled(self, x: Tensor, target: Target) -> Float[Tensor, "document width"]:
        """The mean over real tokens; what has none is its own."""
        if x.ndim == 2:
            return x
        kept = self._kept(x, target)
        return kept.flatten(1, -2).sum(1) / self._tokens(target, x[..., 0])[:, None]

    def _size(self, target: Target) -> PerDocument:
        """Σ ‖y₀‖²; 1 where the model puts out nothing but zeros."""
        size = self._sum(target.what.square(), target)
        return torch.where(size > 0, size, torch.ones_like(size))


class CustomLoss(Loss):
    """A function of the user's: (output, batch) → the loss of every document."""

    splits = False

    def __init__(self, function: Callable[[Any, Inputs], Tensor], *, two: bool = False) -> None:
        self.function, self.two = function, two
        self.name = f"given: {getattr(function, '__name__', type(function).__name__)}"

    def inputs(self, batch: Inputs, index: int) -> dict[str, Any]:
        self.batch = batch
        return super().inputs(batch, index)

    def read(self, output: Any) -> Seen:
        found, count = self.function(output, self.batch), documents_in(self.batch)
        if not isinstance(found, Tensor) or found.shape != (count,):  # pyright: ignore[reportUnnecessaryIsInstance]  # users return anything
            shape = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"{found!r}"  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SizeError(
                f"the loss that was given returned {shape} for {count} documents",
                hint="return a number per document: loss(output, batch) → (document,)",
            )
        return found

    def target(self, batch: Inputs, inputs: Mapping[str, Any], seen: Seen) -> Target:
        return Target(seen.detach(), torch.ones(len(seen), dtype=torch.bool, device=seen.device))

    def documents(self, seen: Seen, target: Target) -> PerDocument:
        return seen


def tensor_in(output: Any, *names: str) -> Seen:
    """The tensor that a model's output is about: of these names, or the first that it has."""
    if isinstance(output, Tensor):
        return output
    for name in (*names, "logits", "last_hidden_state"):
        found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(found, Tensor):
            return found
    values = output.values() if isinstance(output, Mapping) else output
    parts = values if isinstance(values, list | tuple) or isinstance(output, Mapping) else ()
    found = next((x for x in parts if isinstance(x, Tensor) and x.is_floating_point() and x.ndim), None)
    if found is None:
        raise MultiheadError(
            f"there is no tensor in the model's output, a {type(output).__name__}",
            hint="pass loss=lambda output, batch: ..., a number per document",
        )
    return found


def _real(batch: Inputs, seen: Seen, whose: str) -> Bool[Tensor, "document token"] | None:
    """Which tokens of the output are no padding; None where nothing says so."""
    for name in (f"{whose}attention_mask", "src_key_padding_mask", "key_padding_mask"):
        mask = batch.get(name)
        if isinstance(mask, Tensor) and seen.ndim > 2 and mask.shape == seen.shape[:2]:
            return ~mask.bool() if "padding" in name else mask.bool()
    return None
