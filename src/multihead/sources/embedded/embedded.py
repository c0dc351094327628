"""`mh.embedded()`: the small trained model inside the package, with its tokenizer."""

from __future__ import annotations

from typing import cast

from multihead.sources.embedded import FOLDER
from multihead.sources.embedded.network import EmbeddedModel
from multihead.sources.embedded.tokenizer import WordTokenizer
from multihead.store.load import load


def embedded() -> tuple[EmbeddedModel, WordTokenizer]:
    """Load the small trained language model inside the package, and its tokenizer; nothing is downloaded.

    Returns:
        (model, tokenizer): 3 layers of 4 heads in eval mode, and a tokenizer of 214 words. Its `sample_texts()` are
            held-out documents in the synthetic language of the model. transformers is not needed.

    >>> import torch, multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> ids = tokenizer("<now> <town> the keys that the man near the doors sees")["input_ids"]
    >>> with torch.no_grad():
    ...     guess = model(torch.tensor([ids])).logits[0, -1].argmax()
    >>> tokenizer.decode([int(guess)])  # a plural verb
    'are'
    """
    return cast(EmbeddedModel, load(FOLDER)), WordTokenizer.from_pretrained(FOLDER)
