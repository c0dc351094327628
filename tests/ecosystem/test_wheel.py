"""The wheel works in an empty environment: no file is left out of it and no dependency is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import multihead as mh

ROOT = Path(__file__).parents[2]

Installed = Callable[..., str]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Runs a program of the environment, in an empty folder, and returns its standard output."""
    home = tmp_path_factory.mktemp("wheel")
    programs, pins = home / "environment" / "bin", ["-c", str(ROOT / "constraints.txt")]
    (home / "empty").mkdir()
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_", "VIRTUAL_ENV"))
    }

    def run(*command: object) -> str:
        done = subprocess.run(
            [*map(str, command)],
            cwd=home / "empty",
            env=clean,
            text=True,
            capture_output=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", home / "dist", ROOT)
    (wheel,) = (home / "dist").iterdir()
    run(sys.executable, "-m", "venv", home / "environment")
    # torch first and alone, as the Makefile does: nothing after it may choose a different build.
    run(programs / "python", "-m", "pip", "install", "--quiet", *pins, "torch")
    run(programs / "python", "-m", "pip", "install", "--quiet", *pins, wheel)
    return lambda program, *words: run(programs / program, *words)


@pytest.mark.fast(0)
def test_import(installed: Installed) -> None:
    where = installed(
        "python", "-c", "import multihead as mh; [getattr(mh, n) for n in mh.__all__]; print(mh.__file__)"
    )
    assert "environment" in where, "the package of the wheel, not that of the checkout"


@pytest.mark.fast(0)
def test_help(installed: Installed) -> None:
    text = installed("multihead", "--help")
    assert {"report", "measure", "show", "prune"} <= set(text.split())
    assert mh.__version__ in installed("multihead", "--version")


@pytest.mark.fast(0)
def test_a_head_of_the_embedded_model(installed: Installed) -> None:
    """The weights, the vocabulary and the pictures of a head come with the wheel."""
    map_ = installed("multihead", "show", "embedded", "0.2", "--text", "the keys that the man sees are new")
    assert "L0H2" in map_
    assert "keys" in map_


@pytest.mark.fast(0)
def test_the_first_command_works(installed: Installed) -> None:
    """Neither transformers nor MiniLM is there: the report is about the embedded model."""
    assert (
        installed("python", "-c", "from importlib.util import find_spec; print(find_spec('transformers'))")
        == "None\n"
    )
    summary = installed("multihead", "report", "--only", "measure,kinds,cost", "--limit", "6", "--quiet")
    assert summary.startswith("embedded: ")
    page = installed("python", "-c", "print(open('report.html', encoding='utf-8').read(15))")
    assert page == "<!doctype html>\n"
