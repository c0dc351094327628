"""Time contestants side by side: interleaved rounds, ratios per round, a verdict where the spread allows one.

A shared machine gives the same code times that differ by half and more. So every round times every contestant
once, in an order drawn anew, and only the ratio to ours *within* a round is used. Of these ratios the median is
printed with its 95 % interval (order statistics, no assumption on the noise). A claim is reached if the whole
interval says so, not reached if the whole interval denies it, else undecided: then more rounds are taken.
"""

from __future__ import annotations

import gc
import json
import math
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from multihead.edit.check.speed import interval

ENOUGH = 7  # rounds before anything is said; what is decided by then is not timed again
SHORTEST = 0.03  # seconds of one sample: shorter work is repeated

Job = Callable[[], object]


def fix_threads(count: int) -> None:
    """`count` threads on as many cores, for torch, MKL and XLA alike. Call before these are imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC"):  # NPROC: XLA's thread pool
        os.environ[name] = str(count)
    os.environ["JAX_PLATFORMS"] = "cpu"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


@dataclass
class Limit:
    """What the machine allows: `job` is timed in every round, and its time times `share` is the bound."""

    name: str
    job: Job
    share: float = 1.0
    least: float | None = None


@dataclass
class Work:
    """One row: our job, the others', and the ratio (their time / our time) that must be reached."""

    ours: Job
    peers: dict[str, Job]
    must: dict[str, float] = field(default_factory=dict)
    limit: Limit | None = None
    same: Callable[[object, object], None] | None = None  # raises where a peer's result is not ours
    unchecked: tuple[str, ...] = ()  # peers that compute something else on purpose
    note: str = ""
    small: bool = False  # microseconds: one thread, and claims are about CPU time


@dataclass
class Row:
    """One number of the result: `contestant` on `work`, as a multiple of our time."""

    work: str
    contestant: str
    ratio: float  # median over rounds of (contestant's time / our time); for a limit its share of our time
    best: float  # ratio of the best times
    low: float  # the 95 % interval of the median
    high: float
    cpu_ratio: float
    ms: float
    ours_ms: float
    rounds: int
    must_reach: float | None
    verdict: str
    unit: str = "time / our time"
    limit: bool = False
    machine: str = ""


def measure(name: str, work: Work, *, rounds: int, say: Callable[[str], None]) -> list[Row]:
    """Check that all compute the same, then time them in interleaved rounds until the claims are decided."""
    jobs = {"ours": work.ours, **work.peers}
    with _threads(1 if work.small else None):
        return _measure(name, work, jobs, rounds, say)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    import torch  # after `fix_threads`

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    yield
    torch.set_num_threads(before)


def _measure(name: str, work: Work, jobs: dict[str, Job], rounds: int, say: Callable[[str], None]) -> list[Row]:
    repeats = _warm_up(name, jobs, work)
    if work.limit is not None:
        jobs[work.limit.name] = work.limit.job
        work.limit.job()
        repeats[work.limit.name] = _repeats(work.limit.job)
    wall: dict[str, list[float]] = {contestant: [] for contestant in jobs}
    cpu: dict[str, list[float]] = {contestant: [] for contestant in jobs}
    open_to_question, order = list(jobs), random.Random(0)
    for done in range(1, rounds + 1):
        order.shuffle(open_to_question)
        gc.collect()
        for contestant in open_to_question:
            took, busy = _sample(jobs[contestant], repeats[contestant])
            wall[contestant].append(took)
            cpu[contestant].append(busy)
        if done % ENOUGH == 0 and not work.small:
            undecided = {r.contestant for r in _rows(name, work, wall, cpu) if r.verdict.startswith("undecided")}
            if not undecided:
                break
            open_to_question = ["ours", *sorted(undecided)]
    rows = _rows(name, work, wall, cpu)
    say(_block(name, work, rows, cpu["ours"]))
    return rows


def _warm_up(name: str, jobs: dict[str, Job], work: Work) -> dict[str, int]:
    """Run each once or twice; compare what it gives with what ours gives. How often to repeat each in a sample."""
    repeats: dict[str, int] = {}
    wanted: object = None
    for contestant, job in jobs.items():
        start = time.perf_counter()
        got = job()
        took = time.perf_counter() - start
        wanted = got if wanted is None else wanted
        if work.same is not None and contestant not in work.unchecked:
            try:
                work.same(got, wanted)
            except AssertionError as wrong:
                raise AssertionError(f"{name}: {contestant} computes something else\n{wrong}") from wrong
        repeats[contestant] = 1 if took > 10 * SHORTEST else _repeats(job)
    return repeats


def _repeats(job: Job) -> int:
    """Calls in one sample: as many as fit `SHORTEST`, by the fastest of a few, because a first call is slow."""
    fastest = math.inf
    for _ in range(5):
        start = time.perf_counter()
        job()
        fastest = min(fastest, time.perf_counter() - start)
        if fastest > SHORTEST:
            break
    return max(1, math.ceil(SHORTEST / max(fastest, 1e-6)))


def _sample(job: Job, repeats: int) -> tuple[float, float]:
    """Seconds of wall and of CPU time (all threads) for one call."""
    time.sleep(0.002)  # threads of the contestant before stop spinning
    gc.disable()
    busy, start = time.process_time(), time.perf_counter()
    for _ in range(repeats):
        job()
    took, busy = time.perf_counter() - start, time.process_time() - busy
    gc.enable()
    return took / repeats, busy / repeats


def _rows(work_name: str, work: Work, wall: dict[str, list[float]], cpu: dict[str, list[float]]) -> list[Row]:
    rows: list[Row] = []
    for contestant in [*work.peers, *([work.limit.name] if work.limit else [])]:
        is_limit = work.limit is not None and contestant == work.limit.name
        scale = work.limit.share if is_limit and work.limit else 1.0
        least = (
            work.limit.least if is_limit and work.limit else work.must.get(contestant, work.must.get("any peer"))
        )
        theirs = [t * scale for t in wall[contestant]]
        ours = wall["ours"][: len(theirs)]  # a contestant that leaves, leaves for good: rounds are in step
        ratios = [t / o for t, o in zip(theirs, ours, strict=True)]
        busy = [c * scale / o for c, o in zip(cpu[contestant], cpu["ours"], strict=False)]
        claimed = busy[: len(ratios)] if work.small else ratios
        low, high = interval(claimed)
        rows.append(
            Row(
                work=work_name,
                contestant=contestant,
                ratio=statistics.median(claimed),
                best=min(theirs) / min(ours),
                low=low,
                high=high,
                cpu_ratio=statistics.median(busy),
                ms=1e3 * statistics.median(theirs),
                ours_ms=1e3 * statistics.median(ours),
                rounds=len(ratios),
                must_reach=least,
                verdict=verdict(low, high, least, len(ratios)),
                unit="share of the limit"
                if is_limit
                else "CPU time / our CPU time"
                if work.small
                else "time / our time",
                limit=is_limit,
            )
        )
    return rows


def verdict(low: float, high: float, least: float | None, rounds: int) -> str:
    if least is None:
        return ""
    said = "reached" if low >= least else "not reached" if high < least else "undecided"
    return said if rounds >= ENOUGH else f"undecided: {rounds} of {ENOUGH} rounds ({said})"


def _block(name: str, work: Work, rows: list[Row], busy: list[float]) -> str:
    lines = [
        f"\n{name}   ours {rows[0].ours_ms:.4g} ms, CPU {1e3 * statistics.median(busy):.4g} ms {work.note}".rstrip()
    ]
    lines.append(
        f"  {'contestant':<30}{'ms':>9}{'ratio':>8}{'interval':>16}{'best':>8}{'CPU':>7}{'rounds':>7}  must reach"
    )
    for r in rows:
        spread = f"{r.low:.2f} to {r.high:.2f}"
        must = "" if r.must_reach is None else f"{r.must_reach:.2f}: {r.verdict}"
        lines.append(
            f"  {r.contestant:<30}{r.ms:>9.4g}{r.ratio:>8.2f}{spread:>16}{r.best:>8.2f}{r.cpu_ratio:>7.2f}"
            f"{r.rounds:>7}  {must}".rstrip()
        )
    return "\n".join(lines)


def table(rows: list[Row], order: Iterable[str]) -> str:
    """All ratios in one Markdown table: a row per work, a column per contestant, the limit last."""
    works = list(dict.fromkeys(r.work for r in rows))
    peers = [c for c in order if any(r.contestant == c for r in rows)]
    lines = [
        "| work | verdict | " + " | ".join(peers) + " | share of the limit |",
        "|---|---|" + "---|" * len(peers) + "---|",
    ]
    for work in works:
        mine = {r.contestant: r for r in rows if r.work == work and not r.limit}
        limits = [r for r in rows if r.work == work and r.limit]
        cells = [f"{mine[c].ratio:.2f}" if c in mine else "" for c in peers]
        last = "; ".join(f"{r.ratio:.2f} of {r.contestant}" for r in limits)
        lines.append(
            f"| {work} | {overall(r for r in rows if r.work == work)} | " + " | ".join([*cells, last]) + " |"
        )
    return "\n".join(lines)


def overall(rows: Iterable[Row]) -> str:
    """The verdicts of a work in a few words: what was not reached, then what is undecided."""
    claims = [r for r in rows if r.must_reach is not None]
    said: list[str] = []
    for kind in ("not reached", "undecided"):
        which = [r for r in claims if r.verdict.startswith(kind)]
        names = [f"{r.contestant} {r.must_reach:g}" for r in which]
        if len(names) > 2:
            names = [f"{len(names)} of {len(claims)} claims"]
        if names:
            said.append(f"{kind}: {', '.join(names)}")
    return "; ".join(said) or ("reached" if claims else "")


def write_json(path: Path, rows: list[Row], machine: str, left_out: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [asdict(r) | {"machine": machine} for r in rows]
    path.write_text(json.dumps({"machine": machine, "left_out": left_out, "rows": written}, indent=1) + "\n")


def machine_line() -> str:
    """CPU, cores used, memory, versions and the load that others make."""
    import torch

    cpu, memory = platform.processor() or platform.machine(), ""
    if Path("/proc/cpuinfo").exists():
        models = [
            s.split(":", 1)[1].strip() for s in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in s
        ]
        cpu = models[0] if models else cpu
        memory = f", {_proc('/proc/meminfo', 'MemTotal') / 2**30:.0f} GiB"
    simd = torch.backends.cpu.get_cpu_capability()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{cpu} ({simd}), {torch.get_num_threads()} threads of {os.cpu_count()} cores{memory}{load}; "
        f"Python {platform.python_version()}, torch {torch.__version__}, {platform.system()}"
    )


def _proc(path: str, key: str) -> int:
    """A size in bytes from one of Linux' `key: n kB` files."""
    for line in Path(path).read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(f"{path} has no {key}")


def memory_free() -> float:
    """Bytes that may be taken without swapping; infinite where that is not known."""
    return _proc("/proc/meminfo", "MemAvailable") if Path("/proc/meminfo").exists() else math.inf


def peak_growth(job: Job) -> int:
    """Bytes by which a call raises the peak of this process. Use a process for each call."""
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is held now
        before = _proc("/proc/self/status", "VmRSS")
        job()
        return _proc("/proc/self/status", "VmHWM") - before
    except OSError:  # no such file outside of Linux: the peak so far is all there is to compare with
        unit = 1 if sys.platform == "darwin" else 1024
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        job()
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit


def in_own_process(script: str, *arguments: str) -> str:
    """What `script arguments...` prints last, run by this interpreter in a process of its own."""
    ran = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{Path(script).name} {' '.join(arguments)} failed\n{ran.stderr[-2000:]}")
    return ran.stdout.splitlines()[-1]
