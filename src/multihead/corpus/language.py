"""Which words a tokenizer does not have, and a warning if they are many: the text is in another language.

>>> from multihead.corpus.language import warn_of_unknown
>>> import warnings
>>> with warnings.catch_warnings(record=True) as caught:
...     warnings.simplefilter("always")
...     warn_of_unknown(3, 100, "the text")
...     warn_of_unknown(30, 100, "the text")
>>> [str(w.message) for w in caught]
["30 of 100 tokens (30%) are unknown to the tokenizer: is the text in the model's language?"]
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from itertools import islice
from typing import Any

from multihead._base.plural import plural

UNKNOWN = 0.1
"""The share of unknown tokens at which to warn."""
_WORD = re.compile(r"\w+|[^\w\s]")
LOOKED_AT, CHARACTERS = 32, 2000
"""How many documents to check, and how many characters of each."""


def unknown_words(tokenizer: Any, text: str) -> list[str]:
    """The words of a text for which the tokenizer has no token, each once."""
    unknown_id = getattr(tokenizer, "unk_token_id", None)
    if unknown_id is None or unknown_id not in tokenizer(text)["input_ids"]:
        return []
    words = dict.fromkeys(_WORD.findall(text))
    return [word for word in words if unknown_id in tokenizer(word, add_special_tokens=False)["input_ids"]]


def warn_of_unknown(unknown: int, tokens: int, what: str) -> None:
    """Warn if many tokens are unknown."""
    if tokens and unknown >= UNKNOWN * tokens:
        warnings.warn(
            f"{unknown} of {plural(tokens, 'token')} ({unknown / tokens:.0%}) are unknown to the tokenizer: "
            f"is {what} in the model's language?",
            stacklevel=4,
        )


def check_language(tokenizer: Any, texts: Iterable[Any], what: str) -> None:
    """Tokenize the beginning of the first texts, and warn if many tokens are unknown.

    Token ids are skipped, and texts that can be read only once.
    """
    unknown_id = getattr(tokenizer, "unk_token_id", None)
    if unknown_id is None or iter(texts) is texts:
        return
    beginnings = [text[:CHARACTERS] for text in islice(texts, LOOKED_AT) if isinstance(text, str)]
    ids = [i for text in beginnings for i in tokenizer(text)["input_ids"]]
    warn_of_unknown(ids.count(unknown_id), len(ids), what)
