"""A plan in words: a line per layer, what goes with its score, and the cheapest that stays.

>>> from multihead.edit.plan import LayerPlan, Plan
>>> layer = LayerPlan("L0", "block", 4, 4, (0, 2, 3), groups=((0, 3), (2,)))
>>> scores = {"L0H0": 3.0, "L0H1": 0.25, "L0H2": 2.0, "L0H3": 1.5}
>>> print(Plan((layer,), "Toy", "0" * 16, "obs", "keep=0.75", scores))
Toy: 3 of 4 heads stay, 2 of 4 kv heads (asked: keep=0.75; method: obs)
layer  heads  kv heads  goes (what it costs)  cheapest that stays  share keys and values
L0     4 → 3  4 → 2     H1 (0.25)             H3 (1.5)             {0 3} {2}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from multihead._base.html import line, lines
from multihead._base.html import table as html_table

if TYPE_CHECKING:
    from multihead.edit.plan import LayerPlan, Plan

MOST = 16
"""heads that a line names before it only counts"""


def text(plan: Plan) -> str:
    """The whole plan."""
    kv = f", {plan.kv_kept} of {plan.kv_heads} kv heads" if _about_kv(plan) else ""
    how = f"; method: {plan.method}" if plan.method else ""
    said = [f"{plan.model}: {plan.kept} of {plan.heads} heads stay{kv} (asked: {plan.asked}{how})"]
    said += table(header(plan), rows(plan)) if plan.changes else ["nothing would change"]
    return "\n".join([*said, *(f"note: {n}" for n in plan.notes)])


def header(plan: Plan) -> list[str]:
    titles = ["layer", "heads", "kv heads", "goes (what it costs)", "cheapest that stays", "share keys and values"]
    titles[3] = titles[3] if plan.scores else "goes"
    return [title for title, shown in zip(titles, _shown(plan), strict=True) if shown]


def rows(plan: Plan) -> list[list[str]]:
    """A line per layer, in the columns of `header`."""
    shown = _shown(plan)
    return [[c for c, yes in zip(_cells(plan, x), shown, strict=True) if yes] for x in plan.layers]


def table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side, each as wide as its widest cell."""
    wide = [max(len(line[i]) for line in (titles, *lines)) for i in range(len(titles))]
    return ["  ".join(c.ljust(w) for c, w in zip(line, wide, strict=True)).rstrip() for line in (titles, *lines)]


def _shown(plan: Plan) -> list[bool]:
    """Which columns say anything."""
    grouped = any(x.groups is not None for x in plan.layers)
    pruned = plan.kept < plan.heads
    return [True, True, _about_kv(plan), pruned, pruned and bool(plan.scores), grouped]


def _about_kv(plan: Plan) -> bool:
    """Whether kv heads are other than query heads, before or afterwards."""
    return any(x.kv_heads != x.heads or x.kv_after != len(x.keep) for x in plan.layers)


def _cells(plan: Plan, layer: LayerPlan) -> list[str]:
    turns = f" ×{layer.turns}" if layer.turns > 1 else ""
    cost = {h: plan.scores[layer.head(h)] for h in range(layer.heads) if layer.head(h) in plan.scores}
    gone = sorted(layer.gone, key=lambda h: cost.get(h, 0.0))
    stays = min((h for h in layer.keep if h in cost), key=lambda h: cost[h], default=None)
    return [
        f"{layer.name}{turns}",
        _change(layer.heads, len(layer.keep)),
        _change(layer.kv_heads, layer.kv_after),
        _some([_one(h, cost) for h in gone]),
        "" if stays is None else _one(stays, cost),
        "" if layer.groups is None else " ".join("{" + " ".join(map(str, g)) + "}" for g in layer.groups),
    ]


def _change(before: int, after: int) -> str:
    return f"{before} → {after}" if after != before else f"{before}"


def _one(head: int, cost: dict[int, float]) -> str:
    return f"H{head} ({cost[head]:.2g})" if head in cost else f"H{head}"


def _some(words: Sequence[str]) -> str:
    if not words:
        return "–"
    rest = len(words) - MOST
    return ", ".join(words[:MOST]) + (f" and {rest} more" if rest > 0 else "")


def html(plan: Plan) -> str:
    """A line per layer: what stays, what goes, what it costs."""
    summary = str(plan).partition("\n")[0]
    body = html_table(header(plan), rows(plan), words=range(len(header(plan)))) if plan.changes else ""
    return line(summary, small=False) + body + lines([f"note: {n}" for n in plan.notes])
