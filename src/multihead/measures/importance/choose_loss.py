"""Choose the loss that fits a model, by its outputs and its behaviour, not by its name.

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
from multihead.model.model_inputs import is_encoder_decoder

AnyLoss = Loss | Callable[[Any, Inputs], Tensor]


def choose_loss(
    loss: AnyLoss | None, model: nn.Module, batch: Inputs, tokenizer: Any = None, *, seed: int = 0
) -> Loss:
    """`loss` as a `Loss`; if None, the one that fits the model."""
    if isinstance(loss, Loss):
        return loss
    if loss is None:
        return loss_for(model, batch, tokenizer, seed=seed)
    if not callable(loss):
        raise TypeMismatchError(
            f"loss must be a Loss or a function of (output, batch), got {loss!r}",
            hint="losses are in multihead.measures.importance.losses",
        )
    return CustomLoss(loss, two=is_encoder_decoder(model))


def loss_for(model: nn.Module, batch: Inputs, tokenizer: Any = None, *, seed: int = 0) -> Loss:
    """Choose the loss: language model, masked language model, classification, or distance to own outputs.

    - logits over a vocabulary from a causal model, or from the decoder of an encoder–decoder: language model;
    - otherwise, labels in the batch, per document or per token (for a masked language model, −100 at unmasked
      tokens): classification;
    - logits over a vocabulary from a bidirectional model whose tokenizer has a mask token: masked language model;
    - everything else: the distance to the model's own outputs, its logits if it has any, else its hidden states.
    """
    two = is_encoder_decoder(model)
    probe = _with_changed_copy(batch) if not two else None
    output = Forward(model)(OutputDistance(two=two).inputs(batch if probe is None else probe, 0))
    seen, labels = tensor_in(output, "logits"), batch.get("labels")
    ids = batch.get("decoder_input_ids", labels) if two else (batch if probe is None else probe).get("input_ids")
    predicts_tokens = isinstance(ids, Tensor) and seen.ndim == 3 and seen.shape[:2] == ids.shape
    predicts_tokens = predicts_tokens and _is_vocabulary(model, output, seen.shape[-1])
    if predicts_tokens and (two or _is_causal(seen)):
        return LanguageModel(two=two)
    if isinstance(labels, Tensor):  # also labels of tokens that are masked in the batch
        return Classification()
    mask_id = getattr(tokenizer, "mask_token_id", None)
    if predicts_tokens and mask_id is not None:
        return MaskedLanguageModel(mask_id, tuple(tokenizer.all_special_ids), seed=seed)
    return OutputDistance("logits" if _has_head(output) else "hidden", two=two)


def _has_head(output: Any) -> bool:
    """Whether the output has logits."""
    return getattr(output, "logits", None) is not None


def _is_vocabulary(model: nn.Module, output: Any, width: int) -> bool:
    """Whether outputs have one value per vocabulary token, as those of a loss on tokens."""
    vocab_size = getattr(getattr(model, "config", None), "vocab_size", None)
    if isinstance(vocab_size, int):
        return _has_head(output) and width >= vocab_size
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    return any(m.num_embeddings == width != m.embedding_dim for m in embeddings)


def _with_changed_copy(batch: Inputs) -> Inputs | None:
    """The longest document, and a copy with a different last token: does the loss's model look ahead?

    Padding is removed, so the last position of both rows is a real token.
    """
    ids, mask = batch.get("input_ids"), batch.get("attention_mask")
    if not isinstance(ids, Tensor) or ids.ndim != 2 or not ids.numel() or ids.is_floating_point():
        return None
    real = mask.bool() if isinstance(mask, Tensor) and mask.shape == ids.shape else torch.ones_like(ids).bool()
    row = int(real.sum(1).argmax())

    def twice(x: Any) -> Any:
        """To choose a loss: an input with the rows of one document only, twice."""
        if not isinstance(x, Tensor) or x.shape[:1] != ids.shape[:1]:
            return x
        document = x[row, real[row]] if x.shape[:2] == ids.shape else x[row]
        return torch.stack([document, document])

    probe = {name: twice(x) for name, x in batch.items() if name != "labels"}
    last = int(probe["input_ids"][1, -1])
    probe["input_ids"][1, -1] = last - 1 if last else last + 1
    return probe


def _is_causal(logits: Tensor) -> bool:
    """Whether the first token's logits are the same for both last tokens; see `_with_changed_copy`."""
    original, changed = logits[0, 0], logits[1, 0]
    return logits.shape[1] > 1 and bool((original - changed).abs().max() <= 1e-4 * original.abs().max())
