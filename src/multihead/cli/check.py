"""`multihead check MODEL CUT --held-out held_out.txt`: compare a model with its cut copy; a gate for CI."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multihead._base.plural import plural
from multihead.cli.options import (
    SAMPLE,
    BatchOptions,
    FileOptions,
    ModelOptions,
    Options,
    add_command,
    add_model,
    option,
    uses_sample,
)
from multihead.cli.output import bars, describe, out, print_findings, speaker, write_json
from multihead.errors import MultiheadError
from multihead.sources.pretrained import check_source

if TYPE_CHECKING:
    from multihead.table.condition import Condition

_EPILOG = """examples:
  multihead check minilm smaller/ --held-out held_out.txt
  multihead check path/to/model grouped/ --held-out held_out.txt --fail-if 'perplexity:relative>5%'

conditions (exit 1 if one is met):
  nn10<0.8                   the value of the cut model; also cosine, agreement, relative_error, perplexity
  perplexity:relative>5%     a change of more than 5 %; :rise> and :drop> for one direction
  speed_model<1.2            the whole model is less than 1.2 times as fast; also speed_attention
  parameters:relative<10%    fewer than 10 % of the parameters are removed; also attention_parameters, heads,
                             kv_heads, kv_bytes

Use text that the cut was not fitted to. Speed depends on the machine and on its other work."""


@dataclass(frozen=True)
class HeldOutOptions(Options):
    """Text that a cut is judged on."""

    held_out: tuple[str, ...] = option(
        (), "text that the cut was not fitted to: a .txt or .jsonl file, or a folder; may be repeated",
        metavar="FILE|DIR",
    )  # fmt: skip


@dataclass(frozen=True)
class CheckOptions(Options):
    """Of `multihead.check`."""

    rounds: int = option(15, "rounds of timing; 0 skips it", least=0, metavar="N")


def add(commands: Any) -> None:
    parser = add_command(
        commands,
        "check",
        "Compare a model with its cut copy: parameters, KV cache, quality on held-out text, speed.",
        _EPILOG,
    )
    add_model(parser)
    parser.add_argument(
        "cut", metavar="CUT", help="the cut copy: a folder written by multihead prune or group, or any model"
    )
    group = HeldOutOptions.add(parser, f"held-out text ({SAMPLE})")
    FileOptions.add(group)
    BatchOptions.add(group)
    group = CheckOptions.add(parser, "the check")
    group.add_argument(
        "--fail-if", action="append", default=[], metavar="CONDITION", help="exit 1 if it is met; may be repeated"
    )
    group.add_argument("--json", action="store_true", help="print JSON")
    group.add_argument("--quiet", action="store_true", help="no progress, no notes")


def run(args: argparse.Namespace) -> int:
    options, files, batches = CheckOptions.of(args), FileOptions.of(args), BatchOptions.of(args)
    held_out = HeldOutOptions.of(args).held_out
    from multihead.corpus.language import check_language
    from multihead.edit.check.metrics import METRICS
    from multihead.edit.check.report import check, check_estimate

    measured = [name for name, metric in METRICS.items() if options.rounds or metric.of != "speed"]
    conditions = [_condition(text, measured) for text in args.fail_if]  # before the work
    check_source(args.model)
    check_source(args.cut)  # before the first one is loaded
    model, call = ModelOptions.of(args), "mh.check(model, small, {})"
    before, after = model.load(args.model, call), model.load(args.cut, call)
    documents = files.documents(before, corpus=held_out)
    check_language(before.tokenizer, documents, "the text")
    say = speaker(args.quiet)
    say(f"{describe(before)}; {describe(after)}; {documents.name}: {plural(documents.count, 'document')}")
    if uses_sample(before, held_out, files):
        say("note: without --held-out a small sample of English stands in for your held-out text")
    data = {"tokenizer": before.tokenizer, **vars(batches)}
    say(str(check_estimate(before.model, after.model, documents, rounds=options.rounds, **data)))
    with bars(args.quiet) as progress:
        report = check(before.model, after.model, documents, rounds=options.rounds, progress=progress, **data)
    findings = report.findings(conditions)
    if args.json:
        write_json(report.plain() | {"findings": findings})
    else:
        out().print(report)
        print_findings(findings, conditions)
    return 1 if findings else 0


def _condition(text: str, measured: Sequence[str]) -> Condition:
    """A condition of --fail-if; its errors name the option."""
    from multihead.edit.check.metrics import read_condition

    try:
        return read_condition(text, measured)
    except MultiheadError as error:
        raise MultiheadError(f"--fail-if {text}: {error.message}", hint=error.hint) from error
