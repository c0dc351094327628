"""The inputs of an encoder–decoder, from the text that its encoder reads and the text that its decoder has read.

The ids of the decoder are those of the text, shifted right behind the start token as in training: the logits at
each of its tokens predict the next one.

>>> import torch
>>> from transformers import T5Config, T5ForConditionalGeneration
>>> from multihead.corpus.two_texts import shifted_right
>>> sizes = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
>>> config = T5Config(**sizes, decoder_start_token_id=0)
>>> shifted_right(T5ForConditionalGeneration(config), torch.tensor([[7, 8, 1]]))
tensor([[0, 7, 8]])
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor, nn

from multihead._base.eval_mode import eval_mode
from multihead.errors import MultiheadError, SizeError
from multihead.model.model_inputs import is_encoder_decoder
from multihead.model.token_limit import learned_positions

TokenIds = Int[Tensor, "1 token"]

ANSWER = 48
"""Tokens that the model writes itself, at most."""
REMEMBERED = 100_000
"""Answers that are kept for the next pass over the same texts."""


class Answers:
    """Batches of an encoder–decoder from the token ids of one text: the decoder reads what the model itself writes.

    A text that comes again has the same answer, even if the heads of the model have been changed since.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._written: dict[bytes, list[int]] = {}

    def batch(self, ids: Sequence[int]) -> dict[str, Tensor]:
        """A batch of one document: `ids` for the encoder, and the model's greedy answer for the decoder."""
        device = _device(self.model)
        source, key = torch.tensor([ids], device=device), blake2b(repr(ids).encode(), digest_size=16).digest()
        if key not in self._written:
            answer = _answer(self.model, source)
            if len(self._written) >= REMEMBERED:
                return {"input_ids": source, "decoder_input_ids": answer}
            self._written[key] = answer[0].tolist()
        return {"input_ids": source, "decoder_input_ids": torch.tensor([self._written[key]], device=device)}


def two_texts(model: nn.Module, tokenizer: Any, text: str, decoder: str | None = None) -> dict[str, Tensor]:
    """A batch of one document: `text` for the encoder, `decoder` for the decoder.

    If `decoder` is None, the decoder reads what the model itself writes: its greedy answer to `text`.
    """
    if not is_encoder_decoder(model):
        raise MultiheadError(
            f"{type(model).__name__} has no decoder that reads a second text", hint="pass the text alone"
        )
    ids = list(tokenizer(text, verbose=False)["input_ids"])
    if not ids:
        raise SizeError("the text has no token", hint="pass some words")
    _check_length(model, ids, "text")
    if decoder is None:
        return Answers(model).batch(ids)
    source = torch.tensor([ids], device=_device(model))
    return {"input_ids": source, "decoder_input_ids": decoder_ids(model, tokenizer, decoder)}


def decoder_ids(model: nn.Module, tokenizer: Any, text: str) -> TokenIds:
    """The ids that a decoder reads before it predicts the token after `text`."""
    ids = _target_ids(tokenizer, text)
    if not ids or ids[-1] not in set(map(int, tokenizer.all_special_ids)):
        ids.append(0)  # the last id is dropped below: most tokenizers end with a special token
    _check_length(model, ids, "decoder text")
    return shifted_right(model, torch.tensor([ids], device=_device(model)))


def shifted_right(model: nn.Module, labels: TokenIds) -> TokenIds:
    """The inputs of a decoder that predict `labels`, by the model's own method where it has one."""
    own: Any = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if callable(own):
        return cast(Tensor, own(labels=labels))
    start = getattr(getattr(model, "config", None), "decoder_start_token_id", None)
    if not isinstance(start, int):
        raise MultiheadError(
            f"the config of {type(model).__name__} has no decoder_start_token_id",
            hint="pass batches: {'input_ids': ..., 'decoder_input_ids': ...}",
        )
    return torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], 1)


def _answer(model: nn.Module, source: TokenIds) -> TokenIds:
    """The start token and the model's greedy answer, without its end; only the start token if it cannot write."""
    start = shifted_right(model, source)[:, :1]
    can_generate: Any = getattr(model, "can_generate", None)
    if not callable(can_generate) or not can_generate():
        return start
    most = min(ANSWER, (learned_positions(model) or ANSWER + 1) - 1)  # after the start token
    with eval_mode(model):
        written: Tensor = cast(Any, model).generate(source, max_new_tokens=most, do_sample=False, num_beams=1)
    end: Any = getattr(cast(Any, model).generation_config, "eos_token_id", None)
    ended = written.shape[1] > 1 and int(written[0, -1]) in (end if isinstance(end, list) else [end])
    return written[:, :-1] if ended else written


def _check_length(model: nn.Module, ids: list[int], name: str) -> None:
    """Raise if a text of an encoder–decoder is longer than the positions of the model."""
    positions = learned_positions(model)
    if positions is not None and len(ids) > positions:
        raise SizeError(
            f"the {name} must have at most {positions} tokens, the positions of the model, got {len(ids):,}",
            hint="an encoder–decoder reads a text at once: send a part of it",
        )


def _target_ids(tokenizer: Any, text: str) -> list[int]:
    """The ids of a decoder's text: some tokenizers have a second vocabulary for it."""
    if "text_target" in inspect.signature(tokenizer.__call__).parameters:
        return list(tokenizer(text_target=text, verbose=False)["input_ids"])
    return list(tokenizer(text, verbose=False)["input_ids"])


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))
