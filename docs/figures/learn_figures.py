"""The drawings of docs/learn. Their numbers come from the code blocks of the pages, or from fixed seeds here."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import multihead as mh
from multihead._base.charts import LINE_COLOURS as COLOURS
from multihead.show.figure.style import PAGE, colour_map, sheet
from multihead.sources.embedded import FOLDER

LEARN = Path(__file__).parents[1] / "learn"
INK, GREY, LIGHT = "#1b2027", "#5b6470", "#dfe3e8"


def values_of(page: str) -> dict[str, Any]:
    """The variables after the Python blocks of a page have run."""
    text = (LEARN / f"{page}.md").read_text(encoding="utf-8")
    values: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            exec(block, values)
    return values


# ---- 1: attention by hand ---------------------------------------------------------------------


def attention_by_hand() -> Any:
    """Scores, weights, values and output of the page's three words."""
    page = values_of("1-attention-by-hand")
    words, parts = page["words"], ["thing", "action"]
    tables = [
        ("scores\n= query · key / √2", page["scores"], words),
        ("weights\n= softmax of each row", page["weights"], words),
        ("values\n", page["v"], parts),
        ("output\n= weights · values", page["z"], parts),
    ]
    with sheet(PAGE, 1.95) as figure:
        axes = figure.subplots(1, 4, width_ratios=[3, 3, 2, 2])
        for one, (title, matrix, columns) in zip(axes, tables, strict=True):
            _table(one, matrix.detach(), words, columns)
            one.set_title(title, fontsize=7.5)
    return figure


def _table(axes: Any, matrix: Tensor, rows: Sequence[str], columns: Sequence[str]) -> None:
    """A matrix with its numbers; the darker a cell, the larger the number."""
    axes.imshow((matrix / matrix.max()).numpy(), cmap=colour_map("weight"), vmin=0, vmax=1, aspect="equal")
    for row, line in enumerate(matrix.tolist()):
        for column, number in enumerate(line):
            dark = number > 0.6 * float(matrix.max())
            axes.text(column, row, f"{number:.2f}", ha="center", va="center", fontsize=6.5,
                      color="white" if dark else INK)  # fmt: skip
    axes.set_xticks(range(len(columns)), labels=columns)
    axes.set_yticks(range(len(rows)), labels=rows)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)


# ---- 2: one head or many ----------------------------------------------------------------------


def one_or_many() -> Any:
    """The maps of four heads, and that of one head on the same matrices."""
    torch.manual_seed(1)
    x = torch.randn(1, 8, 64)
    matrices = [torch.randn(64, 64) / 8 for _ in range(4)]
    maps: list[tuple[str, Tensor]] = []
    for heads in (4, 1):
        layer = mh.MultiHeadAttention(64, heads, bias=False)
        for linear, matrix in zip((layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj), matrices, strict=True):
            linear.weight.data.copy_(matrix.T)
        weights = layer(x, ask="weights").weights[0].detach()
        maps += [(f"head {i}" if heads > 1 else "one head", some) for i, some in enumerate(weights)]
    with sheet(PAGE, 1.6) as figure:
        for place, (title, some) in enumerate(maps):
            axes = figure.add_subplot(1, 5, place + 1)
            axes.imshow(some.sqrt().numpy(), cmap=colour_map("weight"), vmin=0, vmax=1)
            axes.set_title(title, fontsize=8, color=COLOURS[1] if title == "one head" else INK)
            axes.set_xticks([])
            axes.set_yticks([])
    return figure


# ---- 4: what heads learn ----------------------------------------------------------------------

TEXTS = {
    "previous": "<now> <town> the keys that the man near the doors sees are new .",
    "delimiter": "<past> <sea> the boats near his net sank . <now> <farm> my old dog follows the cats .",
    "induction": "Ana Lund says ( whale key fat Ben men ) . Ana Lund says [ whale key fat Ben men ] .",
    "agreement": "<now> <town> the key that the men near the doors see is new .",
}
"""The text on which each kind of head is drawn."""


def clearest(kind: str) -> str:
    """The head of the embedded model with the best score of its kind, or the one that agreement needs."""
    card = json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))
    if kind == "agreement":
        return card["pointing"]["head"]
    scores = {head: about["score"] for head, about in card["kinds"].items() if about["kind"] == kind}
    return max(scores, key=lambda head: scores[head])


def embedded_map(kind: str) -> Any:
    model, tokenizer = mh.embedded()
    ids = tokenizer(TEXTS[kind])["input_ids"]
    with torch.no_grad(), mh.capture(model, keep="qk") as heads:
        model(torch.tensor([ids]))
    head = clearest(kind)
    return mh.figure.attention(heads[head], tokenizer.convert_ids_to_tokens(ids), title=f"{head}: {kind}")


# ---- 5: sharing keys and values ---------------------------------------------------------------


def kv_sharing() -> Any:
    """Eight query heads over eight, two and one kv heads, and over a latent vector."""
    kinds = [("MHA", 8), ("GQA", 2), ("MQA", 1), ("MLA", 0)]
    with sheet(PAGE, 2.1) as figure:
        for place, (name, kv_heads) in enumerate(kinds):
            axes = figure.add_subplot(1, 4, place + 1)
            _sharing(axes, 8, kv_heads)
            stored = f"{2 * kv_heads} vectors" if kv_heads else "1 latent vector\nand 1 rotated key"
            axes.set_title(name, fontsize=9)
            axes.text(3.5, -1.05, f"stored per word:\n{stored}", ha="center", va="top", fontsize=6.5, color=INK)
    return figure


def _sharing(axes: Any, heads: int, kv_heads: int) -> None:
    axes.set_xlim(-0.7, heads - 0.3)
    axes.set_ylim(-2.5, 5.4)
    axes.axis("off")
    for head in range(heads):
        _box(axes, head, 4.4, 0.8, 0.9, "Q", None)
    below = kv_heads or heads
    for kv in range(below):
        group = heads // below
        middle = kv * group + (group - 1) / 2
        for head in range(kv * group, (kv + 1) * group):
            axes.plot([head, middle], [3.95, 3.1], color=GREY, linewidth=0.6, zorder=0)
        for y, letter in ((2.65, "K"), (1.6, "V")):
            _box(axes, middle, y, 0.8, 0.9, letter, COLOURS[0] if kv_heads else None)
        if not kv_heads:
            axes.plot([middle, (heads - 1) / 2], [1.15, 0.4], color=GREY, linewidth=0.6, zorder=0)
    if not kv_heads:
        _box(axes, (heads - 1) / 2 - 0.7, -0.05, 3.4, 0.9, "latent", COLOURS[0])
        _box(axes, (heads - 1) / 2 + 1.9, -0.05, 1.2, 0.9, "K", COLOURS[0])


def _box(axes: Any, x: float, y: float, width: float, height: float, text: str, fill: str | None) -> None:
    """A labelled box around (x, y); filled, if it is stored."""
    from matplotlib.patches import Rectangle

    corner = (x - width / 2, y - height / 2)
    axes.add_patch(
        Rectangle(corner, width, height, facecolor=fill or "white", edgecolor=fill or GREY, linewidth=0.8)
    )
    axes.text(x, y - 0.03, text, ha="center", va="center", fontsize=6.5, color="white" if fill else INK)


# ---- 6: tiles ---------------------------------------------------------------------------------


def attention_tiles() -> Any:
    """Where the map lies: in large memory, or a tile of it in fast memory."""
    with sheet(PAGE, 2.5) as figure:
        for place, tiled in enumerate((False, True)):
            axes = figure.add_subplot(1, 2, place + 1)
            axes.set_xlim(0, 12)
            axes.set_ylim(0, 8.4)
            axes.axis("off")
            axes.set_title("tiles" if tiled else "textbook", fontsize=9)
            _memory(axes, 0.2, 4.6, "GPU memory (HBM): large, slow")
            _memory(axes, 5.2, 7.9, "on the processor (SRAM): small, fast", top=True)
            (_tiled if tiled else _textbook)(axes)
    return figure


def _memory(axes: Any, low: float, high: float, name: str, *, top: bool = False) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((0.1, low), 11.8, high - low, facecolor="#f4f6f8", edgecolor=LIGHT, zorder=-1))
    axes.text(0.3, high - 0.1 if top else low + 0.1, name, fontsize=6, color=GREY, va="top" if top else "bottom")


def _textbook(axes: Any) -> None:
    for x, text in ((1.0, "q k"), (11.0, "out")):
        _box(axes, x, 2.6, 1.1, 1.5, text, None)
    for x, text in ((4.0, "scores\nn × n"), (7.4, "weights\nn × n")):
        _box(axes, x, 2.6, 2.4, 2.4, text, COLOURS[1])
    for x, text in ((2.4, "multiply"), (5.7, "softmax"), (9.3, "times v")):
        _box(axes, x, 6.2, 1.9, 0.9, text, None)
    for start, end in ((1.0, 2.0), (4.0, 5.3), (7.4, 8.9)):
        _arrow(axes, (start, 3.4 if start == 1.0 else 3.85), (end, 5.7))
    for start, end in ((2.8, 4.0), (6.1, 7.4), (9.7, 11.0)):
        _arrow(axes, (start, 5.7), (end, 3.4 if end == 11.0 else 3.85))


def _tiled(axes: Any) -> None:
    _box(axes, 1.0, 2.6, 1.1, 1.5, "q k v", None)
    _box(axes, 11.0, 2.6, 1.1, 1.5, "out", None)
    _box(axes, 4.0, 6.2, 2.2, 1.3, "a tile of\nthe map", COLOURS[0])
    _box(axes, 8.2, 6.2, 2.9, 1.3, "maximum, sum\nand output so far", None)
    _arrow(axes, (1.0, 3.4), (3.3, 5.5))
    _arrow(axes, (5.15, 6.2), (6.7, 6.2))
    _arrow(axes, (8.9, 5.5), (11.0, 3.4))
    axes.text(5.9, 2.6, "the map is never here", ha="center", va="center", fontsize=7, color=GREY)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": GREY, "linewidth": 0.9})


PICTURES: dict[str, Callable[[], Any]] = {
    "attention-by-hand": attention_by_hand,
    "one-or-many": one_or_many,
    "kv-sharing": kv_sharing,
    "attention-tiles": attention_tiles,
    **{f"embedded-{kind}": partial(embedded_map, kind) for kind in TEXTS},
}
