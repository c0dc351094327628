"""`multihead check MODEL CUT --held-out held_out.txt`: compare a model with its cut copy; a gate for CI."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from multihead._base.plural import plural
from multihead.cli.options import (
    BatchOptions,
    ConditionOptions,
    HeldOutOptions,
    ModelOptions,
    OutputOptions,
    option,
    positional,
)
from multihead.sources.pretrained import check_source

EXAMPLES = """examples:
  multihead check minilm smaller/ --held-out held_out.txt
  multihead check path/to/model grouped/ --held-out held_out.txt --fail-if 'perplexity:relative>5%'

conditions (exit 1 if one is met):
  nn10<0.8                   the value of the cut model; also cosine, agreement, relative_error, perplexity
  perplexity:relative>5%     a change of more than 5 %; :rise> and :drop> for one direction
  speed_model<1.2            the whole model is less than 1.2 times as fast; also speed_attention
  parameters:relative<10%    fewer than 10 % of the parameters are removed; also attention_parameters, heads,
                             kv_heads, kv_bytes

Use text that the cut was not fitted to: without --held-out, a small sample stands in for it. Speed depends on the
machine and on its other work."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions(ModelOptions, HeldOutOptions, ConditionOptions, OutputOptions, title="the check"):
    """Compare a model with its cut copy: parameters, KV cache, quality on held-out text, speed."""

    cut: str = positional("the cut copy: a folder written by multihead prune or group, or any model", metavar="CUT")
    rounds: int = option(15, "rounds of timing; 0 skips it", least=0, metavar="N")

    def check(self) -> None:
        """Raise unless the options of `multihead check` fit together."""
        super().check()
        check_source(self.cut)


OPTIONS = CheckOptions


def run(options: CheckOptions) -> int:
    """Run `multihead check`: compare a model with its cut copy."""
    from multihead.edit.check.check import check
    from multihead.edit.check.metrics import METRICS, read_condition

    measured = [name for name, metric in METRICS.items() if options.rounds or metric.of != "speed"]
    conditions = options.conditions(partial(read_condition, measured=measured))
    before, after = (options.load(name) for name in (options.model, options.cut))
    documents = options.documents(before, corpus=options.held_out)
    read = f"{documents.name}: {plural(documents.count, 'document')}"
    options.say(f"{before.summary()}; {after.summary()}; {read}")
    if options.is_sample(before, options.held_out):
        options.say("note: without --held-out a small sample of English stands in for your held-out text")
    report = check(
        before.model,
        after.model,
        documents,
        tokenizer=before.tokenizer,
        rounds=options.rounds,
        progress=not options.quiet,
        say=None if options.quiet else options.say,
        **options.arguments(BatchOptions),
    )
    findings = report.findings(conditions)
    options.print(str(report), report.plain() | {"findings": findings})
    return options.exit_code(findings)
