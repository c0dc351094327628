"""Build the site of the documentation, with search and navigation, in build/docs/site (make docs).

The pages are copied in the layout of the repository, with the files that they link to, so a link that works on
GitHub works in the site. The navigation follows the folders; pages come in the order in which docs/README.md and
the index pages of folders link to them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import links

ROOT = links.ROOT
BUILD = ROOT / "build/docs"
CONFIG = ROOT / "tools/zensical.toml"
INDEXES = ("README.md", "index.md")
LAST = ("CONTRIBUTING.md", "CHANGELOG.md")


def copy_pages(out: Path) -> None:
    """Copy every page, and every file that a page links to."""
    shutil.rmtree(out, ignore_errors=True)
    pages = links.pages()
    linked = {links.target_file(page, target) for page in pages for _, target in links.links(page)}
    for file in {*pages, *linked}:
        copy = out / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            copy.write_text(separate_lists(file.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(file, copy)


def separate_lists(text: str) -> str:
    """Lists as Python-Markdown reads them: an empty line before a list, four spaces for every level of it."""
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        if (mark := re.match(r" *(```+)", line)) and len(mark.group(1)) >= len(fence):
            fence = "" if fence else mark.group(1)
        item = None if fence else re.match(r"( *)([-*]|\d+\.) ", line)
        if item and lines[-1:] != [""] and not re.match(r" *([-*]|\d+\.) |  ", lines[-1] if lines else "- "):
            lines.append("")
        lines.append(item.group(1) + line if item else line)
    return "\n".join(lines)


def navigation() -> str:
    """The navigation, as the value of `nav` in the configuration."""
    order = _order()
    rest = [ROOT / name for name in LAST]
    examples = [_entry(ROOT / "examples", order)] if any((ROOT / "examples").glob("*.md")) else []
    entries = ['{ "Overview" = "README.md" }', *_entries(ROOT / "docs", order), *examples, *map(_page, rest)]
    return f"[{', '.join(entries)}]"


def _order() -> dict[Path, int]:
    """Pages and folders, numbered as docs/README.md links to them, then as the index pages of folders do."""
    indexes = [page for name in INDEXES for page in (ROOT / "docs").rglob(name)]
    order: dict[Path, int] = {}
    for index in sorted(indexes, key=lambda page: len(page.parts)):
        files = [links.target_file(index, target) for _, target in links.links(index)]
        for file in reversed(dict.fromkeys(reversed(files))):  # of several links to a page, the last counts
            for path in (file, *file.parents):  # a folder with its first page
                order.setdefault(path, len(order))
    return order


def _entries(folder: Path, order: dict[Path, int]) -> list[str]:
    """The pages and folders in a folder, its index first."""
    inside = [path for path in folder.iterdir() if path.suffix == ".md" or any(path.rglob("*.md"))]
    by_name = sorted(inside, key=lambda path: path.name)
    by_index = sorted(by_name, key=lambda path: (path.name not in INDEXES, order.get(path, len(order))))
    return [_entry(path, order) for path in by_index]


def _entry(path: Path, order: dict[Path, int]) -> str:
    if path.is_file():
        return _page(path)
    index = next((page for name in INDEXES if (page := path / name).exists()), None)
    title = _title(index) if index else path.name.replace("-", " ").capitalize()
    return f"{{ {_text(title)} = [{', '.join(_entries(path, order))}] }}"


def _page(page: Path) -> str:
    return f"{{ {_text(_title(page))} = {_text(str(page.relative_to(ROOT)))} }}"


def _title(page: Path) -> str:
    """The heading of a page, up to a colon."""
    heading = re.search(r"^# ([^:\n]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return heading.group(1).replace("`", "") if heading else page.stem


def _text(text: str) -> str:
    """A string of TOML."""
    return json.dumps(text, ensure_ascii=False)


def main() -> int:
    """Check the links of the pages, then build; warnings of the build are errors."""
    if faults := links.broken_links():
        sys.stderr.write("\n".join(["broken links:", *faults, ""]))
        return 1
    copy_pages(BUILD / "pages")
    config = CONFIG.read_text(encoding="utf-8").replace("[project]\n", f"[project]\nnav = {navigation()}\n", 1)
    (BUILD / "zensical.toml").write_text(config, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=BUILD, check=False
    )
    if done.returncode == 0:
        sys.stdout.write("python -m http.server -d build/docs/site shows it; without a server, it has no search\n")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
