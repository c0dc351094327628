"""`multihead group MODEL --kv-heads 4 -o DIR`: heads share keys and values, for a smaller KV cache."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multihead.cli.cutting import add_cut, run_cut
from multihead.cli.options import Options, add_command, option

if TYPE_CHECKING:
    from multihead.edit.calibration import Calibration, Progress
    from multihead.edit.plan import Plan

_EPILOG = """examples:
  multihead group minilm --kv-heads 4 --calibration text.txt --dry-run    # print the groups
  multihead group minilm --kv-heads 4 --calibration text.txt -o grouped/
  multihead group minilm --kv-heads 4 --calibration text.txt --distill 600 -o grouped/

Exit codes: 0 done, 1 the request changes nothing, 2 a failure."""


@dataclass(frozen=True)
class GroupOptions(Options):
    """Of `multihead.plan`."""

    kv_heads: int | None = option(
        None, "kv heads in every layer, a divisor of their number now", least=1, metavar="N"
    )

    def requested(self) -> list[str]:
        """The options that ask for a plan."""
        return [] if self.kv_heads is None else ["--kv-heads"]

    def check(self) -> None:
        """Nothing can contradict itself."""

    def plan(self, text: Calibration, seed: int, progress: Progress) -> Plan:
        from multihead.edit.planning import plan

        return plan(text.model, text, kv_heads=self.kv_heads, seed=seed, progress=progress)

    def runs(self) -> float:
        """About how many forward passes over the text planning takes."""
        return 10.0


def add(commands: Any) -> None:
    parser = add_command(
        commands,
        "group",
        "Let heads share keys and values: multi-head attention becomes grouped-query or multi-query attention.",
        _EPILOG,
    )
    add_cut(parser, GroupOptions, "which groups")


def run(args: argparse.Namespace) -> int:
    return run_cut(args, GroupOptions.of(args), "--kv-heads 4, or --plan FILE")
