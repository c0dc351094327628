"""How a cost reads in a terminal, 80 columns wide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING

from multihead.measures.cost.spec import Spec

if TYPE_CHECKING:
    from multihead.measures.cost.cost import Change, Cost

WIDTH = 80
_LABEL = 30


def amount(x: float, unit: str = "") -> str:
    """Three digits and a prefix: 58.0 G, 4.83 GB."""
    if x != x:
        return "–"
    if x == float("inf"):
        return "never"
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(x) < 999.5:
            digits = f"{x:.0f}" if x == int(x) and not prefix else f"{x:#.3g}".rstrip(".")
            return f"{digits} {prefix}{unit}".rstrip()
        x /= 1000
    return f"{x:.3g} E{unit}"


def cost_text(cost: Cost) -> str:
    """Title, sizes, and a table: a column for each kind of layer, and one for all."""
    names = list(dict.fromkeys(s.name for s in cost.specs))
    columns = [_part(cost, [s for s in cost.specs if s.name == name]) for name in names]
    if len(names) > 1:
        columns, heading = [*columns, cost], [*names, "all"]
    elif len(cost.specs) == 1:
        columns.insert(0, _part(cost, [replace(cost.specs[0], layers=1, stored=1)]))
        heading = ["one layer", f"all {cost.specs[0].layers}"]
    else:
        heading = [f"all {sum(s.layers for s in cost.specs)}"]
    lines = [*title(cost), "", _row("", heading)]
    lines += [_row(label, [_said(label, read(c)) for c in columns]) for label, read in _lines().items()]
    return "\n".join(lines + ["", *_footnotes(cost)])


def title(cost: Cost) -> list[str]:
    kinds: dict[str, tuple[int, int]] = {}
    for spec in cost.specs:
        layers, stored = kinds.get(_sizes(spec), (0, 0))
        kinds[_sizes(spec)] = layers + spec.layers, stored + spec.stored
    lines = [cost.name, *(f"  {_described(sizes, *count)}" for sizes, count in kinds.items())]
    if cost.origin:
        lines += wrap(cost.origin, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")
    lengths = f"{cost.tokens} tokens"
    if any(s.keys == "source" for s in cost.specs):
        lengths += f" on {cost.source} of the encoder"
    return [*lines, f"  batch {cost.batch}, {lengths}, {cost.dtype}"]


def comparison_text(before: Cost, after: Cost, lines: Mapping[str, Change]) -> str:
    """Before, after, and after / before."""
    heading = _row("", ["before", "after", "ratio"])
    rows = [
        _row(label, [_said(label, c.before), _said(label, c.after), _ratio(c.ratio)]) for label, c in lines.items()
    ]
    same = set(title(before)[1:])
    said = [f"before: {title(before)[0]}", *title(before)[1:]]
    said += [f"after: {title(after)[0]}", *(line for line in title(after)[1:] if line not in same)]
    return "\n".join([*said, "", heading, *rows, "", *_footnotes(before)])


def listing(rows: Sequence[tuple[str, Sequence[Spec]]]) -> str:
    """A line for every known configuration: name and sizes."""
    lines = [f"{'':<17}{'layers':>7}{'d_model':>9}{'heads':>7}{'kv':>5}{'size':>9}   windows, stacks"]
    for name, specs in rows:
        first, layers = specs[0], sum(s.layers for s in specs)
        size = f"{first.head_dim}" if first.head_dim == first.value_dim else f"{first.head_dim}/{first.value_dim}"
        kv = "–" if first.latent is not None else f"{first.kv_heads}"
        stacks = [s for s in dict.fromkeys(s.name for s in specs) if s and not any(x.window for x in specs)]
        windows = [f"{s.layers} of window {s.window}" for s in specs if s.window is not None]
        latent = [] if first.latent is None else [f"latent {first.latent.latent_dim} + {first.latent.rope_dim}"]
        said = ", ".join([*stacks, *windows, *latent])
        lines.append(f"{name:<17}{layers:>7}{first.d_model:>9}{first.heads:>7}{kv:>5}{size:>9}   {said}".rstrip())
    return "\n".join(lines)


def _part(cost: Cost, specs: Sequence[Spec]) -> Cost:
    return replace(cost, specs=tuple(specs))


def _lines() -> Mapping[str, Callable[[Cost], float]]:
    from multihead.measures.cost.cost import LINES  # which imports this module

    return LINES


def _sizes(spec: Spec) -> str:
    seen = "" if spec.window is None else f", window {spec.window}"
    return f"{spec.name}|{spec.shape}, d_model {spec.d_model}{seen}"


def _described(sizes: str, layers: int, stored: int) -> str:
    name, _, said = sizes.partition("|")
    shared = "" if stored == layers else f" (weights of {stored})"
    return f"{f'{name}: ' if name else ''}{layers} layer{'s' if layers > 1 else ''}{shared} of {said}"


def _said(label: str, x: float) -> str:
    if label.startswith(("scores", "KV", "decoding, bytes")):
        return amount(x, "B") if x else "none"
    if label.startswith("decoding"):
        return amount(x) if x else "none"
    if label.startswith("crossover"):
        return "never" if x == float("inf") else f"{x:.0f}"
    return amount(x)


def _ratio(x: float) -> str:
    return "–" if x != x else f"× {x:.3g}"


def _row(label: str, cells: Sequence[str]) -> str:
    width = (WIDTH - _LABEL) // max(len(cells), 3)
    return (f"{label:<{_LABEL}}" + "".join(f"{cell:>{width}}" for cell in cells)).rstrip()


def _footnotes(cost: Cost) -> list[str]:
    text = "FLOPs as torch counts them: every pair of query and key, hidden or not. "
    text += "Crossover: attention takes more FLOPs than the projections in longer sequences."
    if any(s.latent is not None for s in cost.specs):
        text += " Latent attention: all tokens unfolded, decoding absorbed."
    return wrap(text, WIDTH)
