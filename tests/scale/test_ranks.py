"""1, 2, 3 and 4 processes, forked or started by torchrun: the same table, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from multihead.table.table import HeadTable
from scale import measuring
from scale.launching import forked, torchrun

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process, this one."""
    folder = tmp_path_factory.mktemp("alone")
    measuring.measure(folder, every=1e9)
    return folder


def test_all_stages_are_in_the_table(alone: Path) -> None:
    table = HeadTable.load(alone)
    assert table.about["kinds"]["pieces"] > 64, "several batches of pieces"
    assert {"entropy", "kind", "match_low", "importance", "ablation_mean", "most_similar_cka"} <= set(table.columns)
    assert table.about["kinds"]["documents"] == measuring.DOCUMENTS - 2
    assert len(measuring.corpus(measuring.model()).ranges()) == 6


@pytest.mark.fast("2")
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_many_processes_write_the_same_file_as_one(alone: Path, tmp_path: Path, ranks: int) -> None:
    done = forked(HERE / "measuring.py", tmp_path, ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "table.json").read_bytes() == (alone / "table.json").read_bytes()
    left = sorted(file.name for file in (tmp_path / "state").iterdir())
    passes = ("ablation", "repeats", "shares", "statistics")
    assert left == sorted([*(f"{name}-root.safetensors" for name in passes), "run.json"])


def test_torchrun_starts_again_and_goes_on_by_itself(alone: Path, tmp_path: Path) -> None:
    done = torchrun(HERE / "measuring.py", tmp_path, "--die", 1, 3, restarts=1)
    assert done.returncode == 0, done.stderr
    assert "SIGKILL" in done.stderr or "-9" in done.stderr, "it has died once"
    assert (tmp_path / "table.json").read_bytes() == (alone / "table.json").read_bytes()


@pytest.mark.fast("forked")
@pytest.mark.parametrize("launch", [forked, torchrun])
def test_the_command_on_two_ranks(launch: Callable[..., CompletedProcess[str]], tmp_path: Path) -> None:
    """`torchrun -m multihead measure` and the same command in one process."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from cli.conftest import DOCUMENTS, tokenizer
    from multihead.cli import main

    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=3, n_embd=24, vocab_size=31, n_positions=37, initializer_range=0.3)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")  # type: ignore[attr-defined]
    (tmp_path / "corpus.txt").write_text("\n".join(f"{d} {i % 7}" for i, d in enumerate(DOCUMENTS * 3)))
    words = ("measure", tmp_path / "model", "--corpus", tmp_path / "corpus.txt", "--batch-size", 2)
    done = launch("multihead", *words, "-o", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert "2 processes" in done.stderr
    assert "padding; " in done.stderr
    assert done.stderr.count("next: multihead show") == 1, "only rank 0 speaks"
    assert main([*map(str, words), "-o", str(tmp_path / "one")]) == 0
    assert (tmp_path / "two" / "table.json").read_bytes() == (tmp_path / "one" / "table.json").read_bytes()
    assert [file.name for file in (tmp_path / "two").iterdir()] == ["table.json"]
