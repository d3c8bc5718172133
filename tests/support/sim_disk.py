"""A host's disk as one of its processes sees it: each change is an effect of the world."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from rmt_pipeline.store.disk import Disk, FileStamp
from tests.support.fake_disk import FakeDisk, FakeLock, fsync_tree
from tests.support.schedule import Kind
from tests.support.world import Process

T = TypeVar("T")


class SimDisk:
    """The `Disk` protocol. Reading changes nothing, so only changes are effects; but others may run
    before something is read or locked, and it may fail.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._disk: FakeDisk = process.host.disk

    def make_directory(self, path: str, *, parents: bool = True) -> None:
        self._change(
            "make directory",
            path,
            lambda: self._disk.make_directory(path, parents=parents),
            kind=Kind.SPACE,
        )

    def write(self, path: str, chunks: Iterable[bytes]) -> int:
        pieces = list(chunks)  # what comes from a peer has effects of its own
        return self._change(
            "write",
            path,
            lambda: self._disk.write(path, pieces),
            lambda rng: self._disk.write_part_of(path, pieces, rng),
            kind=Kind.SPACE,
        )

    def replace(self, path: str, data: bytes, *, durable: bool = False) -> None:
        self._change(
            "write",
            path,
            lambda: self._disk.replace(path, data, durable=durable),
            kind=Kind.SPACE,
        )

    def append(self, path: str, data: bytes) -> None:
        """What is for people to read no world depends on, and it is no effect. Nothing is appended
        to a file that is to be locked.
        """
        if not data and self._disk.size(path) is None:
            self._change("make", path, lambda: self._disk.append(path, b""), kind=Kind.SPACE)

    def remove_file(self, path: str) -> None:
        """Of what is appended there is none."""
        if self._disk.size(path) is not None:
            self._change("remove", path, lambda: self._disk.remove_file(path))

    def read(self, path: str) -> bytes | None:
        self._world.look(self._process, path)
        return self._disk.read(path)

    def chunks(self, path: str) -> Iterator[bytes]:
        self._world.look(self._process, path)
        yield from self._disk.chunks(path)

    def fsync(self, path: str) -> None:
        self._change("fsync", path, lambda: self._disk.fsync(path), kind=Kind.SPACE)

    def fsync_directory(self, path: str) -> None:
        self._change("fsync directory", path, lambda: self._disk.fsync_directory(path))

    def fsync_trees(self, trees: Sequence[tuple[str, Sequence[str]]]) -> None:
        for tree in trees:
            fsync_tree(self, *tree)

    def at_once(self, tasks: Sequence[Callable[[], None]]) -> None:
        for task in tasks:
            task()

    def rename(self, source: str, target: str) -> None:
        self._change("rename", f"{source} {target}", lambda: self._disk.rename(source, target))

    def link_from(self, disk: Disk, source: str, target: str) -> bool:
        assert isinstance(disk, SimDisk)
        return self._change(
            "link",
            target,
            lambda: self._disk.link_from(disk._disk, source, target),
            kind=Kind.SPACE,
        )

    def list(self, path: str) -> list[str]:
        self._world.look(self._process, path)
        return self._disk.list(path)

    def remove_tree(self, path: str) -> None:
        self._change(
            "remove",
            path,
            lambda: self._disk.remove_tree(path),
            lambda rng: self._disk.remove_part_of(path, rng),
        )

    def remove_trees(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.remove_tree(path)

    def size(self, path: str) -> int | None:
        return self._disk.size(path)

    def modified_s(self, path: str) -> float | None:
        return self._disk.modified_s(path)

    def stamp(self, path: str) -> FileStamp | None:
        return self._disk.stamp(path)

    def is_same_file(self, path: str, other: str) -> bool:
        return self._disk.is_same_file(path, other)

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def lock(self, path: str, *, shared: bool) -> FakeLock | None:
        self._world.maybe_pause(self._process)
        lock = self._disk.lock(path, shared=shared)
        if lock is not None:
            self._process.locks.append(lock)
        return lock

    def local_path(self, path: str) -> str:
        """A path that the simulated merger understands."""
        return f"/{self._process.host.name}/{path}" if path else f"/{self._process.host.name}"

    def _change(
        self,
        what: str,
        path: str,
        act: Callable[[], T],
        partly: Callable[[random.Random], object] | None = None,
        *,
        kind: Kind = Kind.DISK,
    ) -> T:
        return self._world.effect(self._process, kind, what, path, act, partly=partly)
