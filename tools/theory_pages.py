"""Write docs/explain/theory: the page of a statement is the docstring of its file.

python tools/theory_pages.py               # write the committed pages (make theory)
python tools/theory_pages.py --out FOLDER  # write them elsewhere: the tests compare both
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from itertools import groupby
from pathlib import Path
from textwrap import dedent

from multihead.statements.catalogue import STATEMENTS
from multihead.statements.statement import Statement

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs/explain/theory"


def page_name(statement: Statement) -> str:
    """16-variance-bound.md; the parts of a statement share a page."""
    return f"{_number(statement):0>2}-{_file(statement).replace('_', '-')}.md"


def pages() -> dict[str, str]:
    """The text of every page, by its name."""
    return {name: _page(list(parts)) for name, parts in groupby(STATEMENTS, page_name)}


def _page(parts: list[Statement]) -> str:
    first, file = parts[0], _file(parts[0])
    title = first.title if len(parts) == 1 else file.replace("_", " ")
    opening, rest = (inspect.getdoc(sys.modules[first.test.__module__]) or "").split("\n\n", 1)
    conditions = [f"**Condition**{'' if len(parts) == 1 else f' ({x.id})'}: {x.holds_when}." for x in parts]
    source = f"src/multihead/statements/{file}.py"
    blocks = [
        f"<!-- The docstring of {source}. Edit it there, then run `make theory`. -->",
        f"# {_number(first)}. {title[0].upper()}{title[1:]}",
        opening,
        *conditions,
        _fenced(rest),
        f"Code: [{file}.py](../../../{source})",
    ]
    return "\n\n".join(blocks) + "\n"


def _fenced(text: str) -> str:
    """The text with indented formulas in fences, outside of code."""
    code = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    code[::2] = [re.sub(r"(?:^ {4}.*\n?)+", _fence, prose, flags=re.MULTILINE) for prose in code[::2]]
    return "".join(code)


def _fence(formula: re.Match[str]) -> str:
    return f"```text\n{dedent(formula.group()).rstrip()}\n```\n"


def _file(statement: Statement) -> str:
    return statement.test.__module__.rpartition(".")[2]


def _number(statement: Statement) -> str:
    return statement.id.rstrip("abc")


def main(out: Path) -> None:
    """Write all pages, and remove those of statements that are gone."""
    out.mkdir(parents=True, exist_ok=True)
    texts = pages()
    for old in out.glob("*.md"):
        if old.name not in texts and old.name != "README.md":
            old.unlink()
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=PAGES, help="folder to write to")
    main(parser.parse_args().out)
