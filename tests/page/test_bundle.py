"""The JavaScript of the pages: the committed bundles are the built ones, and the sources are readable."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHOW = ROOT / "src/multihead/show"


def test_bundles_are_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools/bundle.py", "--out", tmp_path], check=True)
    built = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()}
    committed = {file.name: file.read_text(encoding="utf-8") for file in (SHOW / "bundles").iterdir()}
    assert built.keys() == committed.keys()
    stale = [name for name in built if built[name] != committed[name]]
    assert stale == [], "run `make bundle` and commit the result"
    assert all("</script" not in text for text in committed.values()), "a bundle stands inside a <script> element"


def test_lockfile_names_no_registry() -> None:
    """A machine may reach the packages by a mirror; their checksums are the same everywhere."""
    text = (ROOT / "package-lock.json").read_text(encoding="utf-8")
    assert '"integrity"' in text
    assert '"resolved"' not in text
    assert not re.search(r'"https?://(?!opencollective|github\.com)', text)


def test_sources_have_short_lines_and_are_checked() -> None:
    files = [file for file in sorted((SHOW / "app").rglob("*")) if file.suffix in (".js", ".css", ".html")]
    assert {file.suffix for file in files} == {".js", ".css", ".html"}
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        long = [number for number, line in enumerate(lines, 1) if len(line) > 120]
        assert long == [], f"{file.name}: lines over 120 characters"
        assert not any("@ts-nocheck" in line or "@ts-ignore" in line for line in lines), file.name
