"""Curves: the knee in closed form, tables, and points that are really cut."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import multihead as mh
from multihead.edit.calibration import Calibration
from multihead.edit.check.curve import Curve, Point, curve
from multihead.edit.check.metrics import quality
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.show.figure import curve as draw


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
        "6 of 12     0.75  –",
    ]
    assert found.plain()["points"][3] == {"method": "random", "keep": 0.5, "kept": 6, "nn10": None}


def small() -> tuple[GPT2LMHeadModel, list[list[int]]]:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=3, n_embd=21, vocab_size=53, n_positions=31, initializer_range=0.3)
    drawn = torch.Generator().manual_seed(1)
    rows = [torch.randint(1, 53, (11,), generator=drawn).tolist() for _ in range(30)]
    return GPT2LMHeadModel(config).eval(), rows


def test_every_point_is_a_cut_judged_on_other_text(tmp_path: Path) -> None:
    model, rows = small()
    steps: list[tuple[str, int, int]] = []
    text = Calibration(model, rows[:20])
    found = curve(
        model, text, rows[20:], shares=(1.0, 0.5), methods=("random",), progress=lambda *x: steps.append(x)
    )
    assert [(p.method, p.keep, p.kept) for p in found.points] == [("random", 1.0, 6), ("random", 0.5, 3)]
    assert found.points[0].numbers["perplexity"] == pytest.approx(found.original["perplexity"])
    assert found.points[1].numbers["perplexity"] != pytest.approx(found.original["perplexity"], rel=1e-3)
    assert steps == [("random 1", 0, 2), ("random 0.5", 1, 2), ("curve", 2, 2)]
    assert [len(p.removed) for p in found.points] == [0, 3]
    draw(found, title="small").savefig(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 5000


@pytest.mark.parametrize(
    "given, message",
    [
        ({"shares": (0.0,)}, r"shares must be in \(0, 1\], got 0"),
        ({"shares": (0.5, "x")}, "shares must be a number, got 'x'"),
        ({"shares": 0.5}, "shares must be a list of numbers, got the float 0.5"),
        ({"shares": ()}, "shares must not be empty"),
        ({"methods": "obs"}, "methods must be a list of names, got the str 'obs'"),
        ({"methods": ("obs", "fischer")}, "unknown method 'fischer'\n\nhint: did you mean 'fisher'"),
        ({"refit": "yes"}, "refit must be True or False, got 'yes'"),
        ({"calibration": None}, "data must be documents or batches, got None"),
        ({"held_out": None}, "data must be documents or batches, got None"),
        ({"model": None}, "model must be a torch.nn.Module, got None"),
        ({"seed": "a"}, "seed must be an integer, got 'a'"),
        ({"progress": 5}, "progress must be True, False or a function, got the int 5"),
        ({"say": 5}, "say must be a function or None, got the int 5"),
        ({"seen": 5}, "seen must be a function or None, got the int 5"),
    ],
)
def test_wrong_use(given: dict[str, Any], message: str) -> None:
    model, rows = small()
    with pytest.raises((SizeError, TypeMismatchError), match=message):
        curve(**({"model": model, "calibration": Calibration(model, rows[:20]), "held_out": rows[20:]} | given))


def test_documents_alone_are_split() -> None:
    """Every fourth document judges; nothing is fitted to it."""
    model, rows = small()
    told: list[str] = []
    options: dict[str, Any] = {"shares": (0.5,), "methods": ("fisher",), "seed": 3}
    alone = curve(model, iter(rows), say=told.append, **options)
    fit = [row for i, row in enumerate(rows) if i % 4 != 3]
    by_hand = curve(model, Calibration(model, fit, seed=3), rows[3::4], **options)
    assert alone.points == by_hand.points
    assert alone.documents == 7
    (line,) = told
    assert line.startswith("23 documents, 253 tokens; 7 documents to check on; 1 point, about ")
    held_out = curve(model, rows[:20], rows[20:], max_tokens=5, **options)
    cut_pieces = curve(model, Calibration(model, rows[:20], seed=3, max_tokens=5), rows[20:], **options)
    assert held_out.points == cut_pieces.points
    with pytest.raises(MultiheadError, match="at least 4 documents, one of which judges, got 3"):
        curve(model, rows[:3])


def test_each_method_ranks_the_heads_once() -> None:
    """The points are those of separate plans, and only cuts and checks run the model once the text was read."""
    model, rows = small()
    text, shares, calls = Calibration(model, rows[:20]), (0.67, 0.5, 0.34), list[int]()
    plans = [mh.plan(model, text, keep=keep, method=method) for method in ("obs", "fisher") for keep in shares]
    mh.cut(model, plans[0], refit=False)  # the first cut finds the blocks
    hook = model.register_forward_pre_hook(lambda *_: calls.append(1))
    for plan in plans:
        quality(model, mh.cut(model, plan, refit=False), rows[20:])
    without_plans = len(calls)
    found = curve(model, text, rows[20:], shares=shares, methods=("obs", "fisher"), refit=False)
    hook.remove()
    assert len(calls) == 2 * without_plans
    for point, plan in zip(found.points, plans, strict=True):
        assert point.removed == tuple(x.head(h) for x in plan.layers for h in x.removed)
