"""Every Python example in the README and in docs/ runs as pasted, top to bottom of its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[int, str]]:
    """(line number, code) of each fenced Python block of a page."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1)) for m in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run_as_pasted(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an example that writes a file writes it here
    namespace: dict[str, object] = {"__name__": "__example__"}
    for line, code in blocks(page):
        # The padding makes a traceback point at the line of the page.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


def test_the_readme_has_an_example() -> None:
    assert blocks(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s#]+)[^)]*\)|src=\"([^\"]+)\"", page.read_text(encoding="utf-8"))
    local = [a or b for a, b in links if not (a or b).startswith(("http:", "https:", "mailto:"))]
    missing = [link for link in local if not (page.parent / link).exists()]
    assert not missing
