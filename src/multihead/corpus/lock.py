"""One run at a time writes to a folder.

>>> import tempfile
>>> from pathlib import Path
>>> from multihead.corpus.lock import locked
>>> with tempfile.TemporaryDirectory() as folder:
...     with locked(Path(folder)):
...         try:
...             locked(Path(folder)).__enter__()
...         except Exception as refused:
...             "is in use by another run" in str(refused)
True
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from multihead.errors import MultiheadError


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold the lock of a folder; an error if another process holds it.

    The kernel releases the lock when its process ends in any way, so nothing has to be removed after a kill.
    """
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise MultiheadError(
            f"{folder} is in use by another run", hint="wait for it, or choose another -o"
        ) from None
    try:
        yield
    finally:
        (folder / ".lock").unlink(missing_ok=True)
        lock.release()
