"""`multihead report`: the page, the summary, what it refuses, and what is left after Ctrl-C."""

from __future__ import annotations

import base64
import io
import json
import re
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import warm
from cli.conftest import Folders, Said

Multihead = Callable[..., Said]


def data_of(page: Path) -> dict[str, Any]:
    """What a page holds."""
    found = re.search(r'<script type="text/plain" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found is not None
    return json.loads(zlib.decompress(base64.b64decode(found[1]), -15))


def check_schema(found: dict[str, Any]) -> None:
    """Names and types of the summary for programs, as docs/guides/report.md has them."""
    kinds = {name: type(value) for name, value in found.items()}
    assert kinds == {
        "model": dict,
        "corpus": dict,
        "heads": int,
        "findings": list,
        "kinds": dict,
        "notes": list,
        "stopped": bool,
        "page": str,
        "bytes": int,
        "prunable": type(found["prunable"]),
        "texts": list,
    }
    assert set(found["model"]) == {"name", "class", "parameters"}
    assert {"name", "documents"} <= set(found["corpus"]) <= {"name", "documents", "tokens", "loss"}
    assert all(set(f) == {"text", "link"} and f["link"].startswith("#") for f in found["findings"])
    assert all(isinstance(n, str) for names in found["kinds"].values() for n in names)
    assert found["prunable"] is None or isinstance(found["prunable"], int)
    assert all(set(t) == {"name", "tokens", "window", "windows"} for t in found["texts"])


def test_page_and_summary(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    page = tmp_path / "new folder" / "r.html"
    said = multihead(
        "report", given.gpt2, "--corpus", given.corpus, "--only", "measure,kinds,importance,curve,cost", "-o", page
    )
    assert said.code == 0, said.err
    assert "2 layers × 3 heads" in said.out
    assert "•" in said.out
    assert "mean importance (by ablation)" in said.out
    assert "\x1b" not in said.out, "no colours in a pipe"
    assert re.search(r"about \d+ s, about \d+ MB of memory", said.err)
    assert f"{page}: " in said.err
    assert "next: multihead report" in said.err
    data = data_of(page)
    assert data["heads"] == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"]
    assert data["model"]["name"] == "gpt2"
    assert data["corpus"]["documents"] == 7
    assert len(data["texts"]) == 3
    assert data["curve"]["prunable"] <= 6
    assert data["theory"] is None
    assert not data["stopped"]
    assert [p.name for p in page.parent.iterdir()] == ["r.html"]


def test_text_is_what_maps_are_of(
    multihead: Multihead, given: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tmp_path / "words.txt"
    words.write_text("the old dog ran")
    monkeypatch.setattr(sys, "stdin", io.StringIO("who saw it"))
    said = multihead(
        *("report", given.gpt2, "--corpus", given.corpus, "--only", "measure", "-o", tmp_path / "r.html"),
        *("--text", words, "--text", "-", "--text", "a cat sat", "--heads", "0.1,L1H2"),
    )
    assert said.code == 0, said.err
    texts = data_of(tmp_path / "r.html")["texts"]
    assert [t["sequences"][0]["shown"][1:-1] for t in texts] == [
        ["the", "old", "dog", "ran"],
        ["who", "saw", "it"],
        ["a", "cat", "sat"],
    ]
    kept = [[h is not None for h in layer["heads"]] for layer in texts[0]["layers"]]
    assert kept == [[False, True, False], [False, False, True]]


def test_text_longer_than_the_model_takes(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    said = multihead(
        *("report", given.gpt2, "--corpus", given.corpus, "--only", "cost", "-o", tmp_path / "r.html"),
        *("--text", "the cat sat on the mat and " * 20),
    )
    assert said.code == 0, said.err
    texts = data_of(tmp_path / "r.html")["texts"]
    assert [len(t["sequences"][0]["shown"]) for t in texts] == [37, 37, 37, 37]
    assert texts[1]["note"] == "window 2 of 4, of 37 tokens each"
    assert "longer than the model can read at once: 4 windows, all are in the page" in said.err
    said = multihead(
        *("report", given.gpt2, "--corpus", given.corpus, "--only", "cost", "-o", tmp_path / "r.html", "--force"),
        *("--text", "the cat sat on the mat and " * 20, "--windows", 2),
    )
    assert len(data_of(tmp_path / "r.html")["texts"]) == 2
    assert "4 windows, the first 2 are in the page" in said.err


def test_json(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    said = multihead(
        *("report", given.bare, "--ids", given.corpus.with_name("ids.json"), "--only", "measure,kinds"),
        *("-o", tmp_path / "r.html", "--json", "--quiet"),
    )
    assert said.code == 0, said.err
    assert said.err == ""
    found = json.loads(said.out)
    check_schema(found)
    assert found["heads"] == 6
    assert found["bytes"] == (tmp_path / "r.html").stat().st_size
    assert "too little data" not in found["kinds"], "a share names a head where documents are few"
    named = [head for heads in found["kinds"].values() for head in heads]
    assert sorted(named) == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--text", "missing.txt"], "no such file: 'missing.txt'"),
        (["--text", "   "], "a text must not be empty"),
        (["--text", "{empty}"], "contains no text"),
        (["--text", "{latin}"], "is not UTF-8 text"),
        (["--text", "{folder}"], "is a folder"),
        (["-o", "/proc/r.html"], "nothing can be written to /proc: "),
        (["--corpus", "missing"], "no such file: missing"),
        (["--only", "maps,wrong"], "unknown part 'maps'"),
        (["--heads", "7.7"], "unknown layer in '7.7'"),
        (["--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["--windows", "0"], "--windows must be at least 1, got 0"),
        (["-o", "{folder}"], "is a folder"),
        (["-o", "{there}"], "exists already"),
        (["-o", "{there}/r.html"], "is a file, so"),
    ],
)
def test_refused(words: list[str], wrong: str, multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    names = {"there": tmp_path / "there.html", "folder": tmp_path, "empty": tmp_path / "empty"}
    names |= {"latin": tmp_path / "latin"}
    names["there"].write_text("before")
    names["empty"].write_text("\n")
    names["latin"].write_bytes("Grüße an alle".encode("latin-1"))
    asked = [w.format(**names) for w in words]
    said = multihead("report", given.gpt2, "--only", "cost", "--limit", 1, "-o", tmp_path / "r.html", *asked)
    assert said.code == 2
    assert wrong in said.err
    assert len(said.err.split("hint:")[0].strip().splitlines()) <= 4, "one clear line, after the estimate at most"
    assert not (tmp_path / "r.html").exists()
    assert names["there"].read_text() == "before"


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])  # of a UTF-8 locale, of the C locale
def test_stdin_that_is_not_utf_8(
    errors: str, multihead: Multihead, given: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = io.TextIOWrapper(io.BytesIO("Grüße an alle".encode("latin-1")), encoding="utf-8", errors=errors)
    monkeypatch.setattr(sys, "stdin", words)
    said = multihead("report", given.gpt2, "--text", "-", "-o", tmp_path / "r.html")
    assert said.code == 2
    assert "stdin is not UTF-8 text" in said.err


def test_no_model_and_no_tokenizer(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    assert "the model must have a name" in multihead("report", "", "-o", tmp_path / "r.html").err
    assert "there is no model folder" in multihead("report", "nothing", "-o", tmp_path / "r.html").err
    said = multihead("report", given.bare, "-o", tmp_path / "r.html")
    assert said.code == 2
    assert "has no tokenizer" in said.err


def test_force(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    page.write_text("before")
    said = multihead("report", given.gpt2, "--limit", 1, "--only", "cost", "-o", page, "--force")
    assert said.code == 0, said.err
    assert data_of(page)["cost"] is not None


def test_help_is_quick_and_ends_with_examples(multihead: Multihead) -> None:
    said = multihead("report", "--help")
    assert said.code == 0
    assert "examples:" in said.out
    assert "minilm" in said.out
    code = "import sys\nfrom multihead.cli import main\ntry: main(['report', '--help'])\n"
    code += "finally: assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_stopped(given: Folders, tmp_path: Path, name: str) -> None:
    """A real Ctrl-C, or SIGTERM, in the midst: a page is left, and the code says that it was stopped."""
    page = tmp_path / "r.html"
    code = f"""
import os, signal, sys
from multihead.show import collect_parts
before = collect_parts.Ablation
def importance(loss):
    os.kill(os.getpid(), signal.{name})
    return before(loss)
collect_parts.Ablation = importance
from multihead.cli import main
sys.exit(main(["report", {str(given.gpt2)!r}, "--corpus", {str(given.corpus)!r}, "-o", {str(page)!r}]))
"""
    ran = warm.run(code)
    assert ran.returncode == 128 + signal.Signals[name], ran.stderr
    assert "stopped" in ran.stderr
    assert "Traceback" not in ran.stderr
    data = data_of(page)
    assert data["stopped"]
    assert "kind" in data["table"]
    assert data["importance"] is None


# ---- what can go wrong on the way out ---------------------------------------------------------


def test_no_room_is_said_before_the_work(
    multihead: Multihead, given: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from multihead._base import atomic_files

    class Full:
        free = 1_000_000

    monkeypatch.setattr(atomic_files, "disk_usage", lambda path: Full)
    said = multihead("report", given.gpt2, "-o", tmp_path / "r.html")
    assert said.code == 2
    assert "must have 20 MB left, got 1 MB" in said.err
    assert "about" not in said.err, "nothing was begun"


def _run(given: Folders, page: Path, before: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which runs `before` first."""
    words = ("report", given.gpt2, "--corpus", given.corpus, "--only", "measure", "-o", page)
    return warm.run(f"{before}\n{warm.COMMAND}", *words)


def test_disk_that_fills_up(given: Folders, tmp_path: Path) -> None:
    """A file that may not grow: the page is not written, nothing half is left, and one line says why."""
    page = tmp_path / "full" / "r.html"
    page.parent.mkdir()
    small = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    small += "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))"
    ran = _run(given, page, small)
    assert ran.returncode == 2
    assert "cannot be written to" in ran.stderr
    assert "File too large" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert list(page.parent.iterdir()) == []


def test_reader_that_hangs_up(given: Folders, tmp_path: Path) -> None:
    """`multihead report | head -0`: the page is there, and the exit code is that of SIGPIPE."""
    closed = "import os\nread, write = os.pipe()\nos.close(read)\nos.dup2(write, 1)"
    ran = _run(given, tmp_path / "r.html", closed)
    assert ran.returncode == 141, ran.stderr
    assert "Traceback" not in ran.stderr
    assert "Broken pipe" not in ran.stderr
    assert data_of(tmp_path / "r.html")["table"] is not None


def test_real_cuts(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    said = multihead(
        *("report", given.gpt2, "--corpus", given.corpus, "--only", "curve,cost", "--curve"),
        *("-o", tmp_path / "r.html", "--json"),
    )
    assert said.code == 0, said.err
    curve = data_of(tmp_path / "r.html")["curve"]
    assert [c["method"] for c in curve["curves"]] == ["obs", "fisher", "random"]
    assert curve["cut"]
    found = json.loads(said.out)
    check_schema(found)
    assert found["prunable"] == curve["prunable"]


def test_json_and_the_plain_page_tell_of_the_theory_too(tmp_path: Path) -> None:
    import multihead as mh
    from multihead.show.report import CorpusInfo, ModelInfo, Report

    theory = mh.theory(mh.MultiHeadAttention(12, 3), torch.randn(2, 11, 12), only=["2"])
    fails = sum(line.verdict == "fails" for line in theory.summary)
    report = Report(ModelInfo("m", "M", 1), CorpusInfo("c", 1), theory=theory)
    texts = [finding["text"] for finding in report.to_json()["findings"]]
    assert texts == [f"{fails} of 1 statements of the theory fail on this model."]
    assert texts[0] in report.html().partition("<noscript>")[2]
