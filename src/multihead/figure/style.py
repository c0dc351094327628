"""Colours, widths and words that all figures share.

>>> from multihead.figure.style import short
>>> short("antidisestablishmentarianism"), short("a\\nb")
('antidisestabl…', 'a␊b')
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from multihead.errors import MultiheadError
from multihead.page.words import clear

if TYPE_CHECKING:
    from multihead.figure.paper import Paper

COLUMN, PAGE = 3.35, 7.0
"""Inches: one column of a paper, and both."""

MARKERS = "os^Dvx+"
NOTHING = "#dfe3e8"
"""Where there is no number."""

LONGEST = 14
"""Letters of a token that are shown."""


def short(word: str, most: int = LONGEST) -> str:
    """The word without what cannot be seen, cut to fit beside a map."""
    seen = clear(word.removeprefix("Ġ").removeprefix("▁")) or "∅"  # marks of vocabularies: a space is before it
    return seen if len(seen) <= most else f"{seen[: most - 1]}…"


@contextmanager
def paper(width: float, height: float) -> Generator[Paper]:
    """A figure of so many inches, drawn on within the block."""
    check_installed()
    from multihead.figure.paper import Paper, style

    with style():
        yield Paper(figsize=(width, height), dpi=150, layout="constrained")


def check_installed() -> None:
    """Say that matplotlib is missing, where it is: before the work whose result is drawn."""
    try:
        import_module("multihead.figure.paper")
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] != "matplotlib":
            raise
        raise MultiheadError(
            "matplotlib, which draws figures, is not installed", hint="pip install 'multihead[plots]'"
        ) from missing


def scale(name: str) -> Any:
    """`map`: from paper to ink, for weights; `measure`: viridis; `both`: two colours, for what has a sign."""
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap

    stops = {
        "map": ["#ffffff", "#a9cbe6", "#2f7fc0", "#06284d"],
        "both": ["#3b6fb6", "#8fb3dc", "#f1f3f6", "#eeb27f", "#c8601f"],
    }
    if name in stops:
        return LinearSegmentedColormap.from_list(name, stops[name]).with_extremes(bad=NOTHING)
    return colormaps["viridis" if name == "measure" else name].with_extremes(bad=NOTHING)


def every(count: int, room: float, letter: float = 6.5) -> int:
    """Which labels have room: each, every second, … of `count` along `room` inches, in letters of this size."""
    most = max(1.0, room * 72 / (letter * 1.15))
    step = 1
    while count / step > most:
        step += 1
    return step


def head_size(cells: int, inches: float) -> float:
    """Points of a label beside one of `cells`."""
    return min(7.0, max(5.0, 0.85 * inches * 72 / max(1, cells)))


def label(axis: Any, words: Sequence[str], *, inches: float, turned: bool = False) -> None:
    """The words beside their cells, as many as have room; never read as formulas."""
    letter = head_size(len(words), inches)
    step = every(len(words), inches, letter)
    some = range(0, len(words), step)
    axis.set_ticks(
        list(some), labels=[words[i] for i in some], fontsize=letter, rotation=90 if turned else 0, parse_math=False
    )
    axis.set_tick_params(length=0 if step == 1 else 2, pad=2)


def bar(drawn: Paper, picture: Any, axes: Any, text: str, **more: Any) -> None:
    """The scale beside a picture."""
    shown = drawn.colorbar(picture, ax=axes, fraction=0.05, pad=0.03, aspect=28, **more)
    shown.outline.set_linewidth(0)
    shown.ax.tick_params(length=2, labelsize=6)
    shown.set_label(text, parse_math=False)
