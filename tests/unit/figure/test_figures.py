"""Figures: what stands where, that nothing is cut off, and that odd words do no harm."""

from __future__ import annotations

import math
import sys
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import EllipseCollection
from matplotlib.colors import to_hex, to_rgb

import multihead as mh
from multihead._base.charts import KIND_COLOURS, NO_VALUE, HeadGrid, shade
from multihead._base.share_words import SHARE_NAMES, SHARES
from multihead.edit.check.curve import Curve, Point
from multihead.edit.layer_plan import LayerPlan
from multihead.edit.plan import Plan
from multihead.errors import MultiheadError, SizeError
from multihead.measures.similarity.similarity_result import Similarity
from multihead.model.capture import Capture
from multihead.show.figure.draw import draw_head_grid
from multihead.show.figure.style import labels_step, sheet, short
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable

ODD = [
    "<b>&",
    "$x_1$",
    "日本語",
    "🙂👩‍👩‍👧",
    "\x00\n\t",
    "\u202eabc",
    "שלום",
    "a" * 10_000,
    "",
    "##ing",
    "Ġthe",
    "\\alpha{",
    "%",
]


def table(layers: int = 3, heads: int = 5, **columns: object) -> HeadTable:
    names = tuple(f"L{layer}H{head}" for layer in range(layers) for head in range(heads))
    return HeadTable(names, columns, {name: ColumnInfo("share", "") for name in columns})  # type: ignore[arg-type]


def drawn(figure: object) -> np.ndarray:
    """The pixels, as they are without cutting the rim off."""
    canvas = FigureCanvasAgg(figure)  # type: ignore[arg-type]
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def words(figure: object) -> set[str]:
    kept = BytesIO()
    figure.savefig(kept, format="svg")  # type: ignore[attr-defined]
    root = ElementTree.fromstring(kept.getvalue())
    return {"".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")}


def small() -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(15, 5, batch_first=True), 2, enable_nested_tensor=False
    ).eval()
    return model, 3 * torch.randn(2, 7, 15)


def captured() -> tuple[Capture, torch.Tensor]:
    model, x = small()
    with torch.no_grad(), mh.capture(model, keep="qk") as heads:
        model(x)
    return heads, x


# ---- the map ----------------------------------------------------------------------------------


def test_a_map_shows_the_weights_where_they_are() -> None:
    weights = torch.zeros(3, 3)
    weights[0, 2] = weights[1, 0] = 1.0
    weights[2, 1] = 0.25
    figure = mh.figure.attention(weights, ["x", "y", "z"])
    picture = figure.axes[0].images[0]
    assert np.array_equal(picture.get_array(), weights.numpy())
    shade = lambda w: to_hex(picture.cmap(picture.norm(w)))
    assert shade(0.0) == "#ffffff"
    assert picture.norm(0.25) == pytest.approx(0.5), "by the root"
    axes = figure.axes[0]
    assert [t.get_text() for t in axes.get_xticklabels()] == [t.get_text() for t in axes.get_yticklabels()]
    assert axes.get_ylim() == (2.5, -0.5), "the first query is at the top"
    assert axes.xaxis.get_label_position() == "top"


def test_a_map_of_a_captured_head_is_its_weights() -> None:
    heads, _ = captured()
    figure = mh.figure.attention(heads["L1H3"], sequence=1)
    shown = figure.axes[0].images[0].get_array()
    assert np.allclose(shown, heads["L1H3"].weights()[1].numpy())
    assert figure.axes[0].get_title() == "L1H3"
    assert {"0", "6", "query", "key", "weight"} <= words(figure)
    with pytest.raises(SizeError, match="the batch has 2 sequences, got sequence=2"):
        mh.figure.attention(heads["L1H3"], sequence=2)


def test_queries_of_a_cache_are_the_last_tokens_and_of_cross_attention_their_own() -> None:
    last = mh.figure.attention(torch.full((2, 5), 0.2), list("abcde"))
    assert [t.get_text() for t in last.axes[0].get_yticklabels()] == ["d", "e"]
    cross = mh.figure.attention(torch.full((3, 2), 0.5), ["le", "chat"], queries=["the", "cat", "."])
    assert [t.get_text() for t in cross.axes[0].get_yticklabels()] == ["the", "cat", "."]
    for tokens, queries, said in [
        (["a"], None, "1 tokens cannot label 2 keys"),
        ("ab", None, "the text 'ab' cannot label 2 keys"),
        (["a", "b"], ["a"], "1 tokens cannot label 2 queries"),
    ]:
        with pytest.raises(SizeError, match=said):
            mh.figure.attention(torch.full((2, 2), 0.5), tokens, queries=queries)


def test_lists_and_ids_are_taken_and_what_is_no_map_is_refused() -> None:
    drawn = mh.figure.attention([[1.0, 0.0], [0.25, 0.75]], [5, 7])
    axes = drawn.axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["5", "7"]
    assert axes.images[0].get_array().tolist() == [[1.0, 0.0], [0.25, 0.75]]
    with pytest.raises(mh.MultiheadError, match="must be a matrix of numbers, got list"):
        mh.figure.attention([[1.0, 0.0], [0.25]])


def test_the_darkest_weight_is_1_or_what_was_asked() -> None:
    weights = torch.full((2, 2), 0.1)
    assert mh.figure.attention(weights).axes[0].images[0].norm.vmax == 1.0
    assert mh.figure.attention(weights, top=None).axes[0].images[0].norm.vmax == pytest.approx(0.1)
    assert mh.figure.attention(torch.zeros(2, 2), top=None).axes[0].images[0].norm.vmax == 1.0
    with pytest.raises(SizeError, match=r"top must be in \(0, 1\] or None, got 0\.0"):
        mh.figure.attention(weights, top=0.0)
    with pytest.raises(SizeError, match=r"got \(0, 3\)"):
        mh.figure.attention(torch.zeros(0, 3))


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_odd_tokens_are_drawn_as_text(ending: str, tmp_path: Path) -> None:
    count = len(ODD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = mh.figure.attention(torch.full((count, count), 1 / count), ODD, title="$\\frac{1}$ <script>")
        figure.savefig(tmp_path / f"map.{ending}")
    assert (tmp_path / f"map.{ending}").stat().st_size > 5000
    if ending == "svg":
        said = words(figure)
        assert {"<b>&", "$x_1$", "日本語", "␀␊␉", "⟨U+202E⟩abc", "the", "∅", "aaaaaaaaaaaaa…"} <= said
        assert "$\\frac{1}$ <script>" in said


@pytest.mark.parametrize("count", [1, 2, 13, 61, 211])
def test_no_label_is_cut_off(count: int) -> None:
    tokens = [f"extraordinarily{i}" for i in range(count)]
    pixels = drawn(mh.figure.attention(torch.full((count, count), 1 / count), tokens))
    rim = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    assert (rim == 255).all()


def test_labels_never_lie_over_each_other() -> None:
    for count in (5, 40, 90, 400):
        figure = mh.figure.attention(torch.full((count, count), 1 / count), ["word"] * count)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        boxes = [t.get_window_extent() for t in figure.axes[0].get_yticklabels()]
        gaps = [b.y0 - a.y0 for a, b in zip(boxes[1:], boxes, strict=False)]
        assert min(gaps) > 0.8 * figure.dpi / 72 * 5, count
        assert len(boxes) == count if count <= 40 else len(boxes) > 10


# ---- all heads of a layer ---------------------------------------------------------------------


def test_all_heads_of_a_layer() -> None:
    heads, _ = captured()
    figure = mh.figure.layer(heads, 1, list("abcdefg"), columns=3)
    maps = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in maps] == ["L1H0", "L1H1", "L1H2", "L1H3", "L1H4"]
    for at, axes in enumerate(maps):
        assert np.allclose(axes.images[0].get_array(), heads[1, at].weights()[0].numpy())
    assert [t.get_text() for t in maps[3].get_yticklabels()] == list("abcdefg")
    assert not maps[1].get_yticklabels()
    assert figure.get_size_inches()[0] == 7.0
    assert mh.figure.layer(heads, "L0", columns=2).get_size_inches()[0] == 3.35
    with pytest.raises(SizeError, match="unknown layer 'L9'"):
        mh.figure.layer(heads, "L9")
    with pytest.raises(SizeError, match="columns must be at least 1, got 0"):
        mh.figure.layer(heads, 0, columns=0)


def test_a_layer_of_which_nothing_was_kept() -> None:
    model, x = small()
    with torch.no_grad(), mh.capture(model) as bare:
        model(x)
    with pytest.raises(MultiheadError, match=r"kept no map of L0.*\n*hint: mh.capture\(model, keep='qk'\)"):
        mh.figure.layer(bare, "L0")


# ---- the grid ---------------------------------------------------------------------------------


def circles(figure: object) -> EllipseCollection:
    return next(c for c in figure.axes[0].collections if isinstance(c, EllipseCollection))  # type: ignore[attr-defined]


def test_colour_is_the_kind_size_the_worth_and_hollow_can_go() -> None:
    kinds = ("previous", "broad") * 7 + ("match, 0.18",)
    worth = torch.arange(15).double()
    figure = mh.figure.grid(table(kind=kinds, ablation_zero=worth), hollow=["L1H2", "2.4"])
    dots = circles(figure)
    assert dots.get_offsets().tolist()[7] == [2, 1], "head across, layer down"
    assert [to_hex(c) for c in dots.get_edgecolors()] == [KIND_COLOURS[k] for k in kinds[:14]] + ["#9c2ce6"]
    hollow = [i for i, c in enumerate(dots.get_facecolors()) if to_hex(c) == "#ffffff"]
    assert hollow == [7, 14]
    wide = dots.get_widths()
    assert wide[0] == pytest.approx(0.22)
    assert wide[14] == pytest.approx(0.86)
    assert wide[7] == pytest.approx(0.22 + 0.64 * (7 / 14) ** 0.5)
    said = words(figure)
    assert {
        "previous (7)",
        "broad (7)",
        "match (1)",
        "can be pruned (2)",
        "size: ablation_zero",
        "L2",
        "head",
        "layer",
    } <= said
    axes = figure.axes[0]
    assert axes.get_ylim() == (2.5, -0.5)


def test_a_plan_says_which_heads_go() -> None:
    plan = Plan(
        (LayerPlan("L0", "a", 5, 5, (0, 1, 2, 4)), LayerPlan("L1", "b", 5, 5, (0, 1, 2, 3, 4))), "M", "0" * 16
    )
    dots = circles(mh.figure.grid(table(2, kind=("self",) * 10), hollow=plan))
    assert [i for i, c in enumerate(dots.get_facecolors()) if to_hex(c) == "#ffffff"] == [3]
    with pytest.raises(SizeError, match="unknown head"):
        mh.figure.grid(table(2, kind=("self",) * 10), hollow=["L7H1"])


def _shows(figure: object, x: float, y: float, colour: str) -> bool:
    """Whether this colour is really there, a third of a cell beside its middle; a channel may be off by one."""
    pixels = drawn(figure)
    axes = figure.axes[0]  # type: ignore[attr-defined]
    across, up = axes.transData.transform((x + 0.3, y + 0.3))
    seen = pixels[pixels.shape[0] - 1 - round(up), round(across)]
    return bool((abs(seen - 255 * np.array(to_rgb(colour))) < 1.5).all())


def test_by_a_measure_with_a_number_missing_and_layers_of_fewer_heads() -> None:
    heads = ("L0H0", "L0H1", "L0H2", "decoder.L1H0", "decoder.L1H1")
    numbers = torch.tensor([0.1, 0.2, torch.nan, 0.4, 0.5])
    whole = HeadTable(heads, {"entropy": numbers}, {"entropy": ColumnInfo("nats", "")})
    figure = mh.figure.grid(whole)
    cells = figure.axes[0].images[0].get_array()
    assert np.allclose(cells.filled(-1), [[0.1, 0.2, -1], [0.4, 0.5, -1]])
    assert _shows(figure, 0, 0, shade("measure", 0.0))
    assert _shows(figure, 1, 1, shade("measure", 1.0))
    assert _shows(figure, 2, 0, NO_VALUE), "a head without a number"
    assert _shows(figure, 2, 1, "#ffffff"), "no head at all"
    said = words(figure)
    assert {"entropy (nats)", "decoder.L1", "head (grey: no entropy)"} <= said
    signed = mh.figure.grid(table(1, 3, x=torch.tensor([-0.5, 0.0, 0.25])), "x").axes[0].images[0]
    assert (signed.norm.vmin, signed.norm.vmax) == (-0.5, 0.5), "0 is in the middle where there are both signs"
    nothing = mh.figure.grid(table(1, 3, x=torch.full((3,), torch.nan)))
    drawn(nothing)


def test_a_grid_of_128_by_128_heads() -> None:
    kinds = ("first", "induction") * 8192
    figure = mh.figure.grid(table(128, 128, kind=kinds, importance=torch.rand(16384)))
    assert figure.get_size_inches()[0] <= 7.01
    assert (drawn(figure)[0] == 255).all()
    assert len(figure.axes[0].get_yticks()) < 128


def test_a_grid_that_cannot_be() -> None:
    with pytest.raises(SizeError, match="no heads to draw"):
        mh.figure.grid(HeadTable((), {}, {}))
    with pytest.raises(MultiheadError, match="no column to colour"):
        mh.figure.grid(table(words_=("a",) * 15))
    with pytest.raises(SizeError, match="unknown column 'y'"):
        mh.figure.grid(table(kind=("self",) * 15), "y")
    with pytest.raises(MultiheadError, match="holds words"):
        mh.figure.grid(table(kind=("self",) * 15), size="kind")
    other = mh.figure.grid(table(word=("$a", "<b>", "") * 5), "word")
    assert {"$a (5)", "<b> (5)", "∅ (5)"} <= words(other)


# ---- pairs ------------------------------------------------------------------------------------


def similarity(count: int = 7) -> Similarity:
    torch.manual_seed(0)
    far = torch.rand(count, count) * 0.2
    cka = ((far + far.T) / 2).fill_diagonal_(1.0)
    cka[1, 5] = cka[5, 1] = 0.95
    cka[2, 6] = cka[6, 2] = 0.9
    names = tuple(f"L{i // 3}H{i % 3}" for i in range(count))
    pairs = {"cka": cka, "correlation": cka - 0.5, "attention": 1 - cka}
    return Similarity(names, pairs, {}, {"tokens": 5, "notes": []})


def test_heads_that_are_alike_stand_together() -> None:
    found = similarity()
    figure = mh.figure.similarity(found)
    names = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert names == list(found.order)
    at = [found.heads.index(n) for n in names]
    assert np.allclose(figure.axes[0].images[0].get_array(), found["cka"][at][:, at].numpy())
    frames = figure.axes[0].patches
    assert len(frames) == 4, "two clusters, framed twice"
    places = sorted([names.index("L0H1"), names.index("L1H2")])
    assert any(p.get_x() == places[0] - 0.5 and p.get_width() == 2 for p in frames)


def test_in_the_order_of_the_model_and_by_other_measures() -> None:
    found = similarity()
    figure = mh.figure.similarity(found, "correlation", order="layers")
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == list(found.heads)
    assert figure.axes[0].images[0].norm.vmin == -1
    assert len(figure.axes[0].lines) == 4, "a line down and one across between two of three layers"
    near = mh.figure.similarity(found, "attention").axes[0].images[0]
    assert to_hex(near.cmap(near.norm(0.0))) == shade("measure", 1.0), "the nearest is the brightest"
    with pytest.raises(SizeError, match="unknown measure 'x'"):
        mh.figure.similarity(found, "x")
    with pytest.raises(SizeError, match="got 'x'"):
        mh.figure.similarity(found, order="x")  # type: ignore[arg-type]


# ---- the curve --------------------------------------------------------------------------------


def test_the_curve_begins_at_the_original() -> None:
    points = [Point("obs", k / 12, k, {"cosine": c}) for k, c in {3: 0.6, 9: 0.99, 6: 0.97}.items()]
    points += [Point("ran$dom", k / 12, k, {"cosine": c}) for k, c in {9: 0.9, 3: 0.3}.items()]
    figure = mh.figure.curve(Curve(tuple(points), "cosine", {"cosine": 1.0}, 12, 40))
    obs, random = figure.axes[0].lines[:2]
    assert obs.get_xydata().tolist() == [[12, 1.0], [9, 0.99], [6, 0.97], [3, 0.6]]
    assert random.get_xydata().tolist() == [[12, 1.0], [9, 0.9], [3, 0.3]]
    assert figure.axes[0].xaxis_inverted()
    assert {"obs", "knee: 6 heads", "heads kept, of 12"} <= words(figure)


# ---- manners ----------------------------------------------------------------------------------


def test_pyplot_and_the_settings_of_the_user_are_left_alone(tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    figure = mh.figure.attention(torch.eye(3))
    figure.savefig(tmp_path / "a.pdf")
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_letters_stay_letters_and_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        mh.figure.attention(torch.eye(3), ["one", "two", "three"]).savefig(tmp_path / name, metadata={"Date": None})
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert ">three</text>" in (tmp_path / "a.svg").read_text()
    mh.figure.attention(torch.eye(3), ["one", "two", "three"]).savefig(tmp_path / "a.pdf")
    assert b"/Type3" not in (tmp_path / "a.pdf").read_bytes(), "letters as TrueType, which journals ask for"


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "multihead.show.figure.figure", raising=False)
    with pytest.raises(MultiheadError, match=r"not installed\n\nhint: pip install 'multihead\[plots\]'"):
        mh.figure.attention(torch.eye(2))


def test_shares_of_a_head_are_a_ring() -> None:
    shares = np.array([[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]])
    chart = HeadGrid(
        ("L0H0", "L0H1"), shares=shares, parts=("a", "b", "c"), part_colours=("#ff0000", "#00ff00", "#0000ff")
    )
    with sheet(2, 2) as figure:
        axes = figure.add_subplot()
        axes.set(xlim=(-0.5, 1.5), ylim=(0.5, -0.5), aspect="equal")
        draw_head_grid(figure, axes, chart)
    (rings,) = axes.collections
    assert [to_hex(c) for c in rings.get_facecolors()] == ["#ff0000", "#00ff00", "#0000ff"]
    assert {"a", "b", "c"} <= words(figure)
    pixels = drawn(figure)

    def seen(x: float, y: float) -> list[int]:
        across, up = axes.transData.transform((x, y))
        return pixels[pixels.shape[0] - 1 - round(up), round(across)].tolist()

    assert seen(0.28, -0.28) == [255, 0, 0], "clockwise from the top: the first quarter is at the upper right"
    assert seen(-0.28, 0.28) == [0, 255, 0]


def test_short_words_and_room() -> None:
    assert short("x" * 14) == "x" * 14
    assert short("x" * 15) == "x" * 13 + "…"
    assert labels_step(10, 10.0) == 1
    assert labels_step(100, 1.0, 6.0) == 10


def with_shares(leading: tuple[str, ...] = ("position", "word + match", "")) -> HeadTable:
    """Three heads: the last has no shares."""
    rows = torch.tensor([[0.1, 0.1, 0.8, 0.0, 0.0], [0.5, 0.1, 0.0, 0.2, 0.2], [math.nan] * 5])
    columns: dict[str, Any] = {name: rows[:, i] for i, name in enumerate(SHARE_NAMES)}
    columns |= {"leading": leading, "kind": ("previous", "word + match, 0.40", "dead")}
    return HeadTable(("L0H0", "L0H1", "L1H0"), columns, {name: ColumnInfo("", "") for name in columns})


def test_the_grid_shows_shares_where_they_were_measured() -> None:
    figure = mh.figure.grid(with_shares(), hollow=["L0H0"])
    rings, discs = figure.axes[0].collections
    colour = {share.name: share.colour for share in SHARES}
    first, second = ("spread", "rest", "position"), ("spread", "rest", "word", "match")
    assert [to_hex(c) for c in rings.get_facecolors()] == [*(colour[n] for n in (*first, *second)), NO_VALUE]
    assert [to_hex(c) for c in discs.get_edgecolors()] == [colour[n] for n in ("position", "word", "match")]
    assert to_hex(discs.get_facecolors()[0]) == "#ffffff", "a head that can be pruned is hollow"
    assert {"position (1)", "match (0)", "rest (0)", "two lead (1)", "can be pruned (1)"} <= words(figure)
    by_kind = mh.figure.grid(with_shares(), "kind")
    assert {"previous (1)", "word + match (1)"} <= words(by_kind)


def test_the_grid_without_shares_shows_kinds() -> None:
    """Tables of 0.1.0 have no shares; a model whose attention could not be split has empty ones."""
    empty = with_shares(("", "", ""))
    old = empty.select([name for name in empty.columns if name != "leading"])
    for table in (old, empty):
        assert "dead (1)" in words(mh.figure.grid(table))
    with pytest.raises(MultiheadError, match="unknown column 'shares'"):
        mh.figure.grid(old, "shares")
