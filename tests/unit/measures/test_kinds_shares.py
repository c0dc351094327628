"""Kinds refine the leading share of log n, and hold for models whose heads are known."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

import multihead as mh
import zoo
from multihead._base.labels import agree, without_value
from multihead.corpus.batches import padded
from multihead.measures.kinds.evidence import RULES
from multihead.measures.kinds.head_shares import REST, SHARES, SPREAD, TIE, HeadShares
from multihead.measures.kinds.kinds import kinds
from multihead.measures.kinds.kinds_result import Kinds
from unit.measures.planted import HEADS, PLACES, SPECIAL, VOCABULARY, Planted, documents

HOT = 30.0


def shares_of(*, half: float = 0.0, **share: float) -> HeadShares:
    values = {name: share.get(name, 0.0) for name in SHARES}
    values["spread"] += 1 - sum(values.values())
    return HeadShares("L0H0", values, dict.fromkeys(SHARES, half))


class TestLeading:
    def test_the_largest_of_position_word_and_match(self) -> None:
        assert shares_of(position=0.1, word=0.2, match=0.05).leading == ("word",)
        assert shares_of(rest=0.3, match=0.2, word=0.1).leading == ("match",), "rest is set aside"

    def test_two_that_are_close_or_uncertain(self) -> None:
        assert shares_of(word=0.2, match=0.2 * (1 - TIE) + 1e-6).leading == ("word", "match")
        assert shares_of(word=0.2, match=0.2 * (1 - TIE) - 1e-3).leading == ("word",)
        assert shares_of(word=0.2, match=0.1, half=0.11).leading == ("word", "match")
        assert shares_of(word=0.2, match=0.1, half=math.nan).leading == ("word",)

    def test_spread_and_rest_where_they_dominate(self) -> None:
        assert shares_of(match=(1 - SPREAD) / 2).leading == ("spread",)
        assert shares_of(match=1 - SPREAD).leading == ("spread", "match")
        assert shares_of(rest=0.6, match=0.1).leading == ("rest",)
        assert shares_of(rest=REST / 2, match=(1 - REST) / 2).leading == ("rest", "match")

    def test_a_larger_share_that_is_set_aside_is_named(self) -> None:
        assert str(shares_of(match=0.18)) == "of log n, match 0.18 [0.18, 0.18] leads (spread 0.82 is set aside)"
        both = str(shares_of(rest=0.4, match=0.2))
        assert both.endswith("leads (spread 0.40 and rest 0.40 are set aside)")
        assert str(shares_of(match=0.04)).endswith("[0.96, 0.96] leads")

    def test_more_text_decides_where_intervals_do_not(self) -> None:
        assert shares_of(word=0.2, match=0.1, half=0.11).is_uncertain
        assert not shares_of(word=0.2, match=0.1, half=0.01).is_uncertain
        assert not shares_of(word=0.2, match=0.19, half=0.01).is_uncertain, "two that are nearly equal stay so"

    def test_none_where_undefined(self) -> None:
        assert HeadShares("L0H0", dict.fromkeys(SHARES, math.nan), dict.fromkeys(SHARES, math.nan)).leading == ()

    def test_labels(self) -> None:
        assert shares_of(match=0.18).label == "match, 0.18"
        assert shares_of(position=0.2, word=0.19).label == "position + word, 0.39"
        assert agree(shares_of(position=0.2, word=0.19).label, "word, 0.12")
        assert not agree("previous", "next")


def test_a_kind_refines_the_leading_share_or_is_measured_where_tokens_repeat() -> None:
    causal = [kind for kind in HEADS if kind not in ("next", "delimiter")]
    found = kinds(Planted(causal, causal=True), documents(40), special=SPECIAL)
    share = {rule.kind: rule.share for rule in RULES}
    for evidence in found:
        if evidence.kind not in ("dead", "duplicate", "induction") and evidence.best is not None:
            assert share[evidence.kind] in evidence.shares.leading
        if evidence.best is None:
            assert evidence.kind == evidence.shares.label


def test_evidence_outside_the_leading_share_does_not_name_a_head() -> None:
    """Half of the tokens are of one class: a head on the previous token has most of its mass on the class."""
    ids = [[0, *[7, 7, 7, 7, 7, 7, 7, 20 + i % 30, 7, 7] * 6] for i in range(40)]
    ids = [[x if x != 7 else 2 + (i * 13 + n * 7) % 17 for n, x in enumerate(row)] for i, row in enumerate(ids)]
    found = kinds(Planted(["previous"], causal=True), ids, special=[0], classes={"low": list(range(2, 19))})
    assert found["L0H0"].scores["class"].score > 0.5
    assert found["L0H0"].kind == "previous"
    assert found["L0H0"].shares.leading == ("position",)


def test_the_table_has_shares_that_add_up_with_intervals() -> None:
    table = kinds(Planted(["previous", "drawn"]), documents(200), special=SPECIAL).table
    assert_total(table)
    for name in SHARES:
        assert bool((table[f"{name}_low"] <= table[name]).all() & (table[name] <= table[f"{name}_high"]).all())
    assert table["leading"] == ("position", "match")


def assert_total(table: Any) -> None:
    total = torch.stack([table[name] for name in SHARES]).sum(0)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-6)


def test_a_report_of_one_sentence_names_heads_by_their_shares() -> None:
    report = mh.report(_gpt2(0.3), [list(range(1, 20))], parts=("measure", "kinds"))
    assert report.table is not None
    assert {without_value(kind) for kind in report.table["kind"]} == set(report.table["leading"])
    assert any("1 piece of" in note for note in report.notes)
    assert bool(report.table["position_low"].isnan().all())


def test_batches_of_token_ids_have_the_shares_of_their_texts() -> None:
    model, texts = Planted(["previous", "drawn"], causal=True), documents(30)
    batches = [padded(texts[i : i + 5], pad_id=0) for i in range(0, 30, 5)]
    whole, ready = (kinds(model, data, special=SPECIAL) for data in (texts, batches))
    for name in SHARES:
        torch.testing.assert_close(ready.table[name], whole.table[name])
    assert ready.about["kinds"]["pieces"] == whole.about["kinds"]["pieces"] > 5


def test_comparing_a_model_with_itself_on_other_text_finds_no_changed_head() -> None:
    model = Planted(["previous", "drawn", "broad", "first"], causal=True)
    first, second = (kinds(model, documents(60, seed=seed), special=SPECIAL).table for seed in (1, 2))
    assert not torch.equal(first["match"], second["match"])
    assert [change for change in first.compare(second).changed if change[1] in ("kind", "leading")] == []
    assert not first.compare(second).findings(["kind:changed"])


# ---- models whose heads are known -------------------------------------------------------------


class InductionPair(nn.Module):
    """Layer 0 copies the token before into a slot of the stream; layer 1 finds the slot that holds its token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 2 * VOCABULARY + PLACES)
        nn.init.zeros_(self.embed.weight)
        self.embed.weight.data[:, :VOCABULARY] = torch.eye(VOCABULARY)
        self.layers = nn.ModuleList([_Attention(), _Attention()])

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.embed(input_ids)
        places = torch.eye(PLACES)[: x.shape[1]].expand(x.shape[0], -1, -1)
        before = F.pad(places, (0, 0, 1, 0))[:, :-1]
        token = x[..., :VOCABULARY]
        slot = self.layers[0](before, places, token)
        return x + F.pad(self.layers[1](token, slot, token), (0, x.shape[-1] - VOCABULARY))


class _Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x[:, None].contiguous() for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=HOT)[:, 0]


def test_an_induction_pair_is_named_and_comes_apart() -> None:
    model = InductionPair().eval()
    found = kinds(model, documents(20), special=SPECIAL)
    assert [evidence.kind for evidence in found] == ["previous", "induction"]
    assert found["L1H0"].shares.leading == ("match",)
    with mh.ablate(model, ["L0H0"]):
        alone = kinds(model, documents(20), special=SPECIAL)
    assert alone["L1H0"].kind != "induction"


def _gpt2(spread: float) -> nn.Module:
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2, n_head=3, n_embd=24, vocab_size=VOCABULARY, n_positions=64, initializer_range=spread
    )
    return GPT2Model(config).eval()


def test_random_weights_without_positions_have_no_positional_and_no_matching_kind() -> None:
    model = _gpt2(0.02)
    model.wpe.weight.data.zero_()  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    found = kinds(model, documents(60))
    assert {evidence.shares.leading for evidence in found} == {("spread",)}
    assert {evidence.kind for evidence in found if evidence.best is not None} <= {"broad"}
    assert float(found.table["position"].max()) < 0.01
    assert float(found.table["match"].max()) < 0.01


# ---- vision, two sequences, reused layers -----------------------------------------------------


class Patches(nn.Module):
    """Attention among 4 × 5 patches: to the patch on the left, to the one above, and to the brightest."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(image_size=(8, 10), patch_size=2)
        self.attn = _Heads()

    def forward(self, pixel_values: Tensor) -> Tensor:
        bright = F.avg_pool2d(pixel_values.mean(1, keepdim=True), 2).flatten(1)
        places = torch.eye(20).expand(len(bright), -1, -1)
        left, above = (places.roll(step, -1) for step in (-1, -5))
        q = torch.stack([left, above, torch.ones_like(places)], 1)
        k = torch.stack([places, places, torch.diag_embed(bright)], 1)
        return self.attn(q, k, torch.ones(len(bright), 3, 20, 4))


class _Heads(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, scale=HOT)


def test_patches_have_shares_of_rows_columns_and_popular_patches() -> None:
    draw = torch.Generator().manual_seed(0)
    found = kinds(Patches(), [{"pixel_values": torch.rand(8, 3, 8, 10, generator=draw)} for _ in range(4)])
    assert [evidence.shares.leading for evidence in found] == [("position",), ("position",), ("word",)]
    assert_total(found.table)
    assert found.about["kinds"]["pieces"] == 32
    assert "no first" in found.table.reasons["rest"]["L0H0"]


@pytest.mark.fast("whisper")
@pytest.mark.parametrize("name", ["whisper", "t5", "albert", "vit"])
def test_every_attention_has_shares(name: str) -> None:
    model, entry = zoo.model(name), zoo.ZOO[name]
    found: Kinds = kinds(model, [entry.inputs(model)])
    assert_total(found.table)
    sites = {evidence.head.rpartition("H")[0] for evidence in found}
    if name == "albert":
        assert sites == {"L0", "L1", "L2"}, "a row for each use of the one layer"
    for evidence in found:
        if evidence.head.startswith("cross"):
            assert evidence.shares.share["position"] == 0
            assert "different sequences" in found.table.reasons["position"][evidence.head]


def test_why_names_the_strongest_other_kind() -> None:
    """The page names the same one."""
    model, tokenizer = mh.embedded()
    found = kinds(model, tokenizer.sample_texts(), tokenizer=tokenizer)
    without_kind = [evidence for evidence in found if evidence.best is None]
    assert without_kind
    for evidence in without_kind:
        closest = evidence.runners_up[0]
        assert str(closest) in evidence.why
        assert ("is below" in evidence.why) == (closest.score <= closest.bar)
    notes = found.about["kinds"]["notes"]
    assert not any("pieces" in note for note in notes) or any(e.shares.is_uncertain for e in found)
