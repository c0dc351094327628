"""The five shares of log n on the page: rings, tiles, legend, panel; and reports that have none."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import expect

from multihead._base.share_words import SHARE_NAMES, SHARES
from multihead.model.sites import Site
from multihead.show.report import CorpusInfo, ModelInfo, Report
from multihead.show.text_maps import ShownLayer
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable
from page.conftest import Open, Opened, Page

GRID = (62, 40)
"""Pixels left of the grid of heads and above it."""

COLOUR = {share.name: share.colour for share in SHARES}


def share_columns(leading: tuple[str, ...]) -> dict[str, Any]:
    """0.1 of spread and rest, 0.8 of the share that leads or of the two; NaN where none does."""
    columns: dict[str, Any] = {"leading": leading}
    for name in SHARE_NAMES:
        values = []
        for label in leading:
            names = label.split(" + ")
            base = 0.1 if name in ("spread", "rest") else 0.0
            values.append(base + 0.8 / len(names) * (name in names) if label else torch.nan)
        columns[name] = torch.tensor(values, dtype=torch.float64)
        columns |= {f"{name}_low": columns[name] - 0.02, f"{name}_high": columns[name] + 0.02}
    return columns


def with_shares(report: Report, leading: tuple[str, ...], kinds: tuple[str, ...]) -> Report:
    assert report.table is not None
    new = {"kind": kinds, **share_columns(leading)}
    kept = report.table.select([name for name in report.table.columns if name not in new])
    table = kept.join(HeadTable(kept.heads, new, {n: ColumnInfo("share", n) for n in new}))
    return replace(report, table=table, curve=None)  # without a curve no head can be pruned: discs are full


LEADING = ("position", "word", "match", "word + match", "word", "spread", "rest", "")
KINDS = ("previous", "word, 0.80", "induction", "word + match, 0.80", "class", "broad", "first", "dead")


@pytest.fixture(scope="module")
def shared(small: Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_shares(small.found, LEADING, KINDS).save(tmp_path_factory.mktemp("shares") / "shares.html")


def colour_at(shown: Opened, x: float, y: float) -> str:
    """The colour of a pixel of the grid, as #rrggbb."""
    read = """([x, y]) => {
        const canvas = document.querySelector("canvas.grid"), ratio = canvas.width / canvas.clientWidth;
        const pixel = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
        pixel.drawImage(canvas, -Math.floor(x * ratio), -Math.floor(y * ratio));
        return [...pixel.getImageData(0, 0, 1, 1).data];
    }"""
    return "#{:02x}{:02x}{:02x}".format(*shown.page.evaluate(read, [x, y])[:3])


def cell_of(shown: Opened, across: int) -> float:
    return (shown.page.locator("canvas.grid").bounding_box()["width"] - GRID[0]) / across


def test_every_head_is_a_ring_of_its_shares(shared: Path, opened: Open) -> None:
    shown = opened(shared)
    assert shown.page.input_value("main select >> nth=0") == "shares"
    side = cell_of(shown, 4)

    def at(layer: int, head: int, x: float = 0.0, y: float = 0.0) -> str:
        """The colour beside the centre of a head, in halves of its cell."""
        return colour_at(shown, GRID[0] + (head + 0.5 + x / 2) * side, GRID[1] + (layer + 0.5 + y / 2) * side)

    for i, label in enumerate(LEADING):
        if "+" not in label and label:
            assert at(i // 4, i % 4) == COLOUR[label], "the disc has the colour of the share that leads"
    assert (at(0, 3, -0.12), at(0, 3, 0.12)) == (COLOUR["word"], COLOUR["match"]), "of two that lead, half each"
    width = next(x / 100 for x in range(100, 30, -1) if at(0, 0, -x / 100) == COLOUR["position"])
    assert width > 0.4, "most of the ring of L0H0 is its position"
    shown.shot("shares-light")


def test_the_legend_explains_and_selects(shared: Path, opened: Open) -> None:
    shown = opened(shared)
    lines = shown.page.locator(".sharelist li")
    alone = [f"{share.name}{LEADING.count(share.name)}{share.meaning}" for share in SHARES]
    expect(lines).to_have_text([*alone, re.compile("^two lead1")])
    counts = [int(text) for text in lines.locator("button small").all_inner_texts()]
    assert sum(counts) == sum(map(bool, LEADING)), "every head is counted once"
    heights = [lines.nth(i).bounding_box()["height"] for i in range(6)]
    assert max(heights) < 40, "one line each"
    shown.click(".sharelist button:has-text('two lead')")
    expect(shown.page.locator("table.heads tbody th a")).to_have_text(["L0H3"])
    assert "1 head in which two shares lead" in shown.text(".filter")
    shown.click(".sharelist button:has-text('match')")
    expect(shown.page.locator("table.heads tbody th a")).to_have_text(["L0H2"])
    assert "share=match" in shown.page.evaluate("location.hash")
    assert "1 head in which match leads" in shown.text(".filter")
    shown.click(".legend button:has-text('previous')")
    expect(shown.page.locator("table.heads tbody th a")).to_have_text(["L0H0"])
    assert "share=" not in shown.page.evaluate("location.hash")
    shown.click("text=Show all heads")
    assert shown.page.locator("table.heads .sharebar").count() == 7, "all but the head without shares"
    shown.page.focus("canvas.grid")
    shown.page.keyboard.press("ArrowRight")
    assert "spread 0.10, rest 0.10, position 0.00, word 0.80" in shown.text("#live"), "a screen reader hears them"


def test_the_panel_shows_shares_and_rows(shared: Path, small: Page, opened: Open) -> None:
    shown = opened(shared, "layer=0&head=3", color_scheme="dark")
    assert shown.text(".chip") == "word + match, 0.80"
    one = {share.name: share.one for share in SHARES}
    assert shown.text(".does") == f"This head {one['word']}; it also {one['match']}."
    values = shown.page.locator(".shares .value")
    expect(values).to_have_text(["0.10", "0.10", "0.00", "0.40", "0.40"])
    expect(shown.page.locator(".shares .scoreline b")).to_have_text(["word ?", "match ?"])
    assert shown.page.locator(".shares line.ends").count() == 5, "every share has its interval"
    rows = shown.page.locator(".rows li")
    expect(rows).to_have_count(3)
    shown.click(".rows li a >> nth=0")
    row = int(shown.page.evaluate("new URLSearchParams(location.hash.slice(1)).get('row')"))
    weights = torch.tensor(shown.page.evaluate("i => multihead.row('L0H3', i)", row))
    shares = [float(x) for x in rows.first.locator("small").all_inner_texts()]
    assert shares == pytest.approx(weights.topk(len(shares)).values.tolist(), abs=0.006)
    assert f"token {row}, looks at" in shown.text(".said")
    shown.go("layer=1&head=3")
    assert shown.page.locator(".panel .shares").count() == 0, "this head has none"
    shown.shot("shares-panel-dark")


@pytest.mark.parametrize(
    ("closest", "score", "reason"),
    [
        ("window ±2", 0.8, "only if position leads"),
        ("window ±2", 0.6, "must be above 0.7"),
        ("induction", 0.4, "must be above 0.3"),
    ],
)
def test_the_panel_says_why_a_head_has_no_kind(
    closest: str, score: float, reason: str, small: Page, opened: Open, tmp_path: Path
) -> None:
    """L0H1 is led by word. Its closest kind is the strongest, not the one with the largest score."""
    report = with_shares(small.found, LEADING, KINDS)
    assert report.table is not None
    heads = len(LEADING)
    new: dict[str, Any] = {
        "second": (closest,) * heads,
        "second_score": torch.full((heads,), score, dtype=torch.float64),
        "kind:broad": torch.full((heads,), 0.84, dtype=torch.float64),
    }
    kept = report.table.select([name for name in report.table.columns if name not in new])
    table = kept.join(HeadTable(kept.heads, new, {n: ColumnInfo("share", n) for n in new}))
    shown = opened(replace(report, table=table).save(tmp_path / "closest.html"), "layer=0&head=1")
    text = shown.text(".panel")
    assert f"The closest kind is “{closest}”, with a score of {score:.2f}." in text
    assert reason in text
    assert shown.page.locator(".panel .scores .scoreline").first.inner_text().startswith(closest.split()[0])


def test_the_grid_grows_with_the_type(shared: Path, opened: Open) -> None:
    sides = [cell_of(opened(shared, width=1280), 4)]
    wide = opened(shared, width=3840)
    type_scale = 1.44
    sides.append((wide.page.locator("canvas.grid").bounding_box()["width"] - type_scale * GRID[0]) / 4)
    assert sides[1] == pytest.approx(type_scale * sides[0], rel=0.03)
    wide.go("layer=0&head=0")
    ticks = wide.page.evaluate("""() => [...document.querySelectorAll(".ticks span")]
      .map((tick) => tick.getBoundingClientRect()).map(({ left, right }) => [left, right])""")
    assert all(end + 2 < start for (_, end), (start, _) in itertools.pairwise(ticks)), "the ticks do not touch"
    wide.shot("shares-3840")


def test_many_heads_are_tiles(opened: Open, tmp_path: Path) -> None:
    count = 24
    names = tuple(f"L{layer}H{h}" for layer in range(count) for h in range(count))
    leading = tuple(LEADING[i % 6] for i in range(len(names)))
    columns: dict[str, Any] = {"kind": tuple(f"{label}, 0.80" for label in leading), **share_columns(leading)}
    columns["kind_score"] = torch.full((len(names),), torch.nan)
    table = HeadTable(names, columns, {n: ColumnInfo("share", n) for n in columns})
    shapes = tuple(ShownLayer(Site("", i, "", i, count), 10, 10, 8, tuple(range(count))) for i in range(count))
    found = Report(ModelInfo("large", "Large", 1), CorpusInfo("", 5, 10), shapes, table=table)
    file = found.save(tmp_path / "tiles.html")
    shown = opened(file, width=360, height=740, has_touch=True, is_mobile=True)
    side = cell_of(shown, count)
    assert side < 20
    assert shown.page.is_visible(".tilehint")
    assert not shown.page.is_visible(".ringhint >> nth=0")
    seen = {colour_at(shown, GRID[0] + (head + 0.5) * side, GRID[1] + 0.5 * side) for head in (0, 1, 2, 5)}
    assert len(seen) == 4, "position, word, match and spread differ"
    shown.shot("shares-tiles-360")
    assert opened(file, width=1280).page.is_visible(".ringhint >> nth=0")


def test_a_report_without_shares_shows_kinds(small: Page, opened: Open, tmp_path: Path) -> None:
    """Tables of 0.1.0 have no shares."""
    assert small.found.table is not None
    old = small.found.table.select([n for n in small.found.table.columns if n != "leading"])
    shown = opened(replace(small.found, table=old).save(tmp_path / "old.html"))
    assert shown.page.input_value("main select >> nth=0") == "kind"
    assert shown.page.locator(".sharelist").count() == 0
    assert "Kinds of heads" in shown.text(".legend")
    assert "Score" in shown.text("table.heads thead")
    shown.go("layer=0&head=1")
    assert shown.page.locator(".panel .shares").count() == 0
