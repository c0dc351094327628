"""One run at a time writes to a folder: a lock that dies with the process that holds it, kill -9 included.

>>> import tempfile
>>> from pathlib import Path
>>> from multihead.corpus.lock import Lock
>>> with tempfile.TemporaryDirectory() as folder:
...     with Lock(Path(folder), "a run"):
...         try:
...             Lock(Path(folder), "another").__enter__()
...         except Exception as refused:
...             "is being written to by a run" in str(refused)
True
"""

from __future__ import annotations

import errno
import os
import socket
import warnings
from pathlib import Path
from types import TracebackType

from multihead.errors import MultiheadError

NAME = ".lock"


class Lock:
    """`with Lock(folder, who):` the folder is ours, or an error says whose it is.

    The kernel gives a lock of flock(2) back when its process ends in whatever way, so nothing is left behind that
    somebody would have to remove. It holds across machines where the file system carries such locks (NFS 4, Lustre,
    GPFS do); where it carries none there is a warning.
    """

    def __init__(self, folder: Path, who: str) -> None:
        self.path = folder / NAME
        self.who = f"{who}, process {os.getpid()} on {socket.gethostname()}"
        self._file = -1

    def __enter__(self) -> Lock:
        try:
            import fcntl
        except ImportError:  # no such thing on this system
            return self
        while self._file < 0:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as wrong:
                held = os.read(file, 4096).decode(errors="replace").strip() or "another process"
                os.close(file)
                if wrong.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise MultiheadError(
                        f"{self.path.parent} is being written to by {held}",
                        hint="wait for it, or choose another -o",
                    ) from None
                warnings.warn(f"{self.path.parent} cannot be locked: {wrong}", stacklevel=2)
                return self
            if self._is_there(file):
                self._file = file
            else:  # whoever held it has just taken it away
                os.close(file)
        os.truncate(self._file, 0)
        os.write(self._file, self.who.encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._file >= 0:
            self.path.unlink(missing_ok=True)  # while it is ours
            os.close(self._file)
            self._file = -1

    def _is_there(self, file: int) -> bool:
        """Whether the locked file still has its name."""
        try:
            return os.path.samestat(os.fstat(file), self.path.stat())
        except FileNotFoundError:
            return False
