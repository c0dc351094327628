"""`mh.embedded()`: the small trained model inside the package, with its tokenizer.

>>> import multihead as mh
>>> model, tokenizer = mh.embedded()
>>> len(mh.anatomy(model)), len(tokenizer)
(3, 214)
"""

from __future__ import annotations

from typing import cast

from multihead.sources.embedded import FOLDER
from multihead.sources.embedded.network import EmbeddedModel
from multihead.sources.embedded.tokenizer import WordTokenizer
from multihead.store.load import load


def embedded() -> tuple[EmbeddedModel, WordTokenizer]:
    """The model, in eval mode, and its tokenizer; nothing is downloaded, and transformers is not needed."""
    return cast(EmbeddedModel, load(FOLDER)), WordTokenizer.from_pretrained(FOLDER)
