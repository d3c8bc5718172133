"""The operations that the part store needs of a disk. Each method has one effect. `LocalDisk` is
the implementation for real disks.

Paths are POSIX paths relative to the disk's root; "" is the root. All processes of the host see at
once what one of them has done. What survives a crash:

* **A process dies:** everything that methods did before they returned is kept. A method during
  which the process died may be done in part: a file may be short, a tree half removed. The
  exception is `rename`, which is done or not.
* **The host crashes** (power, kernel): what was not synced may be lost, too:
  - bytes are kept once `fsync(file)` has returned; before that a file may be empty or short;
  - names (of a file or directory that was made, linked, renamed or removed) are kept once
    `fsync_directory(parent)` has returned; before that each change of a name may be undone, and
    undone alone: a later change of another name may be kept;
  - a rename that was not synced leaves the old name or the new one, never both, never neither.
"""

# Strings and one system call per method are plainer here than Path, and faster.
# ruff: noqa: PTH100, PTH102, PTH103, PTH104, PTH106, PTH112, PTH114, PTH116, PTH120, PTH123, PTH208

import contextlib
import errno
import fcntl
import os
import re
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rmt_pipeline.files import is_at, open_one_more
from rmt_pipeline.protocol.errors import DiskFull

if TYPE_CHECKING:
    import ctypes

CHUNK_BYTES = 1 << 20
_FSYNCS_AT_ONCE = 8
_WRITERS_AT_ONCE = 3  # each of them also computes, one at a time
_TASKS_PER_WRITER = 4  # for fewer another thread is not worth its start
_REMOVALS_AT_ONCE = 8
_TREES_TOGETHER_MIN = 20  # so many are synced with their whole file system, if that is sure
_DIRTY_BYTES_MAX = 64 << 20  # of all programs: that sync would wait for these, too
_KERNEL_MIN = (5, 8)  # the first whose syncfs says that it failed
_SURE_FILE_SYSTEMS = frozenset({0xEF53, 0x58465342, 0x9123683E})  # ext2 to ext4, XFS, btrfs
_DIRTY = re.compile(rb"^(?:Dirty|Writeback): +(\d+) kB$", re.MULTILINE)
_WAIT_BEFORE = 1  # SYNC_FILE_RANGE_WAIT_BEFORE
_WITHOUT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)
SETTLED_NS = 50_000_000  # longer than a tick of the clock by which the kernel stamps files
REMOVERS_MAX = 1000  # rounds of remove_tree; another is needed when the tree changed meanwhile


class Lock(Protocol):
    """A lock on one file. It ends with `release`, which may be called again, or with the process
    that holds it.
    """

    def release(self) -> None: ...


class FileStamp(NamedTuple):
    """Properties of a file that change when it is written or replaced by another file."""

    inode: int
    size: int
    written_ns: int
    """When its bytes changed (mtime). Programs can set it, as those that copy files do."""
    links: int
    """How many names the file has."""
    changed_ns: int
    """When its inode changed (ctime): by a write, or when it got or lost a name. No program can set
    it.
    """


class Disk(Protocol):
    """A file system below one directory. The module says what a crash may do to it. Paths are
    relative, with `/` between names.
    """

    def make_directory(self, path: str, *, parents: bool = True) -> None:
        """Make the directory `path` and missing parents; do nothing if it exists. Without `parents`
        missing ones are not made: raises FileNotFoundError.
        """
        ...

    def write(self, path: str, chunks: Iterable[bytes]) -> int:
        """Make or replace a file in a directory that exists. Return its size in bytes. Raises
        DiskFull.
        """
        ...

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        """Make or replace a file in a directory that exists, at once: readers find the old bytes or
        the new ones, and the old ones stay if this fails. With `durable` the same is true after a
        crash of the host. Raises DiskFull.
        """
        ...

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file, which is made if there is none. What other processes append at
        the same time comes before or after `data`, not in between. Raises DiskFull.
        """
        ...

    def remove_file(self, path: str) -> None:
        """Remove a file; do nothing if it is gone."""
        ...

    def read(self, path: str) -> bytes | None:
        """The bytes of the whole file; None if there is none."""
        ...

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the file's bytes in pieces of bounded size. Raises FileNotFoundError."""
        ...

    def fsync(self, path: str) -> None:
        """Make the bytes of this file survive a crash of the host. Raises DiskFull."""
        ...

    def fsync_directory(self, path: str) -> None:
        """Make the names in this directory survive a crash of the host."""
        ...

    def fsync_trees(self, trees: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Make files and their names survive a crash of the host. `trees` are directories, each
        with the names of files in it.

        A directory or a file that does not exist is left out, and perhaps the rest of that tree.
        Raises DiskFull.
        """
        ...

    def at_once(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Do all of these, which write to this disk and do not depend on each other, perhaps
        several at a time. If one raises an error, no further ones are begun, and it is raised when
        those that were begun have ended.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a directory, atomically.

        Raises FileExistsError if `target` exists, FileNotFoundError if `source` does not. Of two
        renames to one target at most one succeeds, also of those of different processes.
        """
        ...

    def link_from(self, disk: "Disk", source: str, target: str) -> bool:
        """Make a hard link `target` to the file `source` of `disk`, which may be this disk or
        another one. Return False if the file was copied instead, because no link is possible
        between the two. Raises FileExistsError, FileNotFoundError, DiskFull.
        """
        ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; an empty list if there is no such directory."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it; do nothing if it is gone. The root may be on a
        disk of its own, as a mount point, which stays, empty, or behind a link, which goes.
        """
        ...

    def remove_trees(self, paths: Sequence[str]) -> None:
        """Like `remove_tree`, for each path. What can't be removed keeps no other one."""
        ...

    def size(self, path: str) -> int | None:
        """The size of a file in bytes; None if there is none."""
        ...

    def modified_s(self, path: str) -> float | None:
        """When a file's bytes or a directory's names last changed, in seconds since the epoch; None
        if there is no such file or directory.
        """
        ...

    def stamp(self, path: str) -> FileStamp | None:
        """The file's stamp. None if there is no such file; if it was written so recently that a
        further write might not change the stamp; or if the disk has no stamps.
        """
        ...

    def is_same_file(self, path: str, other: str) -> bool:
        """Whether both are names of one file. False if one of them is gone."""
        ...

    def free_bytes(self) -> int:
        """How many bytes can still be written."""
        ...

    def lock(self, path: str, *, shared: bool) -> Lock | None:
        """Lock an existing file without waiting.

        None if the file is gone, or another lock, of this process or another one, excludes this.
        """
        ...

    def local_path(self, path: str) -> str:
        """The absolute path, for programs that open the file themselves.

        Raises io.UnsupportedOperation on a disk that other programs can't see.
        """
        ...


class naming_a_full_disk:  # noqa: N801  it reads as one word with `with`
    """Turn "no space left" into DiskFull, with the path and, if known, the bytes to be written. A
    generator as context would take longer than many a call of the system that is within.
    """

    __slots__ = ("_needed_bytes", "_path")

    def __init__(self, path: str, needed_bytes: int | None = None) -> None:
        self._path = path
        self._needed_bytes = needed_bytes

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not is_full:
            return
        needed = self._needed_bytes
        wanted = "" if needed is None else f"; {needed} bytes were to be written"
        raise DiskFull(
            f"no space left on the disk of {self._path}{wanted}. Free some space or move the "
            "table's data directory, then try again; nothing was published"
        ) from error


_NEW = ".new"  # behind the name of a file that is about to be replaced


@contextlib.contextmanager
def _locked_beside(target: str) -> Iterator[int]:
    """The file `<target>.new`, open and locked, so that only one process at a time replaces
    `target` by it. A process that dies leaves the file to the next one.
    """
    while True:
        descriptor = os.open(f"{target}{_NEW}", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_at(descriptor, f"{target}{_NEW}"):  # else it has become the target meanwhile
                yield descriptor
                return
        finally:
            os.close(descriptor)


class FileLock:
    """A flock on an open file; the kernel releases it when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LocalDisk:
    """A `Disk` in a directory of this host."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(root)

    def __repr__(self) -> str:
        return f"LocalDisk({self.root!r})"

    def local_path(self, path: str) -> str:
        assert not path.startswith("/"), f"{path} is not relative to the disk"
        assert ".." not in path.split("/"), f"{path} leaves the disk"
        return f"{self.root}/{path}" if path else self.root

    def make_directory(self, path: str, *, parents: bool = True) -> None:
        with naming_a_full_disk(self.local_path(path)):
            try:
                os.mkdir(self.local_path(path))
            except OSError as error:
                expected = (errno.EEXIST, errno.ENOENT) if parents else (errno.EEXIST,)
                if error.errno not in expected:
                    raise
                if parents:
                    os.makedirs(self.local_path(path), exist_ok=True)
                elif not Path(self.local_path(path)).is_dir():
                    raise

    def write(self, path: str, chunks: Iterable[bytes]) -> int:
        target = self.local_path(path)
        directory, size = target.rpartition("/")[0], 0
        with naming_a_full_disk(directory):
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            for chunk in chunks:
                with naming_a_full_disk(directory, len(chunk)):
                    _write_all(descriptor, chunk)
                size += len(chunk)
            if not _of_many.is_set:
                _start_writing_back(descriptor)
        finally:
            os.close(descriptor)
        return size

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        target = self.local_path(path)
        with (
            naming_a_full_disk(os.path.dirname(target), len(data)),
            _locked_beside(target) as new,
        ):
            os.ftruncate(new, 0)
            _write_all(new, data)
            if durable:
                os.fsync(new)
            Path(f"{target}{_NEW}").replace(target)
        if durable:
            _sync(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)

    def append(self, path: str, data: bytes) -> None:
        target = self.local_path(path)
        with naming_a_full_disk(os.path.dirname(target), len(data)):
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                _write_all(descriptor, data)
            finally:
                os.close(descriptor)

    def remove_file(self, path: str) -> None:
        Path(self.local_path(path)).unlink(missing_ok=True)

    def read(self, path: str) -> bytes | None:
        try:
            with open(self.local_path(path), "rb", buffering=0) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def chunks(self, path: str) -> Iterator[bytes]:
        with open(self.local_path(path), "rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def fsync(self, path: str) -> None:
        with naming_a_full_disk(os.path.dirname(self.local_path(path))):
            _sync(self.local_path(path), os.O_RDONLY)

    def fsync_directory(self, path: str) -> None:
        _sync(self.local_path(path), os.O_RDONLY | os.O_DIRECTORY)

    def fsync_trees(self, trees: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Sync many trees with all their file system (`docs/decisions/0027`). Otherwise all files
        and directories at once: the file system writes its journal once for all threads that wait
        for it at that moment, and one that waits for it alone waits again for each file. Each
        thread takes the next one when it has done one; the caller's is among them.
        """
        if len(trees) >= _TREES_TOGETHER_MIN and self._synced_together(trees):
            return
        todo = iter(
            [
                *((f"{path}/{name}", self.fsync) for path, names in trees for name in names),
                *((path, self.fsync_directory) for path, _ in trees),
            ]
        )

        def sync_next_ones() -> None:
            for path, sync in todo:
                with contextlib.suppress(FileNotFoundError):
                    sync(path)

        wanted = sum(1 + len(names) for _, names in trees)
        _helpers.do(sync_next_ones, min(wanted, _FSYNCS_AT_ONCE) - 1)

    def _synced_together(self, trees: Sequence[tuple[str, Sequence[str]]]) -> bool:
        """Sync the file systems of these trees as a whole. Return False if that is not sure to keep
        them, or would wait for much that others have written, or failed: then no tree is known to
        be synced. Raises OSError, DiskFull if the bytes of a file of these were lost.
        """
        libc = _libc_with_syncfs()
        directories: dict[int, str] = {}
        for path, _ in trees:
            with contextlib.suppress(FileNotFoundError):
                found = self.local_path(path)
                directories.setdefault(os.stat(found).st_dev, found)
        try:
            if libc is None or _dirty_bytes() > _DIRTY_BYTES_MAX:
                return False
            if not all(_sync_file_system(libc, one) for one in directories.values()):
                return False
        except OSError:  # perhaps of a file of others: an fsync of each of ours tells
            return False
        for path, names in trees:
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    _require_written(libc, self.local_path(f"{path}/{name}"))
        return True

    def at_once(self, tasks: Sequence[Callable[[], None]]) -> None:
        """A new directory or file may have to wait until the file system has written its journal,
        with nothing for the processor to do meanwhile. What many tasks write is synced together.
        """
        todo = iter(tasks)

        def do_next_ones() -> None:
            _of_many.is_set = len(tasks) >= _TREES_TOGETHER_MIN
            try:
                for task in todo:
                    task()
            except BaseException:
                deque(todo, maxlen=0)
                raise
            finally:
                _of_many.is_set = False

        _helpers.do(do_next_ones, min(len(tasks) // _TASKS_PER_WRITER, _WRITERS_AT_ONCE - 1))

    def rename(self, source: str, target: str) -> None:
        # The kernel refuses a target that is a directory with something in it, as a part always
        # has. The test before is for an empty directory or a file.
        if os.path.lexists(self.local_path(target)):
            raise FileExistsError(errno.EEXIST, "exists already", self.local_path(target))
        try:
            os.rename(self.local_path(source), self.local_path(target))
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                message = "exists already"
                raise FileExistsError(errno.EEXIST, message, self.local_path(target)) from error
            raise

    def link_from(self, disk: Disk, source: str, target: str) -> bool:
        try:
            with naming_a_full_disk(self.local_path(target)):
                os.link(disk.local_path(source), self.local_path(target))
        except OSError as error:
            if error.errno not in _WITHOUT_LINK:
                raise
        else:
            return True
        self.write(target, disk.chunks(source))
        return False

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self.local_path(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove_tree(self, path: str) -> None:
        # Another process may be removing the same tree: then files are gone already. Or a thread
        # adds a file meanwhile, as a Tally does: the next round removes it.
        if not path and os.path.islink(self.root):
            self._remove_behind_link()
            return
        for _ in range(REMOVERS_MAX):
            try:
                shutil.rmtree(self.local_path(path))
            except FileNotFoundError:
                if not os.path.lexists(self.local_path(path)):
                    return
            except OSError as error:
                if error.errno == errno.EBUSY and not path and not os.listdir(self.root):
                    return
                if error.errno != errno.ENOTEMPTY:
                    raise
            else:
                return
        raise OSError(errno.EBUSY, "others keep changing it", self.local_path(path))

    def _remove_behind_link(self) -> None:
        """Remove what is in the directory to which the root is a link, then the link. While that
        directory is there, this can be repeated. Raises FileNotFoundError if it is not: its disk is
        not mounted.
        """
        there = LocalDisk(os.path.realpath(self.root, strict=True))
        for _ in range(REMOVERS_MAX):
            names = there.list("")
            if not names:
                break
            for name in names:
                path = there.local_path(name)
                if os.path.isdir(path) and not os.path.islink(path):
                    there.remove_tree(name)
                else:
                    there.remove_file(name)
        else:  # the link is all that leads there
            raise OSError(errno.EBUSY, "others keep changing it", there.root)
        Path(self.root).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a mount point, which stays
            os.rmdir(there.root)

    def remove_trees(self, paths: Sequence[str]) -> None:
        """Remove several trees at once, since each waits for the file system: 2,000 parts take
        0.6 s instead of 4.
        """
        if len(paths) < _REMOVALS_AT_ONCE:
            do_all(self.remove_tree, paths)
            return
        with ThreadPoolExecutor(_REMOVALS_AT_ONCE, thread_name_prefix="remove") as pool:
            for done in [pool.submit(self.remove_tree, path) for path in paths]:
                done.result()

    def size(self, path: str) -> int | None:
        try:
            return os.stat(self.local_path(path)).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def modified_s(self, path: str) -> float | None:
        try:
            return os.stat(self.local_path(path)).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def stamp(self, path: str) -> FileStamp | None:
        now_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        try:
            found = os.stat(self.local_path(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if now_ns - found.st_mtime_ns < SETTLED_NS:
            return None
        return FileStamp(
            found.st_ino, found.st_size, found.st_mtime_ns, found.st_nlink, found.st_ctime_ns
        )

    def is_same_file(self, path: str, other: str) -> bool:
        try:
            return Path(self.local_path(path)).samefile(self.local_path(other))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def free_bytes(self) -> int:
        root = Path(self.root)
        while True:
            try:
                found = os.statvfs(root)
            except FileNotFoundError:  # removed: its parent is on the same disk
                root = root.parent
            else:
                return found.f_bavail * found.f_frsize

    def lock(self, path: str, *, shared: bool) -> Lock | None:
        try:
            descriptor = open_one_more(lambda: os.open(self.local_path(path), os.O_RDONLY))
        except (FileNotFoundError, NotADirectoryError):
            return None
        lock, is_ours = FileLock(descriptor), False
        try:
            how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            # Between open and flock another process, which had the lock, may have removed or
            # renamed the file: then our lock is on a file that is no longer at this path.
            is_ours = is_at(descriptor, self.local_path(path))
        except (BlockingIOError, NotADirectoryError):
            pass
        finally:
            if not is_ours:
                lock.release()
        return lock if is_ours else None


def do_all(do: Callable[[str], None], names: Iterable[str]) -> None:
    """Do this for each name, also after an error of the disk. Raises the first one in the end."""
    errors = []
    for name in names:
        try:
            do(name)
        except OSError as error:
            errors.append(error)
    if errors:
        raise errors[0]


class _Helpers:
    """Threads that wait for the disk together with the one that asks them. They are kept, as
    starting a thread takes longer than many a sync.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def do(self, work: Callable[[], None], threads: int) -> None:
        """Call `work` in this thread, and at the same time in so many others at most; none if the
        program is ending. Raises its error when all of them have ended.
        """
        running: list[Future[None]] = []
        with contextlib.suppress(RuntimeError):
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_FSYNCS_AT_ONCE, thread_name_prefix="fsync")
            running += (self._pool.submit(work) for _ in range(threads))
        try:
            work()
        finally:
            running = [one for one in running if not one.cancel()]
            wait(running)
        for one in running:
            one.result()

    def forget(self) -> None:
        """The threads of a process do not exist in its forks."""
        self._pool = None


_helpers = _Helpers()
os.register_at_fork(after_in_child=_helpers.forget)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _start_writing_back(descriptor: int) -> None:
    """Hint that the kernel should start writing the file's bytes to the disk now.

    An `fsync` soon afterwards then waits half as long: 25 ms for a hundred parts instead of 60. The
    pages stay in memory until they are written.
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


class _OfMany(threading.local):
    """Whether this thread writes one of many parts, of which each is not worth a hint."""

    is_set = False


_of_many = _OfMany()


@lru_cache(maxsize=1)
def _libc_with_syncfs() -> "ctypes.CDLL | None":
    """The C library, if the kernel's syncfs can be relied on: Linux, from `_KERNEL_MIN`."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or version is None:
        return None
    if (int(version[1]), int(version[2])) < _KERNEL_MIN:
        return None
    import ctypes  # noqa: PLC0415  start-up: most programs never sync many parts

    libc = ctypes.CDLL(None, use_errno=True)
    if not all(hasattr(libc, name) for name in ("syncfs", "fstatfs", "sync_file_range")):
        return None
    libc.sync_file_range.argtypes = [
        ctypes.c_int,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_uint,
    ]
    return libc


def _dirty_bytes() -> int:
    """About how many bytes the kernel has yet to write to all disks of the host."""
    with open("/proc/meminfo", "rb", buffering=0) as file:
        return sum(int(kilobytes) << 10 for kilobytes in _DIRTY.findall(file.read()))


def _sync_file_system(libc: "ctypes.CDLL", directory: str) -> bool:
    """Sync all of the directory's file system. Return False if its kind is not known to keep all
    that was written when this has returned. Raises OSError if anything on it was not written.
    """
    import ctypes  # noqa: PLC0415  start-up: it is imported by now, as `libc` shows

    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        about = ctypes.create_string_buffer(256)  # a struct statfs, which begins with the kind
        _checked(libc.fstatfs(descriptor, about), directory)
        if ctypes.c_long.from_buffer(about).value & 0xFFFFFFFF not in _SURE_FILE_SYSTEMS:
            return False
        _checked(libc.syncfs(descriptor), directory)
        os.fsync(descriptor)  # ext2, or ext4 without a journal, left names in the disk's cache
    finally:
        os.close(descriptor)
    return True


def _require_written(libc: "ctypes.CDLL", path: str) -> None:
    """Raise OSError, DiskFull if bytes of the file could not be written to the disk, and no program
    was told so yet. The sync of a file system does not tell an error that another program's sync
    was told a moment before. The error must not be swallowed: an fsync later does not tell it
    again.
    """
    with naming_a_full_disk(os.path.dirname(path)):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            _checked(libc.sync_file_range(descriptor, 0, 0, _WAIT_BEFORE), path)
        finally:
            os.close(descriptor)


def _checked(answer: int, path: str) -> None:
    """Raises OSError if a function of the C library failed."""
    import ctypes  # noqa: PLC0415  start-up: as above

    if answer:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
