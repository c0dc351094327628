"""`--inputs` of every command, and `read_inputs`: models of images, sound, vectors."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import multihead as mh
import warm
from cli.conftest import Said
from multihead.corpus.documents import Documents
from multihead.corpus.read_inputs import read_inputs
from multihead.corpus.read_texts import read_documents
from multihead.errors import MultiheadError
from page.test_serve_models import _vit, _whisper

Multihead = Callable[..., Said]

MODULE = """
import torch
from torch import nn

def stack():
    torch.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(24, 3, 16, batch_first=True), 2)
def vectors(): return [{"src": torch.randn(2, 7, 24, generator=torch.Generator().manual_seed(i))} for i in range(5)]
def stack_and_vectors(): return stack(), vectors()
def stack_and_batch(): return stack(), vectors()[0]
def one(): return vectors()[0]
def number(): return 3
def nothing(): return []
def texts(): return ["a", "b"]
def wrong(): return {"source": torch.randn(1, 7, 24)}
def fails(): raise OSError("no disk")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, their inputs, and a module that makes others."""
    root = tmp_path_factory.mktemp("inputs")
    _vit().save_pretrained(root / "vit")
    _whisper().save_pretrained(root / "whisper")
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(13, 3, 12, 12, generator=draw)
    save_file({"pixel_values": images}, root / "images.safetensors")
    save_file({"pixels": images}, root / "pixels.safetensors")
    sound = torch.randn(9, 5, 22, generator=draw)
    words = torch.randint(4, 30, (9, 6), generator=draw)
    save_file({"input_features": sound, "decoder_input_ids": words}, root / "sound.safetensors")
    save_file({"input_features": sound, "decoder_input_ids": words[:8]}, root / "ragged.safetensors")
    save_file({}, root / "empty.safetensors")
    save_file({"pixel_values": torch.tensor(1.0)}, root / "scalar.safetensors")
    data = (root / "images.safetensors").read_bytes()
    (root / "short.safetensors").write_bytes(data[:999])
    (root / "tiny.safetensors").write_bytes(data[:5])
    (root / "some_inputs.py").write_text(MODULE)
    return root


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    monkeypatch.delitem(sys.modules, "some_inputs", raising=False)
    return folder


# ---- read_inputs ------------------------------------------------------------------------------


def test_rows_are_documents_that_share_batches(here: Path) -> None:
    images = read_inputs("images.safetensors")
    assert [tuple(image["pixel_values"].shape) for image in images] == [(1, 3, 12, 12)] * 13
    model, whole = _vit(), torch.cat([image["pixel_values"] for image in images])
    sizes: list[int] = []
    handle = model.register_forward_pre_hook(
        lambda _, args, kwargs: sizes.append(len(kwargs["pixel_values"])), with_kwargs=True
    )
    table = mh.measure(model, images, batch_size=5)
    handle.remove()
    assert sizes[-3:] == [5, 5, 3]
    by_hand = mh.measure(model, [{"pixel_values": part} for part in whole.split(5)])
    assert torch.equal(table["entropy"], by_hand["entropy"])


def test_batches_of_a_function_are_read_as_they_are(here: Path) -> None:
    assert [tuple(batch["src"].shape) for batch in read_inputs("some_inputs:vectors")] == [(2, 7, 24)] * 5
    assert len(read_inputs("some_inputs:one")) == 1
    loaded = mh.load_pretrained("some_inputs:stack_and_vectors")
    assert loaded.tokenizer is None
    assert loaded.inputs is not None
    assert len(loaded.inputs) == 5
    assert len(mh.load_pretrained("some_inputs:stack_and_batch").inputs or ()) == 1


def test_inputs_have_the_precision_of_the_model(here: Path) -> None:
    (image, *_) = read_inputs("images.safetensors", _vit().to(torch.bfloat16))
    assert image["pixel_values"].dtype == torch.bfloat16
    sound = read_inputs("sound.safetensors", _whisper().double())
    assert {name: x.dtype for name, x in sound[0].items()} == {
        "input_features": torch.float64, "decoder_input_ids": torch.int64
    }  # fmt: skip


@pytest.mark.parametrize(
    ("source", "error", "hint"),
    [
        ("missing.safetensors", "no such file: missing.safetensors", "tensors in a .safetensors file"),
        ("images.npy", "inputs must be a .safetensors file or module:function, got images.npy", "save_file"),
        ("short.safetensors", "short.safetensors cannot be read: ", "truncated"),
        ("tiny.safetensors", "tiny.safetensors cannot be read: ", "truncated"),
        ("ragged.safetensors", "must have the same number of rows, got", "the first dimension counts documents"),
        ("empty.safetensors", "empty.safetensors contains no row", "first dimension"),
        ("scalar.safetensors", "scalar.safetensors contains no row", "first dimension"),
        (
            "some_inputs:number",
            "some_inputs:number must return batches, got an int",
            "a batch is a dict of tensors",
        ),
        ("some_inputs:texts", "some_inputs:texts must return batches, got a list", "a batch is a dict of tensors"),
        ("some_inputs:nothing", "some_inputs:nothing must return batches, got an empty list", "a batch is"),
        ("some_inputs:fails", "some_inputs:fails failed: OSError: no disk", "without arguments"),
        ("some_inputs:absent", "some_inputs has no absent", "it has stack, vectors"),
        ("no_inputs:one", "there is no module no_inputs, which no_inputs:one names", "current folder"),
        (
            "pixels.safetensors",
            "ViTForImageClassification does not take the inputs pixels",
            "it reads pixel_values; its forward takes pixel_values, ",
        ),
        ("some_inputs:wrong", "does not take the inputs source", "it reads pixel_values"),
    ],
)
def test_inputs_that_are_refused(source: str, error: str, hint: str, here: Path, multihead: Multihead) -> None:
    said = multihead("measure", "vit", "--inputs", source, "-o", "refused")
    assert (said.code, said.out) == (2, "")
    assert error in said.err
    assert hint in said.err.partition("hint: ")[2]
    assert not (here / "refused").exists()


def test_a_model_without_text_needs_inputs(here: Path, multihead: Multihead) -> None:
    for model, name, needed in (
        ("vit", "ViTForImageClassification", "pixel_values"),
        ("whisper", "WhisperForConditionalGeneration", "input_features and decoder_input_ids"),
        ("some_inputs:stack", "TransformerEncoder", "src"),
    ):
        said = multihead("measure", model, "-o", "refused")
        assert (said.code, said.out) == (2, "")
        assert f"{name} reads {needed}, not text" in said.err
        assert f"hint: pass --inputs 'FILE.safetensors', which holds {needed}, or --inputs" in said.err
    (here / "ids.json").write_text("[[1, 2]]")
    assert "reads pixel_values, not token ids" in multihead("theory", "vit", "--ids", "ids.json").err
    said = multihead("measure", "vit", "--inputs", "images.safetensors", "--ids", "ids.json", "-o", "refused")
    assert "ids and inputs cannot be combined" in said.err
    with pytest.raises(MultiheadError, match="ViTForImageClassification reads pixel_values, document 0 is"):
        mh.measure(_vit(), [[3, 1, 4]])
    with pytest.raises(MultiheadError, match="text and inputs cannot be combined"):
        read_documents(corpus=["corpus.txt"], inputs="images.safetensors")


def test_batches_are_counted(here: Path) -> None:
    images = read_inputs("images.safetensors")
    counted = Documents.of(lambda: [*images, images[2]], "images")
    assert (counted.count, counted.size, counted.copies) == (14, 14, (13,))
    other = Documents.of(lambda: [*images, images[3]], "images")
    assert other.fingerprint != counted.fingerprint
    with pytest.raises(MultiheadError, match="must be texts, lists of token ids or batches to be counted"):
        Documents.of(lambda: [{"pixel_values": object()}], "data")


# ---- commands ---------------------------------------------------------------------------------

COMMANDS: dict[str, list[str]] = {
    "measure": ["--importance", "gradient", "-o", "OUT"],
    "report": ["--only", "measure,kinds,importance,curve,cost", "-o", "OUT.html"],
    "theory": ["--only", "2,16"],
    "prune": ["--keep", "0.5", "-o", "OUT"],
    "group": ["--kv-heads", "1", "-o", "OUT"],
    "check": ["MODEL", "--rounds", "1"],
    "curve": ["--at", "0.5", "--method", "random", "-o", "OUT.png"],
}
DATA = {
    "vit": ["--inputs", "images.safetensors"],
    "whisper": ["--inputs", "sound.safetensors"],
    "some_inputs:stack": ["--inputs", "some_inputs:vectors"],
    "some_inputs:stack_and_vectors": [],
}


@pytest.mark.fast("measure-vit", "curve-some_inputs:stack_and_vectors", "report-whisper", "check-vit")
@pytest.mark.parametrize("model", DATA)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command(command: str, model: str, here: Path, tmp_path: Path, multihead: Multihead) -> None:
    words = [word.replace("OUT", str(tmp_path / "out")).replace("MODEL", model) for word in COMMANDS[command]]
    said = multihead(command, model, *words, *DATA[model])
    assert said.code == 0, said.err
    assert "sample" not in said.err
    assert "--ids" not in said.err
    if command in ("prune", "group"):
        assert f"next: multihead check {model} {tmp_path / 'out'} --inputs" in said.err
    if command == "check":
        assert " 0 tokens" not in said.out
    if (command, model) == ("check", "vit"):
        assert "whole model, 1 × 10 tokens" in said.out, "9 patches and the class token, not channels or pixels"
        assert "quality on 13 documents\n" in said.out, "one row of logits for each image"
    if (command, model) == ("prune", "vit"):
        assert "13 documents, 130 tokens; about " in said.err


def test_the_next_command_reads_the_same_inputs(here: Path, tmp_path: Path, multihead: Multihead) -> None:
    inputs = ["--inputs", "images.safetensors"]
    said = multihead("report", "vit", *inputs, "--only", "measure,cost", "-o", str(tmp_path / "page.html"))
    assert said.code == 0
    assert "next: multihead measure vit --inputs images.safetensors -o run" in said.err
    said = multihead("theory", "vit", *inputs, "--only", "1")
    assert "multihead theory vit --inputs images.safetensors --json --only 1" in said.err


def test_attention_costs_at_the_length_of_an_image(here: Path) -> None:
    model, _ = mh.load_pretrained("vit")
    images = read_inputs("images.safetensors", model)
    report = mh.report(model, images, parts=("cost",))
    assert report.cost is not None
    assert report.cost.tokens == 10  # 9 patches and [CLS], of 12 × 12 pixels


def test_a_run_is_resumed_on_the_same_inputs_only(here: Path, tmp_path: Path, multihead: Multihead) -> None:
    words = ("measure", "vit", "-o", tmp_path / "run")
    assert multihead(*words, "--inputs", "images.safetensors").code == 0
    said = multihead(*words, "--inputs", "images.safetensors", "--resume")
    assert said.code == 0
    assert "is finished: 6 heads" in said.err
    save_file({"pixel_values": torch.zeros(13, 3, 12, 12)}, here / "black.safetensors")
    said = multihead(*words, "--inputs", "black.safetensors", "--resume")
    assert said.code == 2
    assert "13 documents" in said.err


SERVED: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "vit": ("classes", ["--inputs", "images.safetensors"], {"L0H1": 0}),
    "whisper": ("next", ["--inputs", "sound.safetensors"], {"cross.L1H1": 0}),
    "some_inputs:stack": ("vector", ["--inputs", "some_inputs:vectors"], {"L0H2": 0.5}),
}


@pytest.mark.fast("vit")
@pytest.mark.parametrize("model", SERVED)
def test_switches_of_a_served_model(model: str, here: Path) -> None:
    reading, data, scales = SERVED[model]
    server = warm.start(warm.COMMAND, "serve", model, *data, "--only", "measure")
    try:
        while "\n" not in server.stdout:
            assert server.process.is_alive(), server.stderr
            time.sleep(0.01)
        address = server.stdout.strip()
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert "what every head does</title>" in answer.read().decode()
        body = json.dumps({"text": 1, "scales": scales, "head": next(iter(scales))}).encode()
        with urllib.request.urlopen(f"{address}switches", data=body, timeout=20) as answer:
            switched = json.loads(answer.read())
        assert switched["reading"] == reading
        assert switched["map"]
        if reading == "vector":
            assert 0 < switched["change"] < 1
        else:
            assert any(row["before"] != row["after"] for row in switched["top"])
        os.kill(server.process.pid, signal.SIGINT)
        assert server.wait(timeout=30).returncode == 0
    finally:
        server.process.kill()
