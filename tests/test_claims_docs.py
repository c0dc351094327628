"""Every page of docs/claims: its examples run, its statement is there, and the list of pages is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from multihead.measures.claims.run import statements

FOLDER = Path(__file__).parents[1] / "docs" / "claims"
PAGES = sorted(p for p in FOLDER.glob("*.md") if p.name != "README.md")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[int, str]]:
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1)) for m in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_show_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(page)
    assert any("assert " in code for _, code in found), "an example shows, it does not only run"
    namespace: dict[str, object] = {"__name__": "__example__"}
    for line, code in found:
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


def test_every_statement_has_a_page_and_a_row() -> None:
    """06-information.md is the page of 6a, 6b and 6c."""
    pages = {re.match(r"T?\d+", p.stem)[0].lstrip("0") for p in PAGES}  # type: ignore[index]
    keys = {re.match(r"T?\d+", claim.key)[0] for claim in statements()}  # type: ignore[index]
    assert pages == keys
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert f"({page.name})" in listed
    for claim in statements():
        assert f"| {claim.key} |" in listed
