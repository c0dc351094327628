"""Which loss fits a model: found by what it puts out and how it behaves, not by its name.

>>> import torch
>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from multihead.measures.importance.choose_loss import loss_for
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11)).eval()
>>> loss_for(model, {"input_ids": torch.tensor([[3, 1, 4]])}).name
'language model: cross entropy of the next token'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from multihead.corpus.accumulator import Inputs
from multihead.errors import TypeMismatchError
from multihead.measures.importance.losses import (
    Classification,
    CustomLoss,
    LanguageModel,
    Loss,
    MaskedLanguageModel,
    OutputDistance,
    tensor_in,
)
from multihead.model.forward import Forward

AnyLoss = Loss | Callable[[Any, Inputs], Tensor]


def choose_loss(
    loss: AnyLoss | None, model: nn.Module, batch: Inputs, tokenizer: Any = None, *, seed: int = 0
) -> Loss:
    """The loss that was asked for, or the one that fits."""
    if isinstance(loss, Loss):
        return loss
    if loss is None:
        return loss_for(model, batch, tokenizer, seed=seed)
    if not callable(loss):
        raise TypeMismatchError(
            f"loss={loss!r} is no loss",
            hint="a Loss of multihead.measures.importance.losses, or a function of (output, batch)",
        )
    return CustomLoss(loss, two=_is_pair(model))


def loss_for(model: nn.Module, batch: Inputs, tokenizer: Any = None, *, seed: int = 0) -> Loss:
    """Language model, masked language model, classification, or the distance to the model's own outputs.

    - logits over a vocabulary of a model in which no token sees a later one: language model (also of the decoder
      of an encoder–decoder);
    - labels, one or a number per document, or per token (of a masked language model: −100 where none is masked):
      classification;
    - logits over a vocabulary of a model that looks both ways, with a mask token: masked language model;
    - everything else: the model's own outputs, as logits where it has a head, else as hidden states.
    """
    two = _is_pair(model)
    probe = _with_changed_copy(batch) if not two else None
    output = Forward(model)(OutputDistance(two=two).inputs(batch if probe is None else probe, 0))
    seen, labels = tensor_in(output, "logits"), batch.get("labels")
    ids = batch.get("decoder_input_ids", labels) if two else (batch if probe is None else probe).get("input_ids")
    words = isinstance(ids, Tensor) and seen.ndim == 3 and seen.shape[:2] == ids.shape
    words = words and _is_vocabulary(model, output, seen.shape[-1])
    if words and (two or _is_causal(seen)):
        return LanguageModel(two=two)
    if isinstance(labels, Tensor):  # also of tokens that the batch has masked already
        return Classification()
    mask_id = getattr(tokenizer, "mask_token_id", None)
    if words and mask_id is not None:
        return MaskedLanguageModel(mask_id, tuple(tokenizer.all_special_ids), seed=seed)
    return OutputDistance("logits" if _has_head(output) else "hidden", two=two)


def _is_pair(model: nn.Module) -> bool:
    """Whether a model has an encoder and a decoder."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def _has_head(output: Any) -> bool:
    """Whether the output calls itself logits."""
    return getattr(output, "logits", None) is not None


def _is_vocabulary(model: nn.Module, output: Any, width: int) -> bool:
    """Whether outputs are one number per token of the vocabulary."""
    named = getattr(getattr(model, "config", None), "vocab_size", None)
    if isinstance(named, int):
        return _has_head(output) and width >= named
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    return any(m.num_embeddings == width != m.embedding_dim for m in tables)


def _with_changed_copy(batch: Inputs) -> Inputs | None:
    """The longest document twice, the second time with another last token; None without token ids.

    Padding is cut off, so that the last position of both rows is a real token.
    """
    ids, mask = batch.get("input_ids"), batch.get("attention_mask")
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point():
        return None
    real = mask.bool() if isinstance(mask, Tensor) and mask.shape == ids.shape else torch.ones_like(ids).bool()
    row = int(real.sum(1).argmax())

    def twice(x: Any) -> Any:
        if not isinstance(x, Tensor) or x.shape[:1] != ids.shape[:1]:
            return x
        one = x[row, real[row]] if x.shape[:2] == ids.shape else x[row]
        return torch.stack([one, one])

    kept = {name: twice(x) for name, x in batch.items() if name != "labels"}
    last = int(kept["input_ids"][1, -1])
    kept["input_ids"][1, -1] = last - 1 if last else last + 1
    return kept


def _is_causal(logits: Tensor) -> bool:
    """Whether another last token leaves the logits of the first one as they are; see `_with_changed_copy`."""
    before, after = logits[0, 0], logits[1, 0]
    return logits.shape[1] > 1 and bool((before - after).abs().max() <= 1e-4 * before.abs().max())
