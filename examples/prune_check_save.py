"""Remove a quarter of the heads of a model, measure the cost on held-out text, save the result, load it.

The steps are those of `multihead prune` and `multihead check`.

    python examples/prune_check_save.py [--keep 0.75] [--out smaller]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

import multihead as mh


def main(keep: float, out: Path) -> None:
    model, tokenizer = mh.embedded()  # yours: any model that mh.capture sees, with its tokenizer
    texts = tokenizer.sample_texts()
    calibration, held_out = texts[:30], texts[30:]  # yours: several hundred, and others to check on

    plan = mh.plan(model, calibration, tokenizer=tokenizer, keep=keep)
    print(plan)  # the removed heads with their costs
    small = mh.cut(model, plan)  # a copy; W_O is fitted to the original on the calibration text

    report = mh.check(model, small, held_out, tokenizer=tokenizer, rounds=3)
    print(report)

    saved = mh.save(small, out, tokenizer=tokenizer)
    print(saved)
    again = mh.load(out)
    ids = torch.tensor([tokenizer(held_out[0])["input_ids"]])
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, small(ids).logits)
    print(f"{out}: loaded again, same outputs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", type=float, default=0.75, help="share of heads to keep (default: 0.75)")
    parser.add_argument("--out", type=Path, help="a new folder (default: a temporary one)")
    args = parser.parse_args()
    if args.out is not None:
        main(args.keep, args.out)
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(args.keep, Path(folder) / "smaller")
