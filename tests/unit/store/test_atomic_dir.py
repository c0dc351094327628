"""A folder is there whole or not at all: errors, a full disk, a kill, two at once."""

from __future__ import annotations

import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import warm
from multihead._base import atomic_dir as folder
from multihead.errors import MultiheadError

atomic_dir = partial(folder.atomic_dir, marks=["config.json"])


def names(here: Path) -> list[str]:
    return sorted(str(p.relative_to(here)) for p in here.rglob("*"))


def model(target: Path, text: str) -> None:
    target.mkdir()
    (target / "config.json").write_text(text)


def test_it_appears_whole(tmp_path: Path) -> None:
    with atomic_dir(tmp_path / "a" / "out") as part:
        assert part.parent == tmp_path / "a"
        (part / "sub").mkdir()
        (part / "sub" / "x").write_text("x")
        assert not (tmp_path / "a" / "out").exists()
    assert names(tmp_path) == ["a", "a/out", "a/out/sub", "a/out/sub/x"]


def test_it_may_be_read_by_who_may_read_the_others(tmp_path: Path) -> None:
    with atomic_dir(tmp_path / "out"):
        pass
    (tmp_path / "other").mkdir()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, OSError])
def test_an_error_leaves_nothing(tmp_path: Path, kind: type[BaseException]) -> None:
    with pytest.raises((kind, MultiheadError)):
        with atomic_dir(tmp_path / "a" / "b" / "out") as part:
            (part / "x").write_text("x")
            raise kind
    assert names(tmp_path) == []


def test_what_exists_is_kept_without_force(tmp_path: Path) -> None:
    model(tmp_path / "out", "old")
    with pytest.raises(MultiheadError, match=r"out exists\n\nhint: force=True"):
        with atomic_dir(tmp_path / "out"):
            pytest.fail("nothing may be computed for it")
    assert (tmp_path / "out" / "config.json").read_text() == "old"


def test_an_empty_folder_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with atomic_dir(tmp_path / "out") as part:
        (part / "x").write_text("x")
    assert names(tmp_path) == ["out", "out/x"]


@pytest.mark.parametrize("exchange", [True, False])
def test_force_replaces_the_whole_folder(tmp_path: Path, monkeypatch: Any, exchange: bool) -> None:
    if not exchange:
        monkeypatch.setattr(folder, "_exchange", lambda *_: False)
    model(tmp_path / "out", "old")
    with atomic_dir(tmp_path / "out", force=True) as part:
        (part / "new").write_text("new")
        assert (tmp_path / "out" / "config.json").read_text() == "old"
    assert names(tmp_path) == ["out", "out/new"]


def test_force_keeps_the_old_one_where_the_new_one_fails(tmp_path: Path) -> None:
    model(tmp_path / "out", "old")
    with pytest.raises(ZeroDivisionError):
        with atomic_dir(tmp_path / "out", force=True) as part:
            (part / "new").write_text(str(1 // 0))
    assert names(tmp_path) == ["out", "out/config.json"]


def test_force_does_not_replace_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("dear")
    with pytest.raises(MultiheadError, match=r"letters must be empty or hold config.json .*it holds dear.txt"):
        with atomic_dir(tmp_path / "letters", force=True):
            pass
    assert names(tmp_path) == ["letters", "letters/dear.txt"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(MultiheadError, match="out is a file"):
        with atomic_dir(tmp_path / "out", force=True):
            pass


def test_too_little_room_is_said_first(tmp_path: Path) -> None:
    with pytest.raises(MultiheadError, match=r"needs 1000000000\.00 GB of space, .* GB are free"):
        with atomic_dir(tmp_path / "out", need=10**18):
            pass
    assert names(tmp_path) == []


def test_one_that_came_to_be_meanwhile_is_kept(tmp_path: Path) -> None:
    with pytest.raises(MultiheadError, match="out exists"):
        with atomic_dir(tmp_path / "out") as part:
            (part / "x").write_text("x")
            model(tmp_path / "out", "theirs")
    assert names(tmp_path) == ["out", "out/config.json"]


def test_leftovers_of_others_are_cleaned_but_not_their_work(tmp_path: Path) -> None:
    for name in (".out.abcdefgh.part", ".out.x.abcdefgh.part", ".out.x.abcdefgh.old"):
        (tmp_path / name).mkdir()
    with atomic_dir(tmp_path / "out") as first:
        with atomic_dir(tmp_path / "out2") as other:
            assert first.exists()
            assert other.exists()
        with pytest.raises(MultiheadError, match="out exists"):
            with atomic_dir(tmp_path / "out") as second:
                (second / "y").write_text("y")
                (first / "x").write_text("x")
                assert first.exists(), "somebody works in it"
                model(tmp_path / "out", "third")
        (tmp_path / "out" / "config.json").unlink()
    assert names(tmp_path) == [".out.x.abcdefgh.old", ".out.x.abcdefgh.part", "out", "out/x", "out2"]


# ---- a kill, a full disk ----------------------------------------------------------------------

# Each moment: the call in whose place the process dies.
MOMENTS = {
    "as it begins": ("folder._locked_part", "before"),
    "begun": ("folder._locked_part", "after"),
    "half written": ("Path.write_text", "after"),
    "before it is on the disk": ("folder._flush_all", "before"),
    "before the last step": ("folder._move", "before"),
    "after the last step": ("folder._move", "after"),
    "after a failed rename": ("folder._exchange", "before"),
    "exchanged": ("folder._exchange", "after"),
}
KILLED = """
import os, signal, sys
from pathlib import Path
from multihead._base import atomic_dir as folder
place, when = {moment!r}
home, name = {{"folder": folder, "Path": Path}}[place.split(".")[0]], place.split(".")[1]
real = getattr(home, name)
def dying(*args, **kwargs):
    if when == "after":
        real(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(home, name, dying)
with folder.atomic_dir(Path({target!r}), force={force}, marks=["config.json"]) as part:
    (part / "config.json").write_text("new")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return warm.run(code)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_leaves_the_old_or_nothing_and_the_next_save_cleans(
    tmp_path: Path, moment: str, force: bool
) -> None:
    target = tmp_path / "out"
    if force:
        model(target, "old")
    done = run(KILLED.format(moment=MOMENTS[moment], target=str(target), force=force))
    if not force and "_exchange" in MOMENTS[moment][0]:
        assert done.returncode == 0, "nothing was in the way, so nothing is exchanged"
    else:
        assert done.returncode == -signal.SIGKILL, done.stderr
    late = moment in ("after the last step", "exchanged") or done.returncode == 0
    if late:
        assert (target / "config.json").read_text() == "new"
    elif force:
        assert (target / "config.json").read_text() == "old"
    else:
        assert not target.exists()
    with atomic_dir(target, force=True) as part:
        (part / "config.json").write_text("next")
    assert names(tmp_path) == ["out", "out/config.json"]
    assert (target / "config.json").read_text() == "next"


def test_where_nothing_can_be_exchange_the_old_one_comes_back(tmp_path: Path) -> None:
    """Between the two renames there is nothing of that name; the next save finds the old one."""
    model(tmp_path / "out", "old")
    (tmp_path / "out").rename(tmp_path / ".out.abcdefgh.old")
    with pytest.raises(MultiheadError, match="out exists"):
        with atomic_dir(tmp_path / "out"):
            pass
    assert (tmp_path / "out" / "config.json").read_text() == "old"


FULL = """
import resource
from pathlib import Path
from multihead.errors import MultiheadError
from multihead._base.atomic_dir import atomic_dir
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with atomic_dir(Path({target!r})) as part:
        (part / "a").write_bytes(bytes(900))
        (part / "b").write_bytes(bytes(1100))
except MultiheadError as said:
    print(said)
"""


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    done = run(FULL.format(target=str(tmp_path / "out")))
    assert "could not be written: File too large; nothing of it was kept" in done.stdout, done.stderr
    assert names(tmp_path) == []
