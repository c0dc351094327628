"""The relative links of the Markdown pages: each leads to a file of the repository, each anchor to a heading.

python tools/links.py    # print the broken links; exit code 1 if there are any
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("docs", "examples")

_CODE = re.compile(r"^ *(```+).*?^ *\1|`[^`\n]*`|<!--.*?-->", re.MULTILINE | re.DOTALL)
_LINK = re.compile(
    r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)|(?:src|href)=\"([^\"]+)\"|^\[[^\]]+\]: +(\S+)", re.MULTILINE
)
_HEADING = re.compile(r"^#{1,6} +(.+?)[ #]*$", re.MULTILINE)
_FENCED = re.compile(r"^ *(```+).*?^ *\1", re.MULTILINE | re.DOTALL)


def pages(root: Path = ROOT) -> list[Path]:
    """Every Markdown page that people read: at the top, in docs/ and in examples/."""
    return sorted([*root.glob("*.md"), *(page for folder in FOLDERS for page in (root / folder).rglob("*.md"))])


def links(page: Path) -> Iterator[tuple[int, str]]:
    """(line number, target) of the links and images of a page that lead into the repository."""
    text = page.read_text(encoding="utf-8")
    text = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code.group()), text)  # the lines keep their numbers
    for match in _LINK.finditer(text):
        target = next(group for group in match.groups() if group)
        if not re.match(r"[a-z]+:", target):
            yield text.count("\n", 0, match.start()) + 1, target


def target_file(page: Path, target: str) -> Path:
    """The file that a link leads to."""
    path = target.partition("#")[0]
    return (page.parent / path).resolve() if path else page


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page, as GitHub derives them from its headings."""
    text = page.read_text(encoding="utf-8")
    found: list[str] = re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)  # a link in a heading counts as its text
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        repeated = sum(name == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", name) is not None for name in found)
        found.append(f"{slug}-{repeated}" if repeated else slug)
    return frozenset(found)


def broken_links(root: Path = ROOT) -> list[str]:
    """One line for every link that leads nowhere."""
    return [
        f"{page.relative_to(root)}:{line}: {target}: {fault}"
        for page in pages(root)
        for line, target in links(page)
        if (fault := _fault(target_file(page, target), target.partition("#")[2], root))
    ]


def _fault(file: Path, anchor: str, root: Path) -> str | None:
    if not file.is_relative_to(root) or not file.exists():
        return "no such file"
    if file.is_dir():
        return "a folder; link to a file of it, which a site can show"
    if anchor and file.suffix == ".md" and anchor not in anchors(file):
        return f"no heading #{anchor}"
    return None


if __name__ == "__main__":
    faults = broken_links()
    sys.stdout.write("".join(f"{line}\n" for line in faults))
    sys.exit(bool(faults))
