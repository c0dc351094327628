"""`multihead serve`: a real process, its address, Ctrl-C, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import warm
from cli.conftest import Folders, Said
from multihead.cli import serve as serve_command

Multihead = Callable[..., Said]


def test_serves_until_it_is_told_to_stop(given: Folders) -> None:
    words = [
        str(given.gpt2),
        "--corpus",
        str(given.corpus),
        "--text",
        "the cat sat on the mat",
        "--only",
        "measure",
    ]
    server = warm.start(warm.COMMAND, "serve", *words)
    try:
        while "\n" not in server.stdout:
            assert server.process.is_alive(), server.stderr
            time.sleep(0.01)
        address = server.stdout.strip()
        assert address.startswith("http://127.0.0.1:"), server.stderr
        with urllib.request.urlopen(address, timeout=20) as answer:
            html = answer.read().decode()
        assert "<title>gpt2: what every head does</title>" in html
        with urllib.request.urlopen(f"{address}row?text=0&layer=L1&head=2&i=3", timeout=20) as answer:
            assert len(answer.read()) == 4 * 8
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen("/".join(address.split("/")[:3]) + "/", timeout=20)
        os.kill(server.process.pid, signal.SIGINT)
        done = server.wait(timeout=30)
    finally:
        server.process.kill()
    err = done.stderr
    assert done.returncode == 0, err
    assert done.stdout.strip() == address, "nothing on stdout but the address"
    assert err.rstrip().endswith("ended")
    assert "Ctrl-C ends it" in err
    assert "Traceback" not in err
    assert address.split("/")[3] not in err, "the token is written once, on stdout"


def test_open_does_not_show_the_token(given: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process list holds the name of a file that leads to the page, not the address with the token."""
    log = tmp_path / "arguments"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {log}.part && mv {log}.part {log}\n')
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    words = [str(given.gpt2), "--corpus", str(given.corpus), "--only", "cost", "--limit", "1", "--open"]
    server = warm.start(warm.COMMAND, "serve", *words)
    try:
        while not log.exists():
            assert server.process.is_alive(), server.stderr
            time.sleep(0.01)
        address = server.stdout.strip()
        token = address.split("/")[3]
        argument = log.read_text()
        assert argument.startswith("file://")
        assert token not in argument
        file = Path(argument.removeprefix("file://"))
        assert file.stat().st_mode & 0o777 == 0o600
        assert address in file.read_text()
        os.kill(server.process.pid, signal.SIGINT)
        assert server.wait(timeout=30).returncode == 0
        assert not file.exists()
    finally:
        server.process.kill()


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--port", "65536"], "--port must be at most 65535, got 65536"),
        (["--context", "0"], "--context must be at least 1, got 0"),
        (["--context", "38"], "context must be at most 37, the positions of this GPT2LMHeadModel, got 38"),
        (["--only", "everything"], "unknown part 'everything'"),
        (["--text", "missing.txt"], "no such file: 'missing.txt'"),
    ],
)
def test_refused(words: list[str], wrong: str, multihead: Multihead, given: Folders) -> None:
    said = multihead("serve", given.gpt2, "--corpus", given.corpus, *words)
    assert said.code == 2
    assert wrong in said.err
    assert said.out == ""


def test_a_taken_port_is_an_error_before_the_model_is_loaded(
    multihead: Multihead, given: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_command, "arguments_of", None)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = multihead(
            "serve", given.gpt2, "--corpus", given.corpus, "--only", "cost", "--limit", 1, "--port", port
        )
    assert said.code == 2
    assert f"--port {port} cannot be used: Address already in use" in said.err


def test_help_is_quick_and_ends_with_examples(multihead: Multihead, tmp_path: Path) -> None:
    said = multihead("serve", "--help")
    assert said.code == 0
    assert "examples:" in said.out
    assert "Ctrl-C ends it." in said.out
    code = "import sys\nfrom multihead.cli import main\ntry: main(['serve', '--help'])\n"
    code += "finally: assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def pair(given: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder–decoder in a folder, with the tokenizer of the others."""
    import torch
    from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

    torch.manual_seed(3)
    ids = {"vocab_size": 31, "pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 0}
    folder = tmp_path_factory.mktemp("pair") / "t5"
    config = T5Config(d_model=24, d_kv=7, d_ff=16, num_layers=2, num_heads=3, **ids)
    T5ForConditionalGeneration(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(given.gpt2).save_pretrained(folder)
    return folder


def test_an_encoder_decoder_is_served(pair: Path, given: Folders) -> None:
    words = [
        str(pair),
        "--corpus",
        str(given.corpus),
        "--text",
        "the cat sat",
        "--decoder",
        "a dog",
        "--only",
        "measure",
    ]
    server = warm.start(warm.COMMAND, "serve", *words)
    try:
        while "\n" not in server.stdout:
            assert server.process.is_alive(), server.stderr
            time.sleep(0.01)
        address = server.stdout.strip()
        body = json.dumps({"text": 0, "scales": {"cross.L1H2": 0}, "head": "cross.L1H2"}).encode()
        with urllib.request.urlopen(f"{address}switches", data=body, timeout=20) as answer:
            switched = json.loads(answer.read())
        assert switched["reading"] == "next"
        assert switched["shown"] == ["[PAD]", "[CLS]", "a", "dog"]
        body = json.dumps({"text": "the new house"}).encode()
        with urllib.request.urlopen(f"{address}text", data=body, timeout=20) as answer:
            (text,) = json.loads(answer.read())["texts"]
        assert text["sequences"][0]["shown"] == ["[CLS]", "the", "new", "house", "[SEP]"]
        assert len(text["sequences"]) == 2, "the model has written the other text"
        os.kill(server.process.pid, signal.SIGINT)
        assert server.wait(timeout=30).returncode == 0
    finally:
        server.process.kill()


def test_decoder_texts_belong_to_texts(pair: Path, multihead: Multihead, given: Folders) -> None:
    said = multihead("serve", pair, "--text", "the cat", "--decoder", "a", "--decoder", "dog")
    assert (said.code, said.out) == (2, "")
    assert "--decoder must be given once for each --text: got 2 for 1" in said.err
    said = multihead("serve", given.gpt2, "--text", "the cat", "--decoder", "a dog")
    assert said.code == 2
    assert "has no decoder that reads a second text" in said.err
