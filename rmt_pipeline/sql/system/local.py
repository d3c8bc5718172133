"""System tables that are answered from the catalog and the configuration. ZooKeeper is asked only
for rows, bytes and parts of tables, if the query uses them.
"""

import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from rmt_pipeline import __version__
from rmt_pipeline.catalog.replicated import replicated_database
from rmt_pipeline.compute.inputs.conform import INPUT_FORMATS
from rmt_pipeline.compute.merge.plan import sorting_key
from rmt_pipeline.protocol.errors import ReplicaDropped
from rmt_pipeline.protocol.settings.neutral import (
    NEUTRAL_QUERY_SETTINGS,
    NEUTRAL_TABLE_SETTINGS,
)
from rmt_pipeline.protocol.settings.query import ALIASES, QUERY_SETTINGS
from rmt_pipeline.protocol.settings.setting import Setting
from rmt_pipeline.protocol.settings.table import TABLE_SETTINGS
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.sql.define.engine import ENGINES
from rmt_pipeline.sql.define.show_create import clause_text, create_query, engine_text
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.sql.formats.write import output_formats
from rmt_pipeline.sql.system.parts import bytes_of_columns
from rmt_pipeline.sql.system.scope import Row, SystemScope
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.nodes import names_in
from rmt_pipeline.syntax.statements.nodes import SYSTEM_DATABASE
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.translate.functions.aggregate import AGGREGATES
from rmt_pipeline.translate.functions.lambdas import HIGHER_ORDER
from rmt_pipeline.translate.functions.registry import SCALARS

if TYPE_CHECKING:
    from rmt_pipeline.table import Table

DATABASES: Columns = (
    ("name", "String"),
    ("engine", "String"),
    ("data_path", "String"),
    ("metadata_path", "String"),
    ("engine_full", "String"),
)


def databases(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.databases: the databases of this server, with their directories, and `system`,
    which has none.
    """
    data = scope.server.catalog.data
    for name in scope.server.catalog.databases():
        replicated = replicated_database(scope.server.catalog, name)
        engine = (
            ("Atomic", "Atomic") if replicated is None else ("Replicated", replicated.typed)
        )
        yield name, engine[0], f"{data}/data/{name}/", f"{data}/metadata/{name}/", engine[1]
    yield SYSTEM_DATABASE, "Atomic", "", "", "Atomic"


TABLES: Columns = (
    ("database", "String"),
    ("name", "String"),
    ("uuid", "UUID"),
    ("engine", "String"),
    ("is_temporary", "UInt8"),
    ("data_paths", "Array(String)"),
    ("metadata_version", "Int32"),
    ("create_table_query", "String"),
    ("engine_full", "String"),
    ("partition_key", "String"),
    ("sorting_key", "String"),
    ("primary_key", "String"),
    ("sampling_key", "String"),
    ("total_rows", "Nullable(UInt64)"),
    ("total_bytes", "Nullable(UInt64)"),
    ("total_bytes_uncompressed", "Nullable(UInt64)"),
    ("parts", "Nullable(UInt64)"),
    ("active_parts", "Nullable(UInt64)"),
    ("comment", "String"),
)
_COUNTED = ("total_rows", "total_bytes", "total_bytes_uncompressed", "parts", "active_parts")


def uuid_text(uuid: str) -> str:
    """A UUID as it is stored; all zeros if `uuid` is empty or not a UUID."""
    with suppress(ValueError):
        return str(UUID(uuid))
    return str(UUID(int=0))


def tables(scope: SystemScope, *, counted: bool = False) -> Iterator[Row]:
    """Rows of system.tables. `counted`: give rows and bytes even if the query does not name them.
    They are NULL if the replica is gone from ZooKeeper: nobody reads the table.
    """
    counted = counted or scope.mentions(*_COUNTED)

    def row(table: "Table") -> Iterator[Row]:
        definition = table.definition_then
        totals: tuple[int | None, ...] = (None,) * len(_COUNTED)
        if counted:
            with suppress(ReplicaDropped):
                totals = _totals(table)
        primary_key = definition.primary_key
        yield (
            definition.database,
            definition.name,
            uuid_text(definition.uuid),
            definition.engine.name,
            0,
            [f"{scope.server.catalog.table_directory(definition)}/"],
            definition.metadata_version,
            create_query(definition),
            engine_text(definition),
            clause_text(definition.partition_by) if definition.partition_by else "",
            ", ".join(sorting_key(definition)),
            ", ".join(definition.order_by if primary_key is None else primary_key),
            definition.sample_by,
            *totals,
            definition.comment,
        )

    yield from scope.of_tables(row)
    for name in scope.system:
        yield (
            *(SYSTEM_DATABASE, name, uuid_text(""), "System", 0, list[str](), 0),
            *("", "", "", "", "", "", *(None for _ in _COUNTED), ""),
        )


def _totals(table: "Table") -> tuple[int, ...]:
    manifests = [part.manifest for part in table.parts()]
    return (
        sum(one.rows for one in manifests),
        sum(one.bytes_on_disk for one in manifests),
        sum(one.bytes_uncompressed for one in manifests),
        len({*table.store.parts(), *(part.name for part in table.parts())}),
        len(manifests),
    )


DETACHED_TABLES: Columns = (
    ("database", "String"),
    ("table", "String"),
    ("uuid", "UUID"),
    ("metadata_path", "String"),
    ("is_permanently", "UInt8"),
    # The original does not have these.
    ("zookeeper_path", "String"),
    ("replica_name", "String"),
)


def detached_tables(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.detached_tables: the tables that were detached from this server."""
    for one in scope.server.catalog.detached():
        table, engine = one.definition, one.definition.engine
        here = (
            *(table.database, table.name, uuid_text(table.uuid)),
            *(str(one.file), int(one.permanently)),
        )
        yield (*here, engine.zookeeper_path, engine.replica)


DROPPED_TABLES: Columns = (
    ("index", "UInt32"),
    ("database", "String"),
    ("table", "String"),
    ("uuid", "UUID"),
    ("engine", "String"),
    ("metadata_dropped_path", "String"),
    ("table_dropped_time", "DateTime"),
)


def dropped_tables(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.dropped_tables: the tables that UNDROP TABLE can still bring back, in the
    order in which they were dropped.
    """
    for place, one in enumerate(scope.server.catalog.dropped()):
        table = one.definition
        dropped = datetime.fromtimestamp(one.dropped_s, UTC)
        names = (table.database, table.name, uuid_text(table.uuid), table.engine.name)
        yield (place, *names, str(one.file), dropped)


COLUMNS: Columns = (
    ("database", "String"),
    ("table", "String"),
    ("name", "String"),
    ("type", "String"),
    ("position", "UInt64"),
    ("default_kind", "String"),
    ("default_expression", "String"),
    ("data_compressed_bytes", "UInt64"),
    ("data_uncompressed_bytes", "UInt64"),
    ("comment", "String"),
    ("is_in_partition_key", "UInt8"),
    ("is_in_sorting_key", "UInt8"),
    ("is_in_primary_key", "UInt8"),
    ("is_in_sampling_key", "UInt8"),
    ("compression_codec", "String"),
    ("numeric_precision", "Nullable(UInt64)"),
    ("numeric_precision_radix", "Nullable(UInt64)"),
    ("numeric_scale", "Nullable(UInt64)"),
    ("datetime_precision", "Nullable(UInt64)"),
)


def columns(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.columns. Bytes are those of the active parts here, and are counted only if the
    query uses them.
    """
    counted = scope.mentions("data_compressed_bytes", "data_uncompressed_bytes")

    def rows(table: "Table") -> Iterator[Row]:
        sizes: Mapping[str, tuple[int, int]] = {}
        if counted:
            with suppress(ReplicaDropped):
                sizes = _column_bytes(table)
        yield from _columns_of(table.definition_then, sizes)

    yield from scope.of_tables(rows)
    for name, table in scope.system.items():
        for position, column in enumerate(table.definitions(), 1):
            yield (
                *(SYSTEM_DATABASE, name, column.name, column.type, position),
                *(column.default_kind, column.default, 0, 0, "", 0, 0, 0, 0, ""),
                *_numeric(column.type),
            )


def _column_bytes(table: "Table") -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for part in table.parts():
        directory = table.store.disk.local_path(str(part.name))
        for name, sizes in bytes_of_columns(directory, part.manifest).items():
            compressed, uncompressed = found.get(name, (0, 0))
            found[name] = compressed + sizes[0], uncompressed + sizes[1]
    return found


def _columns_of(
    definition: TableDefinition, sizes: Mapping[str, tuple[int, int]]
) -> Iterator[Row]:
    primary_key = definition.primary_key
    keys = [
        _names_in(definition.partition_by),
        _names_in(sorting_key(definition)),
        _names_in(definition.order_by if primary_key is None else primary_key),
        _names_in((definition.sample_by,) if definition.sample_by else ()),
    ]
    for position, column in enumerate(definition.columns, 1):
        yield (
            definition.database,
            definition.name,
            column.name,
            column.type,
            position,
            column.default_kind,
            column.default,
            *sizes.get(column.name, (0, 0)),
            column.comment,
            *(int(column.name in names) for names in keys),
            f"CODEC({column.codec})" if column.codec else "",
            *_numeric(column.type),
        )


def _numeric(text: str) -> tuple[int | None, int | None, int | None, int | None]:
    """For a number's type: precision, its radix, and scale. For a time's type: its precision."""
    plain = parse_type(text).plain
    if plain.is_decimal:
        digits, scale = plain.numbers
        return digits, 10, scale, None
    if plain.is_integer or plain.family == "Bool":
        return plain.bits or 8, 2, 0, None
    if plain.is_date or plain.is_time:
        return None, None, None, next(iter(plain.numbers), 0)
    return None, None, None, None


def _names_in(expressions: Iterable[str]) -> set[str]:
    """The names in the expressions, without those of functions."""
    return names_in(tuple(parse_expression(text) for text in expressions))


MERGE_TREE_SETTINGS: Columns = (
    ("name", "String"),
    ("value", "String"),
    ("changed", "UInt8"),
    ("description", "String"),
    ("type", "String"),
    ("default", "String"),
)
SETTINGS: Columns = (*MERGE_TREE_SETTINGS, ("alias_for", "String"))


def settings(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.settings: those of sessions and statements, with their values in
    this session; and their other names.
    """
    known = {**QUERY_SETTINGS, **NEUTRAL_QUERY_SETTINGS}
    rows = {row[0]: row[1:] for row in _settings(known.values(), scope.settings)}
    for name, row in rows.items():
        yield name, *row, ""
    for alias, name in ALIASES.items():
        yield alias, *rows[name], name


def merge_tree_settings(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.merge_tree_settings: the defaults of this version. `engine_full` has a table's
    own.
    """
    del scope
    known = {**TABLE_SETTINGS, **NEUTRAL_TABLE_SETTINGS}
    return _settings(known.values(), {})


def _settings(known: Iterable[Setting], changed: Mapping[str, str]) -> Iterator[Row]:
    for setting in known:
        value = changed.get(setting.name)
        is_changed = value is not None and value != setting.default_text
        yield (
            setting.name,
            setting.default_text if value is None else value,
            int(is_changed),
            setting.description,
            setting.type,
            setting.default_text,
        )


BUILD_OPTIONS: Columns = (("name", "String"), ("value", "String"))


def build_options(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.build_options that clients look for: the program's version, and
    its platform.
    """
    del scope
    major, minor, patch = __version__.split(".")
    yield "VERSION_FULL", f"rmt_pipeline {__version__}"
    yield "VERSION_DESCRIBE", f"v{__version__}"
    yield "VERSION_NAME", "rmt_pipeline"
    yield "VERSION_MAJOR", major
    yield "VERSION_MINOR", minor
    yield "VERSION_PATCH", patch
    yield "VERSION_STRING", __version__
    yield "SYSTEM", platform.system()
    yield "SYSTEM_PROCESSOR", platform.machine()
    yield "PYTHON_VERSION", platform.python_version()


MACROS: Columns = (("macro", "String"), ("substitution", "String"))


def macros(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.macros, from rmt.toml."""
    yield from sorted(scope.server.server.macros.items())


FUNCTIONS: Columns = (
    ("name", "String"),
    ("is_aggregate", "UInt8"),
    ("is_deterministic", "Nullable(UInt8)"),
    ("differs", "String"),  # how its answer differs from the original's, if it does
)


def functions(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.functions: the functions that expressions may use."""
    del scope
    for name, function in sorted(SCALARS.items()):
        yield name, 0, int(function.deterministic), function.differs
    for name in sorted(HIGHER_ORDER.keys() - SCALARS.keys()):
        yield name, 0, 1, ""
    for name, aggregate in sorted(AGGREGATES.items()):
        yield name, 1, None, aggregate.differs


FORMATS: Columns = (("name", "String"), ("is_input", "UInt8"), ("is_output", "UInt8"))


def formats(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.formats: what an INSERT takes, and what an answer is written in."""
    del scope
    written = output_formats()
    for name in sorted({*INPUT_FORMATS, *written}):
        yield name, int(name in INPUT_FORMATS), int(name in written)


TABLE_ENGINES: Columns = (
    ("name", "String"),
    ("supports_settings", "UInt8"),
    ("supports_sort_order", "UInt8"),
    ("supports_ttl", "UInt8"),
    ("supports_replication", "UInt8"),
    ("supports_deduplication", "UInt8"),
)


def table_engines(scope: SystemScope) -> Iterator[Row]:
    """Rows of system.table_engines. Only those that replicate know inserts again by
    default.
    """
    del scope
    for name, replicates in sorted(ENGINES.items()):
        yield name, 1, 1, 1, int(replicates), int(replicates)
