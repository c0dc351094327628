"""Progress bars on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from multihead._base.arguments import check_instance

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[str, float, float], None]
"""Called with (name, done, total)."""


@contextmanager
def _progress_bars(console: Console, names: Sequence[str] = (), *, shown: bool = True) -> Generator[Progress]:
    """Progress bars on a terminal inside the block: one per name, or without names one for the latest task."""
    from rich import progress

    columns = (
        progress.TextColumn("{task.description:>12}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
    )
    disabled = not (shown and console.is_terminal)
    with progress.Progress(*columns, console=console, disable=disabled, transient=not names) as bars:
        tasks = {name: bars.add_task(name, total=None, start=False) for name in names}
        single = None if names else bars.add_task("", total=None)

        def report(name: str, done: float, total: float) -> None:
            """Update the bar of this name."""
            task = tasks[name] if single is None else single
            if not bars.tasks[task].started:
                bars.start_task(task)
            bars.update(task, description=name, completed=round(done, 1), total=max(total, done))

        yield report


def check_progress(progress: object) -> None:
    """Raise unless `progress` is True, False, None or a function."""
    check_instance(
        "progress", progress, bool | Callable | None, "True, False or a function", hint="progress=True shows bars"
    )


def shown_progress(
    progress: bool | Progress | None, names: Sequence[str] = ()
) -> AbstractContextManager[Progress | None]:
    """The `progress` argument of a function: True shows bars if stderr is a terminal; a function is called."""
    if callable(progress):
        return nullcontext(progress)
    if not progress:
        return nullcontext()
    from rich.console import Console  # slow to import

    return _progress_bars(Console(stderr=True, highlight=False, soft_wrap=True), names)
