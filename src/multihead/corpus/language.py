"""Is a text in the model's language? By the share of its tokens that the tokenizer does not know.

>>> from multihead.corpus.language import warn_of_unknown
>>> import warnings
>>> with warnings.catch_warnings(record=True) as said:
...     warnings.simplefilter("always")
...     warn_of_unknown(3, 100, "the text")
...     warn_of_unknown(30, 100, "the text")
>>> [str(w.message) for w in said]
["30 of 100 tokens (30%) are unknown to the tokenizer: is the text in the model's language?"]
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from itertools import islice
from typing import Any

UNKNOWN = 0.1
"""A share of unknown tokens from which on the text is said not to be in the model's language."""
LOOKED_AT, CHARACTERS = 32, 2000
"""So many documents, and of each so much, are enough to tell a language."""


def warn_of_unknown(unknown: int, tokens: int, what: str) -> None:
    """Warn where many tokens are unknown."""
    if tokens and unknown >= UNKNOWN * tokens:
        warnings.warn(
            f"{unknown} of {tokens} tokens ({unknown / tokens:.0%}) are unknown to the tokenizer: "
            f"is {what} in the model's language?",
            stacklevel=4,
        )


def check_language(tokenizer: Any, texts: Iterable[Any], what: str) -> None:
    """Look at the beginning of a text, and warn; documents of ids say nothing."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None:
        return
    words = [text[:CHARACTERS] for text in islice(texts, LOOKED_AT) if isinstance(text, str)]
    ids = [i for text in words for i in tokenizer(text)["input_ids"]]
    warn_of_unknown(ids.count(unknown), len(ids), what)
