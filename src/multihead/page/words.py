"""The tokens of a text as a person reads them, and which of them only mark where texts begin and end.

>>> from multihead.page.words import Words, clear
>>> clear("a\\x00b\\u202ec")
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

_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def clear(text: str) -> str:
    """The text with everything visible that a browser would hide or obey: controls, marks of direction."""

    def named(found: re.Match[str]) -> str:
        code = ord(found[0])
        if code < 0x20:
            return chr(0x2400 + code)
        return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"

    return _ODD.sub(named, text)


@dataclass(frozen=True)
class Words:
    """The tokens of one sequence: what is shown, whether a space is before it, whether it is a special token."""

    shown: list[str]
    glued: list[bool]
    special: list[bool]

    @staticmethod
    def plain(ids: Sequence[int], special: Sequence[int] = ()) -> Words:
        """Ids of tokens that nobody can spell."""
        return Words([str(i) for i in ids], [False] * len(ids), [i in special for i in ids])

    @staticmethod
    def places(count: int) -> Words:
        """No tokens at all: places of vectors, from 0."""
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
        """The tokens of a text; of ids alone where there is no tokenizer, or no text that they are of.

        Of a text that was cut into windows of at most `longest` tokens, those of number `window`.
        """
        if tokenizer is None:
            return Words.plain(ids)
        special = set(map(int, tokenizer.all_special_ids))
        marks = [i in special for i in ids]
        found = None if text is None else _cut_from(text, ids, tokenizer, longest, window)
        pieces: list[tuple[str, bool]] = []
        names = [str(t) for t in tokenizer.convert_ids_to_tokens(list(ids))]
        for at, name in enumerate(names):
            own = None if found is None or marks[at] else found[at]
            pieces.append((name, False) if marks[at] else _spelled(name) if own is None else own)
        return Words([clear(p[:LONGEST]) for p, _ in pieces], [glued for _, glued in pieces], marks)


def _cut_from(
    text: str, ids: Sequence[int], tokenizer: Any, longest: int | None, window: int
) -> list[tuple[str, bool] | None] | None:
    """Each token as it stands in the text; None for one that stands nowhere."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    cut = {"truncation": True, "max_length": longest, "return_overflowing_tokens": True} if longest else {}
    made = tokenizer([text], return_offsets_mapping=True, verbose=False, **cut)
    if window >= len(made["input_ids"]) or list(made["input_ids"][window]) != list(ids):
        return None
    offsets = cast(list[tuple[int, int]], made["offset_mapping"][window])
    pieces: list[tuple[str, bool] | None] = []
    for start, end in offsets:
        piece = text[start:end]
        bare = piece.strip()
        glued = start > 0 and bare == piece and not text[start - 1].isspace()
        pieces.append((bare or ("↵" if "\n" in piece else "␣"), glued) if end > start else None)
    return pieces


def _spelled(name: str) -> tuple[str, bool]:
    """A piece of a vocabulary: `##ing`, `Ġword` and `▁word` say whether a space is before them."""
    if name.startswith("##") and len(name) > 2:
        return name[2:], True
    if name[:1] in ("Ġ", "▁"):
        return name[1:] or "␣", False
    marked = unicodedata.category(name[0]) == "Ps" if name else False
    return name or "␣", not marked and not name[:1].isalnum()
