"""`multihead COMMAND ...`: see, measure, compare and cut the heads of a model from a terminal.

Every command is a file of this folder with `add(commands)`, which describes its arguments, and `run(args)`, which
gives the exit code: 0 fine, 1 a finding, 2 a failure. Only the asked one is imported, so help comes at once.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from multihead import __version__
from multihead.errors import MultiheadError

COMMANDS = {
    "report": "one page that tells what every head does",
    "serve": "the page over a local server: long texts, and texts of your own",
    "measure": "fill a table: what every head of a model does, and how important it is",
    "show": "look at a table, or at where one head looks",
    "compare": "what changed between two tables; a gate for CI",
    "claims": "put the statements of the theory to the test on a model",
    "cost": "parameters, FLOPs and bytes of attention",
    "prune": "take heads out, fit what stays, save a smaller model",
    "group": "multi-head to grouped-query attention: fewer kv heads, a smaller cache",
    "check": "compare a model with its cut copy: sizes, quality, speed; a gate for CI",
    "curve": "quality against heads kept, for several methods: where is the knee?",
}
"""Each command, and its line of help; it lives in the module of its name."""

FINDING, FAILURE, STOPPED = 1, 2, 130

_EPILOG = """examples:
  multihead report                       # one page of all heads, of a small model that comes in a package
  multihead measure minilm -o run        # a small model that comes in a package
  multihead show run --sort previous --top 10
  multihead compare before after --fail-if 'entropy>0.1'
  multihead prune minilm --keep 0.5 --calib text.txt -o smaller/
  multihead check minilm smaller/ --text held_out.txt

MODEL is a folder that transformers or multihead saved, minilm, embedded (a model inside this package, which needs
nothing else), a name on the hub (org/name), or module:function, which returns a model and a tokenizer.
Data goes to stdout, everything else to stderr.
Exit codes: 0 fine, 1 a finding, 2 a failure. MULTIHEAD_TRACEBACK=1 shows where a failure came from."""


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """The arguments of `command`, with the others by name only."""
    made = argparse.ArgumentParser(
        prog="multihead",
        description="See, measure, compare and cut the attention heads of a model.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"multihead {__version__}")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, line in COMMANDS.items():
        if name == command:
            import_module(f"multihead.cli.{name}").add(commands)
        else:
            commands.add_parser(name, help=line)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; whatever goes wrong is one clear line on stderr and an exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in given if not word.startswith("-")), None)
    args = parser(command).parse_args(given, argparse.Namespace(words=given))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            code: int = import_module(f"multihead.cli.{args.command}").run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _say("stopped")
        return STOPPED
    except Exception as wrong:  # a person at a terminal is helped by a line, not by a traceback
        if os.environ.get("MULTIHEAD_TRACEBACK"):
            raise
        _say(_line(wrong))
        return FAILURE
    return code


def _line(wrong: Exception) -> str:
    if isinstance(wrong, MultiheadError):
        return str(wrong)
    if isinstance(wrong, OSError) and wrong.strerror:
        return f"{wrong.filename}: {wrong.strerror}" if wrong.filename else wrong.strerror
    said = " ".join(str(wrong).split()) or "no message"
    if isinstance(wrong, MemoryError) or "out of memory" in said.lower() or "can't allocate memory" in said:
        return f"out of memory: {said}\n\nhint: a smaller --batch-size or --max-tokens"
    return f"{type(wrong).__name__}: {said}\n\nhint: MULTIHEAD_TRACEBACK=1 shows where it came from"


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    sys.stderr.write(f"warning: {message}\n")


def _say(text: str) -> None:
    sys.stderr.write(f"multihead: {text}\n")
