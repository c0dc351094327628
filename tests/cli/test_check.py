"""`multihead check`: both models side by side, and a gate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Folders, Said

Multihead = Callable[..., Said]


@pytest.fixture(scope="module")
def smaller(given: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from multihead.cli import main

    out = tmp_path_factory.mktemp("cut") / "smaller"
    assert (
        main(["prune", str(given.gpt2), "--heads", "0.1,1.2", "--calibration", str(given.corpus), "-o", str(out)])
        == 0
    )
    return out


def test_side_by_side(multihead: Multihead, given: Folders, smaller: Path) -> None:
    said = multihead("check", given.gpt2, smaller, "--held-out", given.corpus, "--rounds", 3)
    assert said.code == 0, said.err
    assert "gpt2: 6 heads, 16.1 k parameters; smaller: 4 heads" in said.err
    for words in ("perplexity", "parameters of attention", "KV cache", "−33.3%", "same most likely",
                  "whole model, 1 × 37 tokens", "attention layers alone", "quality on 7 documents"):  # fmt: skip
        assert words in said.out, words


def test_json_and_conditions(multihead: Multihead, given: Folders, smaller: Path) -> None:
    words = ("check", given.gpt2, smaller, "--held-out", given.corpus, "--rounds", 0)
    said = multihead(*words, "--json", "--fail-if", "perplexity<1", "--quiet")
    assert (said.code, said.err) == (0, "")
    found = json.loads(said.out)
    assert found["metrics"]["heads"] == {"before": 6.0, "after": 4.0, "better": "lower"}
    assert found["metrics"]["kv_bytes"]["after"] * 6 == found["metrics"]["kv_bytes"]["before"] * 4
    assert found["findings"] == []
    assert found["speed"] == {}
    met = multihead(*words, "--fail-if", "parameters:relative<50%", "--fail-if", "perplexity<1")
    assert met.code == 1
    assert "✗ parameters:relative<0.5: 16 128 → " in met.out
    fine = multihead(*words, "--fail-if", "perplexity<1")
    assert fine.code == 0
    assert "✓ none of the conditions is met: perplexity<1" in fine.out


def test_what_is_refused(multihead: Multihead, given: Folders, smaller: Path) -> None:
    words = ("check", given.gpt2, smaller, "--held-out", given.corpus, "--rounds", 0)
    said = multihead(*words, "--fail-if", "nn10<0.8")
    assert said.code == 2
    assert "nn10 was not measured\n\nhint: measured: parameters, " in said.err
    early = multihead(*words, "--fail-if", "foo<1")
    assert (early.code, early.out) == (2, "")
    assert "--fail-if foo<1: unknown metric 'foo'\n\nhint: the metrics are parameters, " in early.err
    assert "documents" not in early.err, "the error came after the work"
    assert "did you mean perplexity?" in multihead(*words, "--fail-if", "perplexty<1").err
    assert "speed_model was not measured" in multihead(*words, "--fail-if", "speed_model<1").err
    assert "must compare a metric with a number" in multihead(*words, "--fail-if", "perplexity:changed").err
    assert "is not a condition" in multihead(*words, "--fail-if", "perplexity").err
    assert "there is no model folder nowhere" in multihead("check", given.gpt2, "nowhere").err
    assert "--rounds must be at least 0, got -1" in multihead(*words[:-1], -1).err
    assert "no such file: none.txt" in multihead("check", given.gpt2, smaller, "--held-out", "none.txt").err


def test_text_in_another_language_is_said(
    multihead: Multihead, given: Folders, smaller: Path, tmp_path: Path
) -> None:
    (tmp_path / "strange.txt").write_text("Zwei Wörter, die niemand kennt\n" * 3)
    said = multihead("check", given.gpt2, smaller, "--rounds", 0, "--held-out", tmp_path / "strange.txt")
    assert said.code == 0, said.err
    assert "are unknown to the tokenizer: is the text in the model's language?" in said.err


def test_the_sample_stands_in(multihead: Multihead, given: Folders, smaller: Path) -> None:
    said = multihead("check", given.gpt2, smaller, "--rounds", 0, "--limit", 2)
    assert said.code == 0, said.err
    assert "note: without --held-out a small sample of English stands in" in said.err


def test_the_estimate_is_for_python_too(given: Folders, smaller: Path) -> None:
    import multihead as mh

    (model, tokenizer), (small, _) = mh.load_pretrained(given.gpt2), mh.load_pretrained(smaller)
    texts, lines = given.corpus.read_text().splitlines(), list[str]()
    told = mh.check(model, small, iter(texts), tokenizer=tokenizer, rounds=0, say=lines.append)
    assert len(lines) == 1
    assert lines[0].startswith("about ")
    assert told.quality.documents == len(texts), "an iterator is read once"
