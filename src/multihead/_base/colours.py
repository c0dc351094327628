"""Colour-blind-safe palettes shared by figures, notebooks, the terminal and the page.

>>> from multihead._base.colours import viridis
>>> viridis(0.0), viridis(1.0)
('#440154', '#fde725')
"""

from __future__ import annotations

KINDS = {
    "first": "#0072b2", "delimiter": "#56b4e9", "self": "#b59a00", "previous": "#e69f00", "next": "#d55e00",
    "offset": "#96631a", "window": "#e8a07c", "duplicate": "#cc79a7", "induction": "#8f2d6b", "class": "#009e73",
    "alignment": "#44aa99", "broad": "#7d74c9", "dead": "#444b55", "mixed": "#9aa3ad", "too little data": "#c3c8cf",
}  # fmt: skip
"""Colours of head kinds."""

LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444b55")
"""Colours of lines (Okabe and Ito 2008)."""

_VIRIDIS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")


def viridis(share: float) -> str:
    """The #rrggbb colour of a value from 0 (dark) to 1 (bright) (Smith and van der Walt 2015)."""
    position = min(max(share, 0.0), 1.0) * (len(_VIRIDIS) - 1)
    low = min(int(position), len(_VIRIDIS) - 2)
    pair = [[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in _VIRIDIS[low : low + 2]]
    return "#" + "".join(f"{round(a + (position - low) * (b - a)):02x}" for a, b in zip(*pair, strict=True))
