"""Write the golden values again, and say what has changed.

    python tests/golden/make.py                       # all subjects
    python tests/golden/make.py --only kinds-minilm   # those whose name begins so; may be repeated

Run it where a number changes on purpose, read what it prints, and give the reason in the commit. A value that only
has another name keeps its place if names.json says so.
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
    sys.path[0] = str(Path(__file__).parents[1])  # as pytest has it: what tests share is found by its plain name

import torch

from golden.compare import TOLERANCES, Comparison, compare
from golden.record import FOLDER, Names, read_values, write_values
from golden.subjects import SUBJECTS

SHOWN = 20
"""changed values of a file that are printed"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the golden values again, and say what has changed.")
    parser.add_argument("--only", action="append", metavar="NAME", help="subjects that begin so; may be repeated")
    only = tuple(parser.parse_args().only or [""])
    chosen = [name for name in SUBJECTS if name.startswith(only)]
    if not chosen:
        parser.error(f"no subject begins with {' or '.join(only)}: there are {', '.join(SUBJECTS)}")
    torch.set_num_threads(1)
    changes = {name: _write(name) for name in chosen}
    for name, change in changes.items():
        _print(name, change)
    for path in sorted(FOLDER.glob("*.json")):
        if path.stem not in SUBJECTS:
            print(f"{path.name}: no subject has this name; delete the file")
    counts = [(len(c.added), len(c.gone), len(c.wrong)) for c in changes.values()]
    added, gone, changed = map(sum, zip(*counts, strict=True))
    total = sum(len(read_values(name)) for name in chosen)
    summary = f"{added} added, {gone} gone, {changed} changed" if added + gone + changed else "nothing changed"
    print(f"{len(chosen)} files, {total} values: {summary}")


def _write(name: str) -> Comparison:
    """Values that are within their tolerance stay as they are, so that another machine changes no file."""
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
