"""Which input of a model holds its token ids, their special ends, and random draws for them."""

from __future__ import annotations

import torch
from torch import Tensor

from multihead.corpus.accumulator import Inputs

NAMES = ("input_ids", "idx", "ids", "tokens")
KNOWN = ("attention_mask", "token_type_ids", "position_ids", "labels")
"""Inputs that go along with token ids."""


def token_ids_name(inputs: Inputs) -> str | None:
    """A name of `NAMES`, else the only table of whole numbers."""
    tables = [name for name, x in inputs.items() if _is_table_of_ids(x) and name not in KNOWN]
    return next((name for name in NAMES if name in tables), tables[0] if len(tables) == 1 else None)


def _is_table_of_ids(x: object) -> bool:
    return isinstance(x, Tensor) and x.ndim == 2 and x.dtype in (torch.int64, torch.int32)


def batch_generator(seed: int, index: int, purpose: int) -> torch.Generator:
    """The draws of one batch for one purpose: the same whenever and wherever it runs."""
    return torch.Generator().manual_seed((seed * 1_000_003 + index) * 7 + purpose)


def split_special(ids: list[int], special: set[int]) -> tuple[list[int], list[int], list[int]]:
    """Split token ids into the special tokens before the others, the others, and the special tokens after them."""
    start = next((i for i, x in enumerate(ids) if x not in special), len(ids))
    stop = next((i for i in range(len(ids), start, -1) if ids[i - 1] not in special), start)
    return ids[:start], ids[start:stop], ids[stop:]
