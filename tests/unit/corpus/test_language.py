"""Words that a tokenizer does not have: which they are, and where they are named."""

from __future__ import annotations

import warnings

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


def test_kinds_warn_of_a_text_in_another_language() -> None:
    model, tokenizer = mh.embedded()
    with pytest.warns(UserWarning, match=r"are unknown to the tokenizer: is the text in the model's language\?"):
        mh.kinds(model, ["Quokkas yodel while zebras juggle turnips."] * 2, tokenizer=tokenizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mh.kinds(model, tokenizer.sample_texts()[:2], tokenizer=tokenizer)
