"""Padding is what the user's mask says; a document's numbers do not depend on the batch that it came in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multihead as mh
import zoo

DOCUMENTS = [[7, 8, 9, 10, 11], [12, 13], [14, 15, 16]]


class Reader(nn.Module):
    """One layer of attention over the embeddings of the tokens; subclasses treat the mask differently."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.qkv = nn.Embedding(31, 12), nn.Linear(12, 36)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.table(input_ids)
        q, k, v = self.qkv(x).unflatten(-1, (3, 3, -1)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(2 * q, k, v, attn_mask=self.mask(q @ k.mT, attention_mask))

    def mask(self, scores: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        return None if attention_mask is None else attention_mask.bool()[:, None, None]


class Ignoring(Reader):
    def mask(self, scores: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        return None


class Sparse(Reader):
    """Every query sees two keys: some keys are seen by no query."""

    def mask(self, scores: Tensor, attention_mask: Tensor | None) -> Tensor:
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask[:, None, None] == 0, -torch.inf)
        return (
            torch.zeros_like(scores)
            .bool()
            .scatter(-1, scores.mean(1, keepdim=True).expand_as(scores).topk(2).indices, True)
        )


class Without(Reader):
    def forward(self, input_ids: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(input_ids)


def entropies(model: nn.Module, batch_size: int, **options: Any) -> mh.HeadTable:
    return mh.measure(model.eval(), DOCUMENTS, batch_size=batch_size, **options)


@pytest.mark.parametrize("kind", [Reader, Ignoring, Sparse, Without])
def test_numbers_do_not_depend_on_the_batch(kind: type[Reader]) -> None:
    alone, together = entropies(kind(), 1), entropies(kind(), 3)
    for column in ("entropy", "first", "visible"):
        if column in alone.columns:
            torch.testing.assert_close(alone[column], together[column])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Ignoring, "takes an attention_mask, but its attention depends on padding"),
        (Without, "takes no attention_mask"),
    ],
)
def test_batches_of_one_length_are_noted(kind: type[Reader], reason: str) -> None:
    assert entropies(kind(), 3).about["notes"] == [
        f"{kind.__name__} {reason}: every batch has documents of one length"
    ]
    assert "notes" not in entropies(Reader(), 3).about


def test_keys_that_no_query_selects_are_real_tokens() -> None:
    model = Sparse().eval()
    with torch.no_grad(), mh.capture(model) as heads:
        model(torch.arange(11).view(1, 11))
    assert heads.tokens == 11


def test_padding_of_torchs_layer_is_what_its_mask_says() -> None:
    model = zoo.ZOO["torch-encoder"].build()
    batch = zoo.ZOO["torch-encoder"].padded(model)
    assert batch is not None
    with torch.no_grad(), mh.capture(model) as heads:
        model(**batch)
    assert heads.tokens == zoo.TOKENS + zoo.KEPT
