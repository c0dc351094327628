"""Padding is what the user's mask says; a document's numbers do not depend on the batch that it came in."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multihead as mh
import zoo
from multihead.corpus.padding_check import PaddingCheck

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

    keys = 2

    def mask(self, scores: Tensor, attention_mask: Tensor | None) -> Tensor:
        allowed = super().mask(scores, attention_mask)
        index = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
        top = index.mean(1, keepdim=True).expand_as(scores).topk(min(self.keys, scores.shape[-1])).indices
        selected = torch.zeros_like(scores).bool().scatter(-1, top, True)
        return selected if allowed is None else selected & allowed


class Without(Reader):
    def forward(self, input_ids: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(input_ids)


class Tied(Sparse):
    """Every query sees the two keys of largest index; most indices are equal, and top-k takes any of them."""

    def mask(self, scores: Tensor, attention_mask: Tensor | None) -> Tensor:
        return super().mask(scores.relu().clamp(max=0), attention_mask)


class CausalIfMasked(Reader):
    """Causal with a mask, bidirectional without one, as the text model of VideoPrism."""

    def mask(self, scores: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        allowed = super().mask(scores, attention_mask)
        return None if allowed is None else allowed & torch.ones_like(scores).bool().tril()


class BiasFromTheEnd(Reader):
    """A bias by the distance to the last key, padding included, as in MPT: it moves all scores of a row alike."""

    def mask(self, scores: Tensor, attention_mask: Tensor | None) -> Tensor:
        bias = torch.arange(1.0 - scores.shape[-1], 1.0).expand_as(scores)
        allowed = super().mask(scores, attention_mask)
        return bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)


class LongIgnoring(Reader):
    """Ignores the mask of more than 16 tokens."""

    def mask(self, scores: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        return None if scores.shape[-1] > 16 else super().mask(scores, attention_mask)


class FailingIfMasked(Reader):
    def mask(self, scores: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        assert attention_mask is None
        return None


class Embedded(Reader):
    """Attention over tokens that the model makes of its input."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x, mask = self.tokens(self.table(input_ids), attention_mask)
        q, k, v = self.qkv(x).unflatten(-1, (3, 3, -1)).permute(2, 0, 3, 1, 4)
        allowed = None if mask is None else mask.bool()[:, None, None]
        return F.scaled_dot_product_attention(2 * q, k, v, attn_mask=allowed)

    def tokens(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        raise NotImplementedError


class Prefixed(Embedded):
    """Puts a token in front, and ignores the mask, as CPM-Ant."""

    def tokens(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return torch.cat([torch.ones_like(x[:, :1]), x], dim=1), None


class Windowed(Embedded):
    """Pads its input to whole windows of four tokens, as Longformer."""

    def tokens(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        fill = -x.shape[1] % 4
        mask = torch.ones(x.shape[:2]) if mask is None else mask
        return F.pad(x, (0, 0, 0, fill)), F.pad(mask, (0, fill))


class Summarised(Reader):
    """Causal; a summary of every two tokens stands behind all tokens, as in DeepSeek-V4."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(self.table(input_ids)).unflatten(-1, (3, 3, -1)).permute(2, 0, 3, 1, 4)
        n, pairs = q.shape[2], q.shape[2] // 2
        k, v = (torch.cat([x, x[:, :, : 2 * pairs].unflatten(2, (pairs, 2)).mean(3)], dim=2) for x in (k, v))
        ends = torch.cat([torch.arange(n), torch.arange(pairs) * 2 + 1])  # the last token of every key
        allowed = ends <= torch.arange(n)[:, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def entropies(model: nn.Module, batch_size: int, **options: Any) -> mh.HeadTable:
    return mh.measure(model.eval(), DOCUMENTS, batch_size=batch_size, **options)


@pytest.mark.parametrize(
    "kind",
    [
        Reader, Ignoring, Sparse, Without, Tied, CausalIfMasked, BiasFromTheEnd, FailingIfMasked, Prefixed,
        Windowed, Summarised,
    ],
)  # fmt: skip
def test_numbers_do_not_depend_on_the_batch(kind: type[Reader]) -> None:
    alone, together = entropies(kind(), 1), entropies(kind(), 3)
    for column in ("entropy", "first", "visible", "distance", "lse", "same_token", "output_norm"):
        if column in alone.columns:
            torch.testing.assert_close(alone[column], together[column], equal_nan=True)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Ignoring, "Ignoring takes an attention_mask, but its attention depends on padding"),
        (Prefixed, "Prefixed takes an attention_mask, but its attention depends on padding"),
        (Without, "Without takes no attention_mask"),
        (Tied, "the attention of Tied selects keys by top-k, and the selection may depend on padding"),
        (FailingIfMasked, "FailingIfMasked does not run on 2 tokens both with and without padding"),
    ],
)
def test_batches_of_one_length_are_noted(kind: type[Reader], reason: str) -> None:
    assert entropies(kind(), 3).about["notes"] == [f"{reason}: every batch has documents of one length"]
    assert "notes" not in entropies(Reader(), 3).about


def test_longer_batches_are_compared_again() -> None:
    check = PaddingCheck(LongIgnoring().eval())
    assert check.may_pad(DOCUMENTS)
    assert check.may_pad([[3] * 9, [4] * 5])
    assert not check.may_pad([[3] * 29, [4] * 5])
    assert not check.may_pad(DOCUMENTS), "one length for the rest of the corpus"


class TopFour(Sparse):
    """Every query sees four keys, and one of five experts is chosen."""

    keys = 4

    def mask(self, scores: Tensor, attention_mask: Tensor | None) -> Tensor:
        torch.topk(self.qkv.weight[0, :5], 1)
        return super().mask(scores, attention_mask)


def test_a_selection_matters_where_it_drops_keys() -> None:
    check = PaddingCheck(TopFour().eval())
    assert check.may_pad([[3, 4, 5, 6], [7, 8]])
    assert not check.may_pad([[3, 4, 5, 6, 7], [7, 8]])


def test_padding_that_the_model_adds_is_no_token() -> None:
    model = Windowed().eval()
    with torch.no_grad(), mh.capture(model) as heads:
        model(torch.tensor([[7, 8, 7, 8, 9]]))
    assert heads.tokens == 5
    assert heads["L0H0"].mean("same_token") > 0
    assert heads["L0H0"].mean("visible") == 5


def test_a_token_that_the_model_puts_in_front_is_not_padding() -> None:
    """One row of the user's padding at the end looks like one token that the model has added there."""
    model = Prefixed().eval()
    model.tokens = lambda x, mask: (torch.cat([x[:, :1], x], dim=1), F.pad(mask, (1, 0), value=1))  # type: ignore[method-assign,assignment]
    with torch.no_grad(), mh.capture(model) as heads:
        model(torch.tensor([[7, 8, 7, 8, 0]]), torch.tensor([[1, 1, 1, 1, 0]]))
    assert heads.tokens == 5, "the token in front and four others"


def test_keys_behind_the_tokens_have_no_distance() -> None:
    model = Summarised().eval()
    with torch.no_grad(), mh.capture(model) as heads:
        model(torch.tensor([[7, 8, 7, 8, 9]]))
    assert math.isnan(heads["L0H0"].mean("distance"))
    assert heads["L0H0"].mean("visible") == (1 + 3 + 4 + 6 + 7) / 5
    assert not heads.sites[0].cross


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
