"""progress=True shows bars on a terminal, and nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import multihead as mh
from multihead.edit.calibration import Calibration
from multihead.edit.check.curve import curve
from unit.test_wrong_use import IDS, model

# The last name of each: bars are drawn ten times a second, so an earlier one may be missed.
SHOWN: dict[str, tuple[Callable[[Any], object], str]] = {
    "measure": (lambda progress: mh.measure(model(), IDS, progress=progress), "statistics"),
    "theory": (lambda progress: mh.theory(model(), IDS, only=["10"], progress=progress), "L1"),
    "report": (lambda progress: mh.report(model(), IDS, parts=["cost"], progress=progress), "maps"),
    "kinds": (lambda progress: mh.kinds(model(), IDS, progress=progress), "shares"),
    "importance": (lambda progress: mh.importance(model(), IDS, progress=progress), "gradients"),
    "similarity": (lambda progress: mh.similarity(model(), IDS, progress=progress), "similarity"),
    "plan": (lambda progress: mh.plan(model(), IDS, keep=0.5, method="fisher", progress=progress), "sensitivity"),
    "cut": (lambda progress: _cut(progress), "refit layers.1.down.weight"),
    "curve": (lambda progress: _curve(progress), "curve"),
    "check": (lambda progress: mh.check(model(), model(), IDS, rounds=0, progress=progress), "quality"),
}


def _cut(progress: Any) -> object:
    whole = model()
    return mh.cut(whole, mh.plan(whole, IDS, remove=["L0H1"]), progress=progress)


def _curve(progress: Any) -> object:
    whole = model()
    options: dict[str, Any] = {"shares": [0.5], "methods": ["random"], "refit": False}
    return curve(whole, Calibration(whole, IDS), IDS, **options, progress=progress)


@pytest.mark.parametrize("function", SHOWN)
def test_bars_on_a_terminal(
    function: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call, name = SHOWN[function]
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    monkeypatch.setenv("COLUMNS", "100")
    called: list[str] = []
    call(lambda name, done, total: called.append(name))
    assert name in called
    assert capsys.readouterr().err == ""
    call(True)
    assert name in capsys.readouterr().err
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setenv("TTY_COMPATIBLE", "0")
    call(True)
    assert name not in capsys.readouterr().err
