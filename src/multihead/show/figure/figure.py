"""The matplotlib Figure of all our figures: one style, no window, text kept as text.

>>> from multihead.show.figure.figure import Figure
>>> figure = Figure(figsize=(2, 1))
>>> axes = figure.add_subplot()
>>> _ = axes.text(0, 0, "注意 $", parse_math=False)
>>> figure._repr_png_()[1:4]
b'PNG'
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from typing import Any

from matplotlib import font_manager, rc_context
from matplotlib.figure import Figure as MatplotlibFigure

DPI = 300

STYLE: dict[str, Any] = {
    "font.size": 7.0,
    "axes.labelsize": 7.0,
    "axes.titlesize": 8.0,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#5b6470",
    "axes.labelcolor": "#1b2027",
    "text.color": "#1b2027",
    "xtick.color": "#5b6470",
    "ytick.color": "#5b6470",
    "xtick.labelcolor": "#1b2027",
    "ytick.labelcolor": "#1b2027",
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.0,
    "ytick.major.size": 2.0,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.dpi": DPI,
    "savefig.bbox": "tight",  # no label is cut off, however long
    "savefig.pad_inches": 0.03,
    "svg.fonttype": "none",  # text, not outlines: it can be searched, and set in the font of a paper
    "svg.hashsalt": "multihead",  # the same figure is the same file
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
}

_FALLBACK = (
    "DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Source Han Sans", "WenQuanYi Micro Hei",
    "Hiragino Sans", "PingFang SC", "Microsoft YaHei", "Noto Sans Arabic", "Noto Sans Hebrew",
    "Noto Sans Devanagari", "Noto Sans Symbols 2", "Noto Emoji", "Symbola",
)  # fmt: skip
"""Fonts for scripts and symbols that others lack, in the order in which they are tried."""


class Figure(MatplotlibFigure):
    """A matplotlib Figure that pyplot does not manage: no window opens, nothing has to be closed.

    It is saved in the style it was drawn in, and a notebook shows it as it is saved.
    """

    def savefig(self, *args: Any, **kwargs: Any) -> None:
        """Write a .png, .svg or .pdf file, as matplotlib's `savefig` does."""
        with style():
            super().savefig(*args, **kwargs)

    def draw(self, renderer: Any) -> None:
        with style():
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        image = BytesIO()
        self.savefig(image, format="png", dpi=200)
        return image.getvalue()


@contextmanager
def style() -> Generator[None]:
    """Our settings within the block, the user's afterwards."""
    settings: Any = {**STYLE, "font.family": list(_families())}
    with rc_context(settings), warnings.catch_warnings():
        # A character that no font has is drawn as a box, which is visible and no reason to warn.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


@cache
def _families() -> tuple[str, ...]:
    installed = set(font_manager.get_font_names())
    return tuple(name for name in _FALLBACK if name in installed) or ("sans-serif",)
