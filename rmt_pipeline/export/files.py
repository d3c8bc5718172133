"""The files of an export, on the disk of its server.

exports/<table's directory>/<format>/
    _lock                              held by the process that refreshes the export
    data/<part>-<hash>/data-….parquet  hard links to the files of a part: no byte is copied
    _retired/<part>-<hash>             the time (s) since which no version has it
    _tmp_<id>/                         in the making
    _delta_log/ or metadata/           files of the format

1. A part's files are linked before a version names them, and the links stay until `lease_s` after
   the last such version was replaced. So readers of a version are not disturbed by merges,
   mutations, DROP or clean-up, which work in the table's own directory only.
2. If a refresh dies in between, links that no version names are retired by the next one.
3. Names that begin with `_` are ignored by programs that clean up such tables (VACUUM).
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from rmt_pipeline.export.columns import INT64_MAX, NotExportable
from rmt_pipeline.protocol.errors import Conflict, MissingPart, RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk, naming_a_full_disk
from rmt_pipeline.store.hashes.checksums import hash_of_chunks
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.parquet import COMPRESSION, columns_with_bounds
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import Clock, IdSource

_LOCK = "_lock"
_RETIRED = "_retired"
_TMP = "_tmp_"
_DATA = "data"
_HASH_DIGITS = 16
_UNSIGNED_64 = "Int(bitWidth=64, isSigned=false)"


class ExportIsBusy(Conflict):
    """Another process refreshes the same export. Nothing was changed."""


class ExportIsBroken(RmtError):
    """The library of the format could not read or write an export. Its last version stays."""


class ExportedFile(NamedTuple):
    """A Parquet file of an export; `path` is relative to the export's directory."""

    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ExportFiles:
    """The files of a table's export in one format. `root` is its directory on the server's disk."""

    disk: Disk
    root: str
    clock: Clock
    ids: IdSource

    @property
    def directory(self) -> str:
        return self.disk.local_path(self.root)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the export's lock. Raises ExportIsBusy if another process has it."""
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

    @contextmanager
    def by_library(self) -> Iterator[None]:
        """Turn what the library of a format raises into an error that names the export. A loss of
        power, say, leaves it files that are cut, and each library has errors of its own for those.
        """
        try:
            with naming_a_full_disk(self.directory):
                yield
        except RmtError:
            raise
        except Exception as error:
            words = next(iter(str(error).splitlines()), "")
            raise ExportIsBroken(
                f"{self.directory} could not be brought up to date: {type(error).__name__}: "
                f"{words}. If files in it are damaged, remove it (after an error of sqlite: "
                "iceberg.db of exports/), and the next refresh makes it anew"
            ) from error

    def sync(self, name: str) -> None:
        """Make the files that a library has written to this directory survive a crash of the host,
        as those do that they name.
        """
        directory = layout.join(self.root, name)
        self.disk.fsync_trees([(directory, self.disk.list(directory))])

    def has(self, name: str) -> bool:
        """Whether a rewritten part of this name is here, perhaps left by a refresh that died or by
        an older version.
        """
        return (
            self.disk.size(layout.join(self.root, _DATA, name, layout.data_file(0))) is not None
        )

    def has_links(
        self, store: PartStore, part: PartName, manifest: Manifest, name: str
    ) -> bool:
        """Whether all of the part's files are linked here, and to the files that it has now: a part
        that was broken and fetched again has other ones. A file that is no link was copied.
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
        """The files of a linked or rewritten part. `columns` are the exported ones, by their names
        in the files. Raises NotExportable.
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
        """Link the files of a part that the caller has pinned. Raises MissingPart."""
        with self._made(name) as directory:
            for file in manifest.files:
                source = layout.join(store.root, str(part), file.name)
                try:
                    self.disk.link_from(store.disk, source, layout.join(directory, file.name))
                except FileNotFoundError as error:
                    raise MissingPart(f"{part} has lost a file: {error}", part=part) from error

    def write(self, rows: Iterator[pa.Table], schema: pa.Schema, name: str) -> None:
        """Write rows to a file of the export, for a part whose own files can't be exported as they
        are (`Names.takes`).
        """
        with self._made(name) as directory:
            path = self.disk.local_path(layout.join(directory, layout.data_file(0)))
            bounds = columns_with_bounds(schema)
            with (
                naming_a_full_disk(self.directory),
                pq.ParquetWriter(
                    path,
                    schema,
                    compression=COMPRESSION,
                    write_statistics=bounds,
                    store_schema=False,
                ) as writer,
            ):
                for some in rows:
                    writer.write_table(some.select(schema.names).cast(schema))

    @contextmanager
    def _made(self, name: str) -> Iterator[str]:
        """A temporary directory, which gets its name once its files are durable, replacing an old
        one. After an error it is removed: the disk may be full.
        """
        directory = layout.join(self.root, _TMP + self.ids.new_id())
        try:
            self.disk.make_directory(directory)
            yield directory
            self.disk.fsync_trees([(directory, self.disk.list(directory))])
        except BaseException:
            with suppress(OSError):
                self.disk.remove_tree(directory)
            raise
        self.disk.make_directory(layout.join(self.root, _DATA))
        self._remove(name)
        self.disk.rename(directory, layout.join(self.root, _DATA, name))
        self.disk.fsync_directory(layout.join(self.root, _DATA))

    def retire(self, keep: Collection[str], lease_s: float) -> list[str]:
        """Remove directories that no version has had for `lease_s`; returns their names."""
        now_s, gone, replaced = self.clock.now_s(), [], []
        for name in self.disk.list(layout.join(self.root, _DATA)):
            note = layout.join(self.root, _RETIRED, name)
            if name in keep:
                self.disk.remove_file(note)
                continue
            since_s = self._since_s(note)
            if since_s is None:
                replaced.append(note)
            elif now_s - since_s >= lease_s:
                self._remove(name)
                self.disk.remove_file(note)
                gone.append(name)
        self.disk.make_directory(layout.join(self.root, _RETIRED))
        for note in replaced:  # last, since a full disk takes none
            self.disk.write(note, [f"{now_s}\n".encode()])
        return gone

    def _remove(self, name: str) -> None:
        """Remove a directory. If this dies halfway, the next refresh removes the rest."""
        gone = layout.join(self.root, _TMP + self.ids.new_id())
        with suppress(FileNotFoundError):
            self.disk.rename(layout.join(self.root, _DATA, name), gone)
            self.disk.remove_tree(gone)

    def _since_s(self, note: str) -> float | None:
        with suppress(ValueError):
            return float(self.disk.read(note) or b"")
        return None


def name_of(part: PartName, manifest: Manifest, kind: str) -> str:
    """The name of a part's directory in the export. It differs for a part of the same name with
    other bytes, and for one that was rewritten in the way that `kind` says.
    """
    of_bytes = manifest.files_hash.hex()[:_HASH_DIGITS]
    return "-".join(filter(None, [str(part), of_bytes, kind]))


def _require_signed(footer: pq.FileMetaData, path: str, columns: Collection[str]) -> None:
    """Raises NotExportable for an unsigned 64-bit value that no signed one can hold."""
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
