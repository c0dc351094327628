"""Write a file completely or not at all."""

from __future__ import annotations

import errno
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
            Path(part.name).chmod(0o666 & ~umask())  # a temporary file is readable by its owner only
            Path(part.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(part.name).unlink()
            raise
    flush_to_disk(path.parent)  # the new name, too


def flush_to_disk(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk; nothing where the system cannot."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # a folder cannot be opened on every system
        return
    try:
        os.fsync(handle)
    except OSError as failed:
        if failed.errno not in (errno.EINVAL, errno.EBADF):  # the file system has no such operation
            raise
    finally:
        os.close(handle)


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
