"""A small bool matrix as text or as an SVG picture."""

from __future__ import annotations

from html import escape

from jaxtyping import Bool
from torch import Tensor

from multihead.errors import SizeError

LARGEST = 256  # cells per side; a larger picture is unreadable


def as_text(cells: Bool[Tensor, "query key"]) -> str:
    _check(cells)
    return "\n".join("".join("█" if cell else "·" for cell in row) for row in cells.tolist())


def as_svg(cells: Bool[Tensor, "query key"], *, title: str) -> str:
    """A picture of a mask: queries run down, keys run right; filled cells may attend."""
    _check(cells)
    height, width = cells.shape
    runs: list[str] = []
    for y, row in enumerate(cells.tolist()):
        x = 0
        while x < width:
            end = x
            while end < width and row[end]:
                end += 1
            if end > x:
                runs.append(f"M{x} {y}h{end - x}v1h{x - end}z")
            x = max(end, x + 1)
    pixels = max(4, min(16, 320 // max(width, height, 1)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" '
        f'width="{width * pixels + 2}" height="{height * pixels + 2}" '
        f'viewBox="-.1 -.1 {width + 0.2} {height + 0.2}">'
        f"<title>{escape(title)}</title>"
        f'<rect width="{width}" height="{height}" fill="#e8e8ee" stroke="#888" stroke-width=".06"/>'
        f'<path d="{"".join(runs)}" fill="#2b5cad"/></svg>'
    )


def _check(cells: Bool[Tensor, "query key"]) -> None:
    """Raise if the mask is too large to draw."""
    if max(cells.shape) > LARGEST:
        raise SizeError(
            f"can draw at most {LARGEST} queries and keys, got {cells.shape[0]} queries x {cells.shape[1]} keys",
            hint="draw a smaller size: mask.draw(queries, keys)",
        )
