"""What commands print with: data on stdout, everything else on stderr; colours unless NO_COLOR says no."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def out() -> Any:
    """The console of data. As wide as the terminal; into a pipe, as COLUMNS says, else as wide as it takes."""
    from rich.console import Console

    class Data(Console):
        def on_broken_pipe(self) -> None:
            """Whoever read has seen enough, which is no failure: `main` ends quietly; rich would exit with 1."""
            raise BrokenPipeError

    if sys.stdout.isatty():
        return Data(highlight=False, soft_wrap=False)
    said = os.environ.get("COLUMNS", "")
    return Data(highlight=False, width=int(said) if said.isdecimal() and int(said) else 160)


def err() -> Any:
    """The console of progress and notes."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """A line on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def write(text: str) -> None:
    """Text on stdout."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def write_json(data: Any) -> None:
    write(json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1))


def size(count: float) -> str:
    """1536 → 1.5 kB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    """75 → 1 min 15 s."""
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
