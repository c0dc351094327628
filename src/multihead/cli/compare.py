"""`multihead compare A B`: what changed between two tables, and a gate for CI."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from multihead.cli.console import note, out, write_json

if TYPE_CHECKING:
    from multihead.table.compare import Comparison, Finding
    from multihead.table.table import HeadTable

_EPILOG = """examples:
  multihead compare before after                             # what changed most
  multihead compare before after --fail-if 'entropy>0.1'     # a gate for CI
  multihead compare before after --fail-if kind:changed --json

conditions (exit 1 if a head meets one; those heads are named):
  entropy>0.1               a head's entropy changed by more than 0.1, up or down
  ablation_zero:drop>0.05   it fell by more than 0.05; :rise> for rising
  entropy:relative>10%      it changed by more than a tenth of what it was
  kind:changed              a head has another word in this column; kind:changed>3: more than 3 heads do

A number that only one side has meets every condition on its column, since it cannot be judged. Heads that only one
side has are a finding too, unless --allow-missing. Without --fail-if nothing is a finding."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    parser = commands.add_parser(
        "compare",
        help="what changed between two tables; a gate for CI",
        description="Compare two tables of heads, of two checkpoints or of two models: B against A.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("before", type=Path, metavar="A", help="a folder of multihead measure, or a table file")
    parser.add_argument("after", type=Path, metavar="B")
    parser.add_argument(
        "--fail-if", action="append", default=[], metavar="CONDITION", help="exit 1 if it is met; may be repeated"
    )
    parser.add_argument("--allow-missing", action="store_true", help="heads on one side only are no finding")
    parser.add_argument("--json", action="store_true", help="for a program")


def run(args: argparse.Namespace) -> int:
    from multihead.table.condition import Condition
    from multihead.table.table import HeadTable

    conditions = [Condition.of(text) for text in args.fail_if]
    change = HeadTable.load(args.before).compare(HeadTable.load(args.after))
    findings = change.findings(conditions)
    missing = [] if args.allow_missing or not conditions else _missing(change)
    if args.json:
        write_json(change.plain() | {"findings": [f.plain() for f in findings], "missing": missing})
    else:
        _print(args, change, findings, missing)
    return 1 if findings or missing else 0


def _missing(change: Comparison[HeadTable]) -> list[str]:
    return [*change.only_before, *change.only_after]


def _print(
    args: argparse.Namespace, change: Comparison[HeadTable], findings: list[Finding], missing: list[str]
) -> None:
    console = out()
    console.print(change)
    for finding in findings:
        console.print(f"✗ {finding}", style="red", markup=False, soft_wrap=True)
    if missing:
        console.print(f"✗ on one side only: {', '.join(missing)}", style="red", markup=False, soft_wrap=True)
    if args.fail_if and not findings and not missing:
        console.print(f"✓ no head meets {', '.join(args.fail_if)}", style="green", markup=False, soft_wrap=True)
    for side, table in (("A", change.before), ("B", change.after)):
        if run := table.about.get("run"):
            note(f"{side}: {run.get('model')} on {run.get('text')}")
