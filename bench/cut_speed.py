"""How much faster is a cut model? The original beside it, whole and attention alone, and the KV cache in bytes.

    python bench/cut_speed.py --quick

The model is all-MiniLM-L6-v2 (6 layers × 12 heads of 32) with half its heads: the same number in every layer, or as
the plan by weight norm has it (uneven). Rows hold the original's time over the cut model's: above 1 that is faster.
Attention alone must reach 0.85 of heads / heads kept at 512 tokens, the whole model 1.2 at 128 tokens: what is left
is the feed-forward part, which no cut of heads makes faster. Writes bench/results/cut_speed.json.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness import Row, Work, fix_threads, machine_line, measure, write_json

RESULTS = Path(__file__).parent / "results" / "cut_speed.json"
QUICK_ROUNDS, ROUNDS = 3, 35
OF_IDEAL, WHOLE = 0.85, 1.2
ORIGINAL = "the original"


def main() -> None:
    asked = _arguments()
    fix_threads(asked.threads)  # before torch comes in
    import torch

    torch.set_num_threads(asked.threads)
    works, caches = _works(), _caches()
    if asked.list:
        print("\n".join([*works, *caches]))
        return
    machine, rows, started = machine_line(), list[Row](), time.perf_counter()
    print(machine, flush=True)
    rounds = asked.rounds or (QUICK_ROUNDS if asked.quick else ROUNDS)
    path = asked.json or (None if asked.quick or asked.rounds or asked.rows else RESULTS)
    with torch.no_grad():
        for name, make in works.items():
            if re.search(asked.rows, name):
                rows += measure(name, make(), rounds=rounds, say=partial(print, flush=True))
        for name, make in caches.items():
            if re.search(asked.rows, name):
                rows.append(make(name))
                print(f"\n{name}: {rows[-1].verdict}", flush=True)
    if path is not None:
        write_json(path, rows, machine, {})
    print("\n" + table(rows))
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)


def table(rows: list[Row]) -> str:
    lines = ["| work | times as fast | interval | must reach | verdict |", "|---|---|---|---|---|"]
    for r in rows:
        least = "" if r.must_reach is None else f"{r.must_reach:.2f}"
        lines.append(f"| {r.work} | {r.ratio:.2f} | {r.low:.2f} to {r.high:.2f} | {least} | {r.verdict} |")
    return "\n".join(lines)


# ---- time -----------------------------------------------------------------------------------------


def _works() -> dict[str, Callable[[], Work]]:
    made: dict[str, Callable[[], Work]] = {}
    for shape in ("6 of 12 heads in every layer", "36 of 72 heads, uneven"):
        made[f"attention alone, {shape}, 1 × 512 tokens"] = partial(_attention, shape, 512)
        made[f"whole model, {shape}, 1 × 128 tokens"] = partial(_whole, shape, 1)
    made["whole model, 6 of 12 heads in every layer, 8 × 128 tokens"] = partial(
        _whole, "6 of 12 heads in every layer", 8
    )
    return made


def _models(shape: str) -> tuple[Any, Any]:
    """MiniLM and a copy with half its heads: every other one, or those of the smallest weights."""
    import multihead as mh
    from cut_baselines import removed_by_norm
    from cut_eval import minilm
    from multihead.edit.make_plan import plan

    model, _ = minilm()
    if "every" in shape:
        made = plan(model, remove=[f"L{i}H{h}" for i in range(6) for h in range(0, 12, 2)])
    else:
        made = plan(model, remove=removed_by_norm(model, 0.5))
    assert made.kept == 36, made
    return model, mh.cut(model, made, refit=False)


def _ids(rows: int, tokens: int) -> dict[str, Any]:
    import torch

    return {"input_ids": torch.randint(1000, 20000, (rows, tokens), generator=torch.Generator().manual_seed(0))}


def _attention(shape: str, tokens: int) -> Work:
    import multihead as mh
    from multihead.edit.check.speed import attention_job

    model, small = _models(shape)
    layers = list(mh.anatomy(model))
    jobs = [attention_job(m, layers, _ids(1, tokens)) for m in (small, model)]
    ideal = 72 / 36
    return Work(jobs[0], {ORIGINAL: jobs[1]}, {ORIGINAL: OF_IDEAL * ideal}, note=f"(ideal {ideal:g})")


def _whole(shape: str, rows: int) -> Work:
    model, small = _models(shape)
    batch = _ids(rows, 128)
    return Work(lambda: small(**batch), {ORIGINAL: lambda: model(**batch)}, {ORIGINAL: WHOLE})


# ---- bytes ----------------------------------------------------------------------------------------


def _caches() -> dict[str, Callable[[str], Row]]:
    return {
        f"KV cache, {heads} → {kv} kv heads, {name}": partial(_cache, name, heads, kv)
        for name, heads, kv in (("LLaMA", 8, 2), ("GPT-2", 12, 4), ("GPT-2", 12, 1))
    }


def _cache(name: str, heads: int, kv: int, work: str) -> Row:
    """Bytes of a real cache after 128 tokens, before and after."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    import multihead as mh
    from multihead.edit.check.check import kv_bytes

    torch.manual_seed(0)
    if name == "LLaMA":
        sizes = {"hidden_size": 16 * heads, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 101}
        model: Any = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=heads, num_key_value_heads=heads))
    else:
        model = GPT2LMHeadModel(GPT2Config(n_embd=8 * heads, n_head=heads, n_layer=2, vocab_size=101))
    texts = torch.randint(3, 101, (64, 37), generator=torch.Generator().manual_seed(1)).tolist()
    small = mh.cut(model.eval(), mh.plan(model, texts, kv_heads=kv), refit=False)
    ids = {"input_ids": torch.arange(3, 98)[None].repeat(1, 2)[:, :128]}
    (before, real), (after, also) = kv_bytes(model, ids), kv_bytes(small, ids)
    exact = real and also and before * kv == after * heads
    ratio = before / after
    return Row(
        work, ORIGINAL, ratio, ratio, ratio, ratio, ratio, 0.0, 0.0, 1, heads / kv,
        "exact" if exact else f"not exact: {before} and {after} bytes", unit="bytes / our bytes",
    )  # fmt: skip


def _arguments() -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds; writes nothing")
    made.add_argument("--rounds", type=int, help=f"at most so many (default: {ROUNDS}); writes nothing")
    made.add_argument("--rows", default="", help="only rows that this regular expression finds; writes nothing")
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--json", type=Path, help="write the rows there")
    made.add_argument("--list", action="store_true", help="name the rows")
    return made.parse_args()


if __name__ == "__main__":
    main()
