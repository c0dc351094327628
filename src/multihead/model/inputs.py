"""What a model was called with: token ids and padding, which say which rows count and which tokens are alike."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor, nn

from multihead.errors import MultiheadError, SizeError
from multihead.layer.frame import Frame
from multihead.model.call import Tokens

_IDS = {"": ("input_ids", "idx", "ids", "tokens"), "decoder": ("decoder_input_ids",)}
_VALID = {"": ("attention_mask",), "decoder": ("decoder_attention_mask",)}
_HIDDEN = ("src_key_padding_mask", "key_padding_mask")  # torch.nn's: True marks padding


@dataclass
class Sequence:
    """One sequence that the model was given: ids of every token so far, with those that a cache stands for."""

    ids: Int[Tensor, "batch token"] | None = None
    valid: Bool[Tensor, "batch token"] | None = None

    def filled(self, slots: int) -> Sequence:
        """The sequence in a cache that has room behind it: what is empty holds no token."""
        ids, valid = self.ids, self.valid
        if ids is not None and ids.shape[1] < slots:
            ids = F.pad(ids, (0, slots - ids.shape[1]), value=-1)
        if valid is not None and valid.shape[1] < slots:
            valid = F.pad(valid, (0, slots - valid.shape[1]), value=False)
        return Sequence(ids, valid)

    def last(self, count: int, batch: int) -> Tokens:
        """The last `count` tokens, as far as they are known for a batch of this size."""
        return Tokens(_tail(self.ids, count, batch), _tail(self.valid, count, batch))


@dataclass
class Inputs:
    """The sequences of the latest call of the model; "" is the encoder's, or the only one."""

    sequences: dict[str, Sequence] = field(default_factory=dict[str, Sequence])

    def read(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Take ids and padding out of a call; raise where the call cannot mean what it says."""
        given = _named(model, args, kwargs)
        _refuse_silent_failures(model, given)
        growing = _holds_something(given.get("past_key_values"))
        earlier, self.sequences = self.sequences, {}
        for role in ("", "decoder"):
            ids = next((given[n] for n in _IDS[role] if _are_ids(given.get(n))), None)
            if ids is None and role == "":
                ids = next((x for x in given.values() if _are_ids(x)), None)
            valid = next((given[n] for n in _VALID[role] if _is_flat_mask(given.get(n))), None)
            valid = None if valid is None else valid.bool()
            if valid is None and role == "":
                hidden = next((given[n] for n in _HIDDEN if _is_flat_mask(given.get(n))), None)
                valid = None if hidden is None or hidden.dtype != torch.bool else ~hidden
            _check_length(model, ids)
            before = earlier.get(role)
            if growing and ids is not None and before is not None and before.ids is not None:
                ids = torch.cat([before.ids, ids], dim=1) if before.ids.shape[0] == ids.shape[0] else None
            elif growing:
                ids = None  # what the cache stands for was never seen
            if ids is not None or valid is not None:
                self.sequences[role] = Sequence(ids, valid)
            elif before is not None and growing:
                self.sequences[role] = before  # the encoder's, while the decoder writes on

    def of_call(self, stack: str, cross: bool, frame: Frame) -> tuple[Tokens, Tokens]:
        """The tokens that ask and those that are asked, in an attention of this stack; unknown ones are empty."""
        batch, queries, keys = frame.batch, frame.queries, frame.keys
        if "vision" in stack or "audio" in stack:
            return Tokens(), Tokens()
        nothing = Sequence()
        encoder = self.sequences.get("", nothing)
        two = "decoder" in self.sequences
        own = self.sequences.get("decoder", nothing) if two and (cross or stack == "decoder") else encoder
        other = encoder if cross else own
        if cross and not two:
            own = nothing
        asked = other.filled(keys) if frame.query_places is not None and not cross else other
        return own.last(queries, batch), asked.last(keys, batch) if _covers(asked, keys) else Tokens()


def _covers(sequence: Sequence, tokens: int) -> bool:
    lengths = {x.shape[1] for x in (sequence.ids, sequence.valid) if x is not None}
    return tokens in lengths


def _tail(x: Tensor | None, count: int, batch: int) -> Tensor | None:
    if x is None or x.shape[0] != batch or x.shape[1] < count:
        return None
    return x[:, x.shape[1] - count :]


def _named(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        bound = inspect.signature(model.forward).bind_partial(*args, **kwargs)
    except TypeError:
        return dict(kwargs)
    given: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            given.update(value)
        else:
            given[name] = value
    return given


def _are_ids(x: object) -> bool:
    return isinstance(x, Tensor) and x.ndim == 2 and x.dtype in (torch.int64, torch.int32)


def _is_flat_mask(x: object) -> bool:
    return isinstance(x, Tensor) and x.ndim == 2


def _holds_something(cache: object) -> bool:
    length = getattr(cache, "get_seq_length", None)
    return bool(length is not None and int(length()) > 0)


def _refuse_silent_failures(model: nn.Module, given: Mapping[str, Any]) -> None:
    """transformers 5 returns an empty tuple for output_attentions, and swallows head_mask: here both are errors."""
    if not hasattr(model, "config"):
        return
    for name in ("head_mask", "decoder_head_mask", "cross_attn_head_mask"):
        if given.get(name) is not None:
            raise MultiheadError(
                f"{name} was given to {type(model).__name__}, which does nothing with it",
                hint="with mh.silence(model, ['L3H7']): ... takes heads out",
            )
    if given.get("output_attentions"):
        raise MultiheadError(
            f"output_attentions=True was given to {type(model).__name__}, whose fused attention returns no maps",
            hint="with mh.capture(model, keep='qk') as heads: model(...); then heads['L3H7'].weights()",
        )


def _check_length(model: nn.Module, ids: Tensor | None) -> None:
    """Raise before a table of learned positions is read behind its end."""
    limit = learned_positions(model)
    if ids is not None and limit is not None and ids.shape[1] > limit:
        raise SizeError(
            f"{ids.shape[1]} tokens were given to {type(model).__name__}, which has positions for {limit}",
            hint=f"cut the input: truncation=True, max_length={limit} in the tokenizer",
        )


def learned_positions(model: nn.Module) -> int | None:
    """How many positions a model's table of learned ones has; None where positions are computed."""
    config = getattr(model, "config", None)
    limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if not isinstance(limit, int):
        return None
    for name, table in model.named_modules():
        if not isinstance(table, nn.Embedding) or not ("position" in name or name.endswith("wpe")):
            continue
        if table.num_embeddings == limit and table.padding_idx is not None:
            return limit - table.padding_idx - 1  # RoBERTa's: the rows before the first position are in the count
        if table.num_embeddings in (limit, limit + 2):  # OPT's and BART's: two rows on top
            return limit
    return None
