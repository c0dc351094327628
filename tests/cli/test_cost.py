"""`multihead cost`: what is printed, for people and for programs, and how it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from multihead.cli import main
from zoo import ZOO


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = main(["cost", *words])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert "--json" in words or all(len(line) <= 80 for line in out.splitlines())
    return out


def test_a_known_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "gpt3", "--tokens", "2048")
    assert "96 layers of 96 heads of 128, d_model 12288" in out
    assert "parameters                               604 M          58.0 G" in out
    assert "24576" in out


def test_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "llama-3-8b", "--kv-heads", "2")
    assert "KV cache                                268 MB         67.1 MB          × 0.25" in out
    out = run(capsys, "bert-base", "--heads", "6")
    assert "after: bert-base, 6 heads" in out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(run(capsys, "deepseek-v3", "--tokens", "1", "--json"))
    assert data["total"]["cache_bytes"] == 61 * 576 * 2
    data = json.loads(run(capsys, "gpt2", "--heads", "6", "--json"))
    assert data["change"]["FLOPs, attention"]["ratio"] == 0.5
    assert json.loads(run(capsys, "bert-base", "--json"))["decode_intensity"] is None
    assert "NaN" not in run(capsys, "bert-base", "--heads", "6", "--json")  # which is no JSON


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--list")
    assert "gpt3                  96    12288     96   96      128" in out
    known = json.loads(run(capsys, "--list", "--json"))
    assert known["gpt2"]["origin"] == "config.json of openai-community/gpt2"


def test_a_folder_is_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "small-llama"
    ZOO["llama"].build().save_pretrained(folder)
    capsys.readouterr()
    out = run(capsys, str(folder), "--tokens", "7")
    assert out.startswith("small-llama\n  2 layers of 6 heads of 4 on 2 kv, d_model 36\n")


def test_a_saved_cut_model_and_a_function(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest of a saved model holds its sizes: its weights are not loaded."""
    import multihead as mh
    from multihead.store import load

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("weights are read")

    model, _ = mh.embedded()
    mh.save(mh.cut(model, mh.plan(model, remove=["L0H1", "L1H2", "L2H3"]), refit=False), tmp_path / "cut")
    with monkeypatch.context() as patch:
        patch.setattr(load, "load", refuse)
        patch.setattr(load.TensorIndex, "read", refuse)
        assert mh.cost("embedded", tokens=7).parameters == mh.cost(model, tokens=7).parameters
    assert run(capsys, str(tmp_path / "cut")).startswith("cut\n  3 layers of 3 heads of 24, d_model 64\n")
    assert "batch 1, 512 tokens" in run(capsys, "embedded")
    (tmp_path / "own_models.py").write_text("import multihead\ndef tiny(): return multihead.embedded()\n")
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "own_models:tiny").startswith("own_models:tiny\n  3 layers of 4 heads of 24")


def test_a_saved_layout_that_shapes_do_not_tell_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even then are weights read."""
    import torch
    from transformers import CTRLConfig, CTRLModel

    import multihead as mh
    from multihead.errors import AnatomyError
    from multihead.store.tensors import TensorIndex

    torch.manual_seed(0)
    model = CTRLModel(CTRLConfig(vocab_size=31, n_embd=24, n_layer=2, n_head=3, dff=40)).eval()
    mh.save(model, tmp_path / "ctrl")
    reads: list[TensorIndex] = []
    read = TensorIndex.read
    monkeypatch.setattr(TensorIndex, "read", lambda self, *args: reads.append(self) or read(self, *args))
    with pytest.raises(AnatomyError, match=r"h\.0\.multi_head_attention .* layout\n\nhint: load the model"):
        mh.cost(tmp_path / "ctrl")
    assert not reads
    assert mh.cost(mh.load(tmp_path / "ctrl"), tokens=7).parameters == 2 * 4 * (24 * 24 + 24)
    assert reads


@pytest.mark.parametrize(
    "words, said",
    [
        (["gtp3"], "unknown model 'gtp3'\n\nhint: did you mean gpt3"),
        ([], "multihead cost needs a model"),
        (["gpt3", "--tokens", "-1"], "tokens must be at least 1, got -1"),
        (["gpt3", "--kv-heads", "5"], "kv_heads=5 does not divide heads=96"),
    ],
)
def test_failures_say_what_to_do(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["cost", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_a_name_imports_no_torch() -> None:
    code = "import sys; from multihead.cli import main; main(['cost', 'gpt3']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_source_that_nothing_reads_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "bert-base", "--source", "100"]) == 2
    assert "bert-base has no encoder, got source=100" in capsys.readouterr().err
    assert "10 tokens on 100 of the encoder" in run(capsys, "whisper-tiny", "--source", "100", "--tokens", "10")
