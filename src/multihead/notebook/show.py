"""What each public object shows in a notebook, of at most about 100 KB. Called by their `_repr_html_`.

>>> from multihead.edit.plan import LayerPlan, Plan
>>> from multihead.notebook.show import plan
>>> "<td" in plan(Plan((LayerPlan("L0", "block", 3, 3, (0, 2)),), "Toy", "0" * 16))
True
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from multihead.colours import KINDS, LINES
from multihead.errors import MultiheadError
from multihead.notebook.pieces import (
    Cells,
    dots,
    line,
    lines,
    map_picture,
    measure_picture,
    plot,
    pooled,
    table,
)

if TYPE_CHECKING:
    from multihead.edit.checking.check import Check
    from multihead.edit.checking.curve import Curve
    from multihead.edit.plan import Plan
    from multihead.measures.kinds.evidence import Evidence
    from multihead.measures.kinds.found_kinds import Kinds
    from multihead.measures.likeness.redundancy import Redundancy
    from multihead.measures.worth.worth import Worth
    from multihead.model.capture import Head, Heads

SIDE = 256
"""Cells along a side of one map; of more tokens, the largest weights of those that fall together."""

SHEET = 60_000
"""Cells of all maps of a capture together."""

WORK = 200_000_000
"""Weights that are computed to show maps; of more, a notebook would wait."""

STATISTICS = ("entropy", "effective_keys", "max_weight", "distance", "first", "self", "previous", "next", "special")

ASK = "maps: mh.capture(model, keep='qk') keeps what they are computed from"


# ---- captured heads ---------------------------------------------------------------------------


def head(head: Head) -> str:
    """Its name, some of its statistics, and its map on the first sequence of the latest call."""
    said = [line(repr(head), small=False)]
    if head.heads.options is not None:
        known = [(n, head.mean(n)) for n in STATISTICS if n in head.statistics.meaning]
        shown = [(n, f"{x:.3g}") for n, x in known if not math.isnan(x)]
        said.append(table([n for n, _ in shown], [[x for _, x in shown]]))
    return "".join([*said, _map(head)])


def heads(heads: Heads) -> str:
    """All maps, small, layers down and heads across; where none were kept, the table of statistics."""
    said = line(repr(heads), small=False)
    sheet = _sheet(heads)
    if sheet is not None:
        cells, note = sheet
        return said + map_picture(cells, side=min(760, 2 * cells.shape[1]), alt=note) + line(note)
    if heads.options is None or not len(heads):
        return said + line(ASK)
    from multihead.measures.tables.table import HeadTable

    return f"{said}{HeadTable.of(heads)._repr_html_()}{line(ASK)}"  # pyright: ignore[reportPrivateUsage]


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


def _sheet(heads: Heads) -> tuple[Cells, str] | None:
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


# ---- numbers of heads -------------------------------------------------------------------------


def kinds(found: Kinds) -> str:
    """How many heads of each kind, then the evidence of each head."""
    counts = dict(Counter(e.kind for e in found).most_common())
    columns = ("kind", "kind_detail", "kind_score", "kind_low", "kind_high", "kind_control", "driven", "second")
    return dots(counts, KINDS) + found.table.select(columns)._repr_html_()  # pyright: ignore[reportPrivateUsage]


def evidence(found: Evidence) -> str:
    """One sentence, then what the head scores as, and as what else."""
    scores = [s for s in (found.best, *found.runners_up) if s is not None]
    rows = [
        [s.name, _share(s.score), f"{_share(s.low)} to {_share(s.high)}", _share(s.control), _share(s.threshold)]
        for s in scores
    ]
    titles = ["kind", "score", "95 % interval", "by chance", "threshold"]
    return line(f"{found.head}: {found.why}", small=False) + table(titles, rows, words=(0,))


def _share(x: float) -> str:
    return "–" if math.isnan(x) else f"{x:.2f}"


def worth(found: Worth) -> str:
    """The most worth heads first, and how far the measures agree."""
    whole = found.table.sort("rank")
    columns = [c for c in ("rank", "ablation_zero", "ablation_zero_error", "ablation_mean", "ablation_mean_error",
                           "importance", "importance_error", "fisher") if c in whole.columns]  # fmt: skip
    head = line(f"loss: {found.loss}; {found.table.about['documents']} documents")
    rest = [*map(str, found.agreement), *map(str, found.table.about["notes"])]
    return head + whole.select(columns)._repr_html_() + lines(rest)  # pyright: ignore[reportPrivateUsage]


def redundancy(found: Redundancy) -> str:
    """The nearest pairs, and every pair as a square, in the order of the dendrogram."""
    rows = [
        [a, b, *(f"{v:.2f}" if v == v else "–" for v in found.pair(a, b).values())] for a, b, _ in found.twins(8)
    ]
    said = line(f"{len(found.heads)} heads over {found.about['tokens']} tokens; nearest by {found.by}", small=False)
    said += table(["head", "twin", *found.pairs], rows, words=(0, 1))
    at = list(found.clusters.order)
    values = found[found.by][at][:, at].double().numpy()
    near = 1 - values if found.by == "attention" else values
    cells = np.nan_to_num(near, nan=-1.0)
    cells = np.where(pooled(cells, SIDE) < -0.5, np.nan, pooled(cells, SIDE))
    groups = [" ".join(group) for group in found.groups()]
    note = f"every two heads, likest together, by {found.by}: bright is alike"
    notes = [f"cluster: {g}" for g in groups[:12]] + ([f"and {len(groups) - 12} more"] if len(groups) > 12 else [])
    return said + measure_picture(cells, side=max(120, min(420, 6 * len(at)))) + lines([note, *notes])


# ---- cutting ----------------------------------------------------------------------------------


def plan(plan: Plan) -> str:
    """A line per layer: what stays, what goes, what it costs."""
    from multihead.edit.plan_text import header, rows

    said = str(plan).partition("\n")[0]
    body = table(header(plan), rows(plan), words=range(len(header(plan)))) if plan.changes else ""
    return line(said, small=False) + body + lines([f"note: {n}" for n in plan.notes])


def check(check: Check) -> str:
    """The original and the cut model side by side."""
    return table(["", "original", "cut", "change"], check.rows(), words=(0,)) + lines(check.lines())


def curve(curve: Curve) -> str:
    """Quality against heads kept, drawn and in numbers."""
    titles, rows = curve.rows()
    whole = (float(curve.heads), float(curve.original[curve.shown]))
    series = {
        method: [
            whole,
            *((float(p.kept), float(p.numbers[curve.shown])) for p in curve.points if p.method == method),
        ]
        for method in curve.methods
    }
    drawn = plot(series, LINES, across=f"heads kept, of {curve.heads}", up=curve.shown)
    said = f"{curve.shown} on {curve.documents} held-out documents; the original has {whole[1]:.4g}"
    return drawn + table(titles, rows) + lines([said, *(f"note: {n}" for n in curve.notes)])
