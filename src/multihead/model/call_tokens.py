"""The token ids and padding of a model call, which decide the rows that count and the tokens that are equal."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor, nn

from multihead.errors import MultiheadError, SizeError
from multihead.layer._coordinates import Coordinates
from multihead.model.call import Tokens
from multihead.model.model_inputs import is_encoder_decoder
from multihead.model.token_limit import learned_positions

_IDS = {"": ("input_ids", "idx", "ids", "tokens"), "decoder": ("decoder_input_ids",)}
_VALID = {"": ("attention_mask",), "decoder": ("decoder_attention_mask",)}
_HIDDEN = {  # torch.nn's: True marks padding
    "": ("src_key_padding_mask", "key_padding_mask", "memory_key_padding_mask"),
    "decoder": ("tgt_key_padding_mask",),
}
_NOT_IDS = ("mask", "label", "type", "position", "segment", "target", "index")
"""Integer arguments whose name contains one of these words are not token ids."""
_SOUNDS = ("input_features", "input_values")
"""Names of recordings: their masks mark samples or mel frames, of which the encoder makes fewer frames."""


@dataclass
class Sequence:
    """One input sequence of the model: ids of every token so far, including cached ones."""

    ids: Int[Tensor, "batch token"] | None = None
    valid: Bool[Tensor, "batch token"] | None = None

    @property
    def length(self) -> int | None:
        """Number of tokens; None if unknown."""
        return next((x.shape[1] for x in (self.ids, self.valid) if x is not None), None)

    def filled(self, slots: int) -> Sequence:
        """The sequence padded to a static cache of `slots` tokens; empty slots hold no token."""
        ids, valid = self.ids, self.valid
        if ids is not None and ids.shape[1] < slots:
            ids = F.pad(ids, (0, slots - ids.shape[1]), value=-1)
        if valid is not None and valid.shape[1] < slots:
            valid = F.pad(valid, (0, slots - valid.shape[1]), value=False)
        return Sequence(ids, valid)

    def last(self, count: int, batch: int) -> Tokens:
        """The last `count` tokens, where known for this batch size."""
        return Tokens(_tail(self.ids, count, batch), _tail(self.valid, count, batch))


@dataclass
class Inputs:
    """The sequences of the latest model call; "" is the encoder's sequence, or the only one."""

    sequences: dict[str, Sequence] = field(default_factory=dict[str, Sequence])
    recording: Bool[Tensor, "batch sample"] | None = None
    """the samples or mel frames before the silence that ends each recording; None if there is none"""
    two: bool = False
    """whether the model has an encoder and a decoder with separate sequences"""
    padded: bool = False
    """whether a mask that the model was called with hides something"""
    histories: dict[int, tuple[Callable[[], object], dict[str, Sequence]]] = field(default_factory=dict)
    """id of a cache → a function that returns it while it is alive, and the sequences it holds"""

    def read(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Read the tokens of a call, ids and padding; raises for arguments that the model would silently ignore."""
        arguments = _bound_arguments(model, args, kwargs)
        _refuse_silent_failures(model, arguments)
        self.two = _has_two_sequences(model)
        self.padded = any(_hides(name, x) for name, x in arguments.items() if "mask" in name)
        cache = arguments.get("past_key_values")
        past = _cache_length(cache)
        earlier = self._history(cache) if past else {}
        self.sequences, self.recording = {}, self.recording if past else None
        for role in ("", "decoder"):
            ids = _ids_of(model, role, arguments)
            valid = next((arguments[n].bool() for n in _VALID[role] if _is_flat_mask(arguments.get(n))), None)
            hidden = next((arguments[n] for n in _HIDDEN[role] if _is_flat_mask(arguments.get(n))), None)
            if valid is None and hidden is not None and hidden.dtype == torch.bool:
                valid = ~hidden
            _check_length(model, ids)
            before = earlier.get(role, Sequence())
            if not role and (sound := _sound(model, arguments)) is not None:
                self.recording = valid if valid is not None else _heard(model, sound)
                continue
            grows = bool(past) and (role == "decoder" or not self.two)
            if grows and ids is not None:
                ids = _append(before.ids, ids, past)
            if not grows and ids is None and valid is None:
                ids, valid = before.ids, before.valid  # the encoder's sequence, while the decoder generates
            if ids is not None or valid is not None:
                self.sequences[role] = Sequence(ids, valid)

    def keep(self, output: object) -> None:
        """Remember the tokens held by the cache that a call returned."""
        cache = getattr(output, "past_key_values", None)
        if cache is None:
            return
        key = id(cache)
        try:  # Python may reuse the id of a deleted cache
            alive: Callable[[], object] = weakref.ref(cache, lambda _: self.histories.pop(key, None))
        except TypeError:  # tuples do not support weak references
            alive = lambda: cache
        self.histories[key] = alive, self.sequences

    def _history(self, cache: object) -> dict[str, Sequence]:
        alive, sequences = self.histories.get(id(cache), (lambda: None, self.sequences))
        return sequences if alive() is cache else self.sequences

    def of_call(self, stack: str, cross: bool, coordinates: Coordinates) -> tuple[Tokens, Tokens]:
        """(query tokens, key tokens) of an attention call in this stack; empty if unknown."""
        batch, queries, keys = coordinates.batch, coordinates.queries, coordinates.keys
        if _reads_media(stack) or (cross and not self.two):
            return Tokens(), Tokens()
        unknown, query_sequence = Sequence(), self._queries_of(stack)
        key_sequence = self.sequences.get("", unknown) if cross else query_sequence
        length = key_sequence.length
        if not cross and length is not None and coordinates.query_positions is not None and length < keys:
            # Empty slots after the sequence, as in a static cache; or an unknown prefix before it.
            last = int(coordinates.query_positions.max())
            key_sequence = key_sequence.filled(keys) if last + 1 == length else unknown
        known = length is not None and (key_sequence.length or 0) >= keys
        key_tokens = key_sequence.last(keys, batch) if known else Tokens()
        dropped = not cross and length is not None and length > keys and length > queries
        return query_sequence.last(queries, batch), replace(key_tokens, dropped=dropped)

    def without_silence(
        self, stack: str, cross: bool, coordinates: Coordinates, queries: Tokens, keys: Tokens
    ) -> tuple[Tokens, Tokens]:
        """The frames of a call that reads a recording, where their padding is not known yet.

        The encoder makes fewer frames of the recording: one is real if the first sample of its part is.
        """
        if self.recording is None or (self.two and not cross and "encoder" not in stack.split("_")):
            return queries, keys

        def heard(tokens: Tokens, count: int) -> Tokens:
            """The tokens of a call, of which those heard in silence are padding."""
            assert self.recording is not None
            batch, samples = self.recording.shape
            if tokens.valid is not None or batch != coordinates.batch or not 0 < count <= samples:
                return tokens
            first = torch.arange(count, device=self.recording.device) * samples // count
            return replace(tokens, valid=self.recording[:, first])

        return queries if cross else heard(queries, coordinates.queries), heard(keys, coordinates.keys)

    def padded_by_model(
        self, stack: str, coordinates: Coordinates, visible: Bool[Tensor, "batch key"]
    ) -> Tokens | None:
        """The tokens of self-attention in a model that pads its input itself, as Longformer does to whole windows.

        None unless the mask hides exactly the user's padding and the keys after the sequence.
        """
        sequence, keys = self._queries_of(stack), coordinates.keys
        length = sequence.length
        if _reads_media(stack) or length is None or not length < keys == coordinates.queries:
            return None
        valid = sequence.valid if sequence.valid is not None else visible.new_ones(coordinates.batch, length)
        padded = replace(sequence, valid=valid).filled(keys)
        return padded.last(keys, coordinates.batch) if torch.equal(cast(Tensor, padded.valid), visible) else None

    def _queries_of(self, stack: str) -> Sequence:
        """The sequence that the queries of a stack belong to."""
        decodes = self.two and "encoder" not in stack.split("_")
        return self.sequences.get("decoder" if decodes else "", Sequence())


def _reads_media(stack: str) -> bool:
    """Whether a stack reads images or sound, not token ids."""
    return "vision" in stack or "audio" in stack


def _has_two_sequences(model: nn.Module) -> bool:
    """Whether the calls of a model have tokens of an encoder and of a decoder."""
    return isinstance(model, nn.Transformer | nn.TransformerDecoder) or is_encoder_decoder(model)


def _ids_of(model: nn.Module, role: str, arguments: Mapping[str, Any]) -> Tensor | None:
    """The token ids of one role; without a known argument name, the only candidate among integer arguments."""
    named = next((arguments[n] for n in _IDS[role] if _is_ids(arguments.get(n))), None)
    if named is not None or role == "decoder" or "input_ids" in inspect.signature(model.forward).parameters:
        return named
    candidates = [x for n, x in arguments.items() if _is_ids(x) and not any(w in n for w in _NOT_IDS)]
    return candidates[0] if len(candidates) == 1 else None


def _sound(model: nn.Module, arguments: Mapping[str, Any]) -> Tensor | None:
    """The recording that a model reads, as samples or as mel frames."""
    name = getattr(model, "main_input_name", "")
    sound = arguments.get(name) if name in _SOUNDS else None
    return sound if isinstance(sound, Tensor) else None


def _heard(model: nn.Module, recording: Tensor) -> Bool[Tensor, "batch frame"] | None:
    """False for the silence after a recording of (batch, mel bin, frame): frames equal to the last one.

    Whisper's feature extractor pads with zeros, whose frames are all equal, and returns no mask.
    """
    bins = getattr(getattr(model, "config", None), "num_mel_bins", None)
    if recording.ndim != 3 or recording.shape[1] != bins or recording.shape[2] < 2:
        return None
    equal = (recording == recording[..., -1:]).all(1)
    silent = equal.flip(-1).cumprod(-1).flip(-1).bool()
    count = silent.sum(-1, keepdim=True)
    silent &= (count > 1) & (count < silent.shape[1])  # every recording has a last frame, and some sound
    return ~silent if bool(silent.any()) else None


def _append(before: Tensor | None, ids: Tensor, past: int) -> Tensor | None:
    """All token ids so far; None unless the earlier ids match the cache in length and batch rows."""
    if before is None or before.shape[0] != ids.shape[0] or before.shape[1] != past or _reorders_cache():
        return None
    return torch.cat([before, ids], dim=1)


def _reorders_cache() -> bool:
    """Whether a beam search is running, which reorders the rows of its cache at every step."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # no public equivalent
    while frame is not None:
        if "beam_search" in frame.f_code.co_name:
            return True
        frame = frame.f_back
    return False


def _tail(x: Tensor | None, count: int, batch: int) -> Tensor | None:
    if x is None or x.shape[0] != batch or x.shape[1] < count:
        return None
    return x[:, x.shape[1] - count :]


def _bound_arguments(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, to read its tokens from."""
    try:
        bound = inspect.signature(model.forward).bind_partial(*args, **kwargs)
    except TypeError:
        return dict(kwargs)
    arguments: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            arguments.update(value)
        else:
            arguments[name] = value
    return arguments


def _is_ids(x: object) -> bool:
    return isinstance(x, Tensor) and x.ndim == 2 and x.dtype in (torch.int64, torch.int32)


def _is_flat_mask(x: object) -> bool:
    return isinstance(x, Tensor) and x.ndim == 2


def _hides(name: str, mask: object) -> bool:
    """Whether a mask marks padding tokens: 0 for attention_mask and the like, True for torch.nn's padding masks."""
    if not isinstance(mask, Tensor) or mask.ndim < 2:
        return False
    return bool(mask.bool().any()) if name.endswith("key_padding_mask") else not bool(mask.bool().all())


def _cache_length(cache: object) -> int:
    """Number of tokens in a cache."""
    length = getattr(cache, "get_seq_length", None)
    return 0 if length is None else int(length())


def _refuse_silent_failures(model: nn.Module, arguments: Mapping[str, Any]) -> None:
    """Raise for head_mask, which transformers 5 ignores, and output_attentions, which returns an empty tuple."""
    if not hasattr(model, "config"):
        return
    for name in ("head_mask", "decoder_head_mask", "cross_attn_head_mask"):
        if arguments.get(name) is not None:
            raise MultiheadError(
                f"{type(model).__name__} ignores {name}",
                hint="ablate heads instead: with mh.ablate(model, ['L3H7']): ...",
            )
    if arguments.get("output_attentions") or getattr(model.config, "output_attentions", False):
        raise MultiheadError(
            f"output_attentions must be off in {type(model).__name__}: attention in this block computes no maps",
            hint="with mh.capture(model, keep='qk') as heads: model(...); then heads['L3H7'].weights()",
        )


def _check_length(model: nn.Module, ids: Tensor | None) -> None:
    """Raise if the tokens of a call outnumber the table of learned positions."""
    limit = learned_positions(model)
    if ids is not None and limit is not None and ids.shape[1] > limit:
        raise SizeError(
            f"{type(model).__name__} has positions for {limit} tokens, got {ids.shape[1]}",
            hint=f"truncate the input: tokenizer(text, truncation=True, max_length={limit})",
        )
