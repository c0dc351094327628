"""Words that a tokenizer does not have: which they are, and where they are named."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

import multihead as mh
from multihead.corpus.language import unknown_words
from multihead.show.map_store import MapStore

TEXT = "The keys that the quokka sees are new. The quokka yodels."


def test_unknown_words_are_listed_once() -> None:
    _, tokenizer = mh.embedded()
    assert unknown_words(tokenizer, TEXT) == ["quokka", "yodels"]
    assert unknown_words(tokenizer, "The keys that the man sees are new.") == []
    assert unknown_words(object(), TEXT) == []


def test_a_served_text_says_which_words_the_model_does_not_have() -> None:
    store = MapStore(*mh.embedded())
    known, unknown = store.add(["The keys that the man sees are new.", TEXT])[0]
    assert known.note == ""
    assert unknown.note == "the model reads <unk> for words that it does not have: “quokka”, “yodels”"
    assert unknown.to_json()["note"] == unknown.note


@pytest.mark.parametrize("measured", [mh.measure, mh.kinds, mh.importance, mh.similarity])
def test_measures_warn_of_a_text_in_another_language(measured: Callable[..., object]) -> None:
    model, tokenizer = mh.embedded()
    foreign = ["Quokkas yodel while zebras juggle turnips."] * 2
    with pytest.warns(UserWarning, match=r"are unknown to the tokenizer: is the text in the model's language\?"):
        measured(model, foreign, tokenizer=tokenizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measured(model, tokenizer.sample_texts()[:2], tokenizer=tokenizer)
        mh.kinds(model, iter(foreign), tokenizer=tokenizer)  # can be read only once
