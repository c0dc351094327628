"""`multihead compare A B`: what changed between two tables, and a gate for CI."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multihead.cli.options import ConditionOptions, add_command, option
from multihead.cli.output import note, out, print_findings, write_json

_EPILOG = """examples:
  multihead compare before after                             # what changed most
  multihead compare before after --fail-if 'entropy>0.1'     # a gate for CI
  multihead compare before after --fail-if kind:changed --json

conditions (exit 1 if a head meets one; those heads are named):
  entropy>0.1               the entropy of a head changed by more than 0.1, up or down
  ablation_zero:drop>0.05   it fell by more than 0.05; :rise> for rising
  entropy:relative>10%      it changed by more than a tenth of its value
  kind:changed              a head has a different word in this column; kind:changed>3: more than 3 heads do

A value that only one side has meets every condition on its column, because it cannot be judged. Heads that only one
side has are a finding too, unless --allow-missing. Without --fail-if nothing is a finding."""


@dataclass(frozen=True)
class CompareOptions(ConditionOptions):
    """Of `multihead.HeadTable.compare`."""

    allow_missing: bool = option(False, "accept heads that only one side has")
    json: bool = option(False, "print the result as JSON")


def add(commands: Any) -> None:
    """Add `multihead compare` to the commands."""
    parser = add_command(
        commands,
        "compare",
        "Compare two tables of heads, of two checkpoints or of two models: B against A.",
        _EPILOG,
    )
    parser.add_argument("before", type=Path, metavar="A", help="a folder of multihead measure, or a table file")
    parser.add_argument("after", type=Path, metavar="B")
    CompareOptions.add(parser)


def run(args: argparse.Namespace) -> int:
    """Run `multihead compare`: print the changes between two tables."""
    from multihead.table.condition import Condition
    from multihead.table.table import HeadTable

    options = CompareOptions.of(args)
    conditions = [Condition.of(text) for text in options.fail_if]
    change = HeadTable.load(args.before).compare(HeadTable.load(args.after))
    findings = change.findings(conditions)
    missing = [] if options.allow_missing or not conditions else [*change.only_before, *change.only_after]
    if options.json:
        write_json(change.plain() | {"findings": [f.plain() for f in findings], "missing": missing})
        return 1 if findings or missing else 0
    out().print(change)
    on_one_side = [f"on one side only: {', '.join(missing)}"] if missing else []
    print_findings([*findings, *on_one_side], options.fail_if)
    for side, table in (("A", change.before), ("B", change.after)):
        if described := table.about.get("run"):
            note(f"{side}: {described.get('model')} on {described.get('text')}")
    return 1 if findings or missing else 0
