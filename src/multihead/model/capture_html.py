"""What a capture shows in a notebook: the maps of its heads, or the table of their statistics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from multihead._base.html import Cells, line, map_picture, pooled, table
from multihead.errors import MultiheadError
from multihead.model.capture_table import table_of

if TYPE_CHECKING:
    from multihead.model.capture import Capture, Head

SIDE = 256
"""Cells along a side of one map; of more tokens, the largest weights of those that fall together."""

SHEET = 60_000
"""Cells of all maps of a capture together."""

WORK = 200_000_000
"""Weights that are computed to show maps; of more, a notebook would wait."""

STATISTICS = ("entropy", "effective_keys", "max_weight", "distance", "first", "self", "previous", "next", "special")

ASK = "maps: mh.capture(model, keep='qk') keeps what they are computed from"


def head_html(head: Head) -> str:
    """Its name, some of its statistics, and its map on the first sequence of the latest call."""
    said = [line(repr(head), small=False)]
    if head.heads.options is not None:
        known = [(n, head.mean(n)) for n in STATISTICS if n in head.statistics.meaning]
        shown = [(n, f"{x:.3g}") for n, x in known if not math.isnan(x)]
        said.append(table([n for n, _ in shown], [[x for _, x in shown]]))
    return "".join([*said, _map(head)])


def heads_html(heads: Capture) -> str:
    """All maps, small, layers down and heads across; where none were kept, the table of statistics."""
    said = line(repr(heads), small=False)
    sheet = _sheet(heads)
    if sheet is not None:
        cells, note = sheet
        return said + map_picture(cells, side=min(760, 2 * cells.shape[1]), alt=note) + line(note)
    if heads.options is None or not len(heads):
        return said + line(ASK)
    return f"{said}{table_of(heads)._repr_html_()}{line(ASK)}"  # pyright: ignore[reportPrivateUsage]


def _map(head: Head) -> str:
    try:
        weights = _weights(head, WORK)
    except MultiheadError as refused:
        return line(refused.message)
    if weights is None:
        return line(ASK)
    down, across = weights.shape
    cells = pooled(weights, SIDE)
    note = f"{down} queries down, {across} keys across; dark is much, by the root of the weight"
    note += f"; one cell is up to {math.ceil(max(down, across) / SIDE)} tokens" if max(down, across) > SIDE else ""
    return map_picture(cells, side=max(96, min(360, 12 * max(cells.shape))), alt=f"map of {head.name}") + line(note)


def _sheet(heads: Capture) -> tuple[Cells, str] | None:
    """The maps of all heads side by side, and what they are; None where there are none to show."""
    every = list(heads)
    kept = [h for h in every if heads.calls(h.site) and heads.calls(h.site)[-1].problem is not None]
    if not kept:
        return None
    side = min(32, math.isqrt(SHEET // len(kept)) - 1)
    if side < 5:
        return None
    found: dict[str, list[Cells]] = {}
    for one in kept:
        try:
            weights = _weights(one, WORK // len(kept))
        except MultiheadError:
            return None
        if weights is None:
            return None
        found.setdefault(one.site.label, []).append(pooled(weights, side))
    high, wide = (max(w.shape[i] for some in found.values() for w in some) + 1 for i in range(2))
    sheet = np.zeros((len(found) * high, max(map(len, found.values())) * wide), dtype=np.float32)
    for y, some in enumerate(found.values()):
        for x, weights in enumerate(some):
            sheet[y * high : y * high + weights.shape[0], x * wide : x * wide + weights.shape[1]] = weights
    names = list(found)
    return sheet, f"maps of the latest call, layers {names[0]} to {names[-1]} down, heads across"


def _weights(head: Head, most: int) -> Cells | None:
    """The map of the first sequence, None if nothing was kept; an error where it would be too much."""
    calls = head.heads.calls(head.site)
    problem = calls[-1].problem if calls else None
    if problem is None:
        return None
    frame = problem.frame
    if frame.batch * frame.queries * frame.keys > most:
        raise MultiheadError(
            f"the map of {head.name} has {frame.queries} × {frame.keys} cells: weights(rows=[...]) gives some of it"
        )
    return head.weights()[0].detach().float().cpu().numpy()
