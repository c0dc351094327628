"""`multihead play`: the page, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import multihead as mh
from cli.conftest import Said
from multihead.errors import MultiheadError

Multihead = Callable[..., Said]


def test_the_page_is_that_of_python(multihead: Multihead, tmp_path: Path) -> None:
    file = tmp_path / "new" / "play.html"
    said = multihead("play", "-o", str(file))
    assert said.code == 0
    assert said.out == ""
    assert "open it in a browser" in said.err
    assert file.read_text(encoding="utf-8") == mh.play().html()


def test_it_overwrites_only_with_force(multihead: Multihead, tmp_path: Path) -> None:
    file = tmp_path / "play.html"
    file.write_text("mine", encoding="utf-8")
    refused = multihead("play", "-o", str(file))
    assert refused.code == 2
    assert "--force" in refused.err
    assert file.read_text(encoding="utf-8") == "mine"
    assert multihead("play", "-o", str(file), "--force", "--quiet").err == ""
    assert file.stat().st_size > 3e5


def test_python_overwrites_only_with_force(tmp_path: Path) -> None:
    file = tmp_path / "play.html"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(MultiheadError, match="exists already"):
        mh.play(file)
    assert file.read_text(encoding="utf-8") == "mine"
    mh.play(file, force=True)
    assert file.stat().st_size > 3e5


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(MultiheadError, match="is a file, so"):
        mh.play(tmp_path / "file" / "play.html")
