"""Write a folder completely or not at all.

The folder is filled under a hidden name next to its target, flushed to disk, and renamed. After an error, a full
disk or a kill, the target is either unchanged or the complete new folder.

>>> import tempfile
>>> from pathlib import Path
>>> from multihead._base.atomic_dir import atomic_dir
>>> with tempfile.TemporaryDirectory() as here:
...     with atomic_dir(Path(here) / "out") as part:
...         _ = (part / "a.txt").write_text("a")
...         (Path(here) / "out").exists()
...     sorted(p.name for p in Path(here).rglob("*"))
False
['a.txt', 'out']
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from multihead._base.atomic_files import flush_to_disk
from multihead.errors import MultiheadError

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

_PART, _OLD = ".part", ".old"
_RENAME_EXCHANGE, _AT_FDCWD = 2, -100  # Linux's constants


@contextmanager
def atomic_dir(target: Path, *, force: bool = False, marks: Sequence[str] = (), need: int = 0) -> Generator[Path]:
    """A folder to fill, which is renamed to `target` if the block ends without an error.

    Args:
        force: replace an existing folder that holds a file of one of the names `marks`. The old folder stays until
            the new one is complete.
        need: bytes that will be written; raises at once if the disk has less space.
    """
    target = target.resolve()
    new_parents = _make_parents(target)
    try:
        recover(target)
        check_target(target, force, marks)
        _check_space(target.parent, need)
        part, lock = _locked_part(target)
        try:
            yield part
            _flush_all(part)
            _move(part, target, force, marks)
        finally:
            shutil.rmtree(part, ignore_errors=True)
            if lock is not None:
                os.close(lock)
    except OSError as error:
        raise MultiheadError(
            f"{target} could not be written: {error.strerror or error}; nothing of it was kept",
            hint="check the free space and the permissions of the folder",
        ) from error
    finally:
        with suppress(OSError):  # also of `exists`, if the name is too long
            for folder in new_parents if not target.exists() else ():
                folder.rmdir()


def check_target(target: Path, force: bool, marks: Sequence[str]) -> None:
    """Raise unless `atomic_dir` may write to `target` with these arguments."""
    if not target.exists():
        return
    if not target.is_dir():
        raise MultiheadError(f"{target} is a file", hint="choose the path of a folder")
    names = sorted(path.name for path in target.iterdir())
    if not names:
        return
    if not any((target / mark).is_file() for mark in marks):
        raise MultiheadError(
            f"{target} must be empty or hold {' or '.join(marks)} to be replaced, it holds {', '.join(names[:5])}",
            hint="choose a different folder, or empty this one by hand",
        )
    if not force:
        raise MultiheadError(f"{target} exists", hint="force=True replaces it, or choose a different folder")


def recover(target: Path) -> None:
    """Clean up after a killed process: delete its unfinished folder, restore an old folder that it had moved."""
    leftover = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]+({_PART}|{_OLD})")
    for path in [p for p in target.parent.iterdir() if leftover.fullmatch(p.name) and p.is_dir()]:
        if path.suffix == _OLD and not target.exists():
            path.rename(target)
        elif not _is_locked(path):
            shutil.rmtree(path, ignore_errors=True)


def _make_parents(target: Path) -> list[Path]:
    """Make the folders above; returns the new ones, the deepest first."""
    missing = [p for p in target.parents if not p.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MultiheadError(
            f"{target.parent} cannot be made: {error.strerror}", hint="choose a folder that you may write to"
        ) from error
    return missing


def _check_space(folder: Path, need: int) -> None:
    """Raise unless the disk of a folder has this much space."""
    free = shutil.disk_usage(folder).free
    if need > free:
        raise MultiheadError(
            f"{folder} needs {need / 1e9:.2f} GB of space, {free / 1e9:.2f} GB are free", hint="free some space"
        )


# ---- the hidden folder ------------------------------------------------------------------------


def _locked_part(target: Path) -> tuple[Path, int | None]:
    """A new hidden folder next to the target, locked while a process writes into it."""
    while True:
        # Not mkdtemp: its folders are for their owner only, and the umask cannot be read without changing it.
        part = target.parent / f".{target.name}.{token_hex(6)}{_PART}"
        part.mkdir()
        if fcntl is None:
            return part, None
        lock = os.open(part, os.O_RDONLY)
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if part.exists():  # else a second save deleted it as a leftover before it was locked
                return part, lock
        os.close(lock)


def _is_locked(folder: Path) -> bool:
    """Whether a process writes into a folder; True where the system has no locks."""
    if fcntl is None:
        return True
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(lock)


# ---- the last step ----------------------------------------------------------------------------


def _move(part: Path, target: Path, force: bool, marks: Sequence[str]) -> None:
    """Rename the finished folder to the target; an existing target is swapped atomically."""
    try:
        part.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES) or not target.is_dir():
            raise
        check_target(target, force, marks)  # it may be new
        if not _exchange(part, target):
            old = part.with_suffix(_OLD)
            target.rename(old)
            part.rename(target)
            shutil.rmtree(old, ignore_errors=True)
    flush_to_disk(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap the names of two folders; False where the system has no such call."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    return rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


def _flush_all(folder: Path) -> None:
    """Flush all files of the finished folder to disk."""
    for inside, _, names in os.walk(folder, topdown=False):
        for name in names:
            flush_to_disk(Path(inside, name))
        flush_to_disk(Path(inside))
