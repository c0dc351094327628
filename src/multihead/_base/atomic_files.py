"""Write a file completely or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_atomically(path: Path, data: bytes) -> None:
    """Write a temporary file beside `path`, flush it to disk, and rename it: a reader never sees half a file."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part", delete=False) as part:
        try:
            part.write(data)
            part.flush()
            os.fsync(part.fileno())
            Path(part.name).chmod(0o666 & ~_umask())  # a temporary file is readable by its owner only
            Path(part.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(part.name).unlink()
            raise
    with suppress(OSError):  # flush the new name, too, where the file system can
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
