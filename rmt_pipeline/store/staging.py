"""Parts under temporary names: being filled, and whole but not published yet."""

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
    """Rows as they came with an insert, before its engine made fewer of them: how many, and the sum
    of their hashes.
    """

    rows: int
    row_hash: int


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A whole part under a temporary name; a crash of the host may still take it.

    Plain data: may travel between processes.
    """

    directory: str
    """Name within the table's directory."""
    manifest: Manifest
    is_clone: bool = False
    """Its data files are a published part's, so they are safe already."""
    given: GivenRows | None = None
    """Of which rows an insert made it; None: those that it has."""

    @property
    def source(self) -> GivenRows:
        return self.given or GivenRows(self.manifest.rows, self.manifest.row_hash)

    def names_to_sync(self) -> list[str]:
        files = () if self.is_clone else self.manifest.files
        return [*(file.name for file in files), layout.MANIFEST]


@dataclass(frozen=True, slots=True)
class FetchNote:
    """What is being fetched, from whom. For `system.replicated_fetches`."""

    started_s: float
    """Seconds since the epoch."""
    total_bytes: int
    source_path: str
    """Of the replica in ZooKeeper."""
    scheme: str
    host: str
    port: int
    uri: str


def all_gone(directory: str) -> MissingPart:
    """What is said when the directory of a whole table is not there any more."""
    return MissingPart(f"{directory} is gone, and all parts with it: was the table dropped?")


class Staging:
    """A directory being filled. Nobody else knows it. Ends with `seal` or `abandon`."""

    def __init__(self, disk: Disk, root: str, directory: str) -> None:
        self.directory = directory
        self._disk = disk
        self._path = layout.join(root, directory)

    @classmethod
    def begun(cls, disk: Disk, root: str, directory: str) -> Self:
        """Who is late does not make the directory of the table again:

        1. A worker has claimed a fetch, and looks for a source.
        2. DROP TABLE: the replica leaves ZooKeeper, and then the directory goes.
        3. The worker fetches the part, gives it its name, and is told that the replica is gone.
        4. CREATE TABLE of the same name has the same directory, with a part in it whose number its
           own nodes in ZooKeeper have never given out: it is read-only until a person decides.

        So the directory has to be there. Raises MissingPart.
        """
        try:
            disk.make_directory(layout.join(root, directory), parents=False)
        except FileNotFoundError as error:
            raise all_gone(root or disk.local_path(root)) from error
        return cls(disk, root, directory)

    def write(self, name: str, data: bytes | Iterable[bytes]) -> PartFile:
        """One data file. Raises DiskFull, MissingPart (the directory is gone); the staging is
        then to be abandoned.
        """
        through = HashingChunks([data] if isinstance(data, bytes) else data)
        self._write(name, through)
        return PartFile(name, through.size, through.hexdigest())

    @contextmanager
    def noted(self, note: FetchNote) -> Iterator[None]:
        """While this is open, others see what is fetched: in a file that we hold locked, so that
        one whose process has died tells nothing.
        """
        path = layout.join(self._path, layout.FETCHING)
        self._write(layout.FETCHING, [json.dumps(asdict(note)).encode()])
        lock = self._disk.lock(path, shared=False)
        try:
            yield
        finally:
            self._disk.remove_file(path)
            if lock is not None:
                lock.release()

    def asked_to_stop(self) -> str:
        """Why nobody needs it any more; "" while somebody does."""
        said = self._disk.read(layout.join(self._path, layout.STOP))
        return "" if said is None else said.decode(errors="replace")

    def local_path(self, name: str) -> str:
        """Where another writer (Parquet's) shall put the data file `name`."""
        return self._disk.local_path(layout.join(self._path, name))

    def seal(self, manifest: Manifest, text: bytes = b"") -> StagedPart:
        """Everything is written; the manifest comes last, for which whoever has decoded it gives
        its `text`. Raises DiskFull, MissingPart.

        Nothing is synced: `PartStore.publish` does that, for many parts at once.
        """
        for file in manifest.files:
            size = self._disk.size(layout.join(self._path, file.name))
            if size is None and self._disk.modified_s(self._path) is None:
                raise self._gone()
            where = f"{self.directory}/{file.name}"
            assert size == file.size, f"{where}: {size} bytes, not {file.size}"
        self._write(layout.MANIFEST, [text or manifest.encode()])
        return StagedPart(self.directory, manifest)

    def abandon(self) -> None:
        self._disk.remove_tree(self._path)

    def _write(self, name: str, chunks: Iterable[bytes]) -> None:
        try:
            self._disk.write(layout.join(self._path, name), chunks)
        except FileNotFoundError as error:
            raise self._gone() from error

    def _gone(self) -> MissingPart:
        """A clean-up sweeps what looks old, and a clock that jumps makes everything look so."""
        return MissingPart(
            f"{self.directory} was removed while it was being written; did the host's clock jump "
            "beyond temporary_directories_lifetime? Nothing was published; try again"
        )
