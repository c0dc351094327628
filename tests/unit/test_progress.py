"""progress=True shows bars on a terminal, and nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import multihead as mh
from unit.test_wrong_use import IDS, model

SHOWN: dict[str, tuple[Callable[[Any], object], str]] = {
    "measure": (lambda progress: mh.measure(model(), IDS, progress=progress), "statistics"),
    "theory": (lambda progress: mh.theory(model(), IDS, only=["10"], progress=progress), "L1"),
    "check": (lambda progress: mh.check(model(), model(), IDS, rounds=0, progress=progress), "quality"),
}


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
