"""What objects show in a notebook: escaped, small, whole, and as the numbers are."""

from __future__ import annotations

import math
import re
import zlib
from base64 import b64decode
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import multihead as mh
from multihead._base.chart_html import head_grid_html, heatmap_html, line_chart_html
from multihead._base.charts import HeadGrid, Heatmap, Line, LineChart, pooled
from multihead._base.number_text import number
from multihead.edit.check.check import CheckReport
from multihead.edit.check.curve import Curve, Point
from multihead.edit.check.metrics import Quality
from multihead.edit.layer_plan import LayerPlan
from multihead.edit.plan import Plan
from multihead.measures.kinds.evidence import Driven, Evidence, Score
from multihead.measures.kinds.head_shares import SHARES, HeadShares
from multihead.measures.similarity.similarity_result import Similarity
from multihead.statements.statement import Comparison, Result, Side, Statement
from multihead.statements.theory import Row, Theory
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable

EVIL = "</table><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u202e\x00"
VOID = {"img", "br"}


class Reader(HTMLParser):
    """Tags that open and close as they should, the words between them, and what they point to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words: list[str] = []
        self.pictures: list[bytes] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        given = dict(attrs)
        assert not any(name.startswith("on") for name in given)
        for name in ("src", "href"):
            if name in given:
                assert str(given[name]).startswith("data:image/png;base64,")
                self.pictures.append(b64decode(str(given[name]).partition(",")[2]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    assert not {"script", "a", "iframe", "link", "object"} & set(reader.seen)
    assert len(html.encode()) < 100_000
    assert "url(" not in html
    return reader


def pixels(file: bytes) -> np.ndarray:
    """The palette numbers of a picture."""
    assert file.startswith(b"\x89PNG")
    across, down = (int.from_bytes(file[i : i + 4], "big") for i in (16, 20))
    start = file.index(b"IDAT") + 4
    return np.frombuffer(zlib.decompress(file[start:]), np.uint8).reshape(down, across + 1)[:, 1:]


def gpt2(layers: int = 2, heads: int = 3) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=layers, n_head=heads, n_embd=7 * heads, vocab_size=53, n_positions=600, initializer_range=0.3
    )
    return GPT2LMHeadModel(config).eval()


TEXTS = torch.randint(0, 53, (9, 17), generator=torch.Generator().manual_seed(0)).tolist()


# ---- captured heads ---------------------------------------------------------------------------


def test_a_head_shows_its_map() -> None:
    model = gpt2()
    with torch.no_grad(), mh.capture(model, keep="qk") as heads:
        model(input_ids=torch.tensor(TEXTS))
    found = read(heads["L1H2"]._repr_html_())
    weights = heads["L1H2"].weights()[0].numpy()
    assert np.array_equal(pixels(found.pictures[0]), np.round(255 * np.sqrt(weights)).astype(np.uint8))
    said = " ".join(found.words)
    assert "L1H2" in said
    assert f"{heads['L1H2'].mean('entropy'):.3g}" in said
    assert "17 queries down, 17 keys across" in said
    sheet = read(heads._repr_html_())
    assert pixels(sheet.pictures[0]).shape == (2 * 18, 3 * 18)
    assert np.array_equal(pixels(sheet.pictures[0])[18:35, 36:53], pixels(found.pictures[0]))


def test_without_maps_there_is_a_table_and_how_to_get_them() -> None:
    model = gpt2()
    with torch.no_grad(), mh.capture(model) as heads:
        model(input_ids=torch.tensor(TEXTS))
    for shown in (heads, heads["L0H0"]):
        found = read(shown._repr_html_())
        assert not found.pictures
        assert "keep='qk'" in " ".join(found.words)
    assert "L1H2" in " ".join(read(heads._repr_html_()).words)
    with torch.no_grad(), mh.capture(model, statistics=None, keep="outputs") as bare:
        model(input_ids=torch.tensor(TEXTS))
    assert "keep='qk'" in " ".join(read(bare._repr_html_()).words)
    read(bare["L0H0"]._repr_html_())


def test_long_texts_and_many_heads_stay_small() -> None:
    model = gpt2(12, 12)
    with torch.no_grad(), mh.capture(model, keep="qk") as heads:
        model(input_ids=torch.randint(0, 53, (1, 521)))
    one = read(heads["L11H11"]._repr_html_())
    assert pixels(one.pictures[0]).shape == (256, 256)
    assert "one cell is up to 3 tokens" in " ".join(one.words)
    sheet = pixels(read(heads._repr_html_()).pictures[0])
    assert sheet.size < 60_000


def test_a_map_too_large_to_compute_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multihead.model.capture_html.WORK", 100)
    model = gpt2()
    with torch.no_grad(), mh.capture(model, keep="qk") as heads:
        model(input_ids=torch.tensor(TEXTS))
    assert "17 × 17 cells: use weights(rows=[...])" in read(heads["L0H0"]._repr_html_()).words[-1]
    assert not read(heads._repr_html_()).pictures


# ---- numbers of heads -------------------------------------------------------------------------


def test_what_was_measured_shows_itself() -> None:
    model = gpt2()
    kinds, worth = mh.kinds(model, TEXTS), mh.importance(model, TEXTS, method="all", replace="zero")
    said = read(kinds._repr_html_()).words
    assert "L1H2" in said
    assert all(e.kind in " ".join(said) for e in kinds)
    ranked = [w for w in read(worth._repr_html_()).words if re.fullmatch(r"L\dH\d", w)]
    order = worth.table.sort("rank").heads
    assert ranked == list(order)
    assert any("ρ = " in w for w in read(worth._repr_html_()).words)
    alike = mh.similarity(model, TEXTS)
    found = read(alike._repr_html_())
    at = list(alike.clusters.order)
    expected = 1 + np.round(254 * alike["cka"][at][:, at].double().clamp(0, 1).numpy())
    assert np.array_equal(pixels(found.pictures[0]), expected.astype(np.uint8))
    theory = mh.theory(model, TEXTS, only=["2", "16"])
    assert "L1" in mh.measure(model, TEXTS)._repr_html_()
    assert read(theory._repr_html_()).seen.count("tr") == 3


def test_what_is_text_in_a_terminal_is_text_or_a_table() -> None:
    best = Score("previous", "", 0.75, 0.5, 0.125, EVIL, 0.625, 0.875, 7)
    other = Score("window", EVIL, 0.25, 0.7, 0.1, "chance", math.nan, math.nan, 2)
    shares = HeadShares("L1H2", dict.fromkeys(SHARES, 0.2), dict.fromkeys(SHARES, 0.1))
    found = Evidence("L1H2", "previous", best, (other,), Driven("position", 0.5, 0.4, 0.6, 0.7, 0.2), EVIL, shares)
    words = read(found._repr_html_()).words
    assert words.index("0.75") < words.index("0.62 to 0.88") < words.index("0.12") < words.index("0.25")
    assert any("– to –" in word for word in words)
    told = mh.MultiHeadAttention(12, num_heads=3).explain(torch.randn(1, 5, 12))
    assert str(told) == "".join(read(told._repr_html_()).words)
    cost = mh.cost("bert-base", tokens=128)
    assert str(cost) == "".join(read(cost._repr_html_()).words)


def test_many_heads_stay_small() -> None:
    names = tuple(f"L{i // 32}H{i % 32}" for i in range(32 * 23))
    numbers = {f"column{i}": torch.rand(len(names)) for i in range(30)}
    table = HeadTable(names, numbers, {n: ColumnInfo("share", "what it means") for n in numbers})
    read(table._repr_html_())
    near = torch.rand(len(names), len(names))
    found = Similarity(names, {"cka": near}, {}, {"tokens": 7, "notes": []})
    read(found._repr_html_())


def test_nothing_that_is_shown_is_markup() -> None:
    name = "L0H0"
    meaning = {EVIL: ColumnInfo(EVIL, EVIL), "kind": ColumnInfo("", EVIL)}
    table = HeadTable((name,), {EVIL: torch.ones(1), "kind": (EVIL,)}, meaning, {"kind": {name: EVIL}})
    layer = LayerPlan("L0", EVIL, 3, 3, (0, 2))
    plan = Plan((layer,), EVIL, EVIL, EVIL, EVIL, {}, (EVIL,))
    check = CheckReport({"parameters": (1.0, 2.0)}, Quality("outputs", {}, 1, 2, (EVIL,)), {}, (EVIL,))
    points = tuple(Point(EVIL, k / 3, k, {"cosine": k / 3}) for k in (1, 2))
    curve = Curve(points, "cosine", {"cosine": 1.0}, 3, 5, (EVIL,))
    result = Result(Comparison(Side(EVIL, 0.0), "=", Side(EVIL, 0.0)), EVIL)
    theory = Theory((Row(Statement("1", EVIL, EVIL, EVIL, lambda layer: result), "L0", result),), EVIL)
    for shown in (table, plan, check, curve, theory):
        found = read(shown._repr_html_())
        assert "alert(1)" in "".join(found.words)


# ---- cutting ----------------------------------------------------------------------------------


def test_a_plan_a_check_and_a_curve() -> None:
    model = gpt2()
    plan = mh.plan(model, TEXTS, keep=0.5)
    assert "3 of 6 heads kept" in " ".join(read(plan._repr_html_()).words)
    small = mh.cut(model, plan)
    check = mh.check(model, small, TEXTS, rounds=0)
    said = read(check._repr_html_()).words
    assert all(cell in " ".join(said) for row in check.rows() for cell in row)
    points = [Point("obs", k / 12, k, {"perplexity": 20.0 - k}) for k in (9, 6, 3)]
    points += [Point("random", 0.5, 6, {"perplexity": float("inf")})]
    found = read(Curve(tuple(points), "perplexity", {"perplexity": 8.0}, 12, 40)._repr_html_())
    assert found.seen.count("polyline") == 2
    assert "obs" in found.words
    nothing = Plan.whole(model, mh.anatomy(model))
    assert "6 of 6 heads kept" in " ".join(read(nothing._repr_html_()).words)


# ---- pieces -----------------------------------------------------------------------------------


def test_pooling_keeps_the_largest_of_those_that_fall_together() -> None:
    cells = np.arange(7 * 5, dtype=np.float64).reshape(7, 5)
    assert np.array_equal(pooled(cells, 9), cells)
    small = pooled(cells, 2)
    assert small.tolist() == [
        [cells[:3, :2].max(), cells[:3, 2:].max()],
        [cells[3:, :2].max(), cells[3:, 2:].max()],
    ]


def test_pictures_of_numbers_that_are_none() -> None:
    cells = np.array([[0.0, 1.0, np.nan], [2.0, -1.0, 0.5]])
    shades = lambda chart: pixels(read(heatmap_html(chart, side=99)).pictures[0]).tolist()
    assert shades(Heatmap.attention(cells)) == [[0, 255, 0], [255, 0, 180]]
    assert shades(Heatmap(cells)) == [[1, 255, 0], [255, 1, 128]]
    assert shades(Heatmap(cells, low=1.0, high=0.0)) == [[255, 1, 0], [1, 255, 128]], "a distance"
    assert shades(Heatmap(cells, low=-1.0)) == [[128, 255, 0], [255, 1, 191]]
    chart = lambda *points: LineChart([Line("a", points)], "x", "y")
    assert line_chart_html(chart((1.0, float("nan")))) == ""
    assert "nan" not in line_chart_html(chart((1.0, 2.0)))


def test_pooling_of_missing_numbers_and_of_distances() -> None:
    cells = np.array([[np.nan, 0.25, np.nan, np.nan], [np.nan, 0.5, np.nan, np.nan]])
    assert np.array_equal(pooled(cells, 1, 2), [[0.5, np.nan]], equal_nan=True)
    near = Heatmap(np.array([[0.9, 0.1]]), low=1.0, high=0.0).pooled(1)
    assert near.cells.tolist() == [[0.1]], "of two distances the smaller is kept"


def test_a_grid_of_heads_as_svg() -> None:
    heads = ("L0H0", "L0H1", "L1H0")
    found = read(head_grid_html(HeadGrid(heads, words=("broad", EVIL, "broad"), hollow=frozenset(["L1H0"]))))
    assert found.seen.count("circle") == 3
    assert f"L0H1: {EVIL}" in found.words
    assert "broad 2" in " ".join(found.words)
    numbers = head_grid_html(HeadGrid(heads, numbers=np.array([0.0, np.nan, 1.0])))
    assert [numbers.count(f'fill="{c}"') for c in ("#440154", "#dfe3e8", "#fde725")] == [1, 1, 1]
    shares = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])
    rings = head_grid_html(HeadGrid(heads, shares=shares, parts=("a", "b"), part_colours=("#111111", "#222222")))
    assert read(rings).seen.count("circle") == 5, "a share of zero has no arc"
    assert rings.count('stroke="#222222"') == 2
    leading = [["a"], ["a", "b"], []]
    grid = HeadGrid(heads, words=("x", EVIL, "y"), shares=np.array([[0.25, 0.75], [0.5, 0.5], [np.nan, np.nan]]),
                    parts=("a", "b"), part_colours=("#111111", "#222222"), leading=leading)  # fmt: skip
    found = read(head_grid_html(grid))
    assert found.seen.count("circle") == 2 + 1 + 2 + 2 + 1, "arcs and discs; one grey ring without a disc"
    assert f"L0H1: {EVIL}; a 0.50, b 0.50" in found.words
    assert "a 1 b 0 two lead 1" in " ".join(found.words)
    many = tuple(f"L{i}H{j}" for i in range(20) for j in range(10))
    grid = HeadGrid(many, shares=np.full((200, 2), 0.5), parts=("a", "b"), part_colours=("#111111", "#222222"),
                    leading=[["b"]] * 200)  # fmt: skip
    assert head_grid_html(grid).count("<circle") == 200, "of many heads only the part that leads is drawn"


def test_sizes_of_heads_grow_with_the_root() -> None:
    grid = HeadGrid(("L0H0", "L0H1", "L0H2"), sizes=np.array([0.0, 4.0, 1.0]))
    small, large, middle = grid.diameters.tolist()
    assert middle == pytest.approx((small + large) / 2)
    assert (grid.layers, grid.width) == (["L0"], 3)


@pytest.mark.parametrize(
    "x, text",
    [(0.12345, "0.123"), (12.0, "12"), (1234.5, "1234"), (0.00099, "9.9e-4"), (2.5e7, "2.5e7"), (-0.5, "-0.5"),
     (99.96, "100"), (math.nan, "–"), (math.inf, "∞"), (0.0, "0")],
)  # fmt: skip
def test_numbers_are_written_one_way(x: float, text: str) -> None:
    assert number(x) == text
