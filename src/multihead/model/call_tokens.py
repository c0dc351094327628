"""What a model was called with: token ids and padding, which say which rows count and which tokens are alike."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
_HIDDEN = {  # torch.nn's: True marks padding
    "": ("src_key_padding_mask", "key_padding_mask", "memory_key_padding_mask"),
    "decoder": ("tgt_key_padding_mask",),
}
_NOT_IDS = ("mask", "label", "type", "position", "segment", "target", "index")
"""Integers whose name holds one of these words are no tokens."""


@dataclass
class Sequence:
    """One sequence that the model was given: ids of every token so far, with those that a cache stands for."""

    ids: Int[Tensor, "batch token"] | None = None
    valid: Bool[Tensor, "batch token"] | None = None

    @property
    def length(self) -> int | None:
        """Tokens of the sequence; None where nothing is known of it."""
        return next((x.shape[1] for x in (self.ids, self.valid) if x is not None), None)

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
    two: bool = False
    """whether the model has an encoder and a decoder, each with a sequence of its own"""
    histories: dict[int, tuple[Callable[[], object], dict[str, Sequence]]] = field(default_factory=dict)
    """id of a cache → what returns that cache while it lives, and the sequences it stands for"""

    def read(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Take ids and padding out of a call; raise where the call cannot mean what it says."""
        given = _named(model, args, kwargs)
        _refuse_silent_failures(model, given)
        self.two = _is_pair(model)
        cache = given.get("past_key_values")
        past = _length(cache)
        earlier = self._history(cache) if past else {}
        self.sequences = {}
        for role in ("", "decoder"):
            ids = _ids_of(model, role, given)
            valid = next((given[n].bool() for n in _VALID[role] if _is_flat_mask(given.get(n))), None)
            hidden = next((given[n] for n in _HIDDEN[role] if _is_flat_mask(given.get(n))), None)
            if valid is None and hidden is not None and hidden.dtype == torch.bool:
                valid = ~hidden
            _check_length(model, ids)
            before = earlier.get(role, Sequence())
            grows = bool(past) and (role == "decoder" or not self.two)
            if grows and ids is not None:
                ids = _joined(before.ids, ids, past)
            if not grows and ids is None and valid is None:
                ids, valid = before.ids, before.valid  # the encoder's, while the decoder writes on
            if ids is not None or valid is not None:
                self.sequences[role] = Sequence(ids, valid)

    def keep(self, output: object) -> None:
        """Remember what the cache stands for that a call gave back."""
        cache = getattr(output, "past_key_values", None)
        if cache is None:
            return
        key = id(cache)
        try:  # Python gives the id of a cache that is gone to the next object
            alive: Callable[[], object] = weakref.ref(cache, lambda _: self.histories.pop(key, None))
        except TypeError:  # tuples have no weak references
            alive = lambda: cache
        self.histories[key] = alive, self.sequences

    def _history(self, cache: object) -> dict[str, Sequence]:
        alive, sequences = self.histories.get(id(cache), (lambda: None, self.sequences))
        return sequences if alive() is cache else self.sequences

    def of_call(self, stack: str, cross: bool, frame: Frame) -> tuple[Tokens, Tokens]:
        """The tokens that ask and those that are asked, in an attention of this stack; unknown ones are empty."""
        batch, queries, keys = frame.batch, frame.queries, frame.keys
        if "vision" in stack or "audio" in stack:
            return Tokens(), Tokens()
        nothing = Sequence()
        first = self.sequences.get("", nothing)
        own = self.sequences.get("decoder", nothing) if self.two and stack != "encoder" else first
        if cross and not self.two:
            return Tokens(), Tokens()
        other = first if cross else own
        length = other.length
        if not cross and length is not None and frame.query_places is not None and length < keys:
            # Room behind the sequence, as in a static cache; or something in front of it, which nobody knows.
            other = other.filled(keys) if int(frame.query_places.max()) + 1 == length else nothing
        asked = other.last(keys, batch) if length is not None and (other.length or 0) >= keys else Tokens()
        dropped = not cross and length is not None and length > keys and length > queries
        return own.last(queries, batch), replace(asked, dropped=dropped)


def _is_pair(model: nn.Module) -> bool:
    """Whether a model has an encoder's sequence beside the decoder's."""
    config = getattr(model, "config", None)
    return isinstance(model, nn.Transformer | nn.TransformerDecoder) or bool(
        getattr(config, "is_encoder_decoder", False)
    )


def _ids_of(model: nn.Module, role: str, given: Mapping[str, Any]) -> Tensor | None:
    """The token ids of one role; in a model that does not name them, the only integers that could be."""
    named = next((given[n] for n in _IDS[role] if _are_ids(given.get(n))), None)
    if named is not None or role == "decoder" or "input_ids" in inspect.signature(model.forward).parameters:
        return named
    found = [x for n, x in given.items() if _are_ids(x) and not any(w in n for w in _NOT_IDS)]
    return found[0] if len(found) == 1 else None


def _joined(before: Tensor | None, ids: Tensor, past: int) -> Tensor | None:
    """All ids so far, where those before are known: as many as the cache holds, in the same rows."""
    if before is None or before.shape[0] != ids.shape[0] or before.shape[1] != past or _beams():
        return None
    return torch.cat([before, ids], dim=1)


def _beams() -> bool:
    """Whether a beam search is running, which changes the rows of its cache from step to step."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # the stack has no public name
    while frame is not None:
        if "beam_search" in frame.f_code.co_name:
            return True
        frame = frame.f_back
    return False


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


def _length(cache: object) -> int:
    """Tokens that a cache stands for."""
    length = getattr(cache, "get_seq_length", None)
    return 0 if length is None else int(length())


def _refuse_silent_failures(model: nn.Module, given: Mapping[str, Any]) -> None:
    """transformers 5 returns an empty tuple for output_attentions, and swallows head_mask: here both are errors."""
    if not hasattr(model, "config"):
        return
    for name in ("head_mask", "decoder_head_mask", "cross_attn_head_mask"):
        if given.get(name) is not None:
            raise MultiheadError(
                f"{name} was given to {type(model).__name__}, which does nothing with it",
                hint="with mh.ablate(model, ['L3H7']): ... takes heads out",
            )
    if given.get("output_attentions") or getattr(model.config, "output_attentions", False):
        raise MultiheadError(
            f"output_attentions=True was given to {type(model).__name__}: attention in this block makes no maps",
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
