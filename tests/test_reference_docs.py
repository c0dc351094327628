"""The generated pages of docs/reference are current and complete.

Links and anchors are tested by test_links.py, examples in docstrings by test_docstrings.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import multihead
from multihead.cli.parser import COMMANDS
from multihead.measures.cost.known_models import known_models

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference"


def test_pages_are_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools/reference_pages", "--out", tmp_path], check=True)
    written = {str(file.relative_to(tmp_path)): file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.md")}
    committed = {
        name: PAGES / name for name in (*written, *(f"api/{p.name}" for p in (PAGES / "api").glob("*.md")))
    }
    stale = [
        name
        for name, page in committed.items()
        if not page.exists() or page.read_text(encoding="utf-8") != written.get(name)
    ]
    assert stale == [], "run `make reference` and commit the result"


def test_every_public_name_is_in_the_api() -> None:
    index = (PAGES / "api/README.md").read_text(encoding="utf-8")
    for name in set(multihead.__all__) - {"__version__"}:
        assert re.search(rf"\[`(multihead\.)?{name}`\]\(", index), name
    for folder in ("layer", "model", "measures", "edit", "parallel"):
        page = (PAGES / f"api/{folder}.md").read_text(encoding="utf-8")
        for name in import_module(f"multihead.{folder}").__all__:
            assert f"## `{name}`" in page or f"[`multihead.{folder}.{name}`]" in index, name


def test_every_name_of_a_guide_is_in_the_api() -> None:
    """A feature that nobody can find does not exist."""
    index = (PAGES / "api/README.md").read_text(encoding="utf-8")
    files = {
        f"{module}.{name}"
        for module, name in re.findall(r"^- \[`\w+`\]\(([\w.]+)\.md#(\w+)\)", index, re.MULTILINE)
    }
    for guide in sorted((PAGES.parent / "guides").glob("*.md")):
        text = guide.read_text(encoding="utf-8")
        for module, names in re.findall(r"^from multihead\.([\w.]+) import ([\w, ]+)", text, re.MULTILINE):
            page = module.removeprefix("layer.") if f"{module}.md" not in index else module
            for name in names.strip().split(", "):
                assert f"{page}.{name}".lower() in files, f"{guide.name}: {module}.{name}"


def test_the_api_has_no_addresses() -> None:
    pages = [page.read_text(encoding="utf-8") for page in PAGES.rglob("*.md")]
    assert not any(re.search(r"0x[0-9a-f]{6}", page) for page in pages)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_options(command: str) -> None:
    text = (PAGES / "cli.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## `multihead {command}`\n")[2].partition("\n## ")[0]
    shown = subprocess.run(
        [sys.executable, "-m", "multihead", command, "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"^  +(--[a-z-]+)", shown, re.MULTILINE)) - {"--help"} <= set(
        re.findall(r"--[a-z-]+", section)
    )


TEXTBOOK = {
    "`bert-base` (BERT-Base)": (768, 12, 12, 64),
    "`bert-large` (BERT-Large)": (1024, 24, 16, 64),
    "`gpt2` (GPT-2 Small)": (768, 12, 12, 64),
    "`gpt2-large` (GPT-2 Large)": (1280, 36, 20, 64),
    "`gpt3` (GPT-3)": (12288, 96, 96, 128),
}


def test_configurations_are_those_of_the_textbooks() -> None:
    lines = (PAGES / "configurations.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    cells = {name: rest for name, *rest in rows}
    for name, (d_model, layers, heads, size) in TEXTBOOK.items():
        assert cells[name][:5] == [f"{d_model:,}", f"{layers}", f"{heads}", f"{heads}", f"{size}"]
    assert cells["`gpt3` (GPT-3)"][6] == f"{2 * 96 * 2 * 96 * 128:,}"  # bytes, layers, k and v, heads, size
    assert cells["`llama-3-8b`"][6] == f"{2 * 32 * 2 * 8 * 128:,}"
    assert len(rows) == len(known_models()) + 2  # the titles, and the line under them
