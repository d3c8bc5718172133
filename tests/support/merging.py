"""Parts to merge, made without a replica; and rows to compare results by."""

import datetime as dt
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmt_pipeline.compute.merge.job import MergeDone, MergeJob, SourcePart
from rmt_pipeline.compute.merge.plan import shape_of
from rmt_pipeline.compute.merge.rules import rules_for
from rmt_pipeline.compute.merge.unit import merged_rows
from rmt_pipeline.compute.rows.conform import Conform
from rmt_pipeline.compute.rows.windows import SourceCursor
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.name import merged as merged_name
from rmt_pipeline.protocol.table import Column, Engine, EngineKind, TableDefinition
from rmt_pipeline.store.hashes.checksums import hash_hex
from rmt_pipeline.store.hashes.rows import hash_table
from rmt_pipeline.store.manifest import Manifest, PartColumn, PartFile
from rmt_pipeline.store.parquet import to_parquet
from rmt_pipeline.syntax.types import arrow_schema, parse_type
from rmt_pipeline.types.data_type import DataType
from tests.oracle.order import order_value
from tests.oracle.rows import MergeRules, comparable

CREATED_S = 1_700_000_000

Row = dict[str, Any]


def definition(
    columns: Sequence[tuple[str, str]],
    order_by: tuple[str, ...],
    kind: EngineKind = "MergeTree",
    **engine: Any,
) -> TableDefinition:
    return TableDefinition(
        database="default",
        name="t",
        columns=tuple(Column(name, text) for name, text in columns),
        engine=Engine(kind, "/clickhouse/tables/01/t", "r1", **engine),
        order_by=order_by,
    )


def rules_of(table: TableDefinition, *, cleanup: bool = False) -> MergeRules:
    engine = table.engine
    return MergeRules(
        kind=engine.kind,
        order_by=table.order_by,
        columns=tuple((column.name, column.type) for column in table.columns),
        version_column=engine.version_column,
        is_deleted_column=engine.is_deleted_column,
        sign_column=engine.sign_column,
        columns_to_sum=engine.columns_to_sum,
        cleanup=cleanup,
    )


def sorted_table(rows: Sequence[Row], table: TableDefinition) -> pa.Table:
    """Rows as a part has them: sorted stably by the key."""
    key = rules_of(table).equality
    texts = {column.name: column.type for column in table.columns}
    ordered = sorted(
        rows,
        key=lambda row: comparable(tuple(order_value(texts[name], row[name]) for name in key)),
    )
    types = {name: parse_type(text) for name, text in texts.items()}
    stored = [
        {
            name: _changed(row[name], kind, DataType.wide_to_bytes)
            for name, kind in types.items()
        }
        for row in ordered
    ]
    return pa.Table.from_pylist(stored, schema=arrow_schema(table.columns))


def rows_of(found: pa.Table, table: TableDefinition) -> list[Row]:
    """The rows of a result as the oracle has them."""
    types = {column.name: parse_type(column.type) for column in table.columns}
    return [
        {
            name: _changed(row[name], kind, DataType.wide_from_bytes)
            for name, kind in types.items()
        }
        for row in found.to_pylist()
    ]


def _changed(value: Any, kind: DataType, wide: Callable[[DataType, Any], Any]) -> Any:
    """The value with `wide` of each number that is stored as bytes, in an array, too."""
    if isinstance(value, list) and kind.plain.family == "Array":
        return [_changed(one, kind.plain.elements[0], wide) for one in value]
    return wide(kind, value) if kind.wide_bytes and value is not None else value


def same(row: Row) -> Any:
    """A row so that equal rows are equal in Python: NaN too."""
    return [_same(value) for value in row.values()]


def _same(value: Any) -> Any:
    if isinstance(value, list):
        return [_same(item) for item in value]
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def merge_tables(
    tables: Sequence[pa.Table], job: MergeJob, *, batch_rows: int
) -> tuple[pa.Table, tuple[str, ...]]:
    """The kernel without files: sources that come in batches of `batch_rows` rows."""
    shape = shape_of(job)
    rules = rules_for(shape)
    schema = arrow_schema(job.definition.columns)
    conform = Conform(shape, ())

    def batches(table: pa.Table) -> Iterator[pa.Table]:
        for start in range(0, table.num_rows, batch_rows):
            for batch in table.slice(start, batch_rows).combine_chunks().to_batches():
                yield conform.table(batch, "a part")

    cursors = [
        SourceCursor(batches(table), shape.key_names, ordinal)
        for ordinal, table in enumerate(tables)
    ]
    results = list(merged_rows(cursors, batch_rows, shape.key_names, rules))
    results = [each.select(schema.names) for each in results]
    found = pa.concat_tables([schema.empty_table(), *results])
    return found, () if rules is None else rules.warnings()


def job_of(
    table: TableDefinition,
    sources: Sequence[SourcePart] = (),
    staging: Path | None = None,
    **options: Any,
) -> MergeJob:
    names = [PartName.parse(source.name) for source in sources]
    return MergeJob(
        result=str(merged_name(names)) if names else "all_0_0_1",
        sources=tuple(sources),
        staging=str(staging or ""),
        definition=table,
        create_time_s=CREATED_S,
        **options,
    )


def write_part(root: Path, name: str, table: pa.Table, **parquet: Any) -> SourcePart:
    """A part of one file, as an insert leaves it."""
    directory = root / name
    directory.mkdir(parents=True)
    files = []
    if table.num_rows:
        path = directory / "data-00000.parquet"
        if parquet:
            pq.write_table(table, path, store_schema=False, **parquet)
        else:
            path.write_bytes(to_parquet(table).to_pybytes())
        files = [PartFile(path.name, path.stat().st_size, hash_hex(path.read_bytes()))]
    hashes = hash_table(table)
    manifest = Manifest(
        columns=tuple(
            PartColumn(field.name, _clickhouse(field.type)) for field in table.schema
        ),
        rows=table.num_rows,
        bytes_on_disk=sum(file.size for file in files),
        partition_id=name.split("_", maxsplit=1)[0],
        partition="tuple()",
        key_bounds=(),
        files=tuple(files),
        row_hash=hashes.row_hash,
        column_hashes=hashes.column_hashes,
        content_hash=hashes.content_hash,
        created_s=CREATED_S,
        bytes_uncompressed=table.nbytes,
    )
    return SourcePart(name, str(directory), manifest)


CLICKHOUSE = {
    "int8": "Int8",
    "int32": "Int32",
    "int64": "Int64",
    "uint8": "UInt8",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "double": "Float64",
    "string": "String",
    "date32[day]": "Date",
    "timestamp[us, tz=UTC]": "DateTime",
}


def _clickhouse(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"Array({_clickhouse(kind.value_type)})"
    return CLICKHOUSE[str(kind)]


def read_result(done: MergeDone) -> pa.Table:
    """The rows of all files of a result, in the order of the manifest."""
    tables = [
        pq.ParquetFile(Path(done.job.staging) / file.name).read()
        for file in done.manifest.files
    ]
    return pa.concat_tables([arrow_schema(done.job.definition.columns).empty_table(), *tables])


def moment(day: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=day)
