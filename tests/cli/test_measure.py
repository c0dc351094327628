"""`multihead measure`: what it reads, writes, refuses, and how it goes on."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import DOCUMENTS, Folders, Said
from multihead.corpus.documents import Documents
from multihead.corpus.read_texts import _documents, sample
from multihead.table.table import HeadTable

Multihead = Callable[..., Said]


# ---- what it writes ---------------------------------------------------------------------------


def test_a_table_of_a_corpus(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    out = tmp_path / "a" / "run"
    said = multihead("measure", given.gpt2, "--corpus", given.corpus, "-o", out, "--batch-size", 3)
    assert said.code == 0, said.err
    assert said.out == ""
    assert (
        f"gpt2: 6 heads, 16.1 k parameters; {given.corpus}: 7 documents in 3 batches; statistics, kinds" in said.err
    )
    assert "of memory" in said.err
    assert f"next: multihead show {out} --sort kind_score --top 10" in said.err
    assert [p.name for p in out.iterdir()] == ["table.json"], "the state is gone"
    table = HeadTable.load(out)
    assert len(table) == 6
    assert {"entropy", "kind", "kind:class"} <= set(table.columns)
    assert table.about["documents"] == 7
    lengths = [len(d.replace("?", " ?").split()) + 2 for d in DOCUMENTS]
    assert table.about["tokens"] == sum(lengths)
    assert float(table["special"].min()) > 0


def test_batches_of_much_text_are_estimated(
    multihead: Multihead, given: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multihead.measures.measure.COUNTED", 3)
    said = multihead("measure", given.gpt2, "--corpus", given.corpus, "--no-kinds", "-o", tmp_path / "run")
    assert said.code == 0, said.err
    assert "7 documents in about 1 batch;" in said.err


def test_everything_that_can_be_measured(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    words = ("--importance", "all", "--similarity", "--json", "--quiet")
    said = multihead("measure", given.gpt2, "--corpus", given.corpus, "-o", tmp_path / "run", *words)
    assert said.code == 0, said.err
    assert said.err == ""
    table = HeadTable.from_json(said.out)
    assert table == HeadTable.load(tmp_path / "run")
    assert {"importance", "ablation_zero", "ablation_mean", "rank", "most_similar"} <= set(table.columns)
    assert sorted(table["rank"].tolist()) == [1, 2, 3, 4, 5, 6]
    shown = multihead("show", tmp_path / "run", "--sort", "rank", "--ascending", "--top", 2)
    assert shown.code == 0
    assert "rank" in shown.out


def test_a_treebank(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    lines = ["1 the the DET _ _ 2 det _ _", "2 cat cat NOUN _ _ 3 nsubj _ _", "3 ran run VERB _ _ 0 root _ _"]
    bank = tmp_path / "bank.conllu"
    bank.write_text("".join("\n".join("\t".join(line.split()) for line in lines) + "\n\n" for _ in range(31)))
    words = ("--corpus", given.corpus, "--no-kinds", "-o", tmp_path / "run")
    said = multihead("measure", given.gpt2, *words, "--conllu", bank)
    assert said.code == 0, said.err
    assert "syntax_relation" in HeadTable.load(tmp_path / "run").columns
    assert "fast tokenizer" in multihead(
        "measure", given.bare, "--ids", given.bare.parent / "ids.json", "--conllu", bank, "-o", tmp_path / "x"
    ).err  # fmt: skip


# ---- what it reads ----------------------------------------------------------------------------


def read(split: str, text: str) -> list[str]:
    return list(_documents(io.StringIO(text), split))


def test_a_document_is_a_line_a_paragraph_or_a_file() -> None:
    text = "one\ntwo\n\n  \n three \n"
    assert read("line", text) == ["one", "two", "three"]
    assert read("paragraph", text) == ["one two", "three"]
    assert read("file", text) == ["one\ntwo\n\n  \n three"]
    assert read("line", " \n\n") == []


def test_the_sample_repeats_itself_and_is_long_enough() -> None:
    documents = sample()
    assert len(documents) == 14
    assert all(len(d.split()) > 40 for d in documents)
    assert documents[8].count("One potato, two potato") == 3


def counted(said: Said) -> int:
    assert said.code == 0, said.err
    return json.loads(said.out)["about"]["documents"]


def test_texts_come_from_files_folders_and_stdin(
    multihead: Multihead, given: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts" / "deep").mkdir(parents=True)
    (tmp_path / "texts" / "b.txt").write_text("the cat\nsat .\n\na dog ran .")
    (tmp_path / "texts" / "deep" / "a.jsonl").write_text(
        '{"text": "the mat"}\n\n{"text": " "}\n{"text": "a dog"}\n'
    )
    (tmp_path / "texts" / "c.md").write_text("not read")

    def count(*words: object, stdin: str = "") -> int:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        fast = ("--no-kinds", "--force", "--quiet", "--json", "-o", tmp_path / "run")
        return counted(multihead("measure", given.gpt2, *words, *fast))

    assert count("--corpus", tmp_path / "texts") == 4
    assert count("--corpus", tmp_path / "texts", "--split", "line") == 5
    assert count("--text", tmp_path / "texts" / "b.txt") == 1
    assert count("--text", tmp_path / "texts" / "b.txt", "--corpus", given.corpus, "--limit", "3") == 3
    assert count("--text", "-", stdin="the cat\n\nsat\n") == 1
    assert count("--corpus", "-", stdin="the cat\n\nsat\n") == 2
    assert count("--ids", given.bare.parent / "ids.json") == 3


def test_a_model_without_a_tokenizer_takes_ids(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    said = multihead("measure", given.bare, "-o", tmp_path / "run")
    assert said.code == 2
    first, _, hint = said.err.splitlines()
    assert first == "multihead: the model has no tokenizer, so text cannot be read"
    assert hint == "hint: --ids 'FILE': JSON lists of token ids"
    said = multihead("measure", given.bare, "--ids", given.bare.parent / "ids.json", "-o", tmp_path / "run")
    assert said.code == 0, said.err
    table = HeadTable.load(tmp_path / "run")
    assert table.about["tokens"] == 11
    named = zip(table["kind"], table["leading"], strict=True)
    assert all(leading and kind.startswith(f"{leading}, ") for kind, leading in named), "no kinds, but shares"


def test_long_documents_are_cut_with_special_tokens_around_every_piece(
    multihead: Multihead, given: Folders, tmp_path: Path
) -> None:
    (tmp_path / "long.txt").write_text("the cat " * 50)
    said = multihead("measure", given.gpt2, "--text", tmp_path / "long.txt", "--no-kinds", "-o", tmp_path / "run")
    assert said.code == 0, said.err
    tokens = HeadTable.load(tmp_path / "run").about["tokens"]
    assert tokens == 100 + 2 * 3, "35 words to a piece of 37"


def test_documents_are_told_apart_by_a_fingerprint() -> None:
    made = [
        Documents.of(lambda t=t: iter(t), "x").fingerprint for t in (["ab", "c"], ["a", "bc"], ["c", "ab"], [[1]])
    ]
    assert len(set(made)) == 4


# ---- what it refuses --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, line",
    [
        (["{root}/nowhere"], "there is no model folder {root}/nowhere"),
        (["{root}"], "there is no config.json in {root}"),
        (["{gpt2}", "--corpus", "{root}/nowhere.txt"], "no such file: {root}/nowhere.txt"),
        (["{gpt2}", "--text", "{root}"], "{root} is a folder"),
        (["{gpt2}", "--text", "{root}/broken.txt"], "{root}/broken.txt is not UTF-8 text"),
        (["{gpt2}", "--text", "{root}/empty.txt"], "{root}/empty.txt contains no text"),
        (["{gpt2}", "--corpus", "{root}/bad.jsonl"], '{root}/bad.jsonl line 2 has no "text"'),
        (["{gpt2}", "--corpus", "{root}/worse.jsonl"], "{root}/worse.jsonl line 1 is not JSON"),
        (["{gpt2}", "--ids", "{root}/empty.txt"], "{root}/empty.txt is not JSON"),
        (["{gpt2}", "--ids", "{root}/bad.json"], "{root}/bad.json is not a list of lists of token ids"),
        (["{gpt2}", "--ids", "x", "--text", "y"], "text and ids cannot be combined"),
        (["{gpt2}", "--max-tokens", "38"], "--max-tokens must be at least 1 and at most 37"),
        (["{gpt2}", "--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["{gpt2}", "--limit", "0"], "--limit must be at least 1, got 0"),
        (["{gpt2}", "--save-every", "-1"], "--save-every must be at least 0, got -1"),
        (["{gpt2}", "--rank-timeout", "-1"], "--rank-timeout must be at least 1, got -1"),
        (["{gpt2}", "--window", "0"], "--window must be at least 1, got 0"),
        (["{gpt2}", "--dtype", "int8"], "unknown dtype 'int8'"),
        (["{gpt2}", "--device", "nothing"], "device='nothing' cannot be used"),
        (["{gpt2}", "--conllu", "{root}/nowhere"], "no such file: {root}/nowhere"),
        (["{gpt2}", "--resume", "--force"], "resume continues a run and force starts again"),
        (["{pickled}"], "the model in pickled does not load"),
        (["{custom}"], "custom needs its own Python code (OwnModel)"),
    ],
)
def test_bad_input_is_one_clear_line(
    multihead: Multihead, given: Folders, tmp_path: Path, words: list[str], line: str
) -> None:
    (tmp_path / "broken.txt").write_bytes(b"\xff\xfeabc")
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"txt": "b"}\n')
    (tmp_path / "worse.jsonl").write_text("{\n")
    (tmp_path / "bad.json").write_text('[[1, 2], ["a"]]')
    config = json.loads((given.gpt2 / "config.json").read_text())
    for name, change in (("pickled", {}), ("custom", {"architectures": ["OwnModel"], "auto_map": {"x": "y"}})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config | change))
    torch.save({}, tmp_path / "pickled" / "pytorch_model.bin")
    names = {"root": tmp_path, "gpt2": given.gpt2, "pickled": tmp_path / "pickled", "custom": tmp_path / "custom"}
    said = multihead("measure", *(w.format(**names) for w in words), "-o", tmp_path / "run")
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith(f"multihead: {line.format(**names)}"), said.err
    assert not (tmp_path / "run" / "table.json").exists()


def test_nothing_is_overwritten(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    words = ("measure", given.gpt2, "--corpus", given.corpus, "--no-kinds", "-o", tmp_path / "run")
    assert multihead(*words).code == 0
    before = (tmp_path / "run" / "table.json").read_bytes()
    said = multihead(*words, "--batch-size", 2)
    assert said.code == 2
    assert "holds a table" in said.err
    assert (tmp_path / "run" / "table.json").read_bytes() == before
    assert multihead(*words, "--batch-size", 2, "--force").code == 0
    assert (tmp_path / "run" / "table.json").read_bytes() != before, "another batch size is in it"
    (tmp_path / "file").touch()
    assert "file is a file" in multihead("measure", given.gpt2, "-o", tmp_path / "file").err


# ---- how it goes on ---------------------------------------------------------------------------


def test_a_finished_run_is_only_looked_at(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    words = ("measure", given.gpt2, "--corpus", given.corpus, "--no-kinds", "-o", tmp_path / "run", "--resume")
    assert multihead(*words).code == 0, "--resume of nothing begins"
    said = multihead(*words)
    assert said.code == 0
    assert "is finished: 6 heads" in said.err
    other = multihead("measure", given.other, *words[2:])
    assert other.code == 2
    assert "table.json holds a run with model gpt2 (GPT2LMHeadModel, weights" in other.err
    assert "this run has model other (GPT2LMHeadModel, weights" in other.err


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_after_the_batch_and_says_how_to_go_on(
    multihead: Multihead, given: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    from multihead.corpus.run import BatchRunner

    words = (
        "measure",
        given.gpt2,
        "--corpus",
        given.corpus,
        "--no-kinds",
        "-o",
        tmp_path / "a run",
        "--batch-size",
        2,
    )
    real, steps = BatchRunner.run, []

    def interrupted(self: Any, batch: Any, progress: Any = None) -> None:
        real(self, batch, progress)
        steps.append(batch)
        if len(steps) == 2:
            signal.raise_signal(number)

    with monkeypatch.context() as patch:
        patch.setattr(BatchRunner, "run", interrupted)
        said = multihead(*words)
    assert said.code == code
    assert len(steps) == 2
    assert f"stopped. To continue: multihead measure {given.gpt2} --corpus" in said.err
    assert f"-o '{tmp_path / 'a run'}' --batch-size 2 --resume" in said.err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    refused = multihead(*words)
    assert (refused.code, "holds a run that was stopped" in refused.err) == (2, True)
    for other, line in ((("--seed", "7"), "seed 0, this run has seed 7"),
                        (("--kinds",), "stages statistics, this run has stages statistics, kinds"),
                        (("--limit", "6"), "7 documents")):  # fmt: skip
        wrong = multihead(*words, *other, "--resume")
        assert (wrong.code, line in wrong.err) == (2, True), wrong.err
    said = multihead(*words, "--resume")
    assert said.code == 0, said.err
    assert "resuming after 2 of 4 batches" in said.err
    whole = multihead(*words, "-o", tmp_path / "whole")
    assert whole.code == 0
    got, expected = ((tmp_path / n / "table.json").read_bytes() for n in ("a run", "whole"))
    assert got == expected


def test_a_second_signal_stops_at_once(
    multihead: Multihead, given: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from multihead.corpus.run import BatchRunner

    def impatient(self: Any, batch: Any, progress: Any = None) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it went on")

    monkeypatch.setattr(BatchRunner, "run", impatient)
    said = multihead("measure", given.gpt2, "--corpus", given.corpus, "-o", tmp_path / "run")
    assert said.code == 130
    assert "once more to stop at once" in said.err
