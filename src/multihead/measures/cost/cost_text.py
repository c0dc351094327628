"""Costs as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING

from multihead._base.number_text import amount, number
from multihead._base.plural import plural
from multihead.measures.cost.spec import Spec

if TYPE_CHECKING:
    from multihead.measures.cost.cost import Change, Cost

WIDTH = 80
_LABEL = 30


def cost_text(cost: Cost) -> str:
    """The text of a cost: title, sizes, a table with a column per kind of layer and one for all layers."""
    names = list(dict.fromkeys(s.name for s in cost.specs))
    columns = [_with_specs(cost, [s for s in cost.specs if s.name == name]) for name in names]
    if len(names) > 1:
        columns, heading = [*columns, cost], [*names, "all"]
    elif len(cost.specs) == 1:
        columns.insert(0, _with_specs(cost, [replace(cost.specs[0], layers=1, unique_layers=1)]))
        heading = ["one layer", f"all {cost.specs[0].layers}"]
    else:
        heading = [f"all {sum(s.layers for s in cost.specs)}"]
    lines = [*title(cost), "", _row("", heading)]
    lines += [_row(label, cells) for label, *cells in zip(LINES, *map(cost_cells, columns), strict=True)]
    return "\n".join(lines + ["", *_footnotes(cost)])


def title(cost: Cost) -> list[str]:
    """The title of the text: name, sizes, origin and lengths."""
    kinds: dict[str, tuple[int, int]] = {}
    for spec in cost.specs:
        layers, unique = kinds.get(_sizes(spec), (0, 0))
        kinds[_sizes(spec)] = layers + spec.layers, unique + spec.unique_layers
    lines = [cost.name, *(f"  {_describe(sizes, *count)}" for sizes, count in kinds.items())]
    if cost.origin:
        lines += wrap(cost.origin, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")
    lengths = plural(cost.tokens, "token")
    if any(s.keys == "source" for s in cost.specs):
        lengths += f" on {cost.source} of the encoder"
    return [*lines, f"  batch {cost.batch}, {lengths}, {cost.dtype}"]


def comparison_text(before: Cost, after: Cost, lines: Mapping[str, Change]) -> str:
    """The text of two costs: a table of before, after, and after / before."""
    heading = _row("", ["before", "after", "ratio"])
    rows = [
        _row(label, [_format(label, c.before), _format(label, c.after), _ratio(c.ratio)])
        for label, c in lines.items()
    ]
    same = set(title(before)[1:])
    titles = [f"before: {title(before)[0]}", *title(before)[1:]]
    titles += [f"after: {title(after)[0]}", *(line for line in title(after)[1:] if line not in same)]
    return "\n".join([*titles, "", heading, *rows, "", *_footnotes(before)])


def known_models_text(rows: Sequence[tuple[str, Sequence[Spec]]]) -> str:
    """The text of `multihead cost --list`: the sizes of models, one line each."""
    lines = [f"{'':<17}{'layers':>7}{'d_model':>9}{'heads':>7}{'kv':>5}{'size':>9}   windows, stacks"]
    for name, specs in rows:
        first, layers = specs[0], sum(s.layers for s in specs)
        size = f"{first.head_dim}" if first.head_dim == first.value_dim else f"{first.head_dim}/{first.value_dim}"
        kv = "–" if first.latent is not None else f"{first.kv_heads}"
        stacks = [s for s in dict.fromkeys(s.name for s in specs) if s and not any(x.window for x in specs)]
        windows = [f"{s.layers} of window {s.window}" for s in specs if s.window is not None]
        latent = [] if first.latent is None else [f"latent {first.latent.latent_dim} + {first.latent.rope_dim}"]
        notes = ", ".join([*stacks, *windows, *latent])
        lines.append(f"{name:<17}{layers:>7}{first.d_model:>9}{first.heads:>7}{kv:>5}{size:>9}   {notes}".rstrip())
    return "\n".join(lines)


def _with_specs(cost: Cost, specs: Sequence[Spec]) -> Cost:
    return replace(cost, specs=tuple(specs))


LINES: Mapping[str, Callable[[Cost], float]] = {
    "parameters": lambda c: c.total.parameters,
    "FLOPs, projections": lambda c: c.total.projection_flops,
    "FLOPs, attention": lambda c: c.total.attention_flops,
    "FLOPs, visible pairs only": lambda c: c.total.useful_flops,
    "scores, if written out": lambda c: c.total.score_bytes,
    "KV cache": lambda c: c.total.cache_bytes,
    "decoding, FLOPs per token": lambda c: c.total.decode_projection_flops + c.total.decode_attention_flops,
    "decoding, bytes per token": lambda c: c.total.decode_bytes,
    "FLOPs per byte, all tokens": lambda c: c.prefill_intensity,
    "FLOPs per byte, decoding": lambda c: c.decode_intensity,
    "crossover, tokens": lambda c: c.crossover,
    "crossover, visible pairs only": lambda c: c.useful_crossover,
}
"""Rows of a comparison, in display order."""


def _sizes(spec: Spec) -> str:
    window = "" if spec.window is None else f", window {spec.window}"
    return f"{spec.name}|{spec.shape}, d_model {spec.d_model}{window}"


def _describe(sizes: str, layers: int, unique: int) -> str:
    name, _, shape = sizes.partition("|")
    shared = "" if unique == layers else f" (weights of {unique})"
    return f"{f'{name}: ' if name else ''}{plural(layers, 'layer')}{shared} of {shape}"


def _format(label: str, x: float) -> str:
    """One cost as text, in the unit of its row."""
    if label.startswith(("scores", "KV", "decoding, bytes")):
        return amount(x, "B") if x else "none"
    if label.startswith("decoding"):
        return amount(x) if x else "none"
    if label.startswith("crossover"):
        return "never" if x == float("inf") else f"{x:.0f}"
    return amount(x)


def cost_cells(cost: Cost) -> list[str]:
    """The costs as text, in the order of `LINES`."""
    return [_format(label, read(cost)) for label, read in LINES.items()]


def _ratio(x: float) -> str:
    return number(x) if x != x else f"× {number(x)}"


def _row(label: str, cells: Sequence[str]) -> str:
    width = (WIDTH - _LABEL) // max(len(cells), 3)
    return (f"{label:<{_LABEL}}" + "".join(f"{cell:>{width}}" for cell in cells)).rstrip()


def _footnotes(cost: Cost) -> list[str]:
    """Notes below the table of costs: how FLOPs are counted."""
    text = "FLOPs as torch counts them: every pair of query and key, hidden or not. "
    text += "Crossover: attention takes more FLOPs than the projections in longer sequences."
    if any(s.latent is not None for s in cost.specs):
        text += " Latent attention: all tokens unfolded, decoding absorbed."
    return wrap(text, WIDTH)
