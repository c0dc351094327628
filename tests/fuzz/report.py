"""Run the cases of many seeds and print the failures by cause, each with the smallest case that shows it.

python tests/fuzz/report.py 3000 [--start 0] [--shrink 3] [--only "cache changed"]
python tests/fuzz/report.py --seed 17
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import time
import warnings
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from fuzz.cases import Case, case, count_calls
from fuzz.describe import calls, features, show
from fuzz.findings import Finding
from fuzz.run import run
from fuzz.shrink import shrink


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="?", type=int, default=300, help="how many cases (default: 300)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seed", type=int, help="run this one, and print every finding")
    parser.add_argument("--shrink", type=int, default=3, help="cases to shrink per cause (default: 3)")
    parser.add_argument("--only", default="", help="causes that contain this text")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning)
    if options.seed is not None:
        one(options.seed, shrinks=options.shrink > 0)
        return
    began, count = time.perf_counter(), 0
    causes: dict[tuple[str, str], list[tuple[int, Finding]]] = defaultdict(list)
    seeds = range(options.start, options.start + options.seeds)
    failed = 0
    for seed in seeds:
        drawn = case(seed)
        count += count_calls(drawn)
        found = [f for f in run(drawn) if options.only in " ".join(f.cause)]
        failed += bool(found)
        for finding in found:
            causes[finding.cause].append((seed, finding))
    taken = time.perf_counter() - began
    print(f"{len(seeds)} layers, {count} calls, {taken:.0f} s: {failed} layers fail, {len(causes)} causes\n")
    for cause, examples in sorted(causes.items(), key=lambda item: -len(item[1])):
        print(f"{len(examples):5d}  {': '.join(cause)}")
        groups: dict[str, list[tuple[str, Case, int]]] = defaultdict(list)
        for seed, finding in examples[: options.shrink]:
            small = shrink(case(seed), finding)
            groups[features(small)].append((show(small), small, seed))
        for words, group in sorted(groups.items(), key=lambda item: -len(item[1])):
            text, small, seed = min(group, key=lambda one: len(one[0]))
            print(f"       {len(group)} of {min(len(examples), options.shrink)}: {words} (seed {seed})")
            print(textwrap.indent(f"{text}\n{calls(small)}", " " * 12))
        sys.stdout.flush()


def one(seed: int, *, shrinks: bool) -> None:
    drawn = case(seed)
    print(f"{show(drawn)}\n{calls(drawn)}")
    for finding in run(drawn):
        print(f"\n{': '.join(finding.cause)}\n  {finding.detail}")
        if shrinks:
            small = shrink(drawn, finding)
            print(textwrap.indent(f"{show(small)}\n{calls(small)}", "  "))


if __name__ == "__main__":
    main()
