"""Sizes, colours and labels that all figures share.

>>> from multihead.show.figure.style import short
>>> short("antidisestablishmentarianism"), short("a\\nb")
('antidisestabl…', 'a␊b')
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from multihead._base.charts import NO_VALUE, RAMPS
from multihead.errors import MultiheadError
from multihead.show.tokens import show_control_chars

if TYPE_CHECKING:
    from multihead.show.figure.figure import Figure

COLUMN, PAGE = 3.35, 7.0
"""Inches: the width of one column of a paper, and of the page."""

LONGEST = 14
"""Characters of a label."""


def short(word: str, most: int = LONGEST) -> str:
    """A token as a label in the style of all figures: control characters visible, long tokens cut."""
    word = word.removeprefix("Ġ").removeprefix("▁")  # they stand for a space before the token
    visible = show_control_chars(word) or "∅"
    return visible if len(visible) <= most else f"{visible[: most - 1]}…"


@contextmanager
def sheet(width: float, height: float) -> Generator[Figure]:
    """A figure of this size in inches in the shared style; draw on it inside the block."""
    check_installed()
    from multihead.show.figure.figure import Figure, style

    with style():
        yield Figure(figsize=(width, height), dpi=150, layout="constrained")


def check_installed() -> None:
    """Raise if matplotlib is missing: before the work whose result is drawn."""
    try:
        import_module("multihead.show.figure.figure")
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] != "matplotlib":
            raise
        raise MultiheadError(
            "figures need matplotlib, which is not installed", hint="pip install 'multihead[plots]'"
        ) from missing


def colour_map(ramp: str, *, reverse: bool = False) -> Any:
    """A ramp of `charts.RAMPS` as a matplotlib colour map; cells without a number are grey."""
    from matplotlib.colors import LinearSegmentedColormap

    stops = RAMPS[ramp][::-1] if reverse else RAMPS[ramp]
    return LinearSegmentedColormap.from_list(ramp, stops).with_extremes(bad=NO_VALUE)


def labels_step(count: int, room: float, letter: float = 6.5) -> int:
    """Every how many-th of `count` labels has room along `room` inches, in letters of `letter` points."""
    most = max(1.0, room * 72 / (letter * 1.15))
    step = 1
    while count / step > most:
        step += 1
    return step


def _letter_size(cells: int, inches: float) -> float:
    """The font size of labels, in points, for this many cells."""
    return min(7.0, max(5.0, 0.85 * inches * 72 / max(1, cells)))


def label(axis: Any, words: Sequence[str], *, inches: float, turned: bool = False) -> None:
    """Write words on the cells of a figure, as many as have room; `$` is not read as a formula."""
    letter = _letter_size(len(words), inches)
    step = labels_step(len(words), inches, letter)
    shown = range(0, len(words), step)
    axis.set_ticks(
        list(shown),
        labels=[words[i] for i in shown],
        fontsize=letter,
        rotation=90 if turned else 0,
        parse_math=False,
    )
    axis.set_tick_params(length=0 if step == 1 else 2, pad=2)


def colour_bar(figure: Figure, image: Any, axes: Any, title: str, **options: Any) -> None:
    """Draw a colour bar in the style of all figures."""
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.03, aspect=28, **options)
    bar.outline.set_linewidth(0)
    bar.ax.tick_params(length=2, labelsize=6)
    bar.set_label(title, parse_math=False)
