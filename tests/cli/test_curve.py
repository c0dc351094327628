"""`multihead curve`: a picture, a table, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Folders, Said

Multihead = Callable[..., Said]


def test_a_picture_a_table_and_what_comes_next(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    out = tmp_path / "pictures" / "curve.png"
    words = (
        "curve",
        given.gpt2,
        "--calibration",
        given.corpus,
        "--at",
        "0.5,0.84",
        "--method",
        "fisher",
        "--method",
        "random",
    )
    said = multihead(*words, "-o", out)
    assert said.code == 0, said.err
    assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "1 document to check on" in said.err
    assert "4 points, about" in said.err
    assert said.out.splitlines()[0].startswith("perplexity on 1 held-out documents; the original has ")
    assert said.out.splitlines()[1].split() == ["heads", "kept", "fisher", "random"]
    assert [line.split()[:3] for line in said.out.splitlines()[2:4]] == [["5", "of", "6"], ["3", "of", "6"]]
    again = multihead(*words, "-o", out)
    assert again.code == 2
    assert "curve.png exists already\n\nhint: --force overwrites it" in again.err


def test_json_and_a_text_of_its_own(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    words = (
        "--calibration",
        given.corpus,
        "--held-out",
        given.corpus,
        "--at",
        "0.84,0.67,0.5",
        "--method",
        "random",
        "--no-refit",
    )
    said = multihead("curve", given.gpt2, *words, "-o", tmp_path / "c.svg", "--json", "--quiet")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["documents"] == 7
    assert [p["kept"] for p in found["points"]] == [5, 4, 3]
    assert found["points"][0]["perplexity"] > 1
    assert "<svg" in (tmp_path / "c.svg").read_text()


@pytest.mark.parametrize(
    "words, line",
    [
        (("--at", "0.5,x"), "--at must be numbers, got 0.5,x"),
        (("--at", "0,0.5"), "--at must be in (0, 1], got 0\n\nhint: --at 0.5 is half of the heads"),
        (("--at", ","), "--at must not be empty"),
        (("-o", "curve.txt"), "-o must be a .png or .svg file, got curve.txt"),
    ],
)
def test_what_is_refused(multihead: Multihead, given: Folders, words: tuple[str, ...], line: str) -> None:
    said = multihead("curve", given.gpt2, "--calibration", given.corpus, *words)
    assert said.code == 2
    assert line in said.err


def test_without_matplotlib_it_says_so_before_the_work(
    multihead: Multihead, given: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing = "multihead.show.figure.figure"
    for name in [n for n in sys.modules if n.partition(".")[0] == "matplotlib" or n == drawing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = multihead("curve", given.gpt2, "--calibration", given.corpus, "-o", tmp_path / "c.png")
    assert said.code == 2
    assert "figures need matplotlib, which is not installed" in said.err
    assert "documents to fit to" not in said.err, "it was said after the model was read"
