"""Write the golden values again and print what changed.

    python tests/golden/make.py                       # all subjects
    python tests/golden/make.py --only kinds-minilm   # subjects whose names begin with this; may be repeated

Run it when a number changes on purpose, read what it prints, and explain the change in the commit. For a value that
was only renamed, add the new name to names.json instead.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # as under pytest: shared test modules are imported by plain name

import torch

from golden.compare import TOLERANCES, Comparison, compare
from golden.record import FOLDER, Names, read_values, write_values
from golden.subjects import SUBJECTS

SHOWN = 20
"""How many changed values, and how many gone ones, are printed per file."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the golden values again and print what changed.")
    parser.add_argument("--only", action="append", metavar="NAME", help="subjects whose names begin with NAME")
    only = tuple(parser.parse_args().only or [""])
    chosen = [name for name in SUBJECTS if name.startswith(only)]
    if not chosen:
        parser.error(f"no subject begins with {' or '.join(only)}: there are {', '.join(SUBJECTS)}")
    torch.set_num_threads(1)
    changes: list[Comparison] = []
    for name in chosen:
        changes.append(_write(name))
        _print(name, changes[-1])
    for path in sorted(FOLDER.glob("*.json")):
        if path.stem not in SUBJECTS:
            print(f"{path.name}: no subject has this name; delete the file")
    counts = [(len(change.added), len(change.gone), len(change.wrong)) for change in changes]
    added, gone, changed = map(sum, zip(*counts, strict=True))
    total = sum(len(read_values(name)) for name in chosen)
    summary = f"{added} added, {gone} gone, {changed} changed" if added + gone + changed else "nothing changed"
    print(f"{len(chosen)} files, {total} values: {summary}")


def _write(name: str) -> Comparison:
    """Values within their tolerance are not rewritten, so that another machine changes no file."""
    subject, golden = SUBJECTS[name], read_values(name)
    today = subject.values(Names.read())
    change = compare(golden, today, TOLERANCES[subject.tolerance])
    new = {*change.added, *(wrong.path for wrong in change.wrong)}
    write_values(name, {path: x if path in new else golden[path] for path, x in today.items()})
    return change


def _print(name: str, change: Comparison) -> None:
    if not (change.added or change.gone or change.wrong):
        return
    print(f"{name}: {len(change.added)} added, {len(change.gone)} gone, {len(change.wrong)} changed")
    for wrong in change.wrong[:SHOWN]:
        print(f"  {wrong}")
    for path in change.gone[:SHOWN]:
        print(f"  gone: {path}")


if __name__ == "__main__":
    main()
