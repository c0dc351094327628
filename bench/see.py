"""The cost of seeing heads, and peers; writes bench/results/see.json. See docs/benchmarks.md.

Rows hold a contestant's time over ours, as in layer.py: above 1 we are faster. The table at the end turns them
round: everyone's time and peak memory as multiples of the plain forward, with what ours may cost last.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness import (
    Row,
    fix_threads,
    in_own_process,
    interval,
    machine_line,
    measure,
    memory_free,
    peak_growth,
    verdict,
    write_json,
)
from see_rows import (
    FROM_MAPS,
    IDLE,
    IDLE_ROUNDS,
    IDLE_TIMES,
    IDLE_TOKENS,
    LENS,
    LONG,
    LONG_BYTES,
    MAPS,
    MEMORY,
    NOISE,
    OURS,
    PEERS,
    PLAIN,
    SIZES,
    WITH_MAX,
    Size,
)  # fmt: skip

RESULTS = Path(__file__).parent / "results" / "see.json"
QUICK_ROUNDS = 2
RUNS = 3  # processes for a peak
ABSENT = "not installed"


def main() -> None:
    asked = _arguments()
    fix_threads(asked.threads)  # before torch comes in
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch

    from see_works import LEFT_OUT

    torch.set_num_threads(asked.threads)
    if asked.list:
        print("\n".join(_parts(asked)))
        return
    if asked.peak:
        print(_peak(asked.peak[0], int(asked.peak[1])))
        return
    machine, started, rows = machine_line(), time.perf_counter(), list[Row]()
    print(machine, flush=True)
    path = asked.json or (
        None if asked.quick or asked.rounds or asked.rows else RESULTS
    )  # a part never replaces the whole
    for name, part in _parts(asked).items():
        if re.search(asked.rows, name):
            begun = time.perf_counter()
            rows += part()
            if path is not None:  # what was measured is kept if a later part fails
                write_json(path, rows, machine, LEFT_OUT)
            print(f"  {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
            gc.collect()
    print("\n" + _table(rows))
    for name, why in LEFT_OUT.items():
        print(f"left out: {name} ({why})")
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
    if path is not None:
        print(f"wrote {path}", file=sys.stderr)


def _parts(asked: argparse.Namespace) -> dict[str, Callable[[], list[Row]]]:
    """Everything that can be run, by name."""
    most = asked.rounds or (QUICK_ROUNDS if asked.quick else None)
    parts: dict[str, Callable[[], list[Row]]] = {
        IDLE: partial(_idle, most or IDLE_ROUNDS),
        NOISE: partial(_noise, most or IDLE_ROUNDS),
    }
    for size in SIZES:
        parts[f"{size.name}, time"] = partial(_times, size, most)
    for size in SIZES:
        parts[f"{size.name}, peak memory"] = partial(_peaks, size, asked.threads, 2 if asked.quick else RUNS)
    parts[f"{LONG}, peak memory"] = partial(_long, asked.threads)
    return parts


# ---- time -------------------------------------------------------------------------------------


def _idle(rounds: int) -> list[Row]:
    from see_works import nothing

    work = nothing(IDLE_TOKENS, {PLAIN: 1 / IDLE_TIMES})
    return measure(IDLE, work, rounds=rounds, say=partial(print, flush=True))


def _noise(rounds: int) -> list[Row]:
    """The plain forward beside itself: what this machine calls a difference where there is none."""
    from see_works import twice

    return measure(NOISE, twice(IDLE_TOKENS), rounds=rounds, say=partial(print, flush=True))


def _times(size: Size, most: int | None) -> list[Row]:
    """Those of whom something is claimed until it is decided; the dear ones less often, and where they fit."""
    from see_works import timed

    say, name = partial(print, flush=True), f"{size.name}, time"
    must = {PLAIN: 1 / size.times, **size.faster}
    rows = measure(name, timed(size.tokens, _fitting(size, PLAIN, MAPS), must), rounds=most or size.rounds, say=say)
    gc.collect()
    dear = timed(size.tokens, _fitting(size, FROM_MAPS, LENS), {})
    if dear.peers:
        rows += measure(name, dear, rounds=min(most or size.dear_rounds, size.dear_rounds), say=say)
    plain = next(r for r in rows if r.contestant == PLAIN)
    said = verdict(plain.low, plain.high, 1 / WITH_MAX, plain.rounds)
    with_max = replace(
        plain, work=f"{name}, with max weight and participation", must_reach=1 / WITH_MAX, verdict=said
    )
    return [*rows, with_max]


def _fitting(size: Size, *contestants: str) -> list[str]:
    """Those whose maps fit beside what is in memory now."""
    from see_works import LEFT_OUT, need

    fits = {n: need(n, size.tokens) < memory_free() for n in contestants}
    for name, well in fits.items():
        if not well:
            LEFT_OUT[f"{name} at {size.tokens} tokens"] = f"would take some {need(name, size.tokens) / 1e9:.0f} GB"
    return [n for n, well in fits.items() if well]


# ---- memory -----------------------------------------------------------------------------------


def _peak(name: str, tokens: int) -> str:
    """In a process of its own: the peak of the whole process in bytes, and by how much the job raised it."""
    from see_works import job, llama_job

    if name == LONG:
        run, shape, maps = llama_job()
        grown = peak_growth(run)
        return f"{_highest()} {grown} {maps} {shape}"
    small, run = job(name, 32), job(name, tokens)
    if small is None or run is None:
        return ABSENT
    small()  # what is loaded once is loaded
    grown = peak_growth(run)
    return f"{_highest()} {grown}"


def _highest() -> int:
    """The peak of this process; on Linux since `peak_growth` set it back."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _peaks(size: Size, threads: int, runs: int) -> list[Row]:
    """Peaks of whole processes, model and libraries included: ours and the plain forward several times.

    glibc keeps what is freed, in amounts that differ from run to run: hence several. The last lines have every
    tensor in a mapping of its own, which is given back at once: what the work needs, whatever the allocator.
    """
    from see_works import job

    name, call = f"{size.name}, peak memory", ("--threads", str(threads), "--peak")
    head = f"{'process':>9}{'forward':>9}{'of ours':>9}{'interval':>16}  must reach"
    print(f"\n{name}, MB\n  {'contestant':<34}{head}")
    ours: list[float] = []
    rows: list[Row] = []
    for contestant in _fitting(size, OURS, PLAIN, *PEERS):
        repeat = range(runs if contestant in (OURS, PLAIN) else 1)
        said = [in_own_process(__file__, *call, contestant, str(size.tokens)) for _ in repeat]
        least = 1 / MEMORY if contestant == PLAIN else size.leaner.get(contestant)
        if said[0] == ABSENT:
            job(contestant, 1)  # says why in LEFT_OUT
        else:
            rows += _said(name, contestant, said, ours, least)
    if sys.platform == "linux":
        ours, name = [], f"{name}, tensors mapped"
        os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
        for contestant in (OURS, PLAIN):
            said = [in_own_process(__file__, *call, contestant, str(size.tokens))]
            rows += _said(name, contestant, said, ours, 1 / MEMORY if contestant == PLAIN else None)
        del os.environ["MALLOC_MMAP_THRESHOLD_"]
    return rows


def _said(work: str, contestant: str, said: list[str], ours: list[float], least: float | None) -> list[Row]:
    """Print the peaks of a contestant; its row. The first of a work is ours, and fills `ours`."""
    totals, grown = ([float(s.split()[i]) for s in said] for i in range(2))
    ours += [] if ours else totals
    base = ours if len(totals) == len(ours) else [statistics.median(ours)]
    ratios = [t / o for t, o in zip(totals, base, strict=True)]
    (low, high), middle = interval(ratios), statistics.median(ratios)
    judged = "" if least is None else "reached" if low >= least else "not reached" if high < least else "undecided"
    label = contestant + (", mapped" if work.endswith("mapped") else "")
    spread = f"{low:.3f} to {high:.3f}" if len(ratios) > 1 else ""
    line = (
        f"{statistics.median(totals) / 1e6:>9.0f}{statistics.median(grown) / 1e6:>9.0f}{middle:>9.3f}{spread:>16}"
    )
    print(f"  {label:<34}{line}" + ("" if least is None else f"  {least:.3f}: {judged}"), flush=True)
    row = Row(
        work=work, contestant=contestant, ratio=middle, best=min(totals) / min(ours), low=low, high=high,
        cpu_ratio=middle, ms=0.0, ours_ms=0.0, rounds=len(totals), must_reach=least, verdict=judged,
        unit="peak / our peak",
    )  # fmt: skip
    return [] if contestant == OURS else [row]


def _long(threads: int) -> list[Row]:
    """A capture of 16k tokens: what it takes beyond what was held before."""
    begun = time.perf_counter()
    said = in_own_process(__file__, "--threads", str(threads), "--peak", LONG, "0").split(maxsplit=3)
    _, grown, maps = (int(s) for s in said[:3])
    least, ratio = maps / LONG_BYTES, maps / grown
    name = f"{LONG}, peak memory"
    reached = "reached" if grown < LONG_BYTES else "not reached"
    print(
        f"\n{LONG}: {said[3]}, all statistics in {grown / 1e9:.2f} GB beyond model and input "
        f"(at most {LONG_BYTES / 1e9:.0f}: {reached}); the maps would take {maps / 1e9:.0f} GB. "
        f"{time.perf_counter() - begun:.0f} s with start",
        flush=True,
    )
    row = Row(
        work=name, contestant="maps, computed size", ratio=ratio, best=ratio, low=ratio, high=ratio,
        cpu_ratio=ratio, ms=0.0, ours_ms=0.0, rounds=1, must_reach=least, verdict=reached,
        unit="bytes of the maps / our extra peak",
    )  # fmt: skip
    return [row]


# ---- what is said -----------------------------------------------------------------------------


def _table(rows: list[Row]) -> str:
    """Multiples of the plain forward: contestants as columns, what ours may cost and whether it does last."""
    lines = [
        "| work | plain | ours | " + " | ".join(PEERS) + " | limits |",
        "|---|---|---|" + "---|" * (len(PEERS) + 1),
    ]
    for work in dict.fromkeys(r.work for r in rows):
        mine = {r.contestant: r for r in rows if r.work == work}
        plain = mine.get(PLAIN)
        if plain is None:
            continue
        cells = [f"{mine[c].ratio / plain.ratio:.2f}" if c in mine else "" for c in PEERS]
        spread = "" if plain.rounds == 1 else f" ({1 / plain.high:.2f} to {1 / plain.low:.2f})"
        ours = f"{1 / plain.ratio:.2f}{spread}"
        lines.append(f"| {work} | 1 | {ours} | " + " | ".join([*cells, _limits(mine)]) + " |")
    return "\n".join(lines)


def _limits(mine: dict[str, Row]) -> str:
    said: list[str] = []
    for r in mine.values():
        if r.must_reach is not None and r.contestant == PLAIN:
            said.append(f"ours ≤ {1 / r.must_reach:.2f}: {r.verdict}")
        elif r.must_reach is not None:
            said.append(f"{r.contestant} ≥ {r.must_reach:g} × ours: {r.verdict}")
    return "; ".join(said)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", metavar="REGEX", help="only the work whose name matches")
    parser.add_argument("--rounds", type=int, metavar="N", help="at most so many; below 7 nothing is decided")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds: does it run? No verdicts")
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help=f"default for a full run: {RESULTS.name} in results/"
    )
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="on as many cores (default 2)")
    parser.add_argument("--list", action="store_true", help="print the names of the work")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)  # how the memory rows call this file
    return parser.parse_args()


if __name__ == "__main__":
    main()
