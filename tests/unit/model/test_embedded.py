"""The embedded model: its language, its tokenizer, its training, and that the shipped one is what its card says."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import multihead as mh
from multihead.errors import MultiheadError
from multihead.sources.embedded import abilities
from multihead.sources.embedded.language import ORDINARY, Writer, sample
from multihead.sources.embedded.lexicon import (
    ADVERBS,
    BE,
    BRACKETS,
    DEEDS,
    DETERMINERS,
    FIRST_NAMES,
    MARKS,
    NOW,
    PAST,
    PLACES,
    PREPOSITIONS,
    SPECIAL,
    SURNAMES,
    TOPICS,
    VOCABULARY,
)
from multihead.sources.embedded.load import FOLDER
from multihead.sources.embedded.network import EmbeddedConfig, EmbeddedModel
from multihead.sources.embedded.tokenizer import WordTokenizer
from multihead.sources.embedded.train import Recipe, corpus, held_out_loss, train

SMALL = EmbeddedConfig(len(VOCABULARY), width=24, layers=2, heads=3, hidden=37)
Shipped = tuple[EmbeddedModel, WordTokenizer]


@pytest.fixture(scope="module")
def shipped() -> Shipped:
    return mh.embedded()


@pytest.fixture(scope="module")
def card() -> dict[str, Any]:
    return json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))


class TestLanguage:
    def test_the_same_seed_writes_the_same(self) -> None:
        first, again, other = (Writer(random.Random(seed)).document(97) for seed in (3, 3, 5))
        assert first == again != other
        assert len(first) == 97
        assert first[0] == "<s>"
        assert set(first) <= set(VOCABULARY)

    @pytest.mark.parametrize("between", [None, 1, 2, 3])
    def test_verbs_agree_with_their_subject(self, between: int | None) -> None:
        writer = Writer(random.Random(between))
        number = {w: n for t in TOPICS.values() for forms in t.nouns for n, w in enumerate(forms)}
        acts = [verb for t in TOPICS.values() for kind in (t.living, t.things) for verb in kind.acts]
        forms = {w: n for verb in (*DEEDS, *acts) for n, w in enumerate(verb[:2])}
        forms |= {w: n for words in BE.values() for n, w in enumerate(words)}
        for _ in range(200):
            made = writer.sentence("sea", [("Ana", "Lund")], between=between)
            subject, verb = made.words[made.subject], made.words[made.verb]
            assert number.get(subject, 0) == made.many, "a person is one"
            assert not made.agrees or forms[verb] == made.many
            for at in made.attractors:
                assert made.subject < at < made.verb
                assert number.get(made.words[at], 0) != made.many
            assert between is None or len(made.attractors) == between
            assert made.words[:2] == [PAST if made.past else NOW, PLACES["sea"]]
            assert made.words[-1] == "."

    def test_all_verbs_and_small_words_are_in_the_tense_of_the_mark(self) -> None:
        writer = Writer(random.Random(6))
        acts = [verb for t in TOPICS.values() for kind in (t.living, t.things) for verb in kind.acts]
        past = {verb[2] for verb in (*DEEDS, *acts)} | set(BE["past"])
        now = {w for verb in (*DEEDS, *acts) for w in verb[:2]} | set(BE["present"])
        for words in (DETERMINERS, PREPOSITIONS, ADVERBS):
            now |= set(words[0]) - set(words[1])
            past |= set(words[1]) - set(words[0])
        for asked in (True, False, None):
            for _ in range(100):
                made = writer.sentence("farm", past=asked)
                assert asked in (None, made.past)
                assert made.words[0] == (PAST if made.past else NOW)
                assert not set(made.words) & (now if made.past else past)

    def test_marks_and_chants_are_in_different_documents(self) -> None:
        writer = Writer(random.Random(7))
        stories = [set(writer.story(97)) for _ in range(60)]
        assert {(bool(s & set(MARKS)), "says" in s) for s in stories} == {(True, False), (False, True)}

    def test_a_sentence_keeps_to_its_topic(self) -> None:
        writer = Writer(random.Random(0))
        others = {w for name in ("sea", "farm") for n in TOPICS[name].nouns for w in n}
        assert not others & {w for _ in range(50) for w in writer.sentence("town").words}

    def test_people_keep_their_surname_and_brackets_are_closed(self) -> None:
        writer = Writer(random.Random(1))
        for _ in range(30):
            words = writer.story(97)
            songs = {i for i, w in enumerate(words) if w == "says"}
            inside = {j for i in songs for j in range(i + 2, i + 12)}
            pairs = {(a, b) for i, (a, b) in enumerate(pairwise(words))
                     if a in FIRST_NAMES and b in SURNAMES and i not in inside}  # fmt: skip
            assert len({a for a, _ in pairs}) == len(pairs) <= 3
            open_ = [w for w in words if any(w == pair[0] for pair in BRACKETS)]
            close = [w for w in words if any(w == pair[1] for pair in BRACKETS)]
            assert [dict(BRACKETS)[w] for w in open_[: len(close)]] == close

    def test_songs_come_again(self) -> None:
        writer, sung = Writer(random.Random(2)), list[list[str]]()
        chants = [writer.chant([("Ana", "Lund")], sung) for _ in range(40)]
        assert len(sung) < 40
        assert all(chant[4:-2] in sung for chant in chants)

    def test_a_string_over_and_over(self) -> None:
        words = Writer(random.Random(4)).repeated(97)
        period = words.index(words[1], 2) - 1
        assert words[1 : 97 - period] == words[1 + period :]
        assert len(set(words[1 : 1 + period])) == period
        assert not set(words[1:]) & set(SPECIAL)

    def test_the_sample_is_not_trained_on(self) -> None:
        held = {tuple(d) for d in sample()}
        assert len(held) == 40
        batches = corpus(Recipe())
        tokenizer = WordTokenizer()
        seen = {tuple(tokenizer.convert_ids_to_tokens(row)) for _ in range(3) for row in next(batches).tolist()}
        assert not held & seen


class TestTokenizer:
    def test_there_and_back(self) -> None:
        tokenizer = WordTokenizer()
        for words in sample(5):
            text = " ".join(words[1:])
            assert tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) == words
            assert tokenizer.decode(tokenizer(text)["input_ids"]) == " ".join(words)

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
        assert [tokenizer.words[i] for i in tokenizer.all_special_ids] == list(SPECIAL)
        assert len({tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.unk_token_id}) == 3
        assert set(ORDINARY) | set(SPECIAL) == set(tokenizer.get_vocab())

    def test_kept_in_a_file(self, tmp_path: Path) -> None:
        WordTokenizer().save_pretrained(tmp_path)
        assert WordTokenizer.from_pretrained(tmp_path).words == VOCABULARY
        (tmp_path / "vocab.txt").write_text("<pad>\n<s>\n<unk>\n<now>\n")
        with pytest.raises(MultiheadError, match="the 4 words are no vocabulary: <past> is missing"):
            WordTokenizer.from_pretrained(tmp_path)
        with pytest.raises(MultiheadError, match="a word is there twice"):
            WordTokenizer([*VOCABULARY, "cat"])
        with pytest.raises(MultiheadError, match=r"there is no vocab\.txt in"):
            WordTokenizer.from_pretrained(tmp_path / "nowhere")


class TestNetwork:
    def test_no_word_sees_a_later_one_and_padding_is_not_seen(self) -> None:
        torch.manual_seed(0)
        model = EmbeddedModel(SMALL).eval().double()
        ids = torch.randint(len(SPECIAL), len(VOCABULARY), (2, 13))
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


class TestTraining:
    def test_the_loss_falls_and_the_seed_says_all(self) -> None:
        recipe = Recipe(steps=40, documents=8, tokens=48, warm=5, config=SMALL)
        state = torch.get_rng_state()
        told: list[int] = []
        model, losses = train(recipe, told=lambda step, loss, m: told.append(step))
        assert torch.equal(torch.get_rng_state(), state)
        assert told == list(range(40))
        assert sum(losses[-5:]) / 5 < losses[0] - 0.3
        assert not model.training
        again, _ = train(Recipe(steps=3, documents=8, tokens=48, warm=5, config=SMALL))
        _, other = train(Recipe(seed=2, steps=3, documents=8, tokens=48, warm=5, config=SMALL))
        assert losses[0] != other[0]
        first, _ = train(Recipe(steps=3, documents=8, tokens=48, warm=5, config=SMALL))
        assert torch.equal(first.guess.weight, again.guess.weight)


class TestShipped:
    """The weights in the package, against the numbers of their card."""

    def test_small_and_ours(self, shipped: Shipped, card: dict[str, Any]) -> None:
        model, tokenizer = shipped
        assert sum(f.stat().st_size for f in FOLDER.iterdir()) < 2_000_000
        assert {f.suffix for f in FOLDER.iterdir()} <= {".json", ".safetensors", ".txt", ".md"}
        assert sum(p.numel() for p in model.parameters()) == card["parameters"]
        assert model.config == EmbeddedConfig.from_dict(card["recipe"]["config"])
        assert tokenizer.words == VOCABULARY
        assert all(isinstance(b.attention, mh.MultiHeadAttention) for b in model.layers)
        assert Recipe() == Recipe(**card["recipe"] | {"config": model.config}), "the script trains this one"

    def test_held_out_loss(self, shipped: Shipped, card: dict[str, Any]) -> None:
        assert held_out_loss(shipped[0]) == pytest.approx(card["loss"]["held out"], rel=1e-3)
        assert card["loss"]["held out"] < card["loss"]["first"] / 2

    def test_kinds(self, shipped: Shipped, card: dict[str, Any]) -> None:
        model, tokenizer = shipped
        found = mh.kinds(model, tokenizer.sample_texts(), tokenizer=tokenizer)
        assert {e.head: e.kind for e in found} == {head: k["kind"] for head, k in card["kinds"].items()}
        assert {"previous", "induction", "delimiter"} <= {e.kind for e in found}
        for kind in ("previous", "induction", "delimiter"):
            best = max(found.of(kind), key=lambda e: e.score)
            assert best.interval[0] > best.threshold > 2 * best.control
            assert best.score == pytest.approx(card["kinds"][best.head]["score"], abs=0.01)

    def test_every_ability_is_there_and_is_lost_without_a_few_heads(
        self, shipped: Shipped, card: dict[str, Any]
    ) -> None:
        model = shipped[0]
        whole = abilities.abilities(model)
        assert whole == pytest.approx(card["abilities"], abs=0.02)
        assert min(whole.values()) >= 0.98
        assert set(card["without"]) == set(whole)
        for name, without in card["without"].items():
            assert len(without["heads"]) <= 2
            left = abilities.ability(model, name, without=without["heads"])
            assert left == pytest.approx(without["left"], abs=0.03)
            chance = abilities.CHANCE[name]
            assert left < chance + (whole[name] - chance) / 4, "a quarter at most is left"

    @pytest.mark.parametrize(
        "kind, ability, most",
        [("previous", "copying", 0.7), ("induction", "copying", 0.5), ("delimiter", "tense", 0.8)],
    )
    def test_what_each_kind_is_for(
        self, shipped: Shipped, card: dict[str, Any], kind: str, ability: str, most: float
    ) -> None:
        heads = card["by kind"][kind]["heads"]
        assert heads == [head for head, k in card["kinds"].items() if k["kind"] == kind]
        left = abilities.ability(shipped[0], ability, without=heads)
        assert left == pytest.approx(card["by kind"][kind]["left"][ability], abs=0.03)
        assert left < most < card["abilities"][ability]

    def test_the_smallest_set_is_searched_by_size(self, shipped: Shipped, card: dict[str, Any]) -> None:
        """Of two needless heads and the one that closing needs, that one; of the needless alone, the best pair."""
        model, (head,) = shipped[0], card["without"]["closing"]["heads"]
        others = sorted(card["by head"], key=lambda h: card["by head"][h]["closing"])[-2:]
        assert abilities.needed(model, "closing", [*others, head])[0] == [head]
        removed, left = abilities.needed(model, "closing", others, most=2)
        assert removed == others
        assert left > 0.9

    def test_the_agreement_head_looks_at_the_subject(self, shipped: Shipped, card: dict[str, Any]) -> None:
        looks = abilities.pointing(shipped[0])[card["pointing"]["head"]]
        assert looks.subject == pytest.approx(card["pointing"]["subject"], abs=0.02)
        assert looks.attractors < 0.08
        assert looks.first > 0.7

    def test_a_second_head_looks_at_singular_subjects_only(self, shipped: Shipped) -> None:
        """As docs/embedded.md says of L2H3."""
        one, many = (abilities.pointing(shipped[0], many=many)["L2H3"] for many in (False, True))
        assert min(one.subject, one.first) > 0.95
        assert many.subject < 0.05

    def test_a_head_looks_at_the_marks_of_its_sentence(self, shipped: Shipped, card: dict[str, Any]) -> None:
        weights = abilities.marking(shipped[0])
        best = max(weights, key=lambda head: weights[head])
        assert best == card["marking"]["head"]
        assert card["kinds"][best]["kind"] == "delimiter"
        assert weights[best] == pytest.approx(card["marking"]["weight"], abs=0.02)
        assert weights[best] > 0.9
