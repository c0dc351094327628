"""A save that is killed, or that finds the disk full, leaves the old folder or none; the next one cleans up."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

import warm
from multihead.errors import MultiheadError
from multihead.store.load import load
from multihead.store.save import save
from unit.store.cutting import bytes_of

CHILD = """
import os, resource, signal, sys
import torch
from torch import nn
import safetensors.torch
from multihead.errors import MultiheadError
from multihead._base import atomic_dir
from multihead.store import snapshot, save as saving

class Toy(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.a = nn.Parameter(torch.full((300, 7), value))
        self.b = nn.Parameter(torch.full((11,), value))

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def torn(tensors, file, metadata=None):
    real(tensors, file, metadata)
    os.truncate(file, 1000)
    die()

moment, target, force = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
real = safetensors.torch.save_file
if moment == "before the weights":
    safetensors.torch.save_file = die
elif moment == "within the weights":
    safetensors.torch.save_file = torn
elif moment == "before the description":
    snapshot.Manifest.write = die
elif moment == "after the description":
    saving.StockFormat.verify = saving.CustomFormat.verify = die
elif moment == "before it is on the disk":
    atomic_dir._flush_all = die
elif moment == "before the name":
    atomic_dir._move = die
elif moment == "disk":
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    saving.save(Toy(2.0), target, force=force)
except MultiheadError as said:
    print(said)
"""
MOMENTS = [
    "before the weights", "within the weights", "before the description", "after the description",
    "before it is on the disk", "before the name",
]  # fmt: skip


class Toy(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.full((300, 7), value))
        self.b = nn.Parameter(torch.full((11,), value))


def child(moment: str, target: Path, force: bool) -> subprocess.CompletedProcess[str]:
    return warm.run(CHILD, moment, target, force)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_leaves_the_old_one_and_the_next_save_cleans(tmp_path: Path, moment: str) -> None:
    target = tmp_path / "out"
    save(Toy(1.0), target)
    before = bytes_of(target)
    done = child(moment, target, force=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert bytes_of(target) == before
    assert len(list(tmp_path.iterdir())) == 2, "its half is still there"
    save(Toy(3.0), target, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert load(target, model=Toy(0.0)).b.tolist() == [3.0] * 11  # type: ignore[operator,union-attr]


def test_a_kill_where_there_was_nothing_leaves_nothing_of_that_name(tmp_path: Path) -> None:
    assert child("before the name", tmp_path / "out", force=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    save(Toy(3.0), tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, force: bool) -> None:
    """8,444 bytes of weights do not fit into files of 5,000."""
    target = tmp_path / "out"
    if force:
        save(Toy(1.0), target)
    before = bytes_of(tmp_path)
    done = child("disk", target, force)
    assert "could not be written: " in done.stdout, done.stderr
    assert "nothing of it was kept" in done.stdout
    assert bytes_of(tmp_path) == before
    assert target.exists() == force


def test_an_error_of_the_writer_is_said(tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise safetensors.SafetensorError("Error while serializing: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(MultiheadError, match=r"could not be written: .*No space left on device"):
        save(Toy(1.0), tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_more_than_there_is_room_for_is_not_begun(tmp_path: Path, monkeypatch: Any) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(MultiheadError, match=r"needs 0.06 GB of space, 0.00 GB are free"):
        save(Toy(1.0), tmp_path / "out")
    assert not any(tmp_path.iterdir())
