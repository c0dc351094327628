"""A plan as text: a line per layer with the removed heads, their costs, and the cheapest head that is kept.

>>> from multihead.edit.plan import Plan
>>> from multihead.edit.layer_plan import LayerPlan
>>> layer = LayerPlan("L0", "block", 4, 4, (0, 2, 3), groups=((0, 3), (2,)))
>>> scores = {"L0H0": 3.0, "L0H1": 0.25, "L0H2": 2.0, "L0H3": 1.5}
>>> print(Plan((layer,), "Toy", "0" * 16, "obs", "keep=0.75", scores))
Toy: 3 of 4 heads kept, 2 of 4 kv heads (request: keep=0.75; method: obs)
layer  heads  kv heads  removed (cost)  cheapest kept  groups
L0     4 → 3  4 → 2     H1 (0.25)       H3 (1.5)       {0 3} {2}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from multihead._base.html_fragments import line, lines
from multihead._base.html_fragments import table as html_table
from multihead._base.number_text import number
from multihead._base.plural import plural

if TYPE_CHECKING:
    from multihead.edit.layer_plan import LayerPlan
    from multihead.edit.plan import Plan

MOST = 16
"""The most heads that a line names; the rest are counted."""


def text(plan: Plan) -> str:
    """The whole plan as text."""
    kv = f", {plan.kv_kept} of {plural(plan.kv_heads, 'kv head')}" if _about_kv(plan) else ""
    how = f"; method: {plan.method}" if plan.method else ""
    summary = f"{plan.model}: {plan.kept} of {plural(plan.heads, 'head')} kept{kv} (request: {plan.request}{how})"
    body = table(*columns(plan)) if plan.changes else ["the plan changes nothing"]
    return "\n".join([summary, *body, *(f"note: {n}" for n in plan.notes)])


def columns(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """The titles and the lines of the plan's table, a line per layer, without empty columns."""
    pruned = plan.kept < plan.heads
    shown = {
        "layer": True,
        "heads": True,
        "kv heads": _about_kv(plan),
        "removed (cost)" if plan.scores else "removed": pruned,
        "cheapest kept": pruned and bool(plan.scores),
        "groups": any(x.groups is not None for x in plan.layers),
    }
    lines = [[cell for cell, yes in zip(_cells(plan, x), shown.values(), strict=True) if yes] for x in plan.layers]
    return [title for title, yes in shown.items() if yes], lines


def table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text with aligned columns."""
    wide = [max(len(line[i]) for line in (titles, *lines)) for i in range(len(titles))]
    return ["  ".join(c.ljust(w) for c, w in zip(line, wide, strict=True)).rstrip() for line in (titles, *lines)]


def _about_kv(plan: Plan) -> bool:
    """Whether query heads share kv heads, before or afterwards."""
    return any(x.kv_heads != x.heads or x.kv_after != len(x.keep) for x in plan.layers)


def _cells(plan: Plan, layer: LayerPlan) -> list[str]:
    """The text of the plan of one layer."""
    times = f" ×{layer.times_used}" if layer.times_used > 1 else ""
    cost = {h: plan.scores[layer.head(h)] for h in range(layer.heads) if layer.head(h) in plan.scores}
    removed = sorted(layer.removed, key=lambda h: cost.get(h, 0.0))
    cheapest = min((h for h in layer.keep if h in cost), key=lambda h: cost[h], default=None)
    return [
        f"{layer.name}{times}",
        _change(layer.heads, len(layer.keep)),
        _change(layer.kv_heads, layer.kv_after),
        _some([_one(layer, h, cost) for h in removed]),
        "" if cheapest is None else _one(layer, cheapest, cost),
        "" if layer.groups is None else " ".join(_group(layer, g) for g in layer.groups),
    ]


def _change(before: int, after: int) -> str:
    return f"{before} → {after}" if after != before else f"{before}"


def _one(layer: LayerPlan, head: int, cost: dict[int, float]) -> str:
    name = f"H{layer.numbers[head]}"
    return f"{name} ({number(cost[head], 2)})" if head in cost else name


def _group(layer: LayerPlan, heads: Sequence[int]) -> str:
    return "{" + " ".join(str(layer.numbers[h]) for h in heads) + "}"


def _some(words: Sequence[str]) -> str:
    """A list in the plan's text, shortened."""
    if not words:
        return "–"
    rest = len(words) - MOST
    return ", ".join(words[:MOST]) + (f" and {rest} more" if rest > 0 else "")


def html(plan: Plan) -> str:
    """The plan as HTML, for notebooks."""
    summary = str(plan).partition("\n")[0]
    titles, rows = columns(plan)
    body = html_table(titles, rows, words=range(len(titles))) if plan.changes else ""
    return line(summary, small=False) + body + lines([f"note: {n}" for n in plan.notes])
