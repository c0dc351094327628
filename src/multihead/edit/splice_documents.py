"""More calibration text from the same documents: the beginning of one, spliced to the end of another.

The original model gives the right answer to any text, so the cut one can learn from text that no person wrote. The
same seed draws the same documents.

>>> import random, torch
>>> from multihead.edit.splice_documents import endless, spliced
>>> spliced([101, 7, 8, 9, 102], [101, 3, 4, 5, 102], 0.5)
[101, 7, 4, 5, 102]
>>> batch = {"input_ids": torch.arange(12).view(3, 4), "attention_mask": torch.ones(3, 4).long()}
>>> drawn = endless([batch], 1.0, random.Random(0))
>>> next(drawn)["input_ids"].shape
torch.Size([3, 4])
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from multihead.corpus.accumulator import Inputs

POOL = 8
"""So many batches are drawn at once, sorted by length and cut apart: little padding, other company every time."""


def endless(batches: Sequence[Inputs], share: float, draw: random.Random) -> Iterator[Inputs]:
    """Documents of these batches over and over, differently batched every time, a `share` of them spliced.

    Batches that hold more than token ids and which of them are real come as they are.
    """
    texts = [b for b in batches if mixable(b)]
    others = [b for b in batches if not mixable(b)]
    rows = [row for b in texts for row in rows_in(b)]
    size = max((len(b["input_ids"]) for b in texts), default=1)
    tokens = max((b["input_ids"].numel() for b in texts), default=0)
    masks = any("attention_mask" in b for b in texts)  # else the model may take none: rows of one length only
    while True:
        draw.shuffle(rows)
        for start in range(0, len(rows), POOL * size):
            pool = [_mixed(row, rows, share, draw) for row in rows[start : start + POOL * size]]
            drawn = [_batch(part, texts) for part in _parts(sorted(pool, key=len), size, tokens, masks)]
            draw.shuffle(drawn)
            yield from drawn
        draw.shuffle(others)
        yield from others


def halves_of_two(rows: Sequence[list[int]], count: int, draw: random.Random) -> list[list[int]]:
    """`count` documents of the first half of one and the second half of another, special tokens at both ends."""
    if len(rows) < 2:
        return []
    spliced_rows: list[list[int]] = []
    while len(spliced_rows) < count:
        others = list(rows)
        draw.shuffle(others)
        pairs = zip(rows, others, strict=True)
        spliced_rows += [a[: (len(a) + 1) // 2] + b[(len(b) + 1) // 2 :] for a, b in pairs]
    return spliced_rows[:count]


def mixable(batch: Inputs) -> bool:
    """Whether documents of a batch can be spliced: they are token ids, and nothing else."""
    ids, mask = batch.get("input_ids"), batch.get("attention_mask")
    if not isinstance(ids, Tensor) or ids.ndim != 2 or not set(batch) <= {"input_ids", "attention_mask"}:
        return False
    return mask is None or (isinstance(mask, Tensor) and mask.shape == ids.shape)


def rows_in(batch: Inputs) -> list[list[int]]:
    """The token ids of every document, without padding."""
    ids, mask = batch["input_ids"], batch.get("attention_mask")
    return ids.tolist() if mask is None else [row[kept != 0].tolist() for row, kept in zip(ids, mask, strict=True)]


def spliced(first: Sequence[int], second: Sequence[int], at: float) -> list[int]:
    """The beginning of one document and the end of another, cut at the same share of both; both ends are kept."""
    end, start = (min(max(1, round(at * len(row))), len(row) - 1) for row in (first, second))
    return [*first[:end], *second[start:]]


def _mixed(row: list[int], rows: Sequence[list[int]], share: float, draw: random.Random) -> list[int]:
    """The row, or with probability `share` the row spliced with another."""
    if draw.random() >= share:
        return row
    other = draw.choice(rows)
    return spliced(row, other, draw.random()) if min(len(row), len(other)) > 1 else row


def _parts(rows: Sequence[list[int]], size: int, tokens: int, masks: bool) -> Iterator[Sequence[list[int]]]:
    """Spliced rows in batches: neighbours in length, at most `size`, and `tokens` with their padding."""
    end = len(rows)
    while end:
        longest = len(rows[end - 1])
        start = max(0, end - max(1, min(size, tokens // max(1, longest))))
        while not masks and len(rows[start]) < longest:
            start += 1
        yield rows[start:end]
        end = start


def _batch(rows: Sequence[list[int]], like: Sequence[Inputs]) -> Inputs:
    """A batch of spliced rows, padded on the right, on the device of the others."""
    width, ids = max(map(len, rows)), like[0]["input_ids"]
    if all(len(row) == width for row in rows):
        return {"input_ids": torch.tensor(rows).to(ids)}
    masked = [b for b in like if "attention_mask" in b]
    padding = (b["input_ids"][b["attention_mask"] == 0] for b in masked)
    pad = next((int(found[0]) for found in padding if found.numel()), 0)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    padded = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])
    return {"input_ids": padded.to(ids), "attention_mask": mask.to(masked[0]["attention_mask"])}
