"""`mh.measure`: all parts in one call, and runs in a folder that continue where they were stopped."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import multihead as mh
from multihead.corpus.documents import Documents
from multihead.corpus.read_texts import read_documents
from multihead.corpus.run import BatchRunner
from multihead.corpus.stopping import Interrupted
from multihead.errors import MultiheadError
from multihead.table.table import HeadTable

DOCUMENTS = [
    [3, 1, 4, 1, 5, 9, 2, 6],
    [5, 3, 5, 8, 9, 7],
    [3, 2, 3, 8, 4],
    [2, 6, 4, 3, 3, 8, 3],
    [2, 7, 9, 5],
    [3, 1],
]
ALL = ("statistics", "kinds", "importance", "similarity")


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2, n_head=3, n_embd=24, vocab_size=31, n_positions=37, initializer_range=0.3, bos_token_id=0
    )
    return GPT2LMHeadModel(config).eval()


def test_all_parts_in_one_call_are_the_parts_one_by_one(model: Any) -> None:
    table = mh.measure(model, DOCUMENTS, parts=ALL, importance="all", seed=5)
    parts = [
        mh.measure(model, DOCUMENTS),
        mh.kinds(model, DOCUMENTS, seed=5).table,
        mh.importance(model, DOCUMENTS, method="all", seed=5).table,
        mh.similarity(model, DOCUMENTS, seed=5).table,
    ]
    assert set(table.columns) == {name for part in parts for name in part.columns}
    for part in parts:
        for name, values in part.columns.items():
            if isinstance(values, torch.Tensor):
                torch.testing.assert_close(table[name], values, rtol=0, atol=0, equal_nan=True)
            else:
                assert table[name] == values


def test_a_folder_holds_the_table(model: Any, tmp_path: Path) -> None:
    lines: list[str] = []
    done: list[tuple[str, float, float]] = []
    table = mh.measure(
        model, DOCUMENTS, parts=ALL, batch_size=2, out=tmp_path / "run", name="tiny", say=lines.append,
        progress=lambda *step: done.append(step),
    )  # fmt: skip
    assert HeadTable.load(tmp_path / "run") == table
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["table.json"]
    assert table.about["documents"] == 6
    assert lines[0].startswith(
        "tiny: 6 heads, 16.1 k parameters; data: 6 documents in 3 batches; statistics, kinds"
    )
    assert "of memory" in lines[1]
    assert done[-1] == ("statistics", 3.0, 3)
    again = mh.measure(model, DOCUMENTS, parts=ALL, batch_size=2, out=tmp_path / "run", name="tiny", resume=True)
    assert again == table, "a finished run is only read"
    with pytest.raises(MultiheadError, match="run holds a table"):
        mh.measure(model, DOCUMENTS, out=tmp_path / "run")
    with pytest.raises(MultiheadError, match=r"holds a run with .*tiny.* this run has .*GPT2LMHeadModel"):
        mh.measure(model, DOCUMENTS, parts=ALL, batch_size=2, out=tmp_path / "run", resume=True)
    forced = mh.measure(model, DOCUMENTS, batch_size=2, out=tmp_path / "run", force=True)
    assert "kind" not in forced.columns


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_continues_to_the_same_table(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real, batches = BatchRunner.run, []

    def stopped(self: Any, batch: Any, progress: Any = None) -> None:
        real(self, batch, progress)
        batches.append(batch)
        if len(batches) == 2:
            signal.raise_signal(number)

    options: dict[str, Any] = {"parts": ("statistics", "importance"), "batch_size": 2}
    before = signal.getsignal(number)
    with monkeypatch.context() as patch:
        patch.setattr(BatchRunner, "run", stopped)
        with pytest.raises(Interrupted) as stop:
            mh.measure(model, DOCUMENTS, out=tmp_path / "run", **options)
    assert isinstance(stop.value, KeyboardInterrupt)
    assert stop.value.signal == number
    assert signal.getsignal(number) is before
    assert len(batches) == 2
    with pytest.raises(MultiheadError, match="holds a run that was stopped"):
        mh.measure(model, DOCUMENTS, out=tmp_path / "run", **options)
    lines: list[str] = []
    mh.measure(model, DOCUMENTS, out=tmp_path / "run", resume=True, say=lines.append, **options)
    assert any("resuming after 2 of 3 batches" in line for line in lines)
    mh.measure(model, DOCUMENTS, out=tmp_path / "whole", **options)
    files = [(tmp_path / name / "table.json").read_bytes() for name in ("run", "whole")]
    assert files[0] == files[1]


def test_outside_of_the_main_thread(model: Any, tmp_path: Path) -> None:
    """Where Python cannot handle signals."""
    tables: list[HeadTable] = []
    thread = threading.Thread(target=lambda: tables.append(mh.measure(model, DOCUMENTS, out=tmp_path / "run")))
    thread.start()
    thread.join()
    assert tables == [HeadTable.load(tmp_path / "run")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"parts": ("kind",)}, "parts must be some of statistics, kinds"),
        ({"parts": "kind"}, r"parts must be some of statistics, kinds.*\('kind',\)"),
        ({"parts": 3}, "parts must be a list of parts, got the int 3"),
        ({"importance": "magic"}, "importance must be one of .*'magic'"),
        ({"save_every": -1}, "save_every must be at least 0, got -1"),
        ({"rank_timeout": -1}, "rank_timeout must be above 0, got -1"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"max_tokens": 38}, "max_tokens must be at least 1 and at most 37"),
        ({"column": 3}, "column must be a name, got the int 3"),
        ({"tokenizer": 3}, "tokenizer must be callable on a text, got the int 3"),
        ({"statistics": 3}, "statistics must be a Statistics or None, got 3"),
        ({"ranks": 3}, "ranks must be Ranks or None, got the int 3"),
        ({"progress": 3}, "progress must be True, False or a function, got the int 3"),
        ({"resume": True, "force": True}, "resume continues a run and force starts again"),
        ({"resume": "yes"}, "resume must be True or False"),
        ({"treebank": "nowhere.conllu"}, "no such file: nowhere.conllu"),
    ],
)
def test_arguments_that_are_refused(model: Any, tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    """With and without a folder; none is created."""
    for out in (tmp_path / "run", None):
        with pytest.raises(MultiheadError, match=message):
            mh.measure(model, DOCUMENTS, out=out, **arguments)
    assert not (tmp_path / "run").exists()


def test_one_part_needs_no_list(model: Any) -> None:
    assert mh.measure(model, DOCUMENTS, parts="kinds") == mh.measure(model, DOCUMENTS, parts=["kinds"])


# ---- documents --------------------------------------------------------------------------------


def test_documents_are_counted_and_copies_are_found() -> None:
    documents = Documents.of(lambda: ["a b", "c", "a b", "c"], "texts")
    assert (documents.count, documents.size, documents.copies) == (4, 8, (2, 3))
    assert list(documents) == list(documents) == ["a b", "c", "a b", "c"]
    read: list[int] = []
    same = Documents.of(lambda: read.append(1) or ["a b", "c", "a b", "c"], "texts", documents.counts())  # type: ignore[func-returns-value]
    assert (same.fingerprint, same.copies, read) == (documents.fingerprint, documents.copies, [])
    with pytest.raises(MultiheadError, match="objects must be texts, lists of token ids or batches"):
        Documents.of(lambda: [{"input_ids": object()}], "objects")


def test_words_files_and_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert list(read_documents(text=["some words", str(tmp_path / "a.txt")])) == ["some words", "one\n\ntwo"]
    assert list(read_documents(corpus=[str(tmp_path)], limit=1)) == ["one"]
    for name, message in ((str(tmp_path), "is a folder"), ("nowhere", "no such file: 'nowhere'")):
        with pytest.raises(MultiheadError, match=message):
            read_documents(text=[name])
