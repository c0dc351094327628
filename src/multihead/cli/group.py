"""`multihead group MODEL --kv-heads 4 -o DIR`: heads share keys and values, for a smaller KV cache."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from multihead.cli.options import add_command, option
from multihead.cli.prune_and_group import Request, add_cut, run_cut

_EPILOG = """examples:
  multihead group minilm --kv-heads 4 --calibration text.txt --dry-run    # print the groups
  multihead group minilm --kv-heads 4 --calibration text.txt -o grouped/
  multihead group minilm --kv-heads 4 --calibration text.txt --distill 600 -o grouped/

Exit codes: 0 done, 1 the request changes nothing, 2 a failure."""


@dataclass(frozen=True)
class GroupOptions(Request):
    """Of `multihead.plan`."""

    kv_heads: int | None = option(
        None, "kv heads in every layer, a divisor of their number now", least=1, metavar="N"
    )


def add(commands: Any) -> None:
    """Add `multihead group` to the commands."""
    parser = add_command(
        commands,
        "group",
        "Let heads share keys and values: multi-head attention becomes grouped-query or multi-query attention.",
        _EPILOG,
    )
    add_cut(parser, GroupOptions, "which groups")


def run(args: argparse.Namespace) -> int:
    return run_cut(args, GroupOptions.of(args), "--kv-heads 4, or --plan FILE")
