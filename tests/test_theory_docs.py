"""docs/explain/theory has the page of every statement, as the docstring of its file, and lists them all.

The examples are run by test_readme.py, with those of all other pages.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from multihead.statements.catalogue import STATEMENTS
from test_readme import PAGES as RUN
from test_readme import blocks

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "explain" / "theory"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_an_example_with_an_assertion(page: Path) -> None:
    assert page in RUN
    assert any("assert " in code for _, code in blocks(page))


def test_pages_are_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools/theory_pages.py", "--out", tmp_path], check=True)
    written = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()}
    assert written.keys() == {page.name for page in PAGES}
    stale = [page.name for page in PAGES if written[page.name] != page.read_text(encoding="utf-8")]
    assert stale == [], "run `make theory` and commit the result"


def test_the_index_lists_every_statement() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert f"({page.name})" in index
    for statement in STATEMENTS:
        assert f"| {statement.id} | [{statement.title}](" in index
        assert f"`{statement.formula.replace('|', '∣')}`" in index
