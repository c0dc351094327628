"""Write a folder at once: all of it under its name, or nothing.

It is filled beside its place under a hidden name, brought to the disk, and renamed. Whatever happens meanwhile (an
error, a full disk, a kill), the name stands for what it stood for before, or for the whole new folder.

>>> import tempfile
>>> from pathlib import Path
>>> from multihead.store.folder import written
>>> with tempfile.TemporaryDirectory() as here:
...     with written(Path(here) / "out") as part:
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
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from multihead._base.atomic_files import flush_to_disk, umask
from multihead.errors import MultiheadError

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

_PART, _OLD = ".part", ".old"
_MODEL_FILES = ("multihead.json", "config.json", "modules.json")
_EXCHANGE = 2
_HERE = -100
"""RENAME_EXCHANGE and AT_FDCWD of Linux"""


@contextmanager
def written(target: Path, *, force: bool = False, need: int = 0) -> Generator[Path]:
    """A folder to fill, which takes the place of `target` when the block ends well.

    Args:
        force: replace a model's folder that is there already; it stays until the new one is complete.
        need: bytes that will be written; too little room for them is said before anything is.
    """
    target = target.resolve()
    made = _parents(target)
    part: Path | None = None
    try:
        _mend(target)
        refuse(target, force)
        _room(target.parent, need)
        part, lock = _begun(target)
        try:
            yield part
            part.chmod(0o777 & ~umask())  # a temporary folder is for its owner only
            _bring_to_disk(part)
            _put(part, target, force)
        finally:
            shutil.rmtree(part, ignore_errors=True)
            if lock is not None:
                os.close(lock)
    except OSError as failed:
        raise MultiheadError(
            f"{target} could not be written: {failed.strerror or failed}; nothing of it was kept",
            hint="is there room on the disk, and may you write there?",
        ) from failed
    finally:
        for folder in made if not target.exists() else ():
            with suppress(OSError):
                folder.rmdir()


def _parents(target: Path) -> list[Path]:
    """The folders above that had to be made, the deepest first."""
    missing = [p for p in target.parents if not p.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as failed:
        raise MultiheadError(f"{target.parent} cannot be made: {failed.strerror}") from failed
    return missing


def refuse(target: Path, force: bool) -> None:
    """Say why a model cannot go there, where it cannot."""
    if not target.exists():
        return
    if not target.is_dir():
        raise MultiheadError(f"{target} is a file", hint="a model is saved as a folder")
    if not any(target.iterdir()):
        return
    if not any((target / name).is_file() for name in _MODEL_FILES):
        inside = ", ".join(sorted(p.name for p in target.iterdir())[:5])
        raise MultiheadError(
            f"{target} is not the folder of a model, so it is not replaced; in it: {inside}",
            hint="choose another folder, or empty this one by hand",
        )
    if not force:
        raise MultiheadError(f"{target} exists", hint="force=True (--force) replaces it, or choose another folder")


def _room(folder: Path, need: int) -> None:
    free = shutil.disk_usage(folder).free
    if need > free:
        raise MultiheadError(
            f"{need / 1e9:.2f} GB are needed in {folder}, {free / 1e9:.2f} GB are free", hint="make room first"
        )


# ---- the hidden folder ------------------------------------------------------------------------


def _begun(target: Path) -> tuple[Path, int | None]:
    """A new hidden folder beside the target, locked: as long as the lock is held, somebody works in it."""
    while True:
        part = Path(mkdtemp(prefix=f".{target.name}.", suffix=_PART, dir=target.parent))
        if fcntl is None:
            return part, None
        lock = os.open(part, os.O_RDONLY)
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if part.exists():  # else another save took it for a leftover, between the two lines above
                return part, lock
        os.close(lock)


def _mend(target: Path) -> None:
    """Put right what a killed save has left: its half of a folder goes, an old folder that it moved comes back."""
    ours = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]+({_PART}|{_OLD})")
    for left in [p for p in target.parent.iterdir() if ours.fullmatch(p.name) and p.is_dir()]:
        if left.suffix == _OLD and not target.exists():
            left.rename(target)
        elif _nobody_is_in(left):
            shutil.rmtree(left, ignore_errors=True)


def _nobody_is_in(folder: Path) -> bool:
    if fcntl is None:
        return False
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(lock)


# ---- the last step ----------------------------------------------------------------------------


def _put(part: Path, target: Path, force: bool) -> None:
    """Rename; a folder that is in the way is exchanged in the same instant, where the system can."""
    try:
        part.rename(target)
    except OSError as failed:
        if failed.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES) or not target.is_dir():
            raise
        refuse(target, force)  # it may have come to be meanwhile
        if not _exchanged(part, target):
            old = part.with_suffix(_OLD)
            target.rename(old)
            part.rename(target)
            shutil.rmtree(old, ignore_errors=True)
    flush_to_disk(target.parent)


def _exchanged(one: Path, other: Path) -> bool:
    """Swap two names; False where the system has no such call."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    return rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


def _bring_to_disk(folder: Path) -> None:
    for inside, _, names in os.walk(folder, topdown=False):
        for name in names:
            flush_to_disk(Path(inside, name))
        flush_to_disk(Path(inside))
