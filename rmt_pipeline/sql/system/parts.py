"""system.parts: every part on this server's disks, with where its rows came from; parts_columns;
part_log; detached_parts; and lost_parts, a table of our own: parts that no replica had any more.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import NamedTuple

from rmt_pipeline.compute.insert.partition import shown_partition
from rmt_pipeline.compute.rows.computed import ttl_rules
from rmt_pipeline.protocol.errors import Corruption, ReplicaDropped
from rmt_pipeline.protocol.nodes.metadata import INDEX_GRANULARITY
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.partitions.detached import detached_directories
from rmt_pipeline.replica.upkeep.lost import lost_parts
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.system.counted import DISK_NAME
from rmt_pipeline.sql.system.scope import Row, SystemScope
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.table import Table

PART_TYPE = "Compact"
"""The original's word for a part that has all of its columns in one file."""
PARTS: Columns = (
    ("partition", "String"),
    ("name", "String"),
    ("part_type", "String"),
    ("active", "UInt8"),
    ("visible", "UInt8"),
    ("marks", "UInt64"),
    ("rows", "UInt64"),
    ("bytes_on_disk", "UInt64"),
    ("data_compressed_bytes", "UInt64"),
    ("data_uncompressed_bytes", "UInt64"),
    ("modification_time", "DateTime"),
    ("min_date", "Date"),
    ("max_date", "Date"),
    ("min_time", "DateTime"),
    ("max_time", "DateTime"),
    ("partition_id", "String"),
    ("min_block_number", "Int64"),
    ("max_block_number", "Int64"),
    ("level", "UInt32"),
    ("data_version", "UInt64"),
    ("database", "String"),
    ("table", "String"),
    ("engine", "String"),
    ("disk_name", "String"),
    ("path", "String"),
    ("files", "UInt64"),
    ("hash_of_all_files", "String"),
    ("hash_of_uncompressed_files", "String"),
    ("uncompressed_hash_of_compressed_files", "String"),
    ("is_frozen", "UInt8"),
    ("delete_ttl_info_min", "DateTime"),
    ("delete_ttl_info_max", "DateTime"),
    ("default_compression_codec", "String"),
    # The ledger, which the original does not have (design §5, §8).
    ("row_hash", "String"),
    ("insert_id", "String"),
    ("run_id", "String"),
    ("source_parts", "Array(String)"),
    ("mutation_ids", "Array(String)"),
)
_OF_PART: Columns = PARTS[: [name for name, _ in PARTS].index("path") + 1]
PARTS_COLUMNS: Columns = (
    *_OF_PART,
    ("column", "String"),
    ("type", "String"),
    ("column_position", "UInt64"),
    ("default_kind", "String"),
    ("default_expression", "String"),
    ("column_bytes_on_disk", "UInt64"),
    ("column_data_compressed_bytes", "UInt64"),
    ("column_data_uncompressed_bytes", "UInt64"),
)
PART_LOG: Columns = (
    ("event_type", "String"),
    ("event_date", "Date"),
    ("event_time", "DateTime"),
    ("event_time_microseconds", "DateTime64(6)"),
    ("duration_ms", "UInt64"),
    ("database", "String"),
    ("table", "String"),
    ("table_uuid", "String"),
    ("part_name", "String"),
    ("partition_id", "String"),
    ("rows", "UInt64"),
    ("size_in_bytes", "UInt64"),
    ("merged_from", "Array(String)"),
    ("exception", "String"),
    # The original does not have these.
    ("source_replica", "String"),
    ("insert_id", "String"),
    ("run_id", "String"),
)

LOST_PARTS: Columns = (
    ("database", "String"),
    ("table", "String"),
    ("name", "String"),
    ("partition_id", "String"),
    ("replaced_time", "DateTime"),
    ("replica_name", "String"),
    # Those of the remembered inserts that had rows in it.
    ("insert_ids", "Array(String)"),
)


def part_log(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.part_log: what happened to parts of existing tables on this host, as far as it
    is kept.
    """
    for table in scope.server.tables():
        definition = table.definition
        for event in table.store.part_log.events():
            at = datetime.fromtimestamp(event.time_s, UTC)
            part = PartName.try_parse(event.part)
            yield (
                event.event_type,
                at.date(),
                at.replace(microsecond=0),
                at,
                round(event.seconds * 1000),
                definition.database,
                definition.name,
                definition.uuid,
                event.part,
                "" if part is None else part.partition,
                event.rows,
                event.size_bytes,
                list(event.sources),
                event.error,
                event.source_replica,
                event.insert_id,
                event.run_id,
            )


DETACHED_PARTS: Columns = (
    ("database", "String"),
    ("table", "String"),
    ("partition_id", "Nullable(String)"),
    ("name", "String"),
    ("bytes_on_disk", "UInt64"),
    ("modification_time", "DateTime"),
    ("disk", "String"),
    ("path", "String"),
    ("reason", "Nullable(String)"),
    ("min_block_number", "Nullable(Int64)"),
    ("max_block_number", "Nullable(Int64)"),
    ("level", "Nullable(UInt32)"),
    # The original does not have these.
    ("rows", "Nullable(UInt64)"),
    ("is_safe_to_delete", "UInt8"),
    ("why", "String"),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDS = {"Date": (_EPOCH.date(), _EPOCH.date()), "DateTime": (_EPOCH, _EPOCH)}


def parts(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.parts: every part of every table on this server's disks, active or not. None
    is active in a table whose replica is gone from ZooKeeper: nobody reads it.
    """
    return scope.of_tables(lambda table: map(_row, _parts_of(table)))


def parts_columns(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.parts_columns. Bytes are counted only if the query uses them."""
    counted = scope.mentions(*(name for name, _ in PARTS_COLUMNS if name.startswith("column_")))

    def rows(table: Table) -> Iterator[Row]:
        for part in _parts_of(table):
            yield from _columns_of(part, counted=counted)

    return scope.of_tables(rows)


def _columns_of(part: "_Part", *, counted: bool) -> Iterator[Row]:
    shared = _row(part)[: len(_OF_PART)]
    directory = part.table.store.disk.local_path(str(part.name))
    sizes = bytes_of_columns(directory, part.manifest) if counted else {}
    for position, (name, data_type) in enumerate(part.manifest.columns, 1):
        column = part.table.definition.column(name)
        default = ("", "") if column is None else (column.default_kind, column.default)
        compressed, uncompressed = sizes.get(name, (0, 0))
        yield (
            *(*shared, name, data_type, position, *default),
            *(compressed, compressed, uncompressed),
        )


def bytes_of_columns(directory: str, manifest: Manifest) -> dict[str, tuple[int, int]]:
    """The compressed and uncompressed bytes of each column of a part."""
    from rmt_pipeline.store.parquet import column_bytes  # noqa: PLC0415  start-up: slow

    found: dict[str, tuple[int, int]] = {}
    for file in manifest.files:
        with suppress(FileNotFoundError):  # merged, and removed meanwhile
            for name, size in column_bytes(f"{directory}/{file.name}").items():
                compressed, uncompressed = found.get(name, (0, 0))
                found[name] = compressed + size.compressed, uncompressed + size.uncompressed
    return found


class _Part(NamedTuple):
    table: Table
    name: PartName
    manifest: Manifest
    is_active: bool
    is_frozen: bool


def _parts_of(table: Table) -> Iterator[_Part]:
    """The parts of a table. As in the original there are none of an engine without keys."""
    if table.definition_then.engine.is_plain:
        return
    active = set[PartName]()
    with suppress(ReplicaDropped):
        active = {part.name for part in table.parts()}
    frozen = table.frozen_parts.names()
    for name in sorted({*table.store.parts(), *active}):
        # Inactive parts may be removed at any moment. What can't be read is no part of the table.
        with suppress(Corruption):
            manifest = table.store.manifest(name)
            yield _Part(table, name, manifest, name in active, str(name) in frozen)


def _row(part: _Part) -> Row:
    table, name, manifest, is_active, is_frozen = part
    definition = table.definition
    header = manifest.header()
    directory = table.store.disk.local_path(str(name))
    modified_s = table.store.disk.modified_s(str(name))
    granularity = int(dict(definition.settings).get("index_granularity", INDEX_GRANULARITY))
    return (
        shown_partition(manifest, definition),
        str(name),
        PART_TYPE,
        int(is_active),
        int(is_active),  # queries read the active parts
        -(-manifest.rows // granularity),  # as the original counts them; there are none here
        manifest.rows,
        manifest.bytes_on_disk,
        manifest.bytes_on_disk,
        manifest.bytes_uncompressed,
        datetime.fromtimestamp(int(modified_s or manifest.created_s), UTC),
        *_bounds(definition, manifest, "Date"),
        *_bounds(definition, manifest, "DateTime"),
        name.partition,
        name.block_min,
        name.block_max,
        name.level,
        name.data_version,
        definition.database,
        definition.name,
        definition.engine.name,
        DISK_NAME,
        f"{directory}/",
        len(manifest.files),
        manifest.files_hash.hex(),
        header.hash_of_uncompressed_files.hex(),
        header.uncompressed_hash_of_compressed_files.hex(),
        int(is_frozen),
        *_delete_ttl(definition, manifest),
        manifest.ttl.codec or "ZSTD(1)",
        f"{manifest.row_hash:032x}",
        manifest.insert_id,
        manifest.run_id,
        list(manifest.sources),
        list(manifest.mutations),
    )


def _delete_ttl(definition: TableDefinition, manifest: Manifest) -> tuple[object, object]:
    """When the first and the last row that has a TTL expires; 1970 for never."""
    rules = {rule.key for rule in ttl_rules(definition) if rule.removes_rows}
    waiting = [one for one in manifest.ttl.times if one.rule in rules and one.min_s]
    least = min((one.min_s for one in waiting), default=0)
    greatest = max((one.max_s for one in waiting), default=0)
    return datetime.fromtimestamp(least, UTC), datetime.fromtimestamp(greatest, UTC)


def _bounds(
    definition: TableDefinition, manifest: Manifest, family: str
) -> tuple[object, object]:
    """Least and greatest value of the key's first column of this type; 1970 if there is none."""
    for bound in manifest.key_bounds:
        column = definition.column(bound.column)
        if column is None or parse_type(column.type).plain.family != family:
            continue
        if isinstance(bound.min, str) and isinstance(bound.max, str):
            read = date.fromisoformat if family == "Date" else datetime.fromisoformat
            return read(bound.min), read(bound.max)
    return _BOUNDS[family]


def detached_parts(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.detached_parts: the directories in each table's `detached/` on this server's
    disk. What can't be read from a directory's name is NULL.
    """

    def rows(table: Table) -> Iterator[Row]:
        store = table.store
        if not store.detached_parts.directories():
            return  # ZooKeeper need not be asked
        for one in detached_directories(table.replica):
            part = None if one.name is None else one.name.part
            yield (
                None if part is None else part.partition,
                one.directory,
                one.size_bytes,
                datetime.fromtimestamp(int(one.modified_s), UTC),
                DISK_NAME,
                store.disk.local_path(store.detached_parts.path(one.directory)),
                None if one.name is None else one.name.reason,
                None if part is None else part.block_min,
                None if part is None else part.block_max,
                None if part is None else part.level,
                one.rows,
                int(one.is_safe),
                one.why,
            )

    return scope.of_replicas(rows)


def parts_lost(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.lost_parts: parts that no replica had any more, and that were replaced by
    empty ones.
    """
    return scope.of_replicas(
        lambda table: (
            (
                str(part),
                part.partition,
                datetime.fromtimestamp(note.replaced_s, UTC),
                note.replica,
                list(note.inserts),
            )
            for part, note in sorted(lost_parts(table.replica).items())
        )
    )
