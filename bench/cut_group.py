"""Multi-head → grouped attention without training: what is left of a model's quality on held-out text.

    python bench/cut_group.py                        # all-MiniLM-L6-v2 and stories260K, one thread
    python bench/cut_group.py --rows "12→4|stories"  # some rows; those of the file that were not run stay in it
    python bench/cut_group.py --sentences 8000       # fitted to more text than 1,024 sentences: rows of their own

Every cut is real: the kv heads are gone from the matrices. The baseline is the mean of adjacent heads (Ainslie et
al. 2023; `cut_baselines.py`). Numbers are of text that no cut was calibrated on (`cut_eval.py`). Prints a table
with limits, writes results/cut_group.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness import fix_threads, machine_line

RESULTS = Path(__file__).parent / "results" / "cut_group.json"
OURS, HEALED, POOLED = "joint + re-fit", "joint + re-fit + heal", "mean-pool + re-fit"
STEPS = 300
"""Of distillation: one is two batches, about 2.6 CPU-seconds of MiniLM, so that two cores stay below the limit."""
LIMITS = {
    ("minilm/12→4", OURS): {"cos": 0.925, "nn10": 0.78},
    ("minilm/12→4", HEALED): {"cos": 0.95, "nn10": 0.83, "heal_seconds": 600.0},
}
SHARE = 1 / 3
"""Of what mean-pooling adds to the perplexity of a rotary decoder, after the same re-fit."""


@dataclass(frozen=True)
class Row:
    """One grouped model."""

    work: str
    contestant: str
    numbers: dict[str, float]
    seconds: float
    must_reach: dict[str, float] | None = None
    verdict: str = ""
    seed: int = 0
    machine: str = ""


def contestants() -> dict[str, tuple[bool, bool, Any]]:
    """{name: (mean-pooling of adjacent heads, re-fit, distillation)}."""
    from multihead.edit.distill import Distill

    return {
        "mean-pool": (True, False, None),
        POOLED: (True, True, None),
        "joint": (False, False, None),
        OURS: (False, True, None),
        HEALED: (False, True, Distill(steps=STEPS)),
    }


class Works:
    """The ways to group one model; clusters are found once for each number of kv heads."""

    def __init__(self, model: Any, text: Any) -> None:
        from multihead.edit.plan import Plan
        from multihead.model.anatomy import anatomy
        from multihead.model.head_weights import HeadWeights

        self.model, self.text = model, text
        self.layers = anatomy(model)
        self.own = [HeadWeights.of(layer) for layer in self.layers]
        self.start = replace(Plan.whole(model, self.layers), calibration=text)
        self.found: dict[int, dict[str, Any]] = {}

    def grouped(self, kv_heads: int, name: str) -> tuple[Any, float, dict[str, float]]:
        """The grouped model, seconds in all, and of the distillation: seconds and steps."""
        from cut_baselines import mean_pooling
        from multihead.edit.cut import cut
        from multihead.edit.kv_sharing.cluster import adjacent
        from multihead.edit.surgery.record import record_of

        pooled, refit, distill = contestants()[name]
        begun = time.perf_counter()
        if pooled:
            groups = {x.name: adjacent(own, kv_heads) for x, own in zip(self.layers, self.own, strict=True)}
            with mean_pooling():
                small = cut(self.model, self.start.edit(groups=groups), refit=refit)
        else:
            small = cut(self.model, self.start.edit(groups=self._groups(kv_heads)), refit=refit, distill=distill)
        took = time.perf_counter() - begun
        if distill is None:
            return small, took, {}
        record = record_of(small)
        assert record is not None
        assert record.plan is not None
        result = record.plan["distilled"]
        names = {"heal_seconds": "seconds", "heal_steps": "steps", "heal_best_step": "best_step"}
        return small, took, {name: float(result[own]) for name, own in names.items()}

    def _groups(self, kv_heads: int) -> dict[str, Any]:
        from multihead.edit.make_plan import plan

        if kv_heads not in self.found:
            made = plan(self.model, self.text, kv_heads=kv_heads)
            self.found[kv_heads] = {x.name: x.groups for x in made.layers}
        return self.found[kv_heads]


def minilm(seed: int, count: int, wanted: Callable[[str, str], bool]) -> Iterator[Row]:
    """12 heads of a sentence encoder on 6, 4, 2 and 1 kv heads, fitted to `count` sentences."""
    from cut_eval import SentenceJudge, fitted_to, minilm, sentences
    from multihead.edit.calibration import Calibration

    counts = {f"minilm/12→{n}{fitted_to(count)}": n for n in (4, 6, 2, 1)}
    asked = [(w, c) for w in counts for c in contestants() if wanted(w, c) and (c != HEALED or counts[w] == 4)]
    if not asked:
        return
    model, tokenizer = minilm()
    split = sentences(seed, calibration=count)
    judge = SentenceJudge(model, tokenizer, split)
    works = Works(model, Calibration(model, split.calibration, tokenizer=tokenizer))
    for work, name in asked:
        small, took, healing = works.grouped(counts[work], name)
        numbers = asdict(judge(small)) | healing
        must = LIMITS.get((work.partition(",")[0], name))
        late = [n for n, x in (must or {}).items() if (numbers[n] > x if n == "heal_seconds" else numbers[n] < x)]
        yield Row(work, name, numbers, took, must, _verdict(must, late), seed)


def stories(seed: int, wanted: Callable[[str, str], bool]) -> Iterator[Row]:
    """A rotary decoder, 8 heads on 4 kv heads, on 2 and 1 of them."""
    from cut_eval import perplexity, stories
    from multihead.edit.calibration import Calibration

    counts = {"stories260K/4→2": 2, "stories260K/4→1": 1}
    asked = [(w, c) for w in counts for c in contestants() if wanted(w, c) and c != HEALED]
    if not asked:
        return
    model, texts = stories(seed)
    works, before = Works(model, Calibration(model, texts.calibration)), perplexity(model, texts.held_out)
    pooled: dict[str, float] = {}
    for work, name in asked:
        small, took, _ = works.grouped(counts[work], name)
        after = perplexity(small, texts.held_out)
        numbers = {"perplexity": after, "increase": after - before, "original": before}
        must = None
        if name == POOLED:
            pooled[work] = after - before
        if name == OURS and work in pooled and counts[work] == 2:
            numbers["of mean-pool"] = (after - before) / pooled[work]
            must = {"of mean-pool": SHARE}
        missed = ["of mean-pool"] if must and numbers["of mean-pool"] > SHARE else []
        yield Row(work, name, numbers, took, must, _verdict(must, missed), seed)


def _verdict(must: dict[str, float] | None, missed: list[str]) -> str:
    return "" if must is None else f"not reached: {', '.join(missed)}" if missed else "reached"


def table(rows: list[Row]) -> str:
    """Markdown, the limit last."""
    lines = ["| work | contestant | numbers | seconds | must reach |", "|---|---|---|---|---|"]
    for r in rows:
        numbers = ", ".join(f"{n} {x:.4g}" for n, x in r.numbers.items())
        must = "" if not r.must_reach else ", ".join(f"{n} {x:.3g}" for n, x in r.must_reach.items())
        lines.append(f"| {r.work} | {r.contestant} | {numbers} | {r.seconds:.0f} | {must} {r.verdict} |")
    return "\n".join(lines)


def keep(path: Path, new: Row) -> None:
    """Write a row into the file; those of other works and contestants stay."""
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    rest = [r for r in old if (r["work"], r["contestant"], r["seed"]) != (new.work, new.contestant, new.seed)]
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {"machine": new.machine, "rows": [*rest, asdict(new)]}
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="a regular expression on 'work contestant'")
    parser.add_argument("--seed", type=int, default=0, help="of the split into calibration and held-out text")
    parser.add_argument("--sentences", type=int, default=1024, help="to fit MiniLM to (%(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    fix_threads(given.threads)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    machine, rows = machine_line(), list[Row]()
    pattern = re.compile(given.rows)
    wanted = lambda work, name: bool(pattern.search(f"{work} {name}"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in (stories(given.seed, wanted), minilm(given.seed, given.sentences, wanted)):
            for row in part:
                row = replace(row, machine=machine)
                rows.append(row)
                keep(given.json, row)
                print(f"{row.work} {row.contestant}: {row.numbers} {row.verdict}", file=sys.stderr, flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
