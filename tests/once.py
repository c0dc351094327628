"""Expensive set-up that all workers of a run share: done once, by whichever worker needs it first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def once(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], object]) -> Path:
    """A folder of this run that `fill` has filled; the other workers wait until it is."""
    root = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    folder, finished = root / name, root / f"{name}.finished"
    with FileLock(root / f"{name}.lock"):
        if not finished.exists():
            folder.mkdir(exist_ok=True)
            fill(folder)
            finished.touch()
    return folder
