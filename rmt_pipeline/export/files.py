"""The files of an export, on the disk of its server.

exports/<table's directory>/<format>/
    _lock                              held by whoever brings it up to date
    data/<part>-<hash>/data-….parquet  second names for the files of a part: no byte is copied
    _retired/<part>-<hash>             since when no version has it, in seconds
    _tmp_<id>/                         being made
    _delta_log/ or metadata/           the format's own

1. A part's files have their second names before a version names them, and keep them until
   `lease_s` after the last version that does has been replaced: who reads a version is not
   disturbed by merges, mutations, DROP or clean-up, which know the table's own directory only.
2. Of whoever dies in between, what has no version's name is retired, and goes in its time.
3. Names that begin with `_` are hidden from those that clean up such tables (VACUUM).
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from rmt_pipeline.export.columns import INT64_MAX, NotExportable
from rmt_pipeline.protocol.errors import Conflict, MissingPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk
from rmt_pipeline.store.hashes.checksums import hash_of_chunks
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.parquet import COMPRESSION
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import Clock, IdSource

_LOCK = "_lock"
_RETIRED = "_retired"
_TMP = "_tmp_"
_DATA = "data"
_HASH_DIGITS = 16
_UNSIGNED_64 = "Int(bitWidth=64, isSigned=false)"


class ExportIsBusy(Conflict):
    """Another process brings the same export up to date. Nothing was changed."""


class ExportedFile(NamedTuple):
    """`path` is below the export's directory."""

    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ExportFiles:
    """Of one table in one format. `root`: its directory on the server's disk."""

    disk: Disk
    root: str
    clock: Clock
    ids: IdSource

    @property
    def directory(self) -> str:
        return self.disk.local_path(self.root)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else changes it meanwhile. Raises ExportIsBusy."""
        lock_file = layout.join(self.root, _LOCK)
        self.disk.make_directory(self.root)
        self.disk.append(lock_file, b"")
        lock = self.disk.lock(lock_file, shared=False)
        if lock is None:
            raise ExportIsBusy(
                f"{self.directory} is being brought up to date by another process: try again"
            )
        try:
            for name in self.disk.list(self.root):
                if name.startswith(_TMP):
                    self.disk.remove_tree(layout.join(self.root, name))
            yield
        finally:
            lock.release()

    def has(self, name: str) -> bool:
        """Whether a part that was written anew is here, also of one who died or of an older
        version.
        """
        return (
            self.disk.size(layout.join(self.root, _DATA, name, layout.data_file(0))) is not None
        )

    def has_links(
        self, store: PartStore, part: PartName, manifest: Manifest, name: str
    ) -> bool:
        """Whether a part has its names here, all of them, and of the files that it has now: one
        that was broken, and fetched again, has others. What is no link has the same bytes.
        """
        for file in manifest.files:
            place = layout.join(self.root, _DATA, name, file.name)
            mine = self.disk.stamp(place)
            theirs = store.disk.stamp(layout.join(store.root, str(part), file.name))
            if mine is None:
                return False
            if mine == theirs:
                continue
            if hash_of_chunks(self.disk.chunks(place)) != (file.size, file.hash):
                return False
        return True

    def files(self, name: str, columns: Collection[str]) -> list[ExportedFile]:
        """Of a part that has its names here; `columns`: what is exported, as the files call it.
        Raises NotExportable.
        """
        found = []
        for file in self.disk.list(layout.join(self.root, _DATA, name)):
            path = layout.join(_DATA, name, file)
            place = layout.join(self.root, path)
            footer = pq.read_metadata(self.disk.local_path(place))
            _require_signed(footer, path, columns)
            size = self.disk.size(place)
            assert size is not None, f"{path} was just read"
            found.append(ExportedFile(path, footer.num_rows, size))
        return found

    def link(self, store: PartStore, part: PartName, manifest: Manifest, name: str) -> None:
        """Second names for the files of a part that the caller has pinned. Raises MissingPart."""
        with self._made(name) as directory:
            for file in manifest.files:
                source = layout.join(store.root, str(part), file.name)
                try:
                    self.disk.link_from(store.disk, source, layout.join(directory, file.name))
                except FileNotFoundError as error:
                    raise MissingPart(f"{part} has lost a file: {error}", part=part) from error

    def write(self, rows: Iterator[pa.Table], schema: pa.Schema, name: str) -> None:
        """A file of these columns of the rows, for a part whose own files are not what the table
        is now.
        """
        with self._made(name) as directory:
            path = self.disk.local_path(layout.join(directory, layout.data_file(0)))
            with pq.ParquetWriter(
                path, schema, compression=COMPRESSION, store_schema=False
            ) as writer:
                for some in rows:
                    writer.write_table(some.select(schema.names).cast(schema))

    @contextmanager
    def _made(self, name: str) -> Iterator[str]:
        """A directory that gets its name when all is in it, and safe. What was there goes."""
        directory = layout.join(self.root, _TMP + self.ids.new_id())
        self.disk.make_directory(directory)
        yield directory
        self.disk.fsync_trees([(directory, self.disk.list(directory))])
        self.disk.make_directory(layout.join(self.root, _DATA))
        self._remove(name)
        self.disk.rename(directory, layout.join(self.root, _DATA, name))
        self.disk.fsync_directory(layout.join(self.root, _DATA))

    def retire(self, keep: Collection[str], lease_s: float) -> list[str]:
        """What the version of now does not have goes when its lease is over; which went."""
        now_s, gone = self.clock.now_s(), []
        self.disk.make_directory(layout.join(self.root, _RETIRED))
        for name in self.disk.list(layout.join(self.root, _DATA)):
            note = layout.join(self.root, _RETIRED, name)
            if name in keep:
                self.disk.remove_file(note)
                continue
            since_s = self._since_s(note)
            if since_s is None:
                self.disk.write(note, [f"{now_s}\n".encode()])
            elif now_s - since_s >= lease_s:
                self._remove(name)
                self.disk.remove_file(note)
                gone.append(name)
        return gone

    def _remove(self, name: str) -> None:
        """Never half of it: whoever dies leaves a directory that the next one removes."""
        gone = layout.join(self.root, _TMP + self.ids.new_id())
        with suppress(FileNotFoundError):
            self.disk.rename(layout.join(self.root, _DATA, name), gone)
            self.disk.remove_tree(gone)

    def _since_s(self, note: str) -> float | None:
        with suppress(ValueError):
            return float(self.disk.read(note) or b"")
        return None


def name_of(part: PartName, manifest: Manifest, kind: str) -> str:
    """Of a part's directory here. A part of the same name with other bytes has another one; as
    has one that was converted, in what `kind` says.
    """
    of_bytes = manifest.files_hash.hex()[:_HASH_DIGITS]
    return "-".join(filter(None, [str(part), of_bytes, kind]))


def _require_signed(footer: pq.FileMetaData, path: str, columns: Collection[str]) -> None:
    """Raises NotExportable for an integer that is larger than other programs have them."""
    for place in range(footer.num_columns):
        column = footer.schema.column(place)
        is_wide = str(column.logical_type) == _UNSIGNED_64
        if not is_wide or not any(f"{column.path}.".startswith(f"{one}.") for one in columns):
            continue
        for number in range(footer.num_row_groups):
            known = footer.row_group(number).column(place).statistics
            if known is None or (known.has_min_max and known.max > INT64_MAX):
                largest = "values that are not known" if known is None else known.max
                raise NotExportable(
                    f"{path}: column {column.path} has {largest}, and Delta and Iceberg have no "
                    f"integers above {INT64_MAX}. Name the columns to export without it"
                )
