"""Write a file completely or not at all."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex


def write_atomically(path: Path, data: bytes) -> None:
    """Write a temporary file beside `path`, flush it to disk, and rename it: a reader never sees half a file."""
    # Not NamedTemporaryFile: its files are for their owner only, and the umask cannot be read without setting it,
    # for every thread of the process.
    part = path.parent / f".{path.name[:100]}.{token_hex(6)}.part"
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
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
