"""`mh.embedded()`: the small trained model that lies in the package, with its tokenizer.

>>> import multihead as mh
>>> model, tokenizer = mh.embedded()
>>> len(mh.anatomy(model)), len(tokenizer)
(3, 214)
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import cast

from multihead.sources.embedded.network import EmbeddedModel
from multihead.sources.embedded.tokenizer import WordTokenizer

FOLDER = Path(str(files("multihead.sources.embedded"))) / "trained"
"""Written by `python -m multihead.sources.embedded.train`: weights, sizes, words, and the card."""


def embedded() -> tuple[EmbeddedModel, WordTokenizer]:
    """The model, in eval mode, and its tokenizer; nothing is downloaded, and transformers is not needed."""
    from multihead.store.load import load  # which stands above the models

    return cast(EmbeddedModel, load(FOLDER)), WordTokenizer.from_pretrained(FOLDER)
