"""Random tokens that repeat: the text in which a head that completes patterns cannot be anything else.

Tokens are drawn, so no meaning helps; the period differs from row to row, so no fixed offset does. (Olsson et al.
2022 repeat at one distance, where looking that far back is enough.)

>>> from multihead.measures.kinds.repeats import repeats
>>> import torch
>>> ids = repeats(range(50), rows=3, tokens=20, generator=torch.Generator().manual_seed(0))
>>> ids.shape
torch.Size([3, 20])
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from multihead.errors import SizeError

TOKENS = 64
"""Of one row, special tokens around it not counted."""


def repeats(
    vocabulary: Sequence[int],
    *,
    rows: int,
    tokens: int = TOKENS,
    begin: Sequence[int] = (),
    end: Sequence[int] = (),
    generator: torch.Generator,
) -> Int[Tensor, "row token"]:
    """Rows of a random block again and again; its length goes from a quarter to a half of the row.

    `begin` and `end` stand around each row, as a tokenizer writes special tokens. Inside a block all tokens differ,
    where the vocabulary is large enough.
    """
    if tokens < 8 or not len(vocabulary):
        raise SizeError(
            f"{tokens} tokens out of {len(vocabulary)} are no text that repeats",
            hint="8 tokens at least, and a vocabulary",
        )
    made: list[list[int]] = []
    for period in torch.linspace(tokens // 4, tokens // 2, rows).round().int().tolist():
        if len(vocabulary) >= period:
            drawn = torch.randperm(len(vocabulary), generator=generator)[:period]
        else:
            drawn = torch.randint(len(vocabulary), (period,), generator=generator)
        block = [int(vocabulary[int(i)]) for i in drawn]
        made.append([*begin, *(block * (tokens // period + 1))[:tokens], *end])
    return torch.tensor(made)
