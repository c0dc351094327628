"""Mixed documents: made of two, in batches drawn anew, the same for the same seed, padded and bounded."""

from __future__ import annotations

import random
from itertools import islice

import pytest
import torch
from torch import Tensor

from multihead.corpus.accumulator import Batch
from multihead.edit import splice_documents
from multihead.edit.splice_documents import endless, mixable, rows_in, spliced

PAD = 99


def texts() -> list[Batch]:
    """Documents of 3 to 9 tokens; token 10·i + j is the j-th of document i."""
    made: list[Batch] = []
    for start in (0, 4):
        lengths = [3 + (5 * i) % 7 for i in range(start, start + 4)]
        rows = [[10 * (start + i) + j for j in range(n)] + [PAD] * (9 - n) for i, n in enumerate(lengths)]
        ids = torch.tensor(rows)
        made.append({"input_ids": ids, "attention_mask": (ids != PAD).long()})
    return made


def mask(batch: Batch) -> Tensor:
    return batch.get("attention_mask", torch.ones_like(batch["input_ids"]))


def real(batches: list[Batch]) -> list[list[int]]:
    return [row for b in batches for row in rows_in(b)]


def test_a_spliced_document_keeps_both_ends() -> None:
    one, other = [1, 2, 3, 4, 5, 6], [11, 12, 13]
    assert spliced(one, other, 0.0) == [1, 12, 13]
    assert spliced(one, other, 0.5) == [1, 2, 3, 13]
    assert spliced(one, other, 1.0) == [1, 2, 3, 4, 5, 13]
    for at in range(11):
        made = spliced(one, other, at / 10)
        assert (made[0], made[-1]) == (1, 13)


def test_without_mixing_a_round_is_every_document_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # With a larger pool, the eight documents are sorted together, the same every time.
    monkeypatch.setattr(splice_documents, "POOL", 1)
    drawn = endless(texts(), 0.0, random.Random(3))
    rounds = [list(islice(drawn, 2)) for _ in range(4)]
    for made in rounds:
        assert sorted(real(made)) == sorted(real(texts()))
        for b in made:
            assert torch.equal(b["attention_mask"] == 0, b["input_ids"] == PAD), (
                "padded as the text was, at the end"
            )
            assert b["input_ids"].shape[1] == max(map(len, rows_in(b))), "no wider than needed"
    company = {frozenset(map(tuple, rows_in(b))) for made in rounds for b in made}
    assert len(company) > 2, "other batches every time"


def test_mixed_documents_are_of_two() -> None:
    seen: set[tuple[int, ...]] = set()
    for made in islice(endless(texts(), 1.0, random.Random(0)), 60):
        for row in rows_in(made):
            seen.add(tuple(row))
            of = [token // 10 for token in row]
            assert sorted(of, key=of.index) == of, "one piece of each"
            assert len(set(of)) <= 2
            ends = [r for r in real(texts()) if r[-1] == row[-1]]
            assert ends, "it ends as a document does"
            assert row[0] % 10 == 0, "and begins as one does"
    assert len(seen) > 40


def test_batches_stay_as_large_as_they_were() -> None:
    long = {"input_ids": torch.arange(40).view(1, 40), "attention_mask": torch.ones(1, 40).long()}
    for made in islice(endless([*texts(), long], 0.5, random.Random(1)), 40):
        rows, width = made["input_ids"].shape
        assert rows <= 4
        assert rows * width <= 40


def test_batches_without_a_mask_stay_without() -> None:
    given = [{"input_ids": torch.arange(60).view(5, 12)}, {"input_ids": torch.arange(100, 106).view(3, 2)}]
    lengths: set[int] = set()
    for made in islice(endless(given, 1.0, random.Random(1)), 60):
        assert set(made) == {"input_ids"}
        lengths.add(made["input_ids"].shape[1])
    assert len(lengths) > 2, "and yet there are documents of other lengths"


def test_a_seed_says_what_is_drawn() -> None:
    first, same, other = (list(islice(endless(texts(), 0.5, random.Random(s)), 9)) for s in (5, 5, 6))
    assert real(first) == real(same)
    assert real(first) != real(other)


def test_other_batches_come_as_they_are() -> None:
    pixels = {"pixel_values": torch.ones(3, 2)}
    two = {"input_ids": torch.ones(2, 3).long(), "decoder_input_ids": torch.ones(2, 5).long()}
    assert not mixable(pixels)
    assert not mixable(two)
    assert mixable(texts()[0])
    drawn = list(islice(endless([pixels, two], 1.0, random.Random(0)), 4))
    assert all(b is pixels or b is two for b in drawn)
    assert len({id(b) for b in drawn}) == 2
