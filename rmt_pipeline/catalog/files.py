"""Files that are there whole or not at all, and names that are safe as file names."""

import errno
import os
import re
from pathlib import Path
from urllib.parse import unquote

from rmt_pipeline.protocol.errors import BadConfiguration, Corruption, DiskFull

_UNSAFE = re.compile(rb"[^A-Za-z0-9_]")


def escape_file_name(name: str) -> str:
    """`name` as one directory name: every byte but letters, digits and _ becomes %XX."""
    return _UNSAFE.sub(lambda byte: b"%%%02X" % byte[0][0], name.encode()).decode("ascii")


def unescape_file_name(text: str) -> str | None:
    """The inverse of `escape_file_name`; None for a file name that it never makes."""
    name = unquote(text, errors="replace")
    return name if escape_file_name(name) == text else None


def read_file(path: Path) -> bytes:
    """Raises FileNotFoundError; Corruption when there is one that the disk does not give."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Corruption(f"{path} cannot be read: {error.strerror}") from error


def stage_file(path: Path, content: bytes) -> Path:
    """Write `content` durably to `path`, which the caller then renames. Raises DiskFull."""
    try:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise unwritable(path, error) from error
    return path


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: OSError) -> DiskFull | BadConfiguration:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no space left to write {path}")
    return BadConfiguration(f"{path} cannot be written: {error.strerror}")
