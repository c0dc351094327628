"""`multihead COMMAND ...`: see, measure, compare and prune the heads of a model from a terminal.

Every command is a module of this folder with its `OPTIONS`, a class whose docstring describes the command, its
`EXAMPLES`, and `run(options)`, which returns the exit code: 0 success, 1 a finding, 2 a failure. Only the module of
the typed command is imported.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from multihead.cli.output import print_error, write
from multihead.cli.parser import FAILURE, command_lines, command_parser, parse
from multihead.errors import MultiheadError

BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Whatever goes wrong is one clear line on stderr and an exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # closed by 2>&-
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed by >&-
        print_error("stdout is closed, so nothing can be printed\n\nhint: > /dev/null discards the output")
        return FAILURE
    command, args = parse(words) if words else ("", None)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _print_warning
            code = _list_commands() if args is None else _run(command, args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the pipe has closed it: the exit code is that of SIGPIPE
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt as stop:
        print_error("stopped")
        return 128 + int(getattr(stop, "signal", 2))
    except Exception as error:  # a line helps a person at a terminal more than a traceback
        if os.environ.get("MULTIHEAD_TRACEBACK"):
            raise
        print_error(_line(error, {} if args is None else command_parser(command).flag_of))
        return FAILURE
    return code


def _run(command: str, args: argparse.Namespace) -> int:
    """Check the options of a command, then run it."""
    module: Any = import_module(f"multihead.cli.{command}")
    options = module.OPTIONS.of(args)
    options.check()
    return module.run(options)


def _list_commands() -> int:
    """Print the commands of `multihead`, one line each."""
    write(f"multihead COMMAND ...\n\n{command_lines()}\n\nmultihead COMMAND --help shows its options.")
    return 0


def _line(error: Exception, flags: Mapping[str, str]) -> str:
    """The one line of an error that ends a command."""
    if isinstance(error, MultiheadError):
        hint = None if error.hint is None else _as_flags(error.hint, flags)
        message = re.sub(r"^[a-z_]+(?= must )", lambda match: flags.get(match[0], match[0]), error.message)
        return str(MultiheadError(message, hint=hint))
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    message = " ".join(str(error).split()) or "no message"
    if isinstance(error, MemoryError) or "out of memory" in message.lower() or "can't allocate memory" in message:
        return f"out of memory: {message}\n\nhint: a smaller --batch-size or --max-tokens"
    return f"{type(error).__name__}: {message}\n\nhint: MULTIHEAD_TRACEBACK=1 prints the traceback"


def _as_flags(hint: str, flags: Mapping[str, str]) -> str:
    """A hint for Python, as the command line has it: force=True is --force, column="body" is --column "body"."""

    def flag(match: re.Match[str]) -> str:
        name, value = flags.get(match[1]), match[2]
        return match[0] if name is None else name if value == "True" else f"{name} {value}"

    return re.sub(r"""\b([a-z_]+)=(\w+|'[^']*'|"[^"]*")""", flag, hint)


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    sys.stderr.write(f"warning: {message}\n")
