"""docs/learn: every page has a picture, and its code prints the output shown below it."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from multihead.cli.parser import parse
from test_readme import PAGES as DOCS

ROOT = Path(__file__).parents[1]
PAGES = [page for page in DOCS if page.parent == ROOT / "docs" / "learn"]
REFERENCE = ROOT / "docs" / "reference"
BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def assert_printed(shown: str, printed: str) -> None:
    """The same words and numbers; decimals may differ by one in the last digit, as processors round differently."""
    assert NUMBER.sub("#", " ".join(printed.split())) == NUMBER.sub("#", " ".join(shown.split())), printed
    for new, old in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        decimals = len(old.partition(".")[2])
        difference = abs(float(new.replace(",", "")) - float(old.replace(",", "")))
        assert difference <= (1.01 * 10**-decimals if decimals else 0), f"{new} is printed, {old} is shown"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_prints_what_the_page_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    values: dict[str, object] = {"__name__": "__example__"}
    compared = 0
    for match in BLOCK.finditer(text):
        code, shown = match.groups()
        output = io.StringIO()
        line = text.count("\n", 0, match.start(1))
        with contextlib.redirect_stdout(output):
            exec(compile("\n" * line + code, str(page), "exec"), values)  # a traceback points at the page's line
        if shown is not None:
            assert_printed(shown, output.getvalue())
            compared += 1
    assert compared, "no block shows its output"


def test_a_wrong_number_is_noticed() -> None:
    assert_printed("loss 1.72, 4 heads", "loss  1.73, 4 heads\n")
    for printed in ("loss 1.74, 4 heads", "loss 1.72, 5 heads", "loss 1.72, 4 layers", "loss 1.72"):
        with pytest.raises(AssertionError):
            assert_printed("loss 1.72, 4 heads", printed)


def test_there_are_seven_pages_in_a_row() -> None:
    assert [page.stem[:2] for page in PAGES] == [f"{number}-" for number in range(1, 8)]
    for page, following in pairwise(PAGES):
        assert f"({following.name})" in page.read_text(encoding="utf-8"), f"{page.name} does not lead to the next"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_a_picture(page: Path) -> None:
    assert re.search(r"!\[[^\]]+\]\(\.\./images/[a-z-]+\.png\)", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [*PAGES, REFERENCE / "troubleshooting.md"], ids=lambda page: page.stem)
def test_commands_exist(page: Path) -> None:
    for name, rest in re.findall(
        r"(?:^|`)multihead ([a-z]+) ([^`\n]*)", page.read_text(encoding="utf-8"), re.MULTILINE
    ):
        parse([name, *shlex.split(rest, comments=True)])


# ---- reference --------------------------------------------------------------------------------


def test_the_glossary_agrees_with_the_report() -> None:
    source = (ROOT / "src/multihead/show/app/glossary.js").read_text(encoding="utf-8")
    entries = re.findall(r'^  (?:"([^"]+)"|(\w+)):\s*((?:"[^"]*"(?:\s*\+\s*)?)+),', source, re.MULTILINE)
    report = {quoted or plain: "".join(re.findall(r'"([^"]*)"', text)) for quoted, plain, text in entries}
    rows = re.findall(
        r"^\| \*\*([^*]+)\*\* ◆ \| (.*) \|$", (REFERENCE / "glossary.md").read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) > 5
    assert dict(rows) == {term: report[term] for term, _ in rows}, "copy the definition of the report page"
