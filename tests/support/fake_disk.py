"""A disk in memory that forgets, at a crash of its host, what was not synced.

Bytes and names are kept apart, as file systems do: a file's bytes are safe after `fsync`, a
change of names after `fsync_directory`. Until then each change of names waits in a journal;
`crash` lets any of them survive and undoes the others, one by one, and cuts files that were not
synced.

`tests/contract/test_disk_contract.py` runs the same tests against this and `LocalDisk`.
"""

import contextlib
import errno
import io
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.store.disk import Disk, FileStamp

CHUNK_BYTES = 1 << 20
FREE_BYTES = 1 << 40


class BadSector(OSError):
    """What a disk answers that fails, for a moment or for good."""


def fsync_tree(disk: Disk, directory: str, names: Sequence[str]) -> None:
    """Sync these files of a directory, then their names. Stops quietly at one that is missing."""
    with contextlib.suppress(FileNotFoundError):
        for name in names:
            disk.fsync(f"{directory}/{name}")
        disk.fsync_directory(directory)


class FakeLock:
    def __init__(self, file: "_File", *, shared: bool) -> None:
        self._file = file
        self.shared = shared
        file.locks.append(self)

    def release(self) -> None:
        if self in self._file.locks:
            self._file.locks.remove(self)


class _File:
    __slots__ = ("data", "is_bad", "is_rotten", "is_synced", "locks", "modified_s")

    def __init__(self, modified_s: float) -> None:
        self.data = b""
        self.is_bad = False
        self.is_rotten = False
        self.is_synced = False
        self.modified_s = modified_s
        self.locks: list[FakeLock] = []


class _Directory:
    """`names` are what processes see; `kept` is what a crash of the host can't take away."""

    __slots__ = ("kept", "modified_s", "names")

    def __init__(self, modified_s: float) -> None:
        self.names: dict[str, _Node] = {}
        self.kept: dict[str, _Node] = {}
        self.modified_s = modified_s


_Node = _File | _Directory


@dataclass(frozen=True, slots=True, eq=False)
class _Put:
    directory: _Directory
    name: str
    node: _Node

    def keep(self) -> None:
        self.directory.kept[self.name] = self.node

    def touches(self, directory: _Directory) -> bool:
        return self.directory is directory


@dataclass(frozen=True, slots=True, eq=False)
class _Drop:
    directory: _Directory
    name: str
    node: _Node

    def keep(self) -> None:
        if self.directory.kept.get(self.name) is self.node:
            del self.directory.kept[self.name]

    def touches(self, directory: _Directory) -> bool:
        return self.directory is directory


@dataclass(frozen=True, slots=True, eq=False)
class _Move:
    source: _Directory
    old: str
    target: _Directory
    new: str
    node: _Node

    def keep(self) -> None:
        if self.source.kept.get(self.old) is self.node:  # else its making did not survive
            del self.source.kept[self.old]
            self.target.kept[self.new] = self.node

    def touches(self, directory: _Directory) -> bool:
        return directory in (self.source, self.target)


_Change = _Put | _Drop | _Move


@dataclass(slots=True)
class FakeDisk:
    """`now_s` is the host's clock. While `full`, nothing more can be written."""

    now_s: Callable[[], float]
    full: bool = False
    on_leave: list[Callable[[str], None]] = field(default_factory=list)
    """Told each path that is about to be renamed or removed."""
    _root: _Directory = field(init=False)
    _journal: list[_Change] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._root = _Directory(self.now_s())

    # What the store asks of a disk

    def make_directory(self, path: str, *, parents: bool = True) -> None:
        if not parents:
            self._parent(path)
        directory = self._root
        for name in _names(path):
            inner = directory.names.get(name)
            if inner is None:
                self._require_space(path)
                inner = _Directory(self.now_s())
                self._put(directory, name, inner)
            if not isinstance(inner, _Directory):
                raise FileExistsError(errno.EEXIST, "is a file", path)
            directory = inner

    def write(self, path: str, chunks: Iterable[bytes]) -> int:
        directory, name = self._parent(path)
        self._require_space(path)
        file = directory.names.get(name)
        if file is None:
            file = _File(self.now_s())
            self._put(directory, name, file)
        if not isinstance(file, _File):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        file.data = b""
        file.is_bad = file.is_rotten = file.is_synced = False
        for chunk in chunks:
            self._require_space(path)
            file.data += chunk
            file.modified_s = self.now_s()
        return len(file.data)

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        directory, name = self._parent(path)
        self._require_space(path)
        file = _File(self.now_s())
        file.data, file.is_synced = data, durable
        self._put(directory, name, file)
        if durable:
            self._keep_changes_of(directory)

    def read(self, path: str) -> bytes | None:
        node = self._find(path)
        return self._bytes_of(path, node) if isinstance(node, _File) else None

    def chunks(self, path: str) -> Iterator[bytes]:
        node = self._find(path)
        if not isinstance(node, _File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        data = self._bytes_of(path, node)
        for start in range(0, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]

    def fsync(self, path: str) -> None:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, _File):
            node.is_synced = True

    def fsync_directory(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self._keep_changes_of(node)

    def fsync_trees(self, trees: Sequence[tuple[str, Sequence[str]]]) -> None:
        for tree in trees:
            fsync_tree(self, *tree)

    def at_once(self, tasks: Sequence[Callable[[], None]]) -> None:
        for task in tasks:
            task()

    def rename(self, source: str, target: str) -> None:
        old_directory, old = self._parent(source)
        node = old_directory.names.get(old)
        if self._find(target) is not None:
            raise FileExistsError(errno.EEXIST, "exists already", target)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", source)
        new_directory, new = self._parent(target)
        self._leaves(source)
        del old_directory.names[old]
        new_directory.names[new] = node
        old_directory.modified_s = new_directory.modified_s = self.now_s()
        self._journal.append(_Move(old_directory, old, new_directory, new, node))

    def link_from(self, disk: Disk, source: str, target: str) -> bool:
        """From another disk only a copy leads here."""
        if disk is not self:
            self.write(target, disk.chunks(source))
            return False
        file = self._find(source)
        if not isinstance(file, _File):
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        directory, name = self._parent(target)
        if name in directory.names:
            raise FileExistsError(errno.EEXIST, "exists already", target)
        self._require_space(target)
        self._put(directory, name, file)
        return True

    def list(self, path: str) -> list[str]:
        node = self._find(path)
        return sorted(node.names) if isinstance(node, _Directory) else []

    def remove_tree(self, path: str) -> None:
        try:
            directory, name = self._parent(path)
        except FileNotFoundError:
            return
        if name in directory.names:
            self._leaves(path)
            node = directory.names.pop(name)
            directory.modified_s = self.now_s()
            self._journal.append(_Drop(directory, name, node))

    def remove_trees(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.remove_tree(path)

    def size(self, path: str) -> int | None:
        node = self._find(path)
        if isinstance(node, _File):
            return len(node.data)
        return None if node is None else 0

    def modified_s(self, path: str) -> float | None:
        node = self._find(path)
        return None if node is None else node.modified_s

    def stamp(self, path: str) -> FileStamp | None:
        """Not known: whoever reads a part reads all of it."""
        del path
        return None

    def is_same_file(self, path: str, other: str) -> bool:
        file = self._find(path)
        return isinstance(file, _File) and file is self._find(other)

    def free_bytes(self) -> int:
        return 0 if self.full else FREE_BYTES

    def lock(self, path: str, *, shared: bool) -> FakeLock | None:
        file = self._find(path)
        if not isinstance(file, _File):
            return None
        if any(not (held.shared and shared) for held in file.locks):
            return None
        return FakeLock(file, shared=shared)

    def local_path(self, path: str) -> str:
        raise io.UnsupportedOperation(f"{path} is on a disk in memory")

    # What can happen to it

    def crash(self, rng: random.Random) -> None:
        """The host lost its power. Locks are gone with the processes."""
        for change in self._journal:
            if rng.random() < 0.5:
                change.keep()
        self._journal.clear()
        self._forget(self._root, rng, set())

    def is_safe(self, path: str) -> bool:
        """Whether a crash of the host right now would leave this file or directory as it is."""
        node, safe = self._find(path), self._root
        *above, name = _names(path)
        for directory in above:
            inner = safe.kept.get(directory)
            if not isinstance(inner, _Directory):
                return False
            safe = inner
        return safe.kept.get(name) is node and (
            isinstance(node, _Directory) or (node is not None and node.is_synced)
        )

    def append(self, path: str, data: bytes) -> None:
        if data or self._find(path) is None:  # else it is locked, perhaps, and stays that file
            self.write(path, [(self.read(path) or b"") + data])

    def remove_file(self, path: str) -> None:
        if self._find(path) is not None:
            directory, name = self._parent(path)
            self._journal.append(_Drop(directory, name, directory.names.pop(name)))

    def write_part_of(self, path: str, chunks: Iterable[bytes], rng: random.Random) -> None:
        """A `write` whose process died in it."""
        data = b"".join(chunks)
        self.write(path, [data[: rng.randint(0, len(data))]])

    def remove_part_of(self, path: str, rng: random.Random) -> None:
        """A `remove_tree` whose process died in it."""
        node = self._find(path)
        if isinstance(node, _Directory):
            for name in list(node.names):
                if rng.random() < 0.5:
                    self.remove_tree(f"{path}/{name}")

    def lose(self, path: str) -> None:
        """A directory is gone, for good, and nobody did it."""
        directory, name = self._parent(path)
        directory.names.pop(name)
        self._keep_changes_of(directory)
        del directory.kept[name]

    def copy(self, source: str, target: str) -> None:
        """The files of a directory once more under another name, as a person may leave them."""
        self.make_directory(target)
        for name in self.list(source):
            self.write(f"{target}/{name}", [self.read(f"{source}/{name}") or b""])
            self.fsync(f"{target}/{name}")
        self.fsync_directory(target)

    def spoil(self, path: str) -> None:
        """No byte of the file can be read any more, until it is written anew."""
        file = self._find(path)
        assert isinstance(file, _File)
        file.is_bad = True

    def peek(self, path: str) -> bytes | None:
        """What was written to a file, whether or not it can be read."""
        node = self._find(path)
        return node.data if isinstance(node, _File) else None

    def rot(self, path: str, rng: random.Random) -> None:
        """Flip one bit of a file."""
        file = self._find(path)
        assert isinstance(file, _File)
        assert file.data, f"{path} has no bits"
        position = rng.randrange(len(file.data))
        flipped = file.data[position] ^ (1 << rng.randrange(8))
        file.data = file.data[:position] + bytes([flipped]) + file.data[position + 1 :]
        file.is_rotten = True

    def is_damaged(self, path: str) -> bool:
        """Whether `spoil` or `rot` have struck this file, under this name or one linked to it."""
        node = self._find(path)
        return isinstance(node, _File) and (node.is_bad or node.is_rotten)

    @staticmethod
    def _bytes_of(path: str, file: _File) -> bytes:
        if file.is_bad:
            raise BadSector(errno.EIO, "input/output error", path)
        return file.data

    def _forget(self, directory: _Directory, rng: random.Random, cut: set[int]) -> None:
        directory.names = dict(directory.kept)
        for node in directory.names.values():
            if isinstance(node, _Directory):
                self._forget(node, rng, cut)
                continue
            node.locks.clear()
            if not node.is_synced and id(node) not in cut:
                cut.add(id(node))  # a file may have two names
                node.data = node.data[: rng.randint(0, len(node.data))]
                node.is_synced = True

    def _keep_changes_of(self, directory: _Directory) -> None:
        later: list[_Change] = []
        for change in self._journal:
            if change.touches(directory):
                change.keep()
            else:
                later.append(change)
        self._journal = later
        # A directory whose names are safe can be reached, as on any journaling file system.
        for change in later:
            if isinstance(change, _Put) and change.node is directory:
                self._keep_changes_of(change.directory)
                return

    def _put(self, directory: _Directory, name: str, node: _Node) -> None:
        directory.names[name] = node
        directory.modified_s = self.now_s()
        self._journal.append(_Put(directory, name, node))

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        for name in _names(path):
            if not isinstance(node, _Directory):
                return None
            node = node.names.get(name)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        above, _, name = path.rpartition("/")
        directory = self._find(above)
        if not isinstance(directory, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", above)
        return directory, name

    def _leaves(self, path: str) -> None:
        for told in self.on_leave:
            told(path)

    def _require_space(self, path: str) -> None:
        if self.full:
            raise DiskFull(f"no space left for {path}; nothing was published")


def _names(path: str) -> list[str]:
    assert not path.startswith("/"), f"{path} is not relative to the disk"
    return path.split("/") if path else []
