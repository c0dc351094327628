"""Statistics over a corpus equal those of the single runs, however it is cut into batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import multihead as mh
import zoo
from multihead.corpus.batches import batches
from multihead.errors import SizeError, TypeMismatchError

DOCUMENTS = [[7, 8, 9, 7, 8], [11, 12], [13, 14, 15, 16, 17, 18, 13], [20, 21, 22]]


def table(name: str = "bert", **options: Any) -> Any:
    return mh.measure(zoo.ZOO[name].build(), DOCUMENTS, **options)


def test_batches_do_not_matter() -> None:
    one, all_at_once, two = table(batch_size=1), table(batch_size=8), table(batch_size=2)
    assert one.heads == ("L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2")
    for name in one.columns:
        torch.testing.assert_close(one[name], all_at_once[name], equal_nan=True, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(one[name], two[name], equal_nan=True, rtol=1e-4, atol=1e-5)


def test_what_a_corpus_may_hold() -> None:
    ids = torch.tensor([[7, 8, 9, 7, 8], [11, 12, 1, 1, 1]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    batches = [{"input_ids": ids, "attention_mask": mask}, torch.tensor(DOCUMENTS[2]), DOCUMENTS[3]]
    expected = table()
    got = mh.measure(zoo.ZOO["bert"].build(), batches)
    torch.testing.assert_close(got["entropy"], expected["entropy"], rtol=1e-4, atol=1e-5)


def test_texts_need_a_tokenizer() -> None:
    class Letters:
        all_special_ids = (5,)
        pad_token_id = 0

        def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
            return {"input_ids": [5, *(6 + ord(c) % 50 for c in text), 5]}

    model = zoo.ZOO["bert"].build()
    got = mh.measure(model, ["abcab", "xy"], tokenizer=Letters())
    assert float(got["special"].min()) > 0
    with pytest.raises(mh.MultiheadError, match="document 0 is text, and no tokenizer"):
        mh.measure(model, ["abc"])


def test_long_documents() -> None:
    long = [list(range(5, 50))]
    model = zoo.ZOO["bert"].build()
    whole = mh.measure(model, long)  # the model has 37 positions
    by_hand = mh.measure(model, [long[0][:37], long[0][37:]])
    torch.testing.assert_close(whole["entropy"], by_hand["entropy"])
    pieces = mh.measure(model, long, max_tokens=20)
    by_hand = mh.measure(model, [long[0][:20], long[0][20:40], long[0][40:]])
    torch.testing.assert_close(pieces["entropy"], by_hand["entropy"])


def test_bad_documents() -> None:
    model = zoo.ZOO["bert"].build()
    with pytest.warns(UserWarning, match="skipped 1 document without a token"):
        mh.measure(model, [[], [7, 8, 9]])
    with pytest.raises(TypeMismatchError, match=r"document 1 must be .* got the Tensor of .* shape \(2, 2\)"):
        mh.measure(model, [[7], torch.zeros(2, 2)])
    with pytest.raises(SizeError, match="batch_size must be at least 1, got 0"):
        mh.measure(model, DOCUMENTS, batch_size=0)
    with pytest.raises(mh.MultiheadError, match="nothing to measure"):
        mh.measure(model, [[]])
    with pytest.raises(TypeMismatchError, match="list of texts, got one text"):
        mh.measure(model, "hello")
    with pytest.raises(SizeError, match=r"max_tokens must be at least 1 and at most 37.*, got 600"):
        mh.measure(model, DOCUMENTS, max_tokens=600)
    one = mh.measure(model, {"input_ids": torch.tensor(DOCUMENTS[:1])})
    torch.testing.assert_close(one["entropy"], mh.measure(model, DOCUMENTS[:1])["entropy"])


# ---- batches ----------------------------------------------------------------------------------


def test_batches_are_made_when_they_are_asked_for_and_mistakes_are_told_at_once() -> None:
    asked: list[int] = []

    def documents() -> Any:
        for at, document in enumerate(DOCUMENTS):
            asked.append(at)
            yield document

    model = zoo.ZOO["bert"].build()
    made = batches(model, documents(), batch_size=2)
    assert asked == []
    first = next(made)
    assert asked == [0, 1]
    assert first["input_ids"].tolist() == [[7, 8, 9, 7, 8], [11, 12, 0, 0, 0]]
    assert first["attention_mask"].sum(1).tolist() == [5, 2]
    with pytest.raises(SizeError, match="batch_size must be at least 1, got 0"):
        batches(model, DOCUMENTS, batch_size=0)
    with pytest.raises(TypeMismatchError, match="list of texts, got one text"):
        batches(model, "text")
    again = [list(batches(model, DOCUMENTS, batch_size=3)) for _ in range(2)]
    for one, other in zip(*again, strict=True):
        assert one["input_ids"].equal(other["input_ids"])
    assert "attention_mask" not in next(iter(batches(model, [[7, 8], [9, 6]]))), "nothing is padded"


def test_a_fast_tokenizer_puts_special_tokens_around_every_piece() -> None:
    from cli.conftest import tokenizer

    model, fast = zoo.ZOO["bert"].build(), tokenizer()
    (batch,) = batches(model, ["the cat sat on the mat"], tokenizer=fast, max_tokens=5)
    cls, sep = fast.cls_token_id, fast.sep_token_id  # type: ignore[attr-defined]
    assert batch["input_ids"].tolist() == [[cls, 4, 6, 8, sep], [cls, 9, 4, 10, sep]]
    (whole,) = batches(model, ["the cat sat on the mat"], tokenizer=fast)
    assert whole["input_ids"].tolist() == [[cls, 4, 6, 8, 9, 4, 10, sep]]
    with pytest.raises(SizeError, match="more than the 2 special tokens of every piece, got 2"):
        list(batches(model, ["the cat"], tokenizer=fast, max_tokens=2))


@pytest.mark.parametrize("odd", [10**6, -1])
def test_ids_that_the_model_does_not_know_are_named(odd: int) -> None:
    with pytest.raises(SizeError, match=f"document 1 has the token id {odd}, the model has embeddings for"):
        mh.measure(zoo.ZOO["gpt2"].build(), [[1, 2, 3], [1, odd]])


class Maskless(nn.Module):
    """Takes no attention_mask: padding would be text to it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.attn = nn.Embedding(17, 12), mh.MultiHeadAttention(12, 3)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.attn(3 * self.words(input_ids))


def test_a_model_without_a_mask_gets_rows_of_one_length() -> None:
    documents = [[3, 1, 4], [1, 5, 9, 2, 6], [5, 3], [5, 8, 9, 7, 9], [3, 2, 3]]
    model = Maskless().eval()
    alone, together = (mh.measure(model, documents, batch_size=size) for size in (1, 5))
    torch.testing.assert_close(together["entropy"], alone["entropy"])
    assert [b["input_ids"].shape for b in batches(model, documents, batch_size=5)] == [(2, 3), (2, 5), (1, 2)]
