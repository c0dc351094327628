"""Where heads look, as maps: queries down, keys across, darker is more.

>>> import torch
>>> from multihead.figure.maps import map
>>> weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
>>> figure = map(weights, ["the", "cat"])
>>> [t.get_text() for t in figure.axes[0].get_yticklabels()]
['the', 'cat']
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.figure.style import COLUMN, PAGE, bar, label, paper, scale, short
from multihead.model.capture import Capture, Head
from multihead.model.sites import Site

if TYPE_CHECKING:
    from multihead.figure.paper import Paper

Map = Float[Tensor, "query key"]
Rows = Sequence[Sequence[float]]
Words = Sequence[str] | Sequence[int]

SMALLEST = 1.5
"""Inches of a map of few tokens."""


def map(
    head: Head | Map | Rows,
    tokens: Words | None = None,
    *,
    queries: Words | None = None,
    row: int = 0,
    top: float | None = 1.0,
    title: str | None = None,
) -> Paper:
    """One head's map with its tokens: a head of a capture that kept "qk", or weights (query, key).

    Args:
        tokens: of the keys, and of the queries too unless `queries` names those.
        row: which sequence of the batch.
        top: the weight that is darkest; None: the largest there is. Shades go by the root, so that small weights
            are seen too.
    """
    weights = _weights(head, row)
    across, down = _words(weights, tokens, queries)
    longest = max(weights.shape)
    side = min(max(0.17 * longest, SMALLEST), PAGE - 1.2)
    wide, high = (side * n / longest for n in reversed(weights.shape))
    with paper(max(wide + 1.1, 2.2), high + 0.9) as figure:
        axes = figure.add_subplot()
        picture = _draw(axes, weights, top)
        label(axes.xaxis, across, inches=wide, turned=True)
        label(axes.yaxis, down, inches=high)
        axes.xaxis.tick_top()
        axes.set_ylabel("query")
        axes.set_title(_title(title, head), parse_math=False)
        bar(figure, picture, axes, "weight", ticks=_ticks(picture))
        axes.set_xlabel("key")
        axes.xaxis.set_label_position("top")
    return figure


def layer(
    heads: Capture,
    name: str | int,
    tokens: Words | None = None,
    *,
    row: int = 0,
    across: int = 4,
    top: float | None = 1.0,
    title: str | None = None,
) -> Paper:
    """All heads of a layer, small, in the same shades: `layer(heads, "L3")` of a capture that kept "qk".

    Args:
        tokens: labels of the first column's rows, where they have room.
        across: maps in a line.
    """
    site = _site(heads, name)
    if across < 1:
        raise SizeError(f"across={across} maps in a line are none", hint="across is at least 1")
    drawn = [_weights(Head(heads, site, h), row) for h in range(site.heads)]
    across = min(across, len(drawn))
    lines = math.ceil(len(drawn) / across)
    queries, keys = drawn[0].shape
    words = None if tokens is None else _words(drawn[0], tokens, None)[1]
    most = max(float(w.max()) for w in drawn) if top is None else top
    total = PAGE if across > 2 else COLUMN
    side = (total - (0.85 if words is None else 1.35)) / across
    with paper(total, lines * (side * min(queries / keys, 1.6) + 0.22) + 0.3) as figure:
        grid: Any = figure.subplots(lines, across, squeeze=False)
        picture = None
        for at, axes in enumerate(grid.flat):
            if at >= len(drawn):
                axes.set_axis_off()
                continue
            picture = _draw(axes, drawn[at], most)
            axes.set_title(site.name(at), fontsize=7, pad=2.5, parse_math=False)
            axes.set_xticks([])
            axes.set_yticks([])
            if words is not None and at % across == 0:
                label(axes.yaxis, words, inches=side * min(queries / keys, 1.6))
        bar(figure, picture, list(grid.flat), "weight", ticks=_ticks(picture), shrink=0.6)
        if title:
            figure.suptitle(title, fontsize=8, parse_math=False)
    return figure


def _weights(head: Head | Map | Rows, row: int) -> Map:
    if isinstance(head, Head):
        found = head.weights()
        if not -len(found) <= row < len(found):
            raise SizeError(f"there is no sequence {row} in a batch of {len(found)}", hint="they count from 0")
        found = found[row]
    else:
        found = _tensor(head)
    if found.ndim != 2 or 0 in found.shape:
        raise SizeError(f"a map of shape {tuple(found.shape)} cannot be drawn", hint="(query, key): weights[0]")
    return found.detach().float().cpu()


def _tensor(given: Any) -> Tensor:
    """Weights as they come: a tensor, an array, lists."""
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as wrong:
        raise TypeMismatchError(
            f"a {type(given).__name__} is no map: {' '.join(str(wrong).split())[:120]}",
            hint='heads["L3H7"] of a capture that kept "qk", or weights (query, key)',
        ) from wrong


def _words(weights: Map, tokens: Words | None, queries: Words | None) -> tuple[list[str], list[str]]:
    """Labels of keys and of queries; places, where nobody named them."""
    down, across = weights.shape
    if queries is None and tokens is not None and down != across:
        if len(tokens) != across:
            raise SizeError(f"there are {len(tokens)} tokens and {across} keys", hint="a token for each key")
        queries = tokens[-down:] if down < across else None  # with a cache the last queries ask
    if queries is None:
        queries = tokens
    given = {"keys": (tokens, across), "queries": (queries, down)}
    made: list[list[str]] = []
    for what, (words, count) in given.items():
        if words is not None and (isinstance(words, str) or len(words) != count):
            said = f"the text {words[:20]!r}" if isinstance(words, str) else f"{len(words)} tokens"
            raise SizeError(
                f"{said} cannot stand beside {count} {what}", hint="a list with a word for each: tokens=['a', ...]"
            )
        made.append([str(i) for i in range(count)] if words is None else [short(str(w)) for w in words])
    return made[0], made[1]


def _draw(axes: Any, weights: Map, top: float | None) -> Any:
    from matplotlib.colors import PowerNorm

    largest = float(weights.nan_to_num(0.0).max()) if top is None else top
    if largest <= 0 and top is not None:
        raise SizeError(f"top={top} is no weight", hint="above 0, 1 at most, or None")
    shades = PowerNorm(0.5, vmin=0.0, vmax=largest or 1.0, clip=True)
    picture = axes.imshow(weights.numpy(), cmap=scale("map"), norm=shades, aspect="equal", interpolation="nearest")
    for side in axes.spines.values():
        side.set_color("#c3c8cf")
    return picture


def _ticks(picture: Any) -> list[float]:
    largest = picture.norm.vmax
    return [float(f"{x * largest:.2g}") for x in (0, 0.05, 0.25, 0.5, 1.0)]


def _title(title: str | None, head: object) -> str:
    return title if title is not None else head.name if isinstance(head, Head) else ""


def _site(heads: Capture, name: str | int) -> Site:
    site = heads.sites.layer(f"L{name}" if isinstance(name, int) else name)
    if not heads.calls(site):
        raise MultiheadError(f"nothing was kept of {site.label}", hint="mh.capture(model, keep='qk')")
    return site
