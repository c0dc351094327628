"""Token classes derived from a tokenizer's vocabulary.

>>> from multihead.measures.kinds.token_classes import class_of
>>> [class_of(word) for word in ("the", "The", "Paris", "42", "...", "walk")]
['function words', 'function words', 'capitalised', 'digits', 'punctuation', None]
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from multihead._base.arguments import check_list, integers
from multihead.errors import MultiheadError, SizeError

FUNCTION_WORDS = frozenset(
    """
    a about above after again against all am an and any are as at be because been before being below between
    both but by can could did do does down during each few for from further had has have he her here hers him
    his how i if in into is it its just may me might more most must my no nor not now of off on once only or
    other our out over own s same shall she should so some such t than that the their them then there these they
    this those through to too under until up us very was we were what when where which while who whom why will
    with would you your
    """.split()  # noqa: SIM905  # easier to read than a hundred quoted words
)
"""English articles, pronouns, prepositions, conjunctions and auxiliaries."""

_MARKERS = ("▁", "Ġ", "Ċ", "##")  # tokenizers' marks for a leading space, a newline, and a continued word


def class_of(word: str) -> str | None:
    """The class of a token as text; None for an ordinary word."""
    for marker in _MARKERS:
        word = word.replace(marker, "")
    word = word.strip()
    if not word:
        return None
    if all(unicodedata.category(c)[0] in "PS" for c in word):
        return "punctuation"
    if all(c.isdigit() or c in ".,:" for c in word):
        return "digits"
    if word.lower() in FUNCTION_WORDS:
        return "function words"
    return "capitalised" if word[0].isupper() else None


def classes_of(tokenizer: Any) -> dict[str, tuple[int, ...]]:
    """Token ids of each class: punctuation, digits, function words, capitalised, word pieces.

    Word pieces are tokens that continue a word, if the vocabulary marks them. Empty classes are excluded.
    """
    vocabulary: Mapping[str, int] = tokenizer.get_vocab()
    special = set(tokenizer.all_special_ids)
    spaces = any(word.startswith(("▁", "Ġ")) for word in vocabulary)
    hashes = any(word.startswith("##") for word in vocabulary)
    ids_by_class: dict[str, list[int]] = {}
    for word, i in sorted(vocabulary.items(), key=lambda item: item[1]):
        if i in special:
            continue
        piece = word.startswith("##") if hashes else spaces and not word.startswith(("▁", "Ġ")) and word.isalpha()
        name = "word pieces" if piece else class_of(word)
        if name is not None:
            ids_by_class.setdefault(name, []).append(i)
    return {name: tuple(ids) for name, ids in ids_by_class.items()}


def class_ids(name: str, members: Sequence[int] | Sequence[str], tokenizer: Any) -> tuple[int, ...]:
    """The ids of a class given as ids or words; each word must be a single token."""
    check_list(f"class {name!r}", members, "ids or words", hint='classes={"colours": [17, 42]}')
    ids: list[int] = []
    for member in members:
        if not isinstance(member, str):
            ids += integers(f"class {name!r}", [member])
            continue
        if tokenizer is None:
            raise MultiheadError(
                f"class {name!r} contains the word {member!r}, which needs a tokenizer",
                hint="pass tokenizer=..., or token ids",
            )
        single = [
            pieces[0]
            for text in (member, f" {member}")
            if len(pieces := tokenizer(text, add_special_tokens=False)["input_ids"]) == 1
        ]
        if not single:
            raise SizeError(
                f"class {name!r}: {member!r} must be a single token of this tokenizer",
                hint="pass words that are single tokens, or token ids",
            )
        ids += single
    return tuple(sorted(set(ids)))
