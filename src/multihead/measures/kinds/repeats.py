"""Repeated random tokens, to detect heads that complete patterns.

Tokens are random, so meaning does not help; the period differs between rows, so a fixed offset does not either.
(Olsson et al. 2022 use one period, where attending that far back is enough.)

>>> from multihead.measures.kinds.repeats import repeats
>>> import torch
>>> ids = repeats(range(50), rows=3, tokens=20, generator=torch.Generator().manual_seed(0))
>>> ids.shape
torch.Size([3, 20])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from multihead.corpus.accumulator import Inputs
from multihead.errors import SizeError
from multihead.measures.kinds.token_ids import split_special, token_ids_name

TOKENS = 64
"""Tokens of one row, without special tokens."""


def repeats(
    vocabulary: Sequence[int],
    *,
    rows: int,
    tokens: int = TOKENS,
    begin: Sequence[int] = (),
    end: Sequence[int] = (),
    generator: torch.Generator,
) -> Int[Tensor, "row token"]:
    """Rows that repeat a random block, whose length ranges from a quarter to half of the row.

    `begin` and `end` surround each row, like the special tokens of a tokenizer. The tokens of a block are distinct
    if the vocabulary is large enough.
    """
    if tokens < 8 or not len(vocabulary):
        raise SizeError(
            f"repeats need at least 8 tokens and a vocabulary, got {tokens} tokens from {len(vocabulary)} ids",
            hint="pass tokens=64 and the ids to draw from",
        )
    rows_of_ids: list[list[int]] = []
    for period in torch.linspace(tokens // 4, tokens // 2, rows).round().int().tolist():
        if len(vocabulary) >= period:
            indices = torch.randperm(len(vocabulary), generator=generator)[:period]
        else:
            indices = torch.randint(len(vocabulary), (period,), generator=generator)
        block = [int(vocabulary[int(i)]) for i in indices]
        rows_of_ids.append([*begin, *(block * (tokens // period + 1))[:tokens], *end])
    return torch.tensor(rows_of_ids)


def special_tokens_around(inputs: Inputs, special: Sequence[int]) -> dict[str, Any] | None:
    """The special tokens around the first document, for rows of repeated tokens; None if there are no token ids.

    Also holds the name of the token ids and the ids of the batch.
    """
    name, mask = token_ids_name(inputs), inputs.get("attention_mask")
    if name is None or not len(inputs[name]):
        return None
    first = inputs[name][0]
    if mask is not None and mask.shape == inputs[name].shape:  # a speech model masks the recording
        first = first[mask[0].bool()]
    begin, _, end = split_special(first.tolist(), set(special))
    return {"name": name, "begin": begin, "end": end, "ids": inputs[name].unique().tolist()}
