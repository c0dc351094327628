"""The tokens of a text as a person reads them, and which of them are special tokens.

>>> from multihead.show.tokens import Words, show_control_chars
>>> show_control_chars("a\\x00b\\u202ec")
'a␀b⟨U+202E⟩c'
>>> Words.plain([5, 3]).shown
['5', '3']
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

LONGEST = 10_000
"""Characters of one token that are kept."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def show_control_chars(text: str) -> str:
    """Replace characters of a token that a browser hides or obeys (controls, direction marks) by visible ones."""

    def visible(match: re.Match[str]) -> str:
        """A visible character for a control character in a token."""
        code = ord(match[0])
        if code < 0x20:
            return chr(0x2400 + code)
        return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"

    return _CONTROL.sub(visible, text)


@dataclass(frozen=True)
class Words:
    """The tokens of one sequence as they are shown."""

    shown: list[str]
    joined_to_previous: list[bool]
    """no space is before the token"""
    special: list[bool]

    @staticmethod
    def plain(ids: Sequence[int], special: Sequence[int] = ()) -> Words:
        """Token ids without a tokenizer, shown as numbers."""
        return Words([str(i) for i in ids], [False] * len(ids), [i in special for i in ids])

    @staticmethod
    def positions(count: int) -> Words:
        """Positions of vectors, for a model that reads no tokens."""
        return Words([str(i) for i in range(count)], [False] * count, [False] * count)

    @staticmethod
    def of(
        ids: Sequence[int],
        tokenizer: Any = None,
        text: str | None = None,
        *,
        longest: int | None = None,
        window: int = 0,
    ) -> Words:
        """The tokens of a text; without it, as the vocabulary spells them.

        If the text was cut into windows of at most `longest` tokens, `ids` are those of number `window`.
        """
        if tokenizer is None:
            return Words.plain(ids)
        special = set(map(int, tokenizer.all_special_ids))
        marks = [i in special for i in ids]
        in_text = None if text is None else _in_text(text, ids, tokenizer, longest, window)
        pieces: list[tuple[str, bool]] = []
        names = [str(t) for t in tokenizer.convert_ids_to_tokens(list(ids))]
        for i, name in enumerate(names):
            piece = None if in_text is None or marks[i] else in_text[i]
            pieces.append((name, False) if marks[i] else _spelled(name) if piece is None else piece)
        return Words([show_control_chars(p[:LONGEST]) for p, _ in pieces], [joined for _, joined in pieces], marks)


def _in_text(
    text: str, ids: Sequence[int], tokenizer: Any, longest: int | None, window: int
) -> list[tuple[str, bool] | None] | None:
    """Each token as the text spells it, and whether it is joined to the previous one; None for one not in it."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    cut = {"truncation": True, "max_length": longest, "return_overflowing_tokens": True} if longest else {}
    encoded = tokenizer([text], return_offsets_mapping=True, verbose=False, **cut)
    if window >= len(encoded["input_ids"]) or list(encoded["input_ids"][window]) != list(ids):
        return None
    offsets = cast(list[tuple[int, int]], encoded["offset_mapping"][window])
    pieces: list[tuple[str, bool] | None] = []
    for start, end in offsets:
        piece = text[start:end]
        bare = piece.strip()
        joined = start > 0 and bare == piece and not text[start - 1].isspace()
        pieces.append((bare or ("↵" if "\n" in piece else "␣"), joined) if end > start else None)
    return pieces


def _spelled(name: str) -> tuple[str, bool]:
    """A token as a vocabulary spells it: `##ing`, `Ġword` and `▁word` tell whether a space is before them."""
    if name.startswith("##") and len(name) > 2:
        return name[2:], True
    if name[:1] in ("Ġ", "▁"):
        return name[1:] or "␣", False
    marked = unicodedata.category(name[0]) == "Ps" if name else False
    return name or "␣", not marked and not name[:1].isalnum()
