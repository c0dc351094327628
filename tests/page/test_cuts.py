"""The curve of real cuts: what it holds, and how the page tells it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import multihead as mh
from multihead.edit.cut import cut
from multihead.edit.make_plan import plan
from multihead.errors import MultiheadError
from multihead.measures.cost.cost import LINES
from multihead.show.cut_curve import cost_cells, cut_curve
from multihead.show.headlines import findings
from multihead.show.make_report import report
from multihead.show.quality_curve import CurvePoint, QualityCurve
from page.conftest import Open, Page


def _documents() -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(0, 53, (n,), generator=generator).tolist() for n in (23, 19, 29, 17, 31, 23, 13, 37)]


@pytest.fixture(scope="module")
def found(small: Page) -> QualityCurve:
    return cut_curve(small.model, _documents(), methods=("obs", "random"), shares=(0.75, 0.5, 0.25))


def test_points_are_cuts(found: QualityCurve, small: Page) -> None:
    assert found.cut
    assert (found.heads, found.fitted, found.judged) == (8, 6, 2)
    assert [line.method for line in found.lines] == ["obs", "random"]
    for line in found.lines:
        assert [p.kept for p in line.points] == [8, 6, 4, 2]
        assert line.points[0] == CurvePoint(8, 0.0, ())
        for p in line.points[1:]:
            assert p.removed is not None
            assert len(p.removed) == 8 - p.kept
            assert set(p.removed) <= set(small.found.heads)
            assert p.parameters is not None
            assert p.parameters < sum(x.numel() for x in small.model.parameters())
            assert (p.speed is not None) == (line.method == "obs")
            assert p.cost is not None
            assert len(p.cost) == len(LINES)
    speed = found.lines[0].points[2].speed
    assert speed is not None
    assert speed.low <= speed.ratio <= speed.high
    assert found.prunable in (0, 2, 4, 6)
    assert len(found.prunable_heads) == found.prunable
    data = found.to_json()
    assert [p["gone"] for p in data["curves"][1]["points"]] == [0, 2, 4, 6]
    assert data["curves"][0]["points"][2]["speed"]["ratio"] == speed.ratio


def test_numbers_are_those_of_the_cut_model(small: Page) -> None:
    """A point by hand: the plan, the cut, perplexities of both on the documents that judge."""
    from multihead.edit.calibration import Calibration
    from multihead.edit.check.metrics import quality

    documents = _documents()
    (line,) = cut_curve(small.model, documents, methods=("fisher",), shares=(0.5,)).lines
    point = line.points[1]
    fit = [d for i, d in enumerate(documents) if i % 4 != 3]
    made = plan(small.model, Calibration(small.model, fit), keep=0.5, method="fisher")
    smaller = cut(small.model, made)
    before, after = quality(small.model, smaller, documents[3::4]).metrics["perplexity"]
    assert point.lost == pytest.approx(after / before - 1, rel=1e-4)
    assert point.removed == tuple(x.head(h) for x in made.layers for h in x.removed)
    assert point.cost == tuple(cost_cells(mh.cost(smaller, tokens=64)))


def test_too_few_documents(small: Page) -> None:
    with pytest.raises(MultiheadError, match="at least 4 documents, one of which judges, got 3"):
        cut_curve(small.model, _documents()[:3])
    page = report(small.model, _documents()[:3], parts=("curve",), cut=("obs",))
    assert page.curve is None
    assert page.notes[-1] == "curve: a curve needs at least 4 documents, one of which judges, got 3"


def _prunable(found: QualityCurve, heads: int) -> QualityCurve:
    """The same cuts, so good that so many heads can be pruned."""
    lines = [
        replace(line, points=tuple(replace(p, lost=0.01 if 8 - p.kept <= heads else 0.2) for p in line.points))
        for line in found.lines
    ]
    return replace(found, lines=tuple(lines))


def test_finding(found: QualityCurve) -> None:
    sentences = findings(None, None, _prunable(found, 4))
    assert [f.text for f in sentences] == ["4 of 8 heads can be pruned together for less than 5 % of quality."]


def test_cut_view(found: QualityCurve, small: Page, opened: Open, tmp_path: Path) -> None:
    curve = _prunable(found, 2)
    shown = opened(replace(small.found, curve=curve).save(tmp_path / "cut.html"), "view=pruning&gone=4")
    text = shown.text("main")
    point = found.lines[0].points[2]
    assert "Every point is a pruned model" in text
    assert "measured on 2 others" in text
    assert "4 of 8 heads kept" in text
    assert "parameters →" in text
    assert "interleaved rounds" in text
    assert "with 4 heads" in text
    gone = shown.page.locator(".gonetable a").all_inner_texts()
    assert gone == list(point.removed or ())
    shown.page.focus("input[type=range]")
    shown.page.keyboard.press("ArrowRight")
    assert "gone=6" in shown.address(), "the slider stops at points that were measured"
    assert "with 2 heads" in shown.text("main")
    shown.click(".key >> text=random")
    assert "method=1" in shown.page.evaluate("location.hash")
    gone = shown.page.locator(".gonetable a").all_inner_texts()
    assert len(gone) == 6
    assert "interleaved rounds" not in shown.text("main"), "only cuts of the first method were timed"
    shown.shot("cut-methods")
    shown.go("view=heads")
    box = shown.page.locator("canvas.grid").bounding_box()
    cell = (box["width"] - 62) / 4
    name = (found.lines[0].points[1].removed or ())[0]
    layer, head = int(name[1]), int(name[3])
    shown.page.mouse.move(box["x"] + 62 + (head + 0.5) * cell, box["y"] + 40 + (layer + 0.5) * cell)
    assert "can be pruned" in shown.text(".hover")
