"""`multihead compare A B`: what changed between two tables, and a gate for CI."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from multihead.cli.options import ConditionOptions, option, positional
from multihead.cli.output import note

EXAMPLES = """examples:
  multihead compare before after                             # the largest changes
  multihead compare before after --fail-if 'entropy>0.1'     # a gate for CI
  multihead compare before after --fail-if kind:changed --json

conditions (exit 1 if a head meets one; those heads are named):
  entropy>0.1               the entropy of a head changed by more than 0.1, up or down
  ablation_zero:drop>0.05   it fell by more than 0.05; :rise> for rising
  entropy:relative>10%      it changed by more than a tenth of its value
  kind:changed              a head has a different word in this column; kind:changed>3: more than 3 heads do

A value that only one side has meets every condition on its column, because it cannot be judged. Heads that only one
side has are a finding too, unless --allow-missing. Without --fail-if nothing is a finding."""


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ConditionOptions):
    """Compare two tables of heads, of two checkpoints or of two models: B against A."""

    before: Path = positional("a folder of multihead measure, or a table file", metavar="A")
    after: Path = positional("the same", metavar="B")
    allow_missing: bool = option(False, "accept heads that only one side has")


OPTIONS = CompareOptions


def run(options: CompareOptions) -> int:
    """Run `multihead compare`: print the changes between two tables."""
    from multihead.table.condition import Condition
    from multihead.table.table import HeadTable

    conditions = options.conditions(Condition.of)
    change = HeadTable.load(options.before).compare(HeadTable.load(options.after))
    findings = change.findings(conditions)
    missing = [] if options.allow_missing or not conditions else [*change.only_before, *change.only_after]
    options.print(change, change.plain() | {"findings": [f.plain() for f in findings], "missing": missing})
    for side, table in (("A", change.before), ("B", change.after)):
        described = table.about.get("run")
        if described and not options.json:
            note(f"{side}: {described.get('model')} on {described.get('text')}")
    return options.exit_code([*findings, *([f"on one side only: {', '.join(missing)}"] if missing else [])])
