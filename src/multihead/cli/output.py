"""What commands print with: data on stdout, everything else on stderr; colours unless NO_COLOR is set."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from multihead._base.plural import plural

if TYPE_CHECKING:
    from multihead._base.progress import Progress
    from multihead.sources.pretrained import Pretrained


def out() -> Any:
    """The console of data. As wide as the terminal; in a pipe as COLUMNS, else wide."""
    from rich.console import Console

    class Data(Console):
        def on_broken_pipe(self) -> None:
            """Let `main` end the command; rich would exit with 1."""
            raise BrokenPipeError

    if sys.stdout.isatty():
        return Data(highlight=False, soft_wrap=False)
    columns = os.environ.get("COLUMNS", "")
    return Data(highlight=False, width=int(columns) if columns.isdecimal() and int(columns) else 160)


def err() -> Any:
    """The console of progress and notes."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """A line on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def speaker(quiet: bool) -> Callable[[str], None]:
    """`note`, or with --quiet a function that prints nothing."""
    return (lambda text: None) if quiet else note


def write(text: str) -> None:
    """Text on stdout."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def write_json(data: Any) -> None:
    write(json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1))


def bars(quiet: bool, names: Sequence[str] = ()) -> AbstractContextManager[Progress]:
    """Progress bars on stderr, if it is a terminal; see `progress_bars`."""
    from multihead._base.progress import progress_bars

    return progress_bars(err(), names, shown=not quiet)


def describe(loaded: Pretrained) -> str:
    """A model in a few words."""
    from multihead.model.find_sites import find_sites

    heads = len(find_sites(loaded.model).heads)
    parameters = sum(p.numel() for p in loaded.model.parameters())
    return f"{loaded.name}: {plural(heads, 'head')}, {parameters / 1e6:.3g} M parameters"


def print_findings(findings: Sequence[object], conditions: Sequence[object]) -> None:
    """The findings in red; if conditions were checked and none is met, a line in green."""
    console = out()
    for finding in findings:
        console.print(f"✗ {finding}", style="red", markup=False, soft_wrap=True)
    if conditions and not findings:
        met = ", ".join(map(str, conditions))
        console.print(f"✓ none of the conditions is met: {met}", style="green", markup=False, soft_wrap=True)
