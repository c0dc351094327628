"""How commands print: data on stdout, everything else on stderr; colours unless NO_COLOR is set."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any


def out() -> Any:
    """The console for output of commands. As wide as the terminal; in a pipe as COLUMNS, else wide."""
    from rich.console import Console

    class Data(Console):
        def on_broken_pipe(self) -> None:
            """Let `main` end the command; rich would exit with 1."""
            raise BrokenPipeError

    if sys.stdout.isatty():
        return Data(highlight=False, soft_wrap=False)
    columns = os.environ.get("COLUMNS", "")
    return Data(highlight=False, width=int(columns) if columns.isdecimal() and int(columns) else 160)


def note(text: str) -> None:
    """A line on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def print_error(text: str) -> None:
    """The one line of an error on stderr."""
    sys.stderr.write(f"multihead: {text}\n")


def write(text: str) -> None:
    """Text on stdout."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def write_json(data: Any) -> None:
    write(json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1))


def print_findings(findings: Sequence[object], conditions: Sequence[object]) -> None:
    """The findings in red; if conditions were checked and none is met, a line in green."""
    console = out()
    for finding in findings:
        console.print(f"✗ {finding}", style="red", markup=False, soft_wrap=True)
    if conditions and not findings:
        met = ", ".join(map(str, conditions))
        console.print(f"✓ none of the conditions is met: {met}", style="green", markup=False, soft_wrap=True)
