"""Text for encoder–decoders: the decoder reads what the model itself writes, in every function and command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import multihead as mh
from cli.conftest import DOCUMENTS, Folders, Said, tokenizer
from multihead.corpus.batches import batches
from multihead.corpus.documents import Corpus
from multihead.corpus.two_texts import two_texts
from multihead.measures.kinds.shares import shares
from page.test_serve_models import _bart, _t5

Multihead = Callable[..., Said]


@pytest.mark.parametrize("build", [_t5, _bart])
def test_a_text_is_a_batch_with_the_answer_of_the_model(build: Callable[[], torch.nn.Module]) -> None:
    model, words = build(), tokenizer()
    made = list(batches(model, DOCUMENTS[:3], tokenizer=words))
    for batch, text in zip(made, DOCUMENTS, strict=False):
        expected = two_texts(model, words, text)
        assert batch.keys() == expected.keys()
        assert all(torch.equal(batch[name], expected[name]) for name in expected)
    ids = batches(model, [made[0]["input_ids"][0].tolist()])
    assert torch.equal(next(ids)["decoder_input_ids"], made[0]["decoder_input_ids"])


def test_long_texts_are_read_in_pieces() -> None:
    made = list(batches(_bart(), [DOCUMENTS[1] * 5], tokenizer=tokenizer(), max_tokens=17))
    assert len(made) > 3
    assert all(batch["input_ids"].shape[1] <= 17 for batch in made)


def test_measures_of_texts_are_those_of_their_batches() -> None:
    model, words = _t5(), tokenizer()
    pairs = [two_texts(model, words, text) for text in DOCUMENTS]
    for parts in (("statistics",), ("statistics", "kinds", "importance", "similarity")):
        ours = mh.measure(model, DOCUMENTS, tokenizer=words, parts=parts)
        theirs = mh.measure(model, pairs, tokenizer=words, parts=parts)
        assert list(ours.columns) == list(theirs.columns)
        for name in ours.columns:
            if isinstance(ours[name], torch.Tensor):
                torch.testing.assert_close(ours[name], theirs[name], equal_nan=True)
            else:
                assert ours[name] == theirs[name]
    table = mh.kinds(model, iter(DOCUMENTS), tokenizer=words).table
    assert len(table) == 18
    ours, theirs = (shares(model, data, tokenizer=words)["match"] for data in (DOCUMENTS, pairs))
    torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_the_model_writes_each_answer_once() -> None:
    model, words = _t5(), tokenizer()
    corpus, runs = Corpus(model, DOCUMENTS, tokenizer=words), 0

    def count(*_: object) -> None:
        nonlocal runs
        runs += 1

    handle = model.encoder.register_forward_hook(count)
    first = [batch.inputs["decoder_input_ids"].tolist() for part in corpus.parts() for batch in corpus.read(part)]
    assert runs == len(DOCUMENTS)
    model.lm_head.weight.data.zero_()
    again = [batch.inputs["decoder_input_ids"].tolist() for part in corpus.parts() for batch in corpus.read(part)]
    handle.remove()
    assert runs == len(DOCUMENTS)
    assert again == first


@pytest.fixture(scope="module")
def pair(given: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair") / "t5"
    _t5().save_pretrained(folder)
    tokenizer().save_pretrained(folder)  # type: ignore[attr-defined]
    return folder


COMMANDS: dict[str, list[str]] = {
    "measure": ["--corpus", "TEXT", "--importance", "gradient", "-o", "OUT"],
    "report": ["--corpus", "TEXT", "-o", "OUT.html"],
    "theory": ["--corpus", "TEXT", "--only", "2,16"],
    "prune": ["--calibration", "TEXT", "--keep", "0.5", "-o", "OUT"],
    "group": ["--calibration", "TEXT", "--kv-heads", "1", "-o", "OUT"],
    "check": ["MODEL", "--held-out", "TEXT", "--rounds", "1"],
    "curve": ["--calibration", "TEXT", "--at", "0.5", "--method", "random", "-o", "OUT.png"],
}


@pytest.mark.fast("measure", "prune", "report")
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_read_text(command: str, pair: Path, given: Folders, tmp_path: Path, multihead: Multihead) -> None:
    names = {"TEXT": str(given.corpus), "OUT": str(tmp_path / "out"), "MODEL": str(pair)}
    words = COMMANDS[command]
    for name, value in names.items():
        words = [word.replace(name, value) for word in words]
    said = multihead(command, pair, *words)
    assert said.code == 0, said.err
    if command == "report":
        assert "kinds:" not in said.err
        assert "importance:" not in said.err


def test_a_map_is_labelled_by_both_texts(pair: Path, multihead: Multihead) -> None:
    from json import loads

    model, words = _t5(), tokenizer()
    batch = two_texts(model, words, "the cat sat on")
    answer = words.convert_ids_to_tokens(batch["decoder_input_ids"][0].tolist())  # type: ignore[attr-defined]
    source = words.convert_ids_to_tokens(batch["input_ids"][0].tolist())  # type: ignore[attr-defined]
    for head, queries, keys in (
        ("encoder.L0H1", source, source), ("decoder.L1H0", answer, answer), ("cross.L0H2", answer, source),
    ):  # fmt: skip
        shown = loads(multihead("show", pair, head, "--text", "the cat sat on", "--json").out)
        assert (shown["queries"], shown["tokens"]) == (queries, keys)
        assert torch.tensor(shown["weights"]).shape == (len(queries), len(keys))
