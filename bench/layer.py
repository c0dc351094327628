"""The layer beside its peers: prints ratios and verdicts, writes bench/results/layer.json. See README.md here.

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
from collections.abc import Callable
from functools import partial
from pathlib import Path

from harness import Row, Work, fix_threads, in_own_process, machine_line, measure, memory_free, peak_growth
from harness import table, write_json

fix_threads(2)  # before torch comes in

import torch  # noqa: E402
from peers import EXPLICIT, FLAX, HAND, LLAMA, NAMES, TORCH, TUNE, XT  # noqa: E402
from works import (  # noqa: E402
    DENSE, FULL, GQA, LEFT_OUT, LENGTHS, NO_SLOWER, PEAK_CONTESTANTS, decode_core, decode_layer, documents, padded,
    peak_job, plain, rotary, window,
)  # fmt: skip

QUICK_ROUNDS, ROUNDS = 3, 21
RESULTS = Path(__file__).parent / "results" / "layer.json"
COLUMNS = (*NAMES, DENSE, FULL, GQA, LENGTHS)
PEAKS = "memory of a causal forward"
AT_MOST = 1.1  # exponent of tokens in the peak: 1 is linear, the rest is what an allocator rounds up

peers = {"any peer": NO_SLOWER}
one_shape = {HAND: 3.0}  # "d_v ≠ d_k; dropout 0.1 training"
HALF_FULL = [512, 448, 352, 256, 224, 160, 64, 32]  # of 512: mean fill 50 %
WINDOW, DOCUMENTS = {DENSE: 5.0, FULL: 2.5}, {DENSE: 4.0}

WORKS: dict[str, Callable[[], Work]] = {
    "forward 8x512": partial(plain, 8, 512, causal=False, train=False, must=peers, least=0.8),
    "forward 8x512 causal": partial(plain, 8, 512, causal=True, train=False, must=peers, least=0.8),
    "forward+backward 8x512": partial(plain, 8, 512, causal=False, train=True, must=peers),
    "forward+backward 8x512 causal": partial(plain, 8, 512, causal=True, train=True, must=peers),
    "forward 8x512 causal rotary": partial(rotary, 8, 512, train=False),
    "forward+backward 8x512 causal rotary": partial(rotary, 8, 512, train=True),
    "forward 1x4096 causal": partial(plain, 1, 4096, causal=True, train=False, must=peers),
    "d_v 64, d_k 96 forward+backward 8x512 causal": partial(
        plain, 8, 512, causal=True, train=True, must=one_shape, num_heads=8, head_dim=96, value_dim=64,
        without=(TORCH, TUNE, LLAMA, FLAX),
    ),
    "dropout 0.1 forward+backward 8x512 causal": partial(
        plain, 8, 512, causal=True, train=True, must=one_shape, dropout=0.1
    ),
    **{
        f"decode core {keys // 1024}k {str(dtype)[6:]}": partial(decode_core, keys, dtype)
        for keys in (4096, 16384) for dtype in (torch.float32, torch.bfloat16)
    },
    **{
        f"decode layer {keys // 1024}k {str(dtype)[6:]}": partial(decode_layer, keys, dtype)
        for keys in (4096, 16384) for dtype in (torch.float32, torch.bfloat16)
    },
    "window 256 of 8192 forward": partial(window, 8192, 256, train=False, projections=True, must=WINDOW),
    "window 256 of 8192 forward+backward": partial(window, 8192, 256, train=True, projections=True, must=WINDOW),
    "window 256 of 8192 forward core": partial(window, 8192, 256, train=False, projections=False, must=WINDOW),
    "window 256 of 8192 forward+backward core": partial(
        window, 8192, 256, train=True, projections=False, must=WINDOW
    ),
    "8 documents of 256 forward": partial(documents, 8, 256, train=False, projections=True, must={}),
    "8 documents of 256 forward core": partial(documents, 8, 256, train=False, projections=False, must=DOCUMENTS),
    "8 documents of 256 forward+backward core": partial(
        documents, 8, 256, train=True, projections=False, must=DOCUMENTS
    ),
    "half padding 8x512 forward": partial(padded, HALF_FULL, 512, train=False, must={HAND: 1.5}),
    "half padding 8x512 forward+backward": partial(padded, HALF_FULL, 512, train=True, must={HAND: 1.5}),
}  # fmt: skip


def main() -> None:
    asked = _arguments()
    torch.set_num_threads(2)
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
        rows += _memory()
    print("\n" + table(rows, COLUMNS))
    for name, why in LEFT_OUT.items():
        print(f"left out: {name} ({why})")
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
    path = asked.json or (None if asked.quick or asked.rows else RESULTS)  # a part never replaces the whole
    if path is not None:
        write_json(path, rows, machine, LEFT_OUT)
        print(f"wrote {path}", file=sys.stderr)


def _memory() -> list[Row]:
    """Peak memory above what is held before, at 2, 4 and 8 thousand tokens; ratio: growth exponent of the last step."""
    sizes = (2048, 4096, 8192)
    peaks: dict[str, list[int]] = {}
    print(f"\n{PEAKS} 1xN, MB above what was held before\n  {'contestant':<30}" + "".join(f"{n:>9}" for n in sizes))
    for name in PEAK_CONTESTANTS:
        needed = [4 * 4 * 12 * n * n if name == EXPLICIT else 0 for n in sizes]
        fitting = [n for n, need in zip(sizes, needed, strict=True) if need < memory_free()]
        peaks[name] = [int(in_own_process(__file__, "--peak", name, str(n))) for n in fitting]
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
    parser.add_argument("--list", action="store_true", help="print the names of the work")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)  # how the memory row calls itself
    asked = parser.parse_args()
    if asked.list:
        print("\n".join([*WORKS, PEAKS]))
        sys.exit()
    return asked


if __name__ == "__main__":
    main()
