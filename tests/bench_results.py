"""The committed benchmark results, and the checks that a page quotes them correctly."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "bench" / "results"

Key = tuple[str, str, str]
"""File without its extension, work, contestant."""


@cache
def results() -> dict[Key, dict[str, Any]]:
    """Every row of bench/results."""
    return {
        (path.stem, row["work"], row["contestant"]): row
        for path in sorted(FOLDER.glob("*.json"))
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
    }


def value(key: Key, name: str) -> float:
    """The value `name` of a row, at its top level or among its `numbers`."""
    row = results()[key]
    return row[name] if name in row else row["numbers"][name]


def assert_rounded(number: str, exact: float) -> None:
    """`number`, as a page prints it, is `exact` rounded to as many digits; .98 and 0.98 are the same."""
    digits = len(number.partition(".")[2])
    assert number.lstrip("0") == f"{exact:.{digits}f}".lstrip("0"), (number, exact)


def assert_quoted(text: str, number: str, key: Key, name: str = "ratio", *, scale: float = 1.0) -> None:
    """`text` contains `number`, and it is the value `name` of the row `key`, times `scale`."""
    assert_rounded(number, value(key, name) * scale)
    whole = rf"(?<![\d.])0?{re.escape(number.removeprefix('0'))}(?!\.?\d)"
    assert re.search(whole, text), f"{number} is not on the page"


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next heading of the same or a higher level."""
    level = len(heading) - len(heading.lstrip("#"))
    start = re.search(rf"^{re.escape(heading)}$", page, re.MULTILINE)
    assert start, f"no heading {heading!r}"
    rest = page[start.end() :]
    end = re.search(rf"^#{{1,{level}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def tables(text: str) -> list[list[list[str]]]:
    """Every Markdown table of a text as rows of cells; the first row is the header."""
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:2] != "|-"]
        for table in found
    ]
