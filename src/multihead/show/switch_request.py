"""Requests to read a text, perhaps with some heads scaled, as JSON: all is checked before the model runs.

>>> from multihead.show.switch_request import SwitchRequest
>>> SwitchRequest.of(b'{"text": "the keys", "scales": {"L0H3": 0}, "token": 1}')
SwitchRequest(text='the keys', scales={'L0H3': 0.0}, token=1, head=None, decoder=None)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from multihead._base.plural import plural
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.model.sites import Site, find

EXAMPLE = '{"text": "some words", "scales": {"L0H3": 0}, "token": 2, "head": "L0H3"}'

LONGEST_NAME = 60
"""Characters of a head name, or of a wrong value in a message."""


@dataclass(frozen=True)
class TextRequest:
    """An input of the model."""

    text: str | int
    """words, or the number of an input that the server holds"""
    decoder: str | None = None
    """of an encoder–decoder, the words that the decoder has read; if None, those of the held input, or else the
    model's own answer"""

    @staticmethod
    def of(body: bytes) -> TextRequest:
        """Read and check a request, as far as that needs no model."""
        values = _json_object(body, TextRequest)
        return TextRequest(_text(values.get("text")), _decoder(values.get("decoder")))


@dataclass(frozen=True)
class SwitchRequest:
    """One text, and the factor on the output of some heads."""

    text: str | int
    """as of `TextRequest`"""
    scales: Mapping[str, float]
    """the factor of each named head, in [0, 1]; the others have 1"""
    token: int | None = None
    """where predictions are listed; if None, at the last token"""
    head: str | None = None
    """the head whose map is returned"""
    decoder: str | None = None
    """as of `TextRequest`"""

    @staticmethod
    def of(body: bytes) -> SwitchRequest:
        """Read and check a request to switch heads, as far as that needs no model."""
        values = _json_object(body, SwitchRequest)
        token, head = values.get("token"), values.get("head")
        if not (token is None or _is_index(token)):
            raise TypeMismatchError(f"token must be an integer from 0, got {_short(token)}", hint=EXAMPLE)
        if not (head is None or isinstance(head, str)):
            raise TypeMismatchError(f"head must be the name of a head, got {_short(head)}", hint=EXAMPLE)
        text, decoder = _text(values.get("text")), _decoder(values.get("decoder"))
        return SwitchRequest(text, _scales(values.get("scales", {})), token, head, decoder)

    def gates(self, sites: Iterable[Site]) -> dict[str, Tensor]:
        """The scales as `mh.gate` takes them: a tensor per layer; of layers without a scaled head, none."""
        sites = list(sites)
        heads = sum(site.heads for site in sites)
        if len(self.scales) > heads:
            raise SizeError(
                f"scales must name at most {plural(heads, 'head')}, all of the model, got {len(self.scales)}",
                hint="name each head once",
            )
        gates: dict[str, Tensor] = {}
        seen: set[str] = set()
        for name, scale in self.scales.items():
            site, index = find_head(name, sites)
            if site.name(index) in seen:
                raise SizeError(f"{site.name(index)} is named twice in scales", hint="name each head once")
            seen.add(site.name(index))
            gates.setdefault(site.label, torch.ones(site.heads))[index] = scale
        return gates


def find_head(name: str, sites: Iterable[Site]) -> tuple[Site, int]:
    """The site and index of a head that a request names."""
    if len(name) > LONGEST_NAME:
        raise SizeError(f"{_short(name)} is not a head name", hint="write L3H7")
    return find(name, sites)


def _json_object(body: bytes, request: type[TextRequest | SwitchRequest]) -> dict[str, Any]:
    """A request as JSON, with the fields that it may have."""
    try:
        values: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MultiheadError(f"the request must be JSON: {_short(error)}", hint=EXAMPLE) from error
    if not isinstance(values, dict):
        raise TypeMismatchError(f"the request must be a JSON object, got {_short(values)}", hint=EXAMPLE)
    unknown = next((name for name in values if name not in {f.name for f in fields(request)}), None)
    if unknown is not None:
        raise SizeError(f"unknown field {_short(unknown)} in the request", hint=EXAMPLE)
    return values


def _text(text: Any) -> str | int:
    """The text of the request, or the number of one; raises if it is invalid."""
    if _is_index(text):
        return text
    if not isinstance(text, str):
        raise TypeMismatchError(
            f"text must be a string, or the number of a text of the page, got {_short(text)}", hint=EXAMPLE
        )
    if not text.strip():
        raise SizeError("the text is empty", hint=EXAMPLE)
    return _unicode("text", text)


def _decoder(text: Any) -> str | None:
    """The decoder's text of the request; raises if it is invalid."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeMismatchError(f"decoder must be a string, got {_short(text)}", hint='"" is no word so far')
    return _unicode("decoder", text)


def _unicode(name: str, text: str) -> str:
    """The text of a request; raises if it has half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MultiheadError(
            f"{name} must be valid Unicode, got half of a surrogate pair at character {error.start}",
            hint="remove it",
        ) from error
    return text


def _scales(scales: Any) -> dict[str, float]:
    """The scales of the request by head; raises unless they are in [0, 1]."""
    if not isinstance(scales, dict):
        raise TypeMismatchError(f"scales must be an object, got {_short(scales)}", hint=EXAMPLE)
    for name, scale in scales.items():
        # NaN is not in [0, 1]; True is 1 in Python, but no number in JSON
        if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 <= scale <= 1:
            raise SizeError(
                f"the scale of {_short(name)} must be in [0, 1], got {_short(scale)}",
                hint="0 switches the head off, 1 leaves it as it is",
            )
    return {name: float(scale) for name, scale in scales.items()}


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _short(value: object) -> str:
    """A value of a stranger in a message."""
    written = str(value) if isinstance(value, Exception) else repr(value)
    return written if len(written) <= LONGEST_NAME else f"{written[:LONGEST_NAME]}…"
