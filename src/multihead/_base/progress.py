"""Progress bars on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Report = Callable[[str, float, float], None]
"""Called with (name, done, total)."""


@contextmanager
def progress_bars(console: Console, names: Sequence[str] = (), *, shown: bool = True) -> Generator[Report]:
    """Bars while the block runs, on a terminal: one for each of `names`; without names, one for what runs last."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:>12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    disabled = not (shown and console.is_terminal)
    with Progress(*columns, console=console, disable=disabled, transient=not names) as bars:
        tasks = {name: bars.add_task(name, total=None, start=False) for name in names}
        single = None if names else bars.add_task("", total=None)

        def report(name: str, done: float, total: float) -> None:
            task = tasks[name] if single is None else single
            if not bars.tasks[task].started:
                bars.start_task(task)
            bars.update(task, description=name, completed=round(done, 1), total=max(total, done))

        yield report


def shown_progress(progress: bool | Report, names: Sequence[str]) -> AbstractContextManager[Report | None]:
    """The argument `progress` of a function: True shows bars on stderr, a function is called."""
    if callable(progress):
        return nullcontext(progress)
    if not progress:
        return nullcontext()
    from rich.console import Console  # slow to import

    return progress_bars(Console(stderr=True), names)
