"""`multihead group MODEL --kv-heads 4 -o DIR`: heads share keys and values, for a smaller KV cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from multihead.cli.options import option
from multihead.cli.prune_and_group import CutOptions, run_cut

EXAMPLES = """examples:
  multihead group minilm --kv-heads 4 --calibration text.txt --dry-run    # print the groups
  multihead group minilm --kv-heads 4 --calibration text.txt -o grouped/
  multihead group minilm --kv-heads 4 --calibration text.txt --distill 600 -o grouped/

Exit codes: 0 done, 1 the request changes nothing, 2 a failure."""


@dataclass(frozen=True, kw_only=True)
class GroupOptions(CutOptions, title="which groups"):
    """Let heads share keys and values: multi-head attention becomes grouped-query or multi-query attention."""

    kv_heads: int | None = option(
        None, "kv heads in every layer, a divisor of their number now", least=1, metavar="N"
    )

    request_hint = "--kv-heads 4, or --plan FILE"

    def requested(self) -> list[str]:
        return [] if self.kv_heads is None else ["--kv-heads"]

    def request(self) -> dict[str, Any]:
        return self.arguments(GroupOptions)


OPTIONS = GroupOptions
run = run_cut
