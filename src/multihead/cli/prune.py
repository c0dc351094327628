"""`multihead prune MODEL --keep 0.5 -o DIR`: remove heads, refit the remaining weights, save a smaller model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from multihead.cli.options import names, option
from multihead.cli.prune_and_group import METHODS, CutOptions, run_cut
from multihead.errors import MultiheadError

EXAMPLES = """examples:
  multihead prune minilm --keep 0.5 --calibration text.txt -o smaller/
  multihead prune path/to/model --heads 3.7,4.1 --calibration text.txt -o smaller/
  multihead prune path/to/model --budget "flops=0.8" --min-heads 1 --calibration text.txt -o smaller/
  multihead prune minilm --keep 0.5 --calibration text.txt --plan plan.json --dry-run  # then edit plan.json
  multihead prune minilm --plan plan.json --calibration text.txt -o smaller/

Exit codes: 0 done, 1 the request changes nothing, 2 a failure."""


@dataclass(frozen=True, kw_only=True)
class PruneOptions(CutOptions, title="which heads (one of the first three)"):
    """Remove the heads that cost least, refit the remaining weights, and save a model with smaller matrices."""

    keep: float | None = option(None, "the share of heads to keep, in (0, 1]", metavar="X")
    remove: tuple[str, ...] = option((), "remove these heads; may be repeated", "--heads", metavar="3.7,L4H1")
    budget: str | None = option(None, 'a share of the original: "flops=0.8" or "cache=0.5"', metavar="NAME=X")
    method: str = option(
        "obs",
        "how heads are scored: obs, the loss after the best refit without a head; fisher, how far the output moves "
        "without it; random",
        choices=METHODS,
    )
    min_heads: int = option(0, "every layer keeps at least N heads", least=0, metavar="N")
    uniform: bool = option(False, "every layer keeps the same number of heads")
    multiple_of: int = option(1, "the number of heads in every layer is a multiple of N", least=1, metavar="N")
    kv_heads: int | None = option(
        None, "then group the kept heads: N kv heads in every layer", least=1, metavar="N"
    )

    request_hint = '--keep 0.5, --heads 3.7,4.1, --budget "flops=0.8" or --plan FILE'

    def requested(self) -> list[str]:
        flags = {"keep": "--keep", "remove": "--heads", "budget": "--budget", "kv_heads": "--kv-heads"}
        return [flag for name, flag in flags.items() if name in self.typed]

    def request(self) -> dict[str, Any]:
        return self.arguments(PruneOptions) | {"remove": names(self.remove) or None}

    def check(self) -> None:
        """Raise unless the options of `multihead prune` fit together."""
        super().check()
        first = [flag for flag in self.requested() if flag != "--kv-heads"]
        if len(first) > 1:
            raise MultiheadError(
                f"only one of --keep, --heads and --budget may be given, got {' and '.join(first)}",
                hint="choose one",
            )
        if self.remove and not names(self.remove):
            raise MultiheadError("--heads must name a head, got none", hint="--heads 3.7,4.1 or --heads L3H7")
        from multihead.edit.budget import parse
        from multihead.edit.make_plan import check_share
        from multihead.table import head_names

        if self.keep is not None:
            check_share("keep", self.keep)
        for name in names(self.remove):
            head_names.parse(name)
        if self.budget is not None:
            parse(self.budget)


OPTIONS = PruneOptions
run = run_cut
