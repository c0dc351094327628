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
    ConditionOptions,
    FileOptions,
    HeldOutOptions,
    ModelOptions,
    OutputOptions,
    add_command,
    add_files,
    add_model,
    option,
    uses_sample,
)
from multihead.cli.output import print_findings, speaker, write, write_json
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
class CheckOptions(OutputOptions, ConditionOptions):
    """Of `multihead.check`."""

    rounds: int = option(15, "rounds of timing; 0 skips it", least=0, metavar="N")


def add(commands: Any) -> None:
    """Add `multihead check` to the commands."""
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
    add_files(parser, HeldOutOptions, f"held-out text ({SAMPLE})")
    CheckOptions.add(parser, "the check")


def run(args: argparse.Namespace) -> int:
    """Run `multihead check`: compare a model with its cut copy."""
    options, files, batches = CheckOptions.of(args), FileOptions.of(args), BatchOptions.of(args)
    held_out = HeldOutOptions.of(args).held_out
    for source in (args.model, args.cut):  # both, before one is loaded
        check_source(source)
    from multihead.corpus.language import check_language
    from multihead.edit.check.check import check, check_estimate
    from multihead.edit.check.metrics import METRICS

    measured = [name for name, metric in METRICS.items() if options.rounds or metric.of != "speed"]
    conditions = [_condition(text, measured) for text in options.fail_if]  # before the work
    model, call = ModelOptions.of(args), "mh.check(model, small, {})"
    before, after = model.load(args.model, call), model.load(args.cut, call)
    documents = files.documents(before, corpus=held_out)
    check_language(before.tokenizer, documents, "the text")
    say = speaker(options.quiet)
    say(f"{before.summary()}; {after.summary()}; {documents.name}: {plural(documents.count, 'document')}")
    if uses_sample(before, held_out, files):
        say("note: without --held-out a small sample of English stands in for your held-out text")
    data = {"tokenizer": before.tokenizer, "rounds": options.rounds, **batches.arguments()}
    say(str(check_estimate(before.model, after.model, documents, **data)))
    report = check(before.model, after.model, documents, progress=not options.quiet, **data)
    findings = report.findings(conditions)
    if options.json:
        write_json(report.plain() | {"findings": findings})
    else:
        write(str(report))
        print_findings(findings, conditions)
    return 1 if findings else 0


def _condition(text: str, measured: Sequence[str]) -> Condition:
    """A condition of --fail-if; its errors name the option."""
    from multihead.edit.check.metrics import read_condition

    try:
        return read_condition(text, measured)
    except MultiheadError as error:
        raise MultiheadError(f"--fail-if {text}: {error.message}", hint=error.hint) from error
