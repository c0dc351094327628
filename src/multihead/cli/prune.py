"""`multihead prune MODEL --keep 0.5 -o DIR`: remove heads, refit the remaining weights, save a smaller model."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from multihead.cli.cutting import METHODS, add_cut, add_text, carry_out, check_out, over_ranks, planned
from multihead.cli.load import add_model, load_model
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.edit.calibration import Calibration, Progress
    from multihead.edit.plan import Plan

_EPILOG = """examples:
  multihead prune minilm --keep 0.5 --calib text.txt --dry-run     # print the plan
  multihead prune minilm --keep 0.5 --calib text.txt -o smaller/
  multihead prune path/to/model --heads 3.7,4.1 --calib text.txt -o smaller/
  multihead prune path/to/model --budget "flops=0.8" --min-heads 1 --calib text.txt -o smaller/
  multihead prune minilm --keep 0.5 --calib text.txt --plan plan.json --dry-run  # then edit plan.json
  multihead prune minilm --plan plan.json --calib text.txt -o smaller/

Exit codes: 0 done, 1 the request changes nothing, 2 a failure."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    parser = commands.add_parser(
        "prune",
        help="remove heads, refit the rest, save a smaller model",
        description="Remove the heads that cost least, refit the remaining weights, and save a model with smaller "
        "matrices.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    group = parser.add_argument_group("which heads (one of the first three)")
    group.add_argument("--keep", type=float, metavar="X", help="the share of heads to keep, in (0, 1]")
    group.add_argument("--heads", action="append", metavar="3.7,L4H1", help="remove these heads")
    group.add_argument("--budget", metavar="WHAT=X", help='a share of the original: "flops=0.8" or "cache=0.5"')
    group.add_argument(
        "--method",
        choices=METHODS,
        default="obs",
        help="how heads are scored: obs, the loss after the best refit without a head (default); fisher, how far "
        "the output moves without it; random",
    )
    group.add_argument("--min-heads", type=int, default=0, metavar="K", help="every layer keeps at least K heads")
    group.add_argument("--uniform", action="store_true", help="every layer keeps the same number of heads")
    group.add_argument(
        "--multiple-of",
        type=int,
        default=1,
        metavar="N",
        help="the number of heads in every layer is a multiple of N",
    )
    group.add_argument(
        "--kv-heads", type=int, metavar="N", help="then group the kept heads: N kv heads in every layer"
    )
    add_text(
        parser, "--calib", title="calibration text (default: a sample in English; embedded: in its own language)",
        what="text like the text that the model will read: .txt, .jsonl or a folder of them; may be repeated",
    )  # fmt: skip
    add_cut(parser)


def run(args: argparse.Namespace) -> int:
    check_out(args)
    with over_ranks(args):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    asked = [
        f"--{n.replace('_', '-')}" for n in ("keep", "heads", "budget", "kv_heads") if getattr(args, n) is not None
    ]
    _check(args, asked)
    loaded = load_model(args)

    def make(text: Calibration, progress: Progress) -> Plan:
        from multihead.edit.planning import plan

        return plan(
            loaded.model,
            text,
            keep=args.keep,
            remove=None if args.heads is None else words(args.heads),
            budget=args.budget,
            kv_heads=args.kv_heads,
            method=args.method,
            min_heads=args.min_heads,
            uniform=args.uniform,
            multiple_of=args.multiple_of,
            seed=args.seed,
            progress=progress,
        )

    runs = 0.0 if args.heads is not None else {"random": 0.0}.get(args.method, 4.0)
    return carry_out(args, loaded, planned(args, loaded, make, asked, runs))


def words(given: list[str]) -> list[str]:
    """Names between commas."""
    return [word for part in given for word in part.replace(",", " ").split()]


def _check(args: argparse.Namespace, asked: list[str]) -> None:
    if not asked and args.plan is not None and not args.plan.exists():
        raise MultiheadError(f"there is no plan file {args.plan}", hint="--keep 0.5 --plan FILE writes one")
    if not asked and args.plan is None:
        raise MultiheadError(
            "nothing is requested", hint='--keep 0.5, --heads 3.7,4.1, --budget "flops=0.8" or --plan FILE'
        )
    first = [a for a in asked if a != "--kv-heads"]
    if len(first) > 1:
        raise MultiheadError(
            f"only one of --keep, --heads and --budget may be given, got {' and '.join(first)}", hint="choose one"
        )
    if args.keep is not None and not (math.isfinite(args.keep) and 0 < args.keep <= 1):
        raise MultiheadError(
            f"--keep must be in (0, 1], got {args.keep:g}", hint="--keep 0.5 keeps half of the heads"
        )
    if args.heads is not None and not words(args.heads):
        raise MultiheadError("--heads must name a head, got none", hint="--heads 3.7,4.1 or --heads L3H7")
