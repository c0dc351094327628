"""Curves: the knee in closed form, tables, and points that are really cut."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from multihead.edit.calibration import Calibration
from multihead.edit.checking.curve import Curve, Point, curve, draw
from multihead.errors import SizeError


def made(shown: str, numbers: dict[int, float], method: str = "obs") -> Curve:
    points = tuple(Point(method, kept / 12, kept, {shown: x}) for kept, x in numbers.items())
    return Curve(points, shown, {shown: 1.0}, 12, 40)


@pytest.mark.parametrize(
    "shown, numbers, knee",
    [
        ("cosine", {9: 0.99, 6: 0.97, 3: 0.6}, 6),
        ("cosine", {9: 0.99, 6: 0.7, 3: 0.6}, None),  # below the line: no knee
        ("perplexity", {9: math.exp(1.0), 6: math.exp(1.1), 3: math.exp(3.0)}, 6),
        ("perplexity", {9: 3.0, 6: 3.1, 3: math.inf}, None),
        ("cosine", {9: 0.9, 3: 0.6}, None),  # two points are a line
        ("cosine", {9: 0.6, 6: 0.97, 3: 0.99}, None),  # better with fewer
    ],
)
def test_the_knee(shown: str, numbers: dict[int, float], knee: int | None) -> None:
    found = made(shown, numbers).knee()
    assert (None if found is None else found.kept) == knee


def test_the_table_and_json() -> None:
    both = made("nn10", {9: 0.9, 6: 0.75}).points + made("nn10", {9: 0.7, 6: math.nan}, "random").points
    found = Curve(both, "nn10", {"nn10": 1.0}, 12, 40)
    assert str(found).splitlines() == [
        "nn10 on 40 held-out documents; the original has 1",
        "heads kept  obs   random",
        "9 of 12     0.9   0.7",
        "6 of 12     0.75  nan",
    ]
    assert found.plain()["points"][3] == {"method": "random", "keep": 0.5, "kept": 6, "nn10": None}


def test_every_point_is_a_cut_judged_on_other_text(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=3, n_embd=21, vocab_size=53, n_positions=31, initializer_range=0.3)
    model = GPT2LMHeadModel(config).eval()
    drawn = torch.Generator().manual_seed(1)
    rows = [torch.randint(1, 53, (11,), generator=drawn).tolist() for _ in range(30)]
    steps: list[tuple[str, int, int]] = []
    text = Calibration(model, rows[:20])
    found = curve(
        model, text, rows[20:], shares=(1.0, 0.5), methods=("random",), progress=lambda *x: steps.append(x)
    )
    assert [(p.method, p.keep, p.kept) for p in found.points] == [("random", 1.0, 6), ("random", 0.5, 3)]
    assert found.points[0].numbers["perplexity"] == pytest.approx(found.original["perplexity"])
    assert found.points[1].numbers["perplexity"] != pytest.approx(found.original["perplexity"], rel=1e-3)
    assert steps == [("random 1", 0, 2), ("random 0.5", 1, 2), ("curve", 2, 2)]
    draw(found, tmp_path / "curve.png", title="small")
    assert (tmp_path / "curve.png").stat().st_size > 5000
    with pytest.raises(SizeError, match=r"shares=\[0\.0\]"):
        curve(model, text, rows, shares=(0.0,))
