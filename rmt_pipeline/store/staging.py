"""Staged parts, under temporary names: those being written, and whole ones not yet published."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import NamedTuple, Self

from rmt_pipeline.protocol.errors import MissingPart
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk
from rmt_pipeline.store.hashes.checksums import HashingChunks
from rmt_pipeline.store.manifest import Manifest, PartFile


class GivenRows(NamedTuple):
    """The rows of an insert as they were given, before the table's engine combined some: how many,
    and the sum of their hashes.
    """

    rows: int
    row_hash: int


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A whole part under a temporary name, which is not synced: a crash of the host may lose it.

    It is plain data and may be passed between processes.
    """

    directory: str
    """The directory's name within the table's directory."""
    manifest: Manifest
    is_clone: bool = False
    """Its data files are hard links to those of a published part, so they are synced already."""
    given: GivenRows | None = None
    """The rows of which an insert made it; None if they are the rows that it has."""

    @property
    def source(self) -> GivenRows:
        """The rows of which it was made."""
        return self.given or GivenRows(self.manifest.rows, self.manifest.row_hash)

    def names_to_sync(self) -> list[str]:
        """The names of the files that publishing has to sync."""
        files = () if self.is_clone else self.manifest.files
        return [*(file.name for file in files), layout.MANIFEST]


@dataclass(frozen=True, slots=True)
class FetchNote:
    """A running fetch and its source, for `system.replicated_fetches`."""

    started_s: float
    """Seconds since the epoch."""
    total_bytes: int
    source_path: str
    """The path in ZooKeeper of the replica that sends the part."""
    scheme: str
    host: str
    port: int
    uri: str


def all_gone(directory: str) -> MissingPart:
    """The error to raise when the directory of a table is gone."""
    return MissingPart(f"{directory} is gone, and all parts with it: was the table dropped?")


def make_in_table(disk: Disk, root: str, directory: str) -> None:
    """Make a directory in the table's directory `root`. That must exist: a table that was dropped
    does not get its directory back. Raises MissingPart.
    """
    try:
        disk.make_directory(layout.join(root, directory), parents=False)
    except FileNotFoundError as error:
        raise all_gone(root or disk.local_path(root)) from error


class Staging:
    """A directory that is being filled, whose name no other process knows. It ends with `seal` or
    `abandon`.
    """

    def __init__(self, disk: Disk, root: str, directory: str) -> None:
        self.directory = directory
        self._disk = disk
        self._path = layout.join(root, directory)

    @classmethod
    def begun(cls, disk: Disk, root: str, directory: str) -> Self:
        """Make the staging directory. The table's directory must exist: it is not made again.

        1. A worker has claimed a fetch, and looks for a source.
        2. DROP TABLE removes the replica from ZooKeeper, and then the directory.
        3. The worker fetches the part, publishes it on the disk, and learns that the replica is
           gone.
        4. CREATE TABLE makes a table with the same directory. In it is a part with a number that
           the new table's nodes in ZooKeeper have never given out: the table is read-only until a
           person decides what to do.

        Raises MissingPart if the table's directory is gone.
        """
        make_in_table(disk, root, directory)
        return cls(disk, root, directory)

    def write(self, name: str, data: bytes | Iterable[bytes]) -> PartFile:
        """Write one data file. Raises DiskFull, MissingPart (the directory is gone); the caller
        then abandons the staging.
        """
        through = HashingChunks([data] if isinstance(data, bytes) else data)
        self._write(name, through)
        return PartFile(name, through.size, through.hexdigest())

    @contextmanager
    def noted(self, note: FetchNote) -> Iterator[None]:
        """Show the fetch to other processes while the context is open. The note is a file that this
        process holds locked: a note that is not locked was left by a process that died.
        """
        path = layout.join(self._path, layout.FETCHING)
        self._write(layout.FETCHING, [json.dumps(asdict(note)).encode()])
        lock = self._disk.lock(path, shared=False)
        try:
            yield
        finally:
            try:
                self._disk.remove_file(path)
            finally:
                if lock is not None:
                    lock.release()

    def asked_to_stop(self) -> str:
        """Why the part is no longer wanted, if another process has asked to stop; ""
        if none has.
        """
        said = self._disk.read(layout.join(self._path, layout.STOP))
        return "" if said is None else said.decode(errors="replace")

    def local_path(self, name: str) -> str:
        """The absolute path of the data file `name`, for another writer (Parquet's)."""
        return self._disk.local_path(layout.join(self._path, name))

    def seal(
        self, manifest: Manifest, text: bytes = b"", given: GivenRows | None = None
    ) -> StagedPart:
        """Write the manifest, after all data files. A caller that has its `text` already gives it,
        which saves encoding it. `given` is as in StagedPart. Raises DiskFull, MissingPart.

        Nothing is synced: `PartStore.publish` does that, for many parts at once.
        """
        for file in manifest.files:
            size = self._disk.size(layout.join(self._path, file.name))
            if size is None and self._disk.modified_s(self._path) is None:
                raise self._gone()
            where = f"{self.directory}/{file.name}"
            assert size == file.size, f"{where}: {size} bytes, not {file.size}"
        self._write(layout.MANIFEST, [text or manifest.encode()])
        return StagedPart(self.directory, manifest, given=given)

    def abandon(self) -> None:
        """Remove the directory with everything in it."""
        self._disk.remove_tree(self._path)

    def _write(self, name: str, chunks: Iterable[bytes]) -> None:
        try:
            self._disk.write(layout.join(self._path, name), chunks)
        except FileNotFoundError as error:
            raise self._gone() from error

    def _gone(self) -> MissingPart:
        """The error for a staging directory that is gone: a sweep removes directories that look
        old, as all do when the clock jumps.
        """
        return MissingPart(
            f"{self.directory} was removed while it was being written; did the host's clock jump "
            "beyond temporary_directories_lifetime? Nothing was published; try again"
        )
