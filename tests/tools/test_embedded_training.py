"""The embedded model's language and training, and that the shipped model is what its card says."""

from __future__ import annotations

import doctest
import importlib
import json
import random
from itertools import pairwise
from typing import Any

import pytest
import torch

import multihead as mh
from embedded import abilities
from embedded.language import ORDINARY, Writer, sample
from embedded.lexicon import (
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
from embedded.train import Recipe, corpus, held_out_loss, train
from multihead.sources.embedded import FOLDER
from multihead.sources.embedded.network import EmbeddedConfig, EmbeddedModel
from multihead.sources.embedded.tokenizer import WordTokenizer

SMALL = EmbeddedConfig(len(VOCABULARY), width=24, layers=2, heads=3, hidden=37)
Shipped = tuple[EmbeddedModel, WordTokenizer]


@pytest.fixture(scope="module")
def shipped() -> Shipped:
    return mh.embedded()


@pytest.fixture(scope="module")
def card() -> dict[str, Any]:
    return json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["abilities", "card", "language", "lexicon", "train"])
def test_examples_print_what_they_say(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"embedded.{name}"))
    assert tried
    assert not failed


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

    def test_the_recipe_trains_the_shipped_model(self, shipped: Shipped, card: dict[str, Any]) -> None:
        model, tokenizer = shipped
        assert Recipe() == Recipe(**card["recipe"] | {"config": model.config})
        assert tokenizer.words == VOCABULARY
        assert tokenizer.all_special_tokens == list(SPECIAL)
        assert set(ORDINARY) | set(SPECIAL) == set(tokenizer.get_vocab())
        assert tokenizer.sample_texts() == [" ".join(words[1:]) for words in sample()]

    def test_held_out_loss(self, shipped: Shipped, card: dict[str, Any]) -> None:
        assert held_out_loss(shipped[0]) == pytest.approx(card["loss"]["held out"], rel=1e-3)
        assert card["loss"]["held out"] < card["loss"]["first"] / 2

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
        """As docs/reference/embedded.md says of L2H3."""
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
