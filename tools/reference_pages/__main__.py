"""Write the generated pages of docs/reference: the API, the command line, the sizes of known models.

python tools/reference_pages               # write the committed pages (make reference)
python tools/reference_pages --out FOLDER  # write them elsewhere: the tests compare both
"""

from __future__ import annotations

import argparse
from pathlib import Path

import api
import command_line
import configurations

PAGES = Path(__file__).resolve().parents[2] / "docs/reference"


def pages() -> dict[str, str]:
    """The text of every page, by its path."""
    return {**api.pages(), "cli.md": command_line.page(), "configurations.md": configurations.page()}


def main(out: Path) -> None:
    """Write all pages, and remove API pages of modules that are gone."""
    texts = pages()
    for old in (out / "api").glob("*.md"):
        if f"api/{old.name}" not in texts:
            old.unlink()
    for path, text in texts.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the generated pages of docs/reference.")
    parser.add_argument("--out", type=Path, default=PAGES, help="folder to write to")
    main(parser.parse_args().out)
