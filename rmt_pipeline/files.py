"""Files that are written whole or not at all, and names made safe as file names."""

import errno
import fcntl
import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import unquote

from rmt_pipeline.protocol.errors import (
    BadConfiguration,
    Conflict,
    Corruption,
    DiskFull,
    UserError,
)

FILE_NAME_BYTES_MAX = 255  # of every Linux file system
T = TypeVar("T")
_UNSAFE = re.compile(rb"[^A-Za-z0-9_]")


def escape_file_name(name: str) -> str:
    """`name` as one directory name: every byte but letters, digits and _ becomes %XX."""
    return _UNSAFE.sub(lambda byte: b"%%%02X" % byte[0][0], name.encode()).decode("ascii")


def checked_file_name(name: str, what: str, *suffixes: str) -> str:
    """`name` as a file name with the first of `suffixes`. `what` ("table", "database") is for
    errors. Raises UserError if the name is empty, not Unicode, or too long for a file with any of
    the suffixes.
    """
    if not name:
        raise UserError(f"the name of a {what} is empty")
    try:
        escaped = escape_file_name(name)
    except UnicodeEncodeError:
        raise UserError(f"the name of a {what} is not Unicode text: {name!r}") from None
    if len(escaped) > FILE_NAME_BYTES_MAX - max(map(len, suffixes)):
        raise UserError(f"the name of the {what} {name[:40]!r}… is too long for a file name")
    return escaped + suffixes[0]


@lru_cache(maxsize=4096)
def unescape_file_name(text: str) -> str | None:
    """The inverse of `escape_file_name`; None for a file name that it never makes. Cached, since
    the same few names are looked up before every use of a table.
    """
    name = unquote(text, errors="replace")
    return name if escape_file_name(name) == text else None


def read_file(path: Path) -> bytes:
    """The file's bytes. Raises FileNotFoundError; Corruption if it exists and can't be read."""
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
    """Make durable what was created, renamed or removed in the directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: OSError) -> DiskFull | BadConfiguration:
    """The error to raise when the operating system refuses to write `path`: DiskFull if no space
    (or quota) is left, else BadConfiguration.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no space left to write {path}")
    return BadConfiguration(f"{path} cannot be written: {error.strerror}")


@contextmanager
def held_file(file: Path, full_name: str) -> Iterator[IO[bytes] | None]:
    """Open and lock the file of a drop of table `full_name`; None if the file does not exist. The
    lock ends with the `with` block or the process. Raises Conflict while another process holds it.
    """
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        yield None
        return
    with opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"table {full_name} is being dropped by another process; try again in a moment"
            ) from None
        yield opened


def made_and_held(file: Path) -> IO[bytes] | None:
    """Make a file and lock it, which whoever holds it removes; None while somebody else holds it.
    The lock ends when the file is closed, or with the process. Raises DiskFull, BadConfiguration.
    """
    while True:
        try:
            opened = open_one_more(lambda: file.open("ab"))
        except OSError as error:
            raise unwritable(file, error) from error
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            opened.close()
            return None
        if is_at(opened.fileno(), file):  # else who held it before has removed it
            return opened
        opened.close()


def open_one_more(open_it: Callable[[], T]) -> T:
    """Open something, and raise the soft limit of open files if it is reached: what holds thousands
    of files, as a query over thousands of parts does, needs more of them than the usual limit of
    1024. The hard limit, which the administrator has set, stays.
    """
    try:
        return open_it()
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return open_it()


def is_at(descriptor: int, path: Path | str) -> bool:
    """Whether the open file is still the one that has that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))  # noqa: PTH116
    except FileNotFoundError:
        return False


def modified_ns(directory: Path | os.DirEntry[str]) -> int:
    """When a file was last created, renamed or removed in the directory, in nanoseconds since the
    epoch; 0 if it does not exist. While it stays the same the directory need not be listed again.
    """
    try:
        return directory.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
