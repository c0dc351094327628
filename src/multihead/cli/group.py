"""`multihead group MODEL --kv-heads 4 -o DIR`: heads share keys and values, for a smaller KV cache."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from multihead.cli.cutting import add_cut, add_text, carry_out, check_out, over_ranks, planned
from multihead.cli.load import add_model, load_model
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from multihead.edit.calibration import Calibration, Progress
    from multihead.edit.plan import Plan

_EPILOG = """examples:
  multihead group minilm --kv-heads 4 --calib text.txt --dry-run    # print the groups
  multihead group minilm --kv-heads 4 --calib text.txt -o grouped/
  multihead group minilm --kv-heads 4 --calib text.txt --distill 600 -o grouped/

Exit codes: 0 done, 1 the request changes nothing, 2 a failure."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    parser = commands.add_parser(
        "group",
        help="multi-head to grouped-query attention: fewer kv heads, a smaller cache",
        description="Let heads share keys and values: multi-head attention becomes grouped-query or multi-query "
        "attention, without training.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    group = parser.add_argument_group("which groups")
    group.add_argument(
        "--kv-heads", type=int, metavar="N", help="kv heads in every layer, a divisor of the present number"
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
    if args.kv_heads is None and (args.plan is None or not args.plan.exists()):
        raise MultiheadError("nothing is requested", hint="--kv-heads 4, or --plan FILE")
    loaded = load_model(args)

    def make(text: Calibration, progress: Progress) -> Plan:
        from multihead.edit.planning import plan

        return plan(loaded.model, text, kv_heads=args.kv_heads, seed=args.seed, progress=progress)

    asked = ["--kv-heads"] if args.kv_heads is not None else []
    layers = getattr(getattr(loaded.model, "config", None), "num_hidden_layers", None) or 1
    return carry_out(args, loaded, planned(args, loaded, make, asked, 1.5 * layers))
