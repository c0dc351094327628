"""docs/claims has a page for every statement, with an example that shows something, and lists them all.

The examples are run by test_readme.py, with those of all other pages.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from multihead.statements.run import statements
from test_readme import PAGES as RUN
from test_readme import blocks

FOLDER = Path(__file__).parents[1] / "docs" / "claims"
PAGES = sorted(p for p in FOLDER.glob("*.md") if p.name != "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_an_example_that_shows_something(page: Path) -> None:
    assert page in RUN
    assert any("assert " in code for _, code in blocks(page)), "an example shows, it does not only run"


def test_every_statement_has_a_page_and_a_row() -> None:
    """06-information.md is the page of 6a, 6b and 6c."""
    pages = {_number(page.stem).lstrip("0") for page in PAGES}
    assert pages == {_number(claim.key) for claim in statements()}
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert f"({page.name})" in listed
    for claim in statements():
        assert f"| {claim.key} | [{claim.title}](" in listed


def _number(name: str) -> str:
    found = re.match(r"T?\d+", name)
    assert found is not None, name
    return found[0]
