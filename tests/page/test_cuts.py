"""The curve of real cuts: what it holds, and how the page tells it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import multihead as mh
from multihead.edit.cut import cut
from multihead.edit.planning import plan
from multihead.errors import MultiheadError
from multihead.measures.cost.cost import LINES
from multihead.page.build import write_page
from multihead.page.cuts import cost_cells, cut_curve
from multihead.page.findings import findings
from multihead.page.gather import gather
from page.conftest import Open, Page


def _documents() -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(0, 53, (n,), generator=generator).tolist() for n in (23, 19, 29, 17, 31, 23, 13, 37)]


@pytest.fixture(scope="module")
def found(small: Page) -> dict[str, Any]:
    return cut_curve(small.model, _documents(), methods=("obs", "random"), shares=(0.75, 0.5, 0.25))


def test_points_are_cuts(found: dict[str, Any], small: Page) -> None:
    assert found["cut"]
    assert (found["heads"], found["fitted"], found["judged"]) == (8, 6, 2)
    assert [c["method"] for c in found["curves"]] == ["obs", "random"]
    for one in found["curves"]:
        assert [p["kept"] for p in one["points"]] == [8, 6, 4, 2]
        assert one["points"][0] == {"kept": 8, "gone": 0, "lost": 0.0, "heads": []}
        for p in one["points"][1:]:
            assert len(p["heads"]) == p["gone"] == 8 - p["kept"]
            assert set(p["heads"]) <= set(small.found.heads)
            assert p["parameters"] < sum(x.numel() for x in small.model.parameters())
            assert ("speed" in p) == (one["method"] == "obs")
            assert len(p["cost"]) == len(LINES)
    speed = found["curves"][0]["points"][2]["speed"]
    assert speed["low"] <= speed["ratio"] <= speed["high"]
    assert found["prunable"] in (0, 2, 4, 6)


def test_numbers_are_those_of_the_cut_model(small: Page) -> None:
    """A point by hand: the plan, the cut, perplexities of both on the documents that judge."""
    from multihead.edit.calibration import Calibration
    from multihead.edit.check.metrics import quality

    documents = _documents()
    (one,) = cut_curve(small.model, documents, methods=("fisher",), shares=(0.5,))["curves"]
    fit = [d for i, d in enumerate(documents) if i % 4 != 3]
    made = plan(small.model, Calibration(small.model, fit), keep=0.5, method="fisher")
    smaller = cut(small.model, made)
    before, after = quality(small.model, smaller, documents[3::4]).metrics["perplexity"]
    assert one["points"][1]["lost"] == pytest.approx(after / before - 1, rel=1e-4)
    assert one["points"][1]["heads"] == [x.head(h) for x in made.layers for h in x.removed]
    assert one["points"][1]["cost"] == cost_cells(mh.cost(smaller))


def test_too_few_documents(small: Page) -> None:
    with pytest.raises(MultiheadError, match="3 documents are too few for a curve: one of 4 judges"):
        cut_curve(small.model, _documents()[:3])
    page = gather(small.model, _documents()[:3], parts=("curve",), cut=("obs",))
    assert page.curve is None
    assert page.notes[-1] == "curve: 3 documents are too few for a curve: one of 4 judges"


def test_finding(found: dict[str, Any]) -> None:
    told = findings(None, None, found | {"prunable": 4})
    assert [f.text for f in told] == ["4 of 8 heads can go together for less than 5 % of quality."]


def test_cut_view(found: dict[str, Any], small: Page, opened: Open, tmp_path: Path) -> None:
    curve = found | {"prunable": 2}
    shown = opened(write_page(replace(small.found, curve=curve), tmp_path / "cut.html"), "view=cut&gone=4")
    text = shown.text("main")
    point = found["curves"][0]["points"][2]
    assert "really cut" in text
    assert "judged on 2 others" in text
    assert "4 of 8 heads kept" in text
    assert "parameters →" in text
    assert "rounds side by side" in text
    assert "with 4 heads" in text
    gone = shown.page.locator(".gonetable a").all_inner_texts()
    assert gone == [name.partition("H")[1] + name.partition("H")[2] for name in point["heads"]]
    shown.page.focus("input[type=range]")
    shown.page.keyboard.press("ArrowRight")
    assert "gone=6" in shown.page.evaluate("location.hash"), "the slider stops at points that were measured"
    assert "with 2 heads" in shown.text("main")
    shown.click(".key >> text=random")
    assert "method=1" in shown.page.evaluate("location.hash")
    gone = shown.page.locator(".gonetable a").all_inner_texts()
    assert len(gone) == 6
    assert "rounds side by side" not in shown.text("main"), "only cuts of the first method were timed"
    shown.shot("cut-methods")
    shown.go("view=heads")
    box = shown.page.locator("canvas.grid").bounding_box()
    cell = (box["width"] - 40) / 4
    name = found["curves"][0]["points"][1]["heads"][0]
    layer, head = int(name[1]), int(name[3])
    shown.page.mouse.move(box["x"] + 40 + (head + 0.5) * cell, box["y"] + 20 + (layer + 0.5) * cell)
    assert "can go" in shown.text(".hover")
