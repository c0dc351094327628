"""`multihead check MODEL CUT --text held_out.txt`: compare a model with its cut copy; a gate for CI."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from multihead.cli.console import duration, note, out, write_json
from multihead.cli.cutting import about, add_text, bar, check_numbers, read
from multihead.cli.load import add_model, load_model
from multihead.cli.texts import in_english
from multihead.corpus.language import check_language
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from torch import nn

    from multihead.table.condition import Condition

_EPILOG = """examples:
  multihead check minilm smaller/ --text held_out.txt
  multihead check path/to/model grouped/ --text held_out.txt --fail-if 'perplexity:relative>5%'

conditions (exit 1 if one is met):
  nn10<0.8                   the value of the cut model; also cosine, agreement, relative_error, perplexity
  perplexity:relative>5%     a change of more than 5 %; :rise> and :drop> for one direction
  speed_model<1.2            the whole model is less than 1.2 times as fast; also speed_attention
  parameters:relative<10%    fewer than 10 % of the parameters are removed; also attention_parameters, heads,
                             kv_heads, kv_bytes

Use text that the cut was not fitted to. Speed depends on the machine and on its other work."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    parser = commands.add_parser(
        "check",
        help="compare a model with its cut copy: sizes, quality, speed; a gate for CI",
        description="Compare a model with its cut copy: parameters, KV cache, quality on held-out text, speed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    parser.add_argument(
        "cut", metavar="CUT", help="the cut copy: a folder written by multihead prune or group, or any model"
    )
    add_text(
        parser, "--text", "--corpus",
        title="held-out text (default: a sample in English; for embedded, in its own language)",
        what="text that the cut was not fitted to: .txt, .jsonl or a folder of them; may be repeated",
    )  # fmt: skip
    group = parser.add_argument_group("the check")
    group.add_argument(
        "--rounds", type=int, default=15, metavar="N", help="rounds of timing (default: 15); 0 skips the timing"
    )
    group.add_argument(
        "--fail-if", action="append", default=[], metavar="CONDITION", help="exit 1 if it is met; may be repeated"
    )
    group.add_argument("--json", action="store_true", help="print JSON")
    group.add_argument("--quiet", action="store_true", help="no progress, no notes")


def run(args: argparse.Namespace) -> int:
    check_numbers(args)
    if args.rounds < 0:
        raise MultiheadError(f"--rounds must be at least 0, got {args.rounds}", hint="--rounds 15 is the default")
    from multihead.edit.check.metrics import METRICS
    from multihead.edit.check.report import check

    measured = [name for name, metric in METRICS.items() if args.rounds or metric.of != "speed"]
    conditions = [_condition(text, measured) for text in args.fail_if]  # before the work
    before = load_model(args)
    after = load_model(argparse.Namespace(**{**vars(args), "model": args.cut}))
    text = read(args, args.text, before.tokenizer, args.model)
    check_language(before.tokenizer, text, "the text")
    if not args.quiet:
        note(f"{about(before)}; {about(after)}; {text.name}: {text.documents} documents")
        if in_english(args.text, args, before.tokenizer):
            note("note: no --text: a small sample of English stands in for your held-out text")
        note(f"about {duration(_seconds(before.model, text.size, args.rounds))}")
    with bar(args) as progress:
        report = check(
            before.model,
            after.model,
            list(text),
            tokenizer=before.tokenizer,
            batch_size=args.batch_size,
            max_tokens=args.max_tokens,
            rounds=args.rounds,
            progress=progress,
        )
    findings = report.findings(conditions)
    if args.json:
        write_json(report.plain() | {"findings": findings})
        return 1 if findings else 0
    console = out()
    console.print(report)
    for finding in findings:
        console.print(f"✗ {finding}", style="red", markup=False, soft_wrap=True)
    if conditions and not findings:
        console.print(f"✓ none of {', '.join(map(repr, conditions))}", style="green", markup=False, soft_wrap=True)
    return 1 if findings else 0


def _condition(text: str, measured: Sequence[str]) -> Condition:
    """A condition of --fail-if; its errors name the option."""
    from multihead.edit.check.metrics import read_condition

    try:
        return read_condition(text, measured)
    except MultiheadError as error:
        raise MultiheadError(f"--fail-if {text}: {error.message}", hint=error.hint) from error


def _seconds(model: nn.Module, characters: int, rounds: int) -> float:
    """An estimate: two runs per token of text (4 characters), and per round two runs of 128 and of 512 tokens."""
    parameters = sum(p.numel() for p in model.parameters())
    per_token = 2.0 * parameters / 2e10
    return per_token * (2 * characters / 4 + rounds * 2 * (128 + 512 / 3)) + rounds * 4 * 0.05 + 3
