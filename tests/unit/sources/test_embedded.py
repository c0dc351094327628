"""The embedded model: its tokenizer, its network, and the shipped weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import multihead as mh
from multihead._base.labels import without_value
from multihead.errors import MultiheadError
from multihead.sources.embedded import FOLDER
from multihead.sources.embedded.network import EmbeddedConfig, EmbeddedModel
from multihead.sources.embedded.tokenizer import WordTokenizer

SPECIAL = ["<pad>", "<s>", "<unk>", "<now>", "<past>", "<sea>", "<farm>", "<town>"]
SMALL = EmbeddedConfig(214, width=24, layers=2, heads=3, hidden=37)
Shipped = tuple[EmbeddedModel, WordTokenizer]


@pytest.fixture(scope="module")
def shipped() -> Shipped:
    return mh.embedded()


@pytest.fixture(scope="module")
def card() -> dict[str, Any]:
    return json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))


class TestTokenizer:
    def test_there_and_back(self) -> None:
        tokenizer = WordTokenizer()
        for text in tokenizer.sample_texts()[:5]:
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.convert_ids_to_tokens(ids) == ["<s>", *text.split()]
            assert tokenizer.decode(ids) == f"<s> {text}"

    def test_case_punctuation_and_strangers(self) -> None:
        tokenizer = WordTokenizer()
        ids = tokenizer("The CAT, that ana saw (yesterday).", verbose=False)["input_ids"]
        assert tokenizer.convert_ids_to_tokens(ids) == [
            "<s>", "the", "cat", "<unk>", "that", "Ana", "saw", "(", "yesterday", ")", "."
        ]  # fmt: skip
        assert tokenizer("cat", add_special_tokens=False)["input_ids"] == [tokenizer.get_vocab()["cat"]]
        assert tokenizer.decode(ids, skip_special_tokens=True).startswith("the cat that Ana")
        assert tokenizer("")["input_ids"] == [tokenizer.bos_token_id]

    def test_special_tokens(self) -> None:
        tokenizer = WordTokenizer()
        assert [tokenizer.words[i] for i in tokenizer.all_special_ids] == tokenizer.all_special_tokens
        assert tokenizer.all_special_tokens == SPECIAL
        assert len({tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.unk_token_id}) == 3

    def test_kept_in_a_file(self, tmp_path: Path) -> None:
        WordTokenizer().save_pretrained(tmp_path)
        assert WordTokenizer.from_pretrained(tmp_path).words == WordTokenizer().words
        (tmp_path / "vocab.txt").write_text("<pad>\n<s>\n<now>\n")
        with pytest.raises(MultiheadError, match="the vocabulary lacks <unk>"):
            WordTokenizer.from_pretrained(tmp_path)
        with pytest.raises(MultiheadError, match="the vocabulary has 'cat' twice"):
            WordTokenizer([*WordTokenizer().words, "cat"])
        with pytest.raises(MultiheadError, match=r"there is no vocab\.txt in"):
            WordTokenizer.from_pretrained(tmp_path / "nowhere")


class TestNetwork:
    def test_no_word_sees_a_later_one_and_padding_is_not_seen(self) -> None:
        torch.manual_seed(0)
        model = EmbeddedModel(SMALL).eval().double()
        ids = torch.randint(len(SPECIAL), SMALL.vocab_size, (2, 13))
        whole = model(input_ids=ids).logits
        torch.testing.assert_close(model(input_ids=ids[:, :7]).logits, whole[:, :7])
        mask = torch.ones_like(ids)
        mask[0, 7:] = 0
        torch.testing.assert_close(model(input_ids=ids, attention_mask=mask).logits[0, :7], whole[0, :7])
        left = torch.cat([torch.zeros_like(ids[:, :3]), ids], 1)
        hidden = torch.cat([torch.zeros_like(ids[:, :3]), torch.ones_like(ids)], 1)
        torch.testing.assert_close(model(input_ids=left, attention_mask=hidden).logits[:, 3:], whole)

    def test_config_there_and_back(self) -> None:
        assert EmbeddedConfig.from_dict(json.loads(SMALL.to_json_string()) | {"architectures": ["x"]}) == SMALL

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_saved_and_loaded(self, dtype: torch.dtype, tmp_path: Path) -> None:
        model = EmbeddedModel(SMALL).eval().to(dtype)
        saved = mh.save(model, tmp_path / "out")
        assert not saved.stock
        assert "mh.load builds it" in saved.reason
        again = mh.load(tmp_path / "out")
        assert type(again) is EmbeddedModel
        assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(
            model.state_dict().values(), again.state_dict().values(), strict=True))  # fmt: skip

    def test_a_damaged_config(self, tmp_path: Path) -> None:
        mh.save(EmbeddedModel(SMALL), tmp_path / "out")
        (tmp_path / "out" / "config.json").write_text('{"width": 24}')
        with pytest.raises(MultiheadError, match=r"config.json is damaged: .*SHA-256"):
            mh.load(tmp_path / "out")

    def test_cut_and_shared(self, shipped: Shipped, tmp_path: Path) -> None:
        model, tokenizer = shipped
        texts = tokenizer.sample_texts()
        for name, plan in {
            "pruned": mh.plan(model, texts[:8], tokenizer=tokenizer, keep=0.5),
            "grouped": mh.plan(model, texts[:8], tokenizer=tokenizer, kv_heads=2),
        }.items():
            small = mh.cut(model, plan, refit=False)
            mh.save(small, tmp_path / name, tokenizer=tokenizer)
            ids = torch.tensor([tokenizer(texts[9])["input_ids"]])
            torch.testing.assert_close(mh.load(tmp_path / name)(ids).logits, small(ids).logits, rtol=0, atol=0)
            assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())


class TestShipped:
    """The weights in the package, against the numbers of their card."""

    def test_small_and_ours(self, shipped: Shipped, card: dict[str, Any]) -> None:
        model, tokenizer = shipped
        assert sum(f.stat().st_size for f in FOLDER.iterdir()) < 2_000_000
        assert {f.suffix for f in FOLDER.iterdir()} <= {".json", ".safetensors", ".txt", ".md"}
        assert sum(p.numel() for p in model.parameters()) == card["parameters"]
        assert model.config == EmbeddedConfig.from_dict(card["recipe"]["config"])
        assert tokenizer.words == WordTokenizer().words
        assert all(isinstance(b.attention, mh.MultiHeadAttention) for b in model.layers)

    def test_kinds(self, shipped: Shipped, card: dict[str, Any]) -> None:
        model, tokenizer = shipped
        found = mh.kinds(model, tokenizer.sample_texts(), tokenizer=tokenizer)
        assert {e.head: without_value(e.kind) for e in found} == {
            head: k["kind"] for head, k in card["kinds"].items()
        }
        assert {"previous", "induction", "delimiter"} <= {e.kind for e in found}
        for kind in ("previous", "induction", "delimiter"):
            best = max(found.of(kind), key=lambda e: e.score)
            assert best.interval[0] > best.threshold > 2 * best.control
            assert best.score == pytest.approx(card["kinds"][best.head]["score"], abs=0.01)
        for ability in ("agreement", "closing"):  # heads that find a subject or a bracket by what it is
            needed = card["pointing"]["head"] if ability == "agreement" else card["without"][ability]["heads"][0]
            assert found[needed].shares.leading == ("match",), ability
