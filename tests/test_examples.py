"""Every example runs, and shows what it says; the index lists them all."""

from __future__ import annotations

import runpy
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbclient
import nbformat
import pytest
import yaml

import multihead as mh
from multihead.cli import main as multihead

FOLDER = Path(__file__).parents[1] / "examples"


def example(name: str) -> Any:
    return SimpleNamespace(**runpy.run_path(str(FOLDER / name)))


def test_the_index_lists_every_example() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    files = {path.name for path in FOLDER.iterdir() if path.suffix in (".py", ".ipynb", ".yml")}
    assert {name for name in files if f"]({name})" in index} == files


def test_attention_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    example("attention_by_hand.py").main("the dog sees the cats")  # compares with the model at every step
    printed = capsys.readouterr().out
    assert printed.count("concatenated") == 6
    assert printed.count("head 3") == 6


def test_your_model() -> None:
    score = example("your_model.py").main()
    assert score["key"] < 0 < score["keys"]
    assert score["keys, without L1H3"] < score["keys"] - 2
    assert score["key, L1H3 copied from keys"] > score["key"] + 2


def test_dropin(capsys: pytest.CaptureFixture[str]) -> None:
    example("dropin.py").main()
    printed = capsys.readouterr().out
    assert "torch, all keys hidden: [nan, nan, nan]" in printed
    assert "ours, all keys hidden: [0.0, 0.0, 0.0]" in printed


@pytest.mark.filterwarnings("ignore:the calibration text is short")
def test_prune_check_save(tmp_path: Path) -> None:
    example("prune_check_save.py").main(0.75, tmp_path / "smaller")
    small = mh.load(tmp_path / "smaller")
    assert sum(layer.num_heads for layer in mh.anatomy(small)) == 9


def test_train_tiny_learns_induction() -> None:
    """Fewer steps than the example: the heads have formed, the loss still falls."""
    first, *_, last = example("train_tiny.py").train(200)
    assert first["previous"] < 0.2 < 0.5 < last["previous"]
    assert first["induction"] < 0.2 < 0.4 < last["induction"]
    assert last["repeated"] < 1 < 3 < last["new"]


def test_the_gate_in_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = yaml.safe_load((FOLDER / "gate_in_ci.yml").read_text(encoding="utf-8"))["jobs"]["gate"]["steps"]
    prune, check = (shlex.split(step["run"]) for step in steps if step.get("name") in ("Prune", "Check"))
    _, tokenizer = mh.embedded()
    texts = tokenizer.sample_texts()
    monkeypatch.chdir(tmp_path)
    Path("calibration.txt").write_text("\n".join(texts[:30]))
    Path("held_out.txt").write_text("\n".join(texts[30:]))
    assert (prune[0], check[0]) == ("multihead", "multihead")
    assert multihead(prune[1:]) == 0
    assert multihead(check[1:]) == 0
    assert multihead([*check[1:], "--fail-if", "agreement<0.99"]) == 1


@pytest.mark.fast("heads")
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook = nbformat.read(path, as_version=4)
    shown = sum(bool(cell.get("outputs")) for cell in notebook.cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    assert sum(bool(cell.get("outputs")) for cell in notebook.cells) == shown, (
        "commit the notebook with its outputs"
    )
