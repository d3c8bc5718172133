"""The Iceberg form of an export: `metadata/` in its directory, over the linked files of parts, and
a row in the server's SQL catalog, `exports/iceberg.db`.

Iceberg identifies columns by numbers, and maps the names in files to them: a file from before a
RENAME is read as it is. All paths in its metadata are absolute.
"""

import fcntl
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg import types
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema
from pyiceberg.typedef import Record

from rmt_pipeline.export.columns import Names, exported_schema
from rmt_pipeline.export.files import ExportedFile, ExportFiles
from rmt_pipeline.syntax.types import parse_type

CATALOG = "iceberg.db"
INT_BITS = 32
IGNORED_FROM = 1_000_000
"""Iceberg's own reserved numbers begin at 2,147,483,447."""

_KEPT = {
    "write.metadata.delete-after-commit.enabled": "false",  # the lease decides when
    "write.metadata.previous-versions-max": "20",
}
_NUMBER = re.compile(r"\b\d+: ", re.ASCII)
_MAPPING = "schema.name-mapping.default"
_VERSION = "rmt.metadata-version"


class IcebergExport:
    """The Iceberg table of one export, opened while the export's lock is held. `catalog` is the
    file of the server's SQL catalog.
    """

    old_names = True

    def __init__(self, files: ExportFiles, catalog: str, name: tuple[str, str]) -> None:
        self._files = files
        self._name = name
        self._lock = f"{catalog}.lock"
        root = f"file://{Path(catalog).parent}"
        with self._alone():
            self._catalog = SqlCatalog("rmt", uri=f"sqlite:///{catalog}", warehouse=root)
        self._table: Any = None
        with suppress(NoSuchTableError, FileNotFoundError):  # the directory may be gone
            found = self._catalog.load_table(name)
            if found.location() == self._location:
                self._table = found

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep the exports of other tables away: of two that make the catalog's own tables, or a
        namespace, at once, the library fails for one.
        """
        with Path(self._lock).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @property
    def _location(self) -> str:
        return f"file://{self._files.directory}"

    def live(self) -> dict[str, ExportedFile]:
        """The files of the current snapshot, by their paths."""
        found = {}
        for full, file in self._live().items():
            path = full.removeprefix(f"{self._location}/")
            found[path] = ExportedFile(path, file.record_count, file.file_size_in_bytes)
        return found

    def _live(self) -> dict[str, Any]:
        if self._table is None:
            return {}
        return {task.file.file_path: task.file for task in self._table.scan().plan_files()}

    def is_as(self, names: Names) -> bool:
        """Whether the Iceberg table has these columns, and knows all their names in files."""
        if self._table is None:
            return False
        schema = self._table.schema()
        current = [(field.name, _shape(field.field_type)) for field in schema.fields]
        if current != [(name, _shape(kind)) for name, kind in _wanted(names).items()]:
            return False
        return bool(self._table.properties.get(_MAPPING) == _mapping(schema, names))

    def generation(self, _: Names, /) -> str:
        """Empty: files keep their paths when columns change."""
        return ""

    def commit(
        self, names: Names, added: Sequence[ExportedFile], removed: Collection[str]
    ) -> str:
        """Make a new snapshot in one commit; returns its name."""
        if self._table is None:
            self._create(names)
        assert self._table is not None
        live = self._live()
        with self._table.transaction() as change:
            self._alter(change, names)
            schema = change.table_metadata.schema()
            version = str(names.definition.metadata_version)
            mapping = _mapping(schema, names)
            change.set_properties({_VERSION: version, _MAPPING: mapping, **_KEPT})
            with change.update_snapshot().overwrite() as snapshot:
                for path in removed:
                    snapshot.delete_data_file(live[f"{self._location}/{path}"])
                for file in added:
                    snapshot.append_data_file(self._data_file(file))
        self._files.sync("metadata")
        current = self._table.current_snapshot()
        assert current is not None, "it was just made"
        return str(current.snapshot_id)

    def _create(self, names: Names) -> None:
        with self._alone():
            self._catalog.create_namespace_if_not_exists(self._name[0])
        with suppress(NoSuchTableError):  # left by a table with another directory
            self._catalog.drop_table(self._name)
        fields = [
            types.NestedField(1000 + place, name, kind, required=False)
            for place, (name, kind) in enumerate(_wanted(names).items())
        ]
        self._table = self._catalog.create_table(
            self._name,
            Schema(*fields),  # the catalog assigns the numbers
            location=self._location,
        )

    def _alter(self, change: Any, names: Names) -> None:
        """Follow the table's ALTERs. A renamed column keeps its number; one of another type gets a
        new number, so that older snapshots are still read as they were.
        """
        fields = {
            field.name: field.field_type for field in change.table_metadata.schema().fields
        }
        wanted = _wanted(names)
        since = int(change.table_metadata.properties.get(_VERSION, 0))
        for one in names.definition.history:
            new = one.renamed_to
            if one.version > since and new and one.column in fields and new not in fields:
                with change.update_schema() as update:  # one for each: it sees no new name
                    update.rename_column((one.column,), new)
                fields[new] = fields.pop(one.column)
        with change.update_schema(allow_incompatible_changes=True) as update:
            for name, kind in fields.items():
                if name not in wanted or _shape(kind) != _shape(wanted[name]):
                    update.delete_column((name,))
        with change.update_schema() as update:
            for name, kind in wanted.items():
                if name not in fields or _shape(kind) != _shape(fields[name]):
                    update.add_column((name,), kind)
        with change.update_schema() as update:
            for name in reversed(wanted):
                update.move_first((name,))

    def _data_file(self, file: ExportedFile) -> Any:
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._location}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            file_size_in_bytes=file.size_bytes,
            record_count=file.rows,
            sort_order_id=None,
            spec_id=0,
            equality_ids=None,
            key_metadata=None,
        )

    def place(self) -> str:
        """The path that a reader opens."""
        assert self._table is not None
        return str(self._table.metadata_location)

    def forget(self, lease_s: float) -> None:
        """Expire snapshots that were replaced more than `lease_s` ago, since their files may be
        gone, and remove the metadata that lists them.
        """
        assert self._table is not None
        self._forget_metadata(lease_s)
        until_ms = int((self._files.clock.now_s() - lease_s) * 1000)
        current = self._table.current_snapshot()
        replaced_ms = {
            one.parent_snapshot_id: one.timestamp_ms for one in self._table.snapshots()
        }
        old = [
            one.snapshot_id
            for one in self._table.snapshots()
            if replaced_ms.get(one.snapshot_id, one.timestamp_ms) <= until_ms and one != current
        ]
        if not old:
            return
        self._table.maintenance.expire_snapshots().by_ids(old).commit()
        named = {one.manifest_list for one in self._table.snapshots()}
        for one in self._table.snapshots():
            named.update(file.manifest_path for file in one.manifests(self._table.io))
        for path in Path(self._files.directory, "metadata").glob("*.avro"):
            if f"file://{path}" not in named:
                path.unlink(missing_ok=True)

    def _forget_metadata(self, lease_s: float) -> None:
        """Remove old metadata files, which readers open by name, when their lease is over."""
        until_s = self._files.clock.now_s() - lease_s
        found = []
        for path in Path(self._files.directory, "metadata").glob("*.metadata.json"):
            with suppress(FileNotFoundError):
                found.append((path.stat().st_mtime, path))
        found.sort()
        for (_, old), (replaced_s, _) in pairwise(found):
            if replaced_s <= until_s and f"file://{old}" != self.place():
                old.unlink(missing_ok=True)

    def close(self) -> None:
        self._catalog.close()


def _wanted(names: Names) -> dict[str, Any]:
    """The Iceberg type of each column; the caller assigns the numbers of nested fields."""
    numbers = count(1)
    schema = exported_schema(names.columns)
    return {field.name: _type(field.type, numbers) for field in schema}


def _type(kind: pa.DataType, numbers: Iterator[int]) -> Any:
    def field(name: str, of: pa.DataType) -> Any:
        return types.NestedField(next(numbers), name, _type(of, numbers), required=False)

    if pa.types.is_list(kind):
        return types.ListType(next(numbers), _type(kind.value_type, numbers), False)
    if pa.types.is_map(kind):
        key, value = (_type(of, numbers) for of in (kind.key_type, kind.item_type))
        return types.MapType(next(numbers), key, next(numbers), value, False)
    if pa.types.is_struct(kind):
        return types.StructType(*(field(one.name, one.type) for one in kind))
    if pa.types.is_decimal(kind):
        return types.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return types.FixedType(kind.byte_width)
    if pa.types.is_integer(kind):
        return types.LongType() if kind.bit_width > INT_BITS else types.IntegerType()
    plain = {
        pa.float32(): types.FloatType(),
        pa.float64(): types.DoubleType(),
        pa.bool_(): types.BooleanType(),
        pa.string(): types.StringType(),
        pa.date32(): types.DateType(),
        pa.timestamp("us", "UTC"): types.TimestamptzType(),
    }
    return plain[kind]


def _shape(kind: Any) -> str:
    """The type as text, without the numbers of nested fields."""
    return _NUMBER.sub("", str(kind))


def _mapping(schema: Any, names: Names) -> str:
    """The mapping from names in files to numbers of columns. Further columns of files get numbers
    that no column has, because pyiceberg requires one for each.
    """
    called: dict[str, list[str]] = {}
    for name, column in sorted(names.meant.items()):
        called.setdefault(column, []).append(name)
    fields = [
        MappedField(field_id=one.field_id, names=called[one.names[0]], fields=one.fields)
        for one in create_mapping_from_schema(schema).root
    ]
    numbers = count(IGNORED_FROM)
    for name, kind in sorted(names.ignored.items()):
        fields.append(_ignored(name, parse_type(kind).arrow, numbers))
    return str(NameMapping(fields).model_dump_json())


def _ignored(name: str, kind: pa.DataType, numbers: Iterator[int]) -> Any:
    inside: list[tuple[str, pa.DataType]] = []
    if pa.types.is_list(kind):
        inside = [("element", kind.value_type)]
    elif pa.types.is_map(kind):
        inside = [("key", kind.key_type), ("value", kind.item_type)]
    elif pa.types.is_struct(kind):
        inside = [(field.name, field.type) for field in kind]
    fields = [_ignored(*one, numbers) for one in inside]
    return MappedField(field_id=next(numbers), names=[name], fields=fields)
