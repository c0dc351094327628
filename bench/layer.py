"""The layer against its peers: prints ratios and verdicts, writes bench/results/layer.json. See docs/benchmarks.md.

A ratio is a contestant's time over ours: above 1 we are faster. The last column is the share of what the machine
allows: the FLOPs that the mask leaves, at the rate of a large matrix product timed in the same rounds; or for
decoding the bytes that must be read, at the rate of a plain sum over them.
"""

from __future__ import annotations

import argparse
import gc
import math
import re
import sys
import time
from functools import partial
from pathlib import Path

from harness import (
    Row,
    fix_threads,
    in_own_process,
    machine_line,
    measure,
    memory_free,
    peak_growth,
    table,
    write_json,
)  # fmt: skip

QUICK_ROUNDS, ROUNDS = 3, 14
RESULTS = Path(__file__).parent / "results" / "layer.json"
PEAKS = "memory of a causal forward"
AT_MOST = 1.1  # exponent of tokens in the peak: 1 is linear, the rest is what an allocator rounds up


def main() -> None:
    asked = _arguments()
    fix_threads(asked.threads)  # before torch comes in
    import torch

    from rows import COLUMNS, WORKS
    from works import LEFT_OUT, peak_job

    torch.set_num_threads(asked.threads)
    if asked.list:
        print("\n".join([*WORKS, PEAKS]))
        return
    if asked.peak:
        print(peak_growth(peak_job(asked.peak[0], int(asked.peak[1]))))
        return
    machine, started, rows = machine_line(), time.perf_counter(), list[Row]()
    print(machine, flush=True)
    rounds = asked.rounds or (QUICK_ROUNDS if asked.quick else ROUNDS)
    for name, build in WORKS.items():
        if re.search(asked.rows, name):
            begun = time.perf_counter()
            rows += measure(name, build(), rounds=rounds, say=partial(print, flush=True))
            print(f"  {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
            gc.collect()
    if re.search(asked.rows, PEAKS):
        rows += _memory(asked.threads)
    print("\n" + table(rows, COLUMNS))
    for name, why in LEFT_OUT.items():
        print(f"left out: {name} ({why})")
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
    path = asked.json or (None if asked.quick or asked.rows else RESULTS)  # a part never replaces the whole
    if path is not None:
        write_json(path, rows, machine, LEFT_OUT)
        print(f"wrote {path}", file=sys.stderr)


def _memory(threads: int) -> list[Row]:
    """Peak memory above what is held before, at 2, 4 and 8 thousand tokens, and how it grows."""
    from works import EXPLICIT, PEAK_CONTESTANTS

    sizes = (2048, 4096, 8192)
    peaks: dict[str, list[int]] = {}
    print(f"\n{PEAKS} 1xN, MB above what was held before\n  {'contestant':<30}" + "".join(f"{n:>9}" for n in sizes))
    for name in PEAK_CONTESTANTS:
        needed = [4 * 4 * 12 * n * n if name == EXPLICIT else 0 for n in sizes]
        fitting = [n for n, need in zip(sizes, needed, strict=True) if need < memory_free()]
        peaks[name] = [
            int(in_own_process(__file__, "--threads", str(threads), "--peak", name, str(n))) for n in fitting
        ]
        print(f"  {name:<30}" + "".join(f"{p / 1e6:>9.0f}" for p in peaks[name]), flush=True)
    rows: list[Row] = []
    for name, found in peaks.items():
        exponent = math.log2(found[-1] / found[-2])
        said = "" if name != "ours" else "reached" if exponent <= AT_MOST else "not reached"
        print(f"  {name:<30}grows as tokens^{exponent:.2f}  {said}".rstrip())
        last = len(found) - 1
        ratio = exponent if name == "ours" else found[last] / peaks["ours"][last]
        rows.append(
            Row(
                work=PEAKS, contestant=name, ratio=ratio, best=ratio, low=ratio, high=ratio, cpu_ratio=ratio,
                ms=0.0, ours_ms=0.0, rounds=1, must_reach=AT_MOST if name == "ours" else None, verdict=said,
                unit="exponent of tokens" if name == "ours" else f"peak / our peak at {sizes[last]} tokens",
            )
        )  # fmt: skip
    return rows


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", metavar="REGEX", help="only the work whose name matches")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"at most so many (default {ROUNDS}, at least 7)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds: does it run? No verdicts")
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help=f"default for a full run: {RESULTS.name} in results/"
    )
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="on as many cores (default 2)")
    parser.add_argument("--list", action="store_true", help="print the names of the work")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)  # how the memory row calls itself
    return parser.parse_args()


if __name__ == "__main__":
    main()
