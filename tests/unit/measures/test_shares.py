"""Shares of log n mean what they say: heads built by hand to do one thing get it on that share."""

from __future__ import annotations

from copy import copy

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

from multihead import mask
from multihead.corpus.documents import Corpus
from multihead.corpus.run import run
from multihead.errors import MultiheadError
from multihead.layer import Groups, Problem
from multihead.layer._coordinates import Coordinates
from multihead.layer._problem import ScoreConfig
from multihead.measures.kinds.document_means import DocumentMeans
from multihead.measures.kinds.piece_shares import (
    STREAMS,
    offset_bins,
    patch_bins,
    piece_shares,
    resting_places,
)
from multihead.measures.kinds.pieces import Pieces
from multihead.measures.kinds.shares import SHARES, HeadShares, SharesSum, patch_grid, shares
from multihead.model.call import Call, Tokens
from multihead.model.sites import Site

HOT = 12.0


def call_of(scores: Tensor, *, causal: bool, valid: Tensor | None = None) -> Call:
    """An attention whose q and k give these scores, (piece, head, query, key)."""
    batch, heads, n, keys = scores.shape
    k = torch.eye(keys, dtype=scores.dtype).expand(batch, heads, keys, keys)
    where = mask.causal() if causal else mask.everything()
    if valid is not None:
        where = where & mask.padding(valid)
    problem = Problem(
        scores,
        k,
        k[..., :1],
        Groups.even(heads, heads),
        where,
        Coordinates(batch, heads, n, keys, torch.device("cpu")),
        ScoreConfig(1.0),
    )
    tokens = Tokens(valid=valid)
    return Call(Site("attention", 0, "", 0, heads), nn.Identity(), problem, tokens, tokens)


def read(call: Call, special: tuple[int, ...] = ()) -> DocumentMeans:
    size = call.problem.coordinates
    means = DocumentMeans(STREAMS, size.heads)
    means.add(piece_shares(call, resting_places(call, special, None), offset_bins(size.queries, size.keys)))
    return means


def built(n: int, causal: bool) -> dict[str, Tensor]:
    """Scores of heads that do one thing, by the share that must name them; no head looks at the first token."""
    draw, count = torch.Generator().manual_seed(n), min(16, 1024 // n)
    see = torch.ones(n, n).tril().bool() if causal else torch.ones(n, n).bool()
    see[:, 0] = False
    target = torch.multinomial(see.double() + 1e-9, count, replacement=True, generator=draw).T
    chosen = torch.zeros(count, n, n).scatter_(-1, target[..., None], HOT)
    tokens = torch.randint(0, n // 3, (count, n), generator=draw)
    copies = (tokens[:, :, None] == tokens[:, None]) & ~torch.eye(n).bool() & see
    words = torch.randint(0, 50, (count, n), generator=draw)
    bias, rare = 3 * torch.randn(50, generator=draw), torch.where(torch.rand(50, generator=draw) < 0.1, 8.0, 0.0)

    def popular(by_word: Tensor) -> Tensor:
        return by_word[words].index_fill(1, torch.tensor([0]), -5.0)[:, None].expand(-1, n, -1)

    def offset(o: int) -> Tensor:
        line = torch.diag(torch.full((n - abs(o),), HOT), o)
        return line.index_fill(1, torch.tensor([0]), 0.0).expand(count, -1, -1)

    return {
        "match: keys at random": chosen,
        "match: copies": HOT * copies,
        "word: each its bias": popular(bias),
        "word: a few": popular(rare),
        "position: previous": offset(-1),
        "position: five back": offset(-5),
        "rest: first": torch.zeros(count, n, n).index_fill(2, torch.tensor([0]), HOT),
    }


@pytest.mark.fast("32-causal", "64-bidirectional", "128-causal")
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("n", [32, 64, 128, 256, 512])
def test_a_head_that_does_one_thing_has_its_concentration_on_that_share(n: int, causal: bool) -> None:
    heads = built(n, causal)
    scores = torch.stack([*heads.values(), torch.zeros_like(heads["rest: first"])], 1)
    means = read(call_of(scores, causal=causal))
    for index, name in enumerate(heads):
        share = HeadShares.of(name, means, index).share
        assert sum(share.values()) == pytest.approx(1, abs=1e-6)
        assert share[name.split(":")[0]] / (1 - share["spread"]) >= 0.9, (name, share)
    assert HeadShares.of("uniform", means, len(heads)).share["spread"] == pytest.approx(1, abs=1e-6)


def test_spread_and_rest_are_the_plain_formulas() -> None:
    draw = torch.Generator().manual_seed(1)
    scores = 2 * torch.randn(3, 2, 17, 17, generator=draw, dtype=torch.float64)
    valid = torch.arange(17) < torch.tensor([17, 13, 17])[:, None]
    means = read(call_of(scores, causal=True, valid=valid))
    p = scores.masked_fill(~torch.ones(17, 17).tril().bool(), -torch.inf).softmax(-1)
    spread, rest = torch.zeros(3, 2).double(), torch.zeros(3, 2).double()
    for piece, rows in enumerate([17, 13, 17]):
        total = torch.arange(2, rows + 1).double().log().sum()
        for row in range(1, rows):
            w, n = p[piece, :, row, : row + 1], row + 1
            spread[piece] -= torch.xlogy(w, w).sum(-1) / total
            r = w[:, 0]
            rest[piece] += (r * (r * n).log() + (1 - r) * ((1 - r) * n / (n - 1)).log()) / total
    torch.testing.assert_close(means.mean[means.index["spread"]], spread.mean(0))
    torch.testing.assert_close(means.mean[means.index["rest"]], rest.mean(0))


def test_pieces_whose_masks_differ_by_more_than_hidden_keys_are_fitted_one_by_one() -> None:
    scores = built(32, True)["word: each its bias"][:4, None]
    alone = [read(call_of(scores[b : b + 1], causal=True)) for b in range(4)]
    see = torch.ones(4, 1, 32, 32).tril().bool()
    see[3, :, 20:, :10] = False
    call = call_of(scores, causal=False)
    call.problem.mask = mask.tensor(see)
    together = piece_shares(call, resting_places(call, (), None), offset_bins(32, 32))
    for name in STREAMS:
        one_by_one = torch.stack([means.mean[means.index[name]] for means in alone[:3]])
        torch.testing.assert_close(together[name][:3], one_by_one, rtol=0, atol=1e-6)


def test_patches_have_offsets_in_rows_and_columns() -> None:
    bins, count = patch_bins(1, 4, 5)
    assert bins.shape == (21, 21)
    assert count == int(bins.max()) + 1
    left = [int(bins[1 + i, i]) for i in range(1, 20) if i % 5]
    assert len(set(left)) == 1
    assert int(bins[6, 5]) != left[0], "the patch before the first of a row is at the end of the row above"
    config = GPT2Config()
    assert patch_grid(config, 21) is None
    config.image_size, config.patch_size = (8, 10), 2
    assert patch_grid(config, 21) == (1, 4, 5)


# ---- the accumulator --------------------------------------------------------------------------


def bert() -> nn.Module:
    torch.manual_seed(0)
    config = BertConfig(
        num_hidden_layers=2, num_attention_heads=3, hidden_size=24, intermediate_size=13, vocab_size=97
    )
    return BertModel(config).eval()


def texts(count: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(2)
    return [[1, *torch.randint(3, 97, (40,), generator=draw).tolist(), 2] for _ in range(count)]


def test_texts_become_pieces_of_one_length_between_the_special_tokens() -> None:
    batches = list(Pieces.of([*texts(12), texts(1)[0]], special=[1, 2], length=18))
    rows = torch.cat([batch["input_ids"] for batch in batches])
    assert [len(batch["input_ids"]) for batch in batches] == [16, 14]
    assert bool((rows[:, 0] == 1).all() & (rows[:, -1] == 2).all())
    plain = [i for text in texts(12) for i in text[1:-1]]
    assert rows[:, 1:-1].flatten().tolist() == plain


def test_rows_and_batches_of_token_ids_are_texts() -> None:
    rows = texts(12)
    padded = [{"input_ids": [*row, 0, 0], "attention_mask": [1] * len(row) + [0, 0]} for row in rows]
    left = torch.tensor([[0, 0, *row] for row in rows])
    batch = {"input_ids": left, "attention_mask": (left != 0).long(), "labels": left}
    unmasked = {"input_ids": torch.tensor([[*row, *[2] * 30] for row in rows])}
    want = [batch["input_ids"].tolist() for batch in Pieces.of(rows, special=[1, 2], length=18)]
    for same in (padded, [{k: v[:5] for k, v in batch.items()}, {k: v[5:] for k, v in batch.items()}], [unmasked]):
        assert [batch["input_ids"].tolist() for batch in Pieces.of(same, special=[1, 2], length=18)] == want
    nothing = {"input_ids": left[:2], "attention_mask": torch.zeros_like(left[:2])}
    assert not len(Pieces.of([nothing], special=[1, 2]))


def test_batches_that_hold_more_than_token_ids_stay_as_they_are() -> None:
    ids = torch.tensor(texts(3))
    ready = {"input_ids": ids, "decoder_input_ids": ids}
    pieces = Pieces.of([ready, *texts(300)], special=[1, 2], length=18)
    assert list(pieces)[-1] is ready
    assert pieces.full
    assert sum(len(batch["input_ids"]) for batch in pieces) == 256
    for other in ({"inputs_embeds": torch.zeros(3, 5, 7)}, {"input_ids": ids, "position_ids": ids}):
        assert list(Pieces.of([other], length=18)) == [other]
    labelled = {"input_ids": ids, "labels": ids}
    assert list(Pieces.of([labelled], length=18, two_sequences=True)) == [labelled]


def test_a_corpus_in_parts_and_a_resumed_one_end_in_the_same_shares() -> None:
    model, batches = bert(), list(Pieces.of(texts(60), special=[1, 2], length=18))
    whole = SharesSum(model, [1, 2])
    run(model, Corpus(model, batches), [whole])
    first, second = SharesSum(model, [1, 2]), SharesSum(model, [1, 2])
    run(model, Corpus(model, batches[:4]), [first])
    run(model, Corpus(model, batches[4:]), [second])
    resumed = copy(first)
    resumed.load(first.state())
    resumed.merge(second)
    second.merge(first)
    table = whole.columns()
    for other in (resumed.columns(), second.columns()):
        for name in SHARES:
            torch.testing.assert_close(other[name], table[name], rtol=0, atol=1e-9)
            torch.testing.assert_close(other[f"{name}_low"], table[f"{name}_low"], rtol=0, atol=1e-9)
        assert other["leading"] == table["leading"]
    with pytest.raises(MultiheadError, match="special"):
        SharesSum(model, [1]).load(first.state())


def test_a_random_model_without_positions_has_no_position_or_match_share() -> None:
    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=97)).eval()
    model.wpe.weight.data.zero_()
    table = shares(model, texts(60))
    total = torch.stack([table[name] for name in SHARES]).sum(0)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-6)
    assert float(table["position"].max()) < 0.01
    assert float(table["match"].max()) < 0.01
    assert set(table["leading"]) == {"spread"}


def test_cross_attention_has_no_position_share_and_says_why() -> None:
    from transformers import T5Config, T5Model

    torch.manual_seed(0)
    config = T5Config(num_layers=1, num_decoder_layers=1, num_heads=3, d_model=24, d_kv=8, d_ff=13, vocab_size=97)
    model = T5Model(config).eval()
    ids = torch.randint(3, 97, (6, 20), generator=torch.Generator().manual_seed(3))
    table = shares(model, [{"input_ids": ids, "decoder_input_ids": ids[:, :13]}])
    cross = [head for head in table.heads if "cross" in head]
    assert cross
    for head in cross:
        row = table.row(head)
        assert row["position"] == 0
        assert "different sequences" in table.reasons["position"][head]
        assert sum(row[name] for name in SHARES) == pytest.approx(1, abs=1e-6)
