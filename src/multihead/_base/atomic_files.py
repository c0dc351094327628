"""Write a file completely or not at all."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from shutil import disk_usage
from tempfile import TemporaryFile

from multihead.errors import MultiheadError


def write_atomically(path: Path, data: bytes) -> None:
    """Write a temporary file next to `path`, flush it to disk, and rename it: a reader never sees half a file."""
    # Not NamedTemporaryFile: its files are for their owner only, and the umask cannot be read without setting it,
    # for every thread of the process.
    part = path.parent / f".{path.name[:100]}.{token_hex(6)}.part"
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)  # errors must not name the temporary file
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


def check_new(path: Path, force: bool) -> None:
    """Raise if there is a file that would be overwritten without `force`."""
    if path.is_file() and not force:
        raise MultiheadError(f"{path} exists already", hint="force=True overwrites it, or choose another path")


def check_writable(path: Path, *, least: float = 20e6) -> None:
    """Raise unless a file can be written to `path` and its disk has `least` bytes left: before long work."""
    if path.is_dir():
        raise MultiheadError(
            f"{path} is a folder, not a file", hint=f"write to a file in it, such as {path / 'page.html'}"
        )
    above = next(folder for folder in (*path.absolute().parents, Path("/")) if folder.exists())
    if not above.is_dir():
        raise MultiheadError(f"{above} is a file, so {path} cannot be in it", hint="choose a different path")
    try:
        with TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise MultiheadError(
            f"nothing can be written to {above}: {error.strerror}", hint="choose a different path"
        ) from error
    free = disk_usage(above).free
    if free < least:
        raise MultiheadError(
            f"the disk of {path} must have {least / 1e6:.0f} MB left, got {free / 1e6:.0f} MB",
            hint="choose a different path, or free some space",
        )
