"""Notebook display of a capture: attention maps of its heads, or a table of statistics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from multihead._base.chart_html import heatmap_html
from multihead._base.charts import Cells, Heatmap, pooled
from multihead._base.html_fragments import line, table
from multihead._base.number_text import number
from multihead.errors import MultiheadError
from multihead.model.capture_table import table_of
from multihead.table.view import STATISTICS

if TYPE_CHECKING:
    from multihead.model.capture import Capture
    from multihead.model.captured_head import CapturedHead

SIDE = 256
"""Maximum cells along a side of one map; longer sequences are max-pooled."""

GRID = 60_000
"""Maximum cells of all maps of a capture together."""

WORK = 200_000_000
"""Maximum weights computed for display; more would make the notebook wait."""

ASK = "to see attention maps, use mh.capture(model, keep='qk')"


def head_html(head: CapturedHead) -> str:
    """The head's name, some of its statistics, and its map of the first sequence of the latest call."""
    parts = [line(repr(head), small=False)]
    if head.heads.options is not None:
        means = [(n, head.mean(n)) for n in STATISTICS if n in head.statistics.meaning]
        shown = [(n, number(x)) for n, x in means if not math.isnan(x)]
        parts.append(table([n for n, _ in shown], [[x for _, x in shown]]))
    return "".join([*parts, _map(head)])


def heads_html(heads: Capture) -> str:
    """A grid of small maps, layers down and heads across; without kept maps, the table of statistics."""
    title = line(repr(heads), small=False)
    grid = _map_grid(heads)
    if grid is not None:
        cells, note = grid
        return (
            title + heatmap_html(Heatmap.attention(cells), side=min(760, 2 * cells.shape[1]), alt=note) + line(note)
        )
    if heads.options is None or not len(heads):
        return title + line(ASK)
    return f"{title}{table_of(heads)._repr_html_()}{line(ASK)}"  # pyright: ignore[reportPrivateUsage]


def _map(head: CapturedHead) -> str:
    """The HTML map of one captured head, or the reason why it is missing."""
    try:
        weights = _weights(head, WORK)
    except MultiheadError as error:
        return line(error.message)
    if weights is None:
        return line(ASK)
    down, across = weights.shape
    chart = Heatmap.attention(weights).pooled(SIDE)
    note = f"{down} queries down, {across} keys across; darkness is the square root of the weight"
    note += f"; one cell is up to {math.ceil(max(down, across) / SIDE)} tokens" if max(down, across) > SIDE else ""
    return heatmap_html(
        chart, side=max(96, min(360, 12 * max(chart.cells.shape))), alt=f"map of {head.name}"
    ) + line(note)


def _map_grid(heads: Capture) -> tuple[Cells, str] | None:
    """The maps of all heads in a grid, and a caption; None without maps."""
    all_heads = list(heads)
    with_maps = [h for h in all_heads if heads.calls(h.site) and heads.calls(h.site)[-1].problem is not None]
    if not with_maps:
        return None
    side = min(32, math.isqrt(GRID // len(with_maps)) - 1)
    if side < 5:
        return None
    maps: dict[str, list[Cells]] = {}
    for head in with_maps:
        try:
            weights = _weights(head, WORK // len(with_maps))
        except MultiheadError:
            return None
        if weights is None:
            return None
        maps.setdefault(head.site.label, []).append(pooled(weights, side))
    high, wide = (max(w.shape[i] for row in maps.values() for w in row) + 1 for i in range(2))
    grid = np.zeros((len(maps) * high, max(map(len, maps.values())) * wide), dtype=np.float32)
    for y, row in enumerate(maps.values()):
        for x, weights in enumerate(row):
            grid[y * high : y * high + weights.shape[0], x * wide : x * wide + weights.shape[1]] = weights
    names = list(maps)
    return grid, f"maps of the latest call, layers {names[0]} to {names[-1]} down, heads across"


def _weights(head: CapturedHead, limit: int) -> Cells | None:
    """The map of a captured head's first sequence; None if not kept. Raises if it has more than `limit` weights."""
    calls = head.heads.calls(head.site)
    problem = calls[-1].problem if calls else None
    if problem is None:
        return None
    size = problem.coordinates
    if size.batch * size.queries * size.keys > limit:
        raise MultiheadError(
            f"the map of {head.name} has {size.queries} × {size.keys} cells: use weights(rows=[...])"
        )
    return head.weights()[0].detach().float().cpu().numpy()
