"""The arguments of all commands, and errors for those that are misspelt."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

from multihead import __version__
from multihead.cli.output import print_error

COMMANDS = {
    "report": "write one page that shows what every head does",
    "serve": "show the page from a local server: long texts, and texts that you type",
    "play": "write a page with a small transformer in it, whose heads you switch",
    "measure": "write a table of what every head does and how important it is",
    "show": "print a table, or the attention map of one head",
    "compare": "compare two tables; a gate for CI",
    "theory": "test the statements of the theory on a model",
    "cost": "count parameters, FLOPs and bytes of attention",
    "prune": "remove heads, refit the rest, save a smaller model",
    "group": "share keys and values among heads, for a smaller KV cache",
    "check": "compare a model with its cut copy: sizes, quality, speed; a gate for CI",
    "curve": "draw quality against the number of heads kept, for several methods",
    "completion": "print a completion script for bash, zsh or fish",
}
"""Each command and its line of help."""

FAILURE = 2
"""The exit code of a command that failed."""

_DESCRIPTION = "See, measure, compare and prune the attention heads of a model."

EPILOG = """examples:
  multihead report                       # one page about every head of a small model
  multihead measure minilm -o run
  multihead show run --sort previous --top 10
  multihead compare before after --fail-if 'entropy>0.1'
  multihead prune minilm --keep 0.5 --calibration text.txt -o smaller/
  multihead check minilm smaller/ --held-out held_out.txt

MODEL is a folder saved by transformers or multihead, minilm, embedded (a model inside this package), a name on the
hub (org/name), or module:function, a function that returns a model and a tokenizer, or a model and batches.
Data goes to stdout, everything else to stderr.
Exit codes: 0 success, 1 a finding, 2 a failure. MULTIHEAD_TRACEBACK=1 prints tracebacks."""


class Parser(argparse.ArgumentParser):
    """An argument parser without abbreviations, whose errors are one line and suggest the option that was meant."""

    def __init__(self, **options: object) -> None:
        options = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **options}
        super().__init__(**options)  # pyright: ignore[reportArgumentType]

    @property
    def flags(self) -> list[str]:
        """Every option, as --batch-size."""
        return list(self._option_string_actions)

    @property
    def flag_of(self) -> dict[str, str]:
        """The flag of every argument of the library: of batch_size, --batch-size."""
        return {x.dest: y for x in self._actions for y in reversed(x.option_strings) if y.startswith("--")}

    def error(self, message: str) -> NoReturn:
        """End with one line and where to read more, instead of the usage of all options."""
        print_error(f"{message}\n\nhint: see {self.prog} --help")
        sys.exit(FAILURE)

    def parse_args(self, args: Sequence[str], namespace: argparse.Namespace) -> argparse.Namespace:  # type: ignore[override]
        """The parsed words; those that are not recognised end the process with a suggestion."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            first = next((word for word in unknown if word.startswith("-")), unknown[0]).partition("=")[0]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{_did_you_mean(first, self.flags)}")
        return parsed


def top_parser() -> Parser:
    """The arguments of `multihead` without a command."""
    top = Parser(
        prog="multihead",
        usage="multihead [-h] [--version] COMMAND ...",
        description=f"{_DESCRIPTION}\n\ncommands:\n{command_lines()}",
        epilog=EPILOG,
    )
    top.add_argument("--version", action="version", version=f"multihead {__version__}")
    return top


def command_lines() -> str:
    """The commands, one line each."""
    return "\n".join(f"  {name:<12}{line}" for name, line in COMMANDS.items())


def command_parser(command: str) -> Parser:
    """The arguments of one command, whose module is imported."""
    module: Any = import_module(f"multihead.cli.{command}")
    options = module.OPTIONS
    parser = Parser(prog=f"multihead {command}", description=options.__doc__, epilog=module.EXAMPLES)
    options.add(parser)
    return parser


def parse(argv: Sequence[str]) -> tuple[str, argparse.Namespace]:
    """The command, and the options that were typed; misspelt ones end the process with a suggestion."""
    at = next((at for at, word in enumerate(argv) if not word.startswith("-")), len(argv))
    top = top_parser()
    top.parse_args(argv[:at], argparse.Namespace())  # without a command, this ends the process
    command = argv[at]
    if command not in COMMANDS:
        top.error(f"unknown command {command!r}{_did_you_mean(command, COMMANDS)}")
    return command, command_parser(command).parse_args(argv[at + 1 :], argparse.Namespace(words=list(argv)))


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    by_name = {name.lstrip("-"): name for name in known}  # the dashes would make all options similar
    close = get_close_matches(word.lstrip("-"), by_name, n=2, cutoff=0.7)
    return f"; did you mean {' or '.join(by_name[name] for name in close)}?" if close else ""
