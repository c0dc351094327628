"""`multihead theory`: a table for people, numbers for programs, one clear line where it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import multihead as mh
from multihead.cli import main
from multihead.corpus.python_manual import python_manual
from multihead.errors import MultiheadError
from zoo import ZOO


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model without a tokenizer, and token ids to read."""
    made = tmp_path_factory.mktemp("model")
    ZOO["gpt2"].build().save_pretrained(made)
    (made / "ids.json").write_text(json.dumps([[(7 * i + j) % 97 for i in range(29)] for j in range(11)]))
    return made


def run(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> str:
    code = main(["theory", str(folder), "--ids", str(folder / "ids.json"), *words])
    out, err = capsys.readouterr()
    assert (code, "Traceback" in err) == (0, False)
    return out


def test_a_table_fits_80_columns(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = run(capsys, folder, "--only", "1,2,6")
    lines = out.splitlines()
    assert lines[0].startswith("GPT2LMHeadModel: 2 layers (2 × 3 heads of 8 in 24), 319 tokens in 11 sequences")
    assert all(len(line) <= 80 for line in lines)
    assert " 2  the model's space is the direct sum of its heads'" in out
    assert "5 statements: " in out
    assert "\x1b" not in out  # no colours into a pipe


def test_numbers_of_one_layer(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    found = json.loads(run(capsys, folder, "--only", "16", "--layer", "L1", "--json"))
    [statement] = found["statements"]
    numbers = statement["layers"]["L1"]["numbers"]
    assert list(statement["layers"]) == ["L1"]
    assert numbers["variance"] <= numbers["bound"] <= numbers["loose_bound"]


@pytest.mark.parametrize(
    "words, said",
    [
        (["--only", "99"], "unknown statement '99'"),
        (["--layer", "L9"], "unknown layer 'L9'; the model has L0, L1"),
        (["--tokens", "0"], "tokens must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_code_2(
    capsys: pytest.CaptureFixture[str], folder: Path, words: list[str], said: str
) -> None:
    code = main(["theory", str(folder), "--ids", str(folder / "ids.json"), *words])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert said in err.splitlines()[0]
    assert "hint: " in err


def test_text_needs_a_tokenizer(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert main(["theory", str(folder)]) == 2
    assert "has no tokenizer" in capsys.readouterr().err


def test_python_brings_enough_prose() -> None:
    """About 5 characters to a token: more than the 4096 tokens that are looked at."""
    paragraphs = list(python_manual())
    assert sum(map(len, paragraphs)) > 6 * 4096
    assert all(len(p) > 200 and "\n" not in p for p in paragraphs)


def test_python_has_the_same_default_text(capsys: pytest.CaptureFixture[str]) -> None:
    """The sample is too short for 3,500 tokens, so the manual inside Python is read too."""
    words = ("theory", "embedded", "--only", "16", "--layer", "L1", "--tokens", "3500", "--json")
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    model, tokenizer = mh.embedded()
    options = {"tokenizer": tokenizer, "only": ["16"], "layers": ["L1"], "tokens": 3500}
    assert mh.theory(model, **options).to_json() == found
    documents = [*tokenizer.sample_texts(), *python_manual()]
    assert mh.theory(model, documents, **options).to_json() == found
    with pytest.raises(MultiheadError, match="data must be documents or batches, got None"):
        mh.theory(model)
