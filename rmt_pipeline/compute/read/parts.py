"""Parts for other programs, which read them with the table's current columns.

The files of most parts have just these columns, and other programs read them as they are; also
files that only lack columns whose default is a constant. The rows of other parts, which an ALTER's
mutation has still to rewrite or which lack a column that is computed, are read and converted here.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
from pyarrow import fs

from rmt_pipeline.compute.merge.job import SourcePart
from rmt_pipeline.compute.merge.plan import unit_source
from rmt_pipeline.compute.rows.conform import Conform, is_current, is_read_as_it_is
from rmt_pipeline.compute.rows.source import PartReader
from rmt_pipeline.compute.units import Shape, UnitSource
from rmt_pipeline.protocol.alter.history import stored_as, stored_columns
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.parquet import dataset_format, open_dataset
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.syntax.types import arrow_schema, parse_type

if TYPE_CHECKING:
    import pyarrow.dataset

READ_ROWS = 1 << 16


class ReadablePart(NamedTuple):
    """A part to read. `constants` are the columns that its files lack, which have the default of
    their type in every row. None if the part's rows have to be converted.
    """

    source: UnitSource
    constants: tuple[Column, ...] | None

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.source.files]


class NamedPart(Protocol):
    """The name and manifest of a part of a snapshot."""

    @property
    def name(self) -> PartName: ...
    @property
    def manifest(self) -> Manifest: ...


def part_files(
    store: PartStore, parts: Sequence[NamedPart], definition: TableDefinition
) -> list[ReadablePart]:
    """Find out how each part is to be read."""
    return [
        ReadablePart(
            unit_source(
                SourcePart(str(part.name), store.directory(part.name), part.manifest),
                definition,
            ),
            _constants(part.manifest, definition),
        )
        for part in parts
    ]


def _constants(manifest: Manifest, definition: TableDefinition) -> tuple[Column, ...] | None:
    part, version = manifest.columns, manifest.metadata_version
    if is_current(definition, part, version):
        return ()
    found = {one.column: one for one in stored_as(definition, part, version)}
    names = {name for name, _ in part}
    lacking = []
    for column in stored_columns(definition):
        one = found.get(column.name)
        if one is None:
            if column.default or column.name in names or parse_type(column.type).plain.elements:
                return None
            lacking.append(column)
        elif one.name != column.name or not is_read_as_it_is(one.type, column.type):
            return None
    return tuple(lacking)


def dataset_of(
    store: PartStore, parts: Sequence[NamedPart], definition: TableDefinition
) -> "pyarrow.dataset.Dataset":
    """The parts, in their order, as one pyarrow Dataset. Rows that have to be converted are held in
    memory. Raises BadValue for a value that can't be converted, BrokenSource.
    """
    # For start-up time.
    import pyarrow.dataset as ds  # noqa: PLC0415  as slow to import as all else here together

    columns, found = stored_columns(definition), part_files(store, parts, definition)
    if all(part.constants == () for part in found):
        return open_dataset([path for part in found for path in part.paths], columns)
    schema = pa.schema([field.with_nullable(True) for field in arrow_schema(columns)])
    children = []
    for is_lazy, run in groupby(found, lambda part: part.constants is not None):
        if is_lazy:
            children.append(_fragments(list(run), schema))
        else:
            tables = [table for part in run for table in converted_rows(part.source, columns)]
            whole = pa.concat_tables(tables) if tables else arrow_schema(columns).empty_table()
            children.append(ds.dataset(whole.cast(schema)))
    return children[0] if len(children) == 1 else ds.dataset(children)


def _fragments(parts: Sequence[ReadablePart], schema: pa.Schema) -> "pyarrow.dataset.Dataset":
    """A Dataset of files with the constant columns that they lack, given as Arrow's
    partitions are.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415  start-up: see above

    form, disk = dataset_format(), fs.LocalFileSystem()
    fragments = []
    for part in parts:
        known = ds.scalar(True)
        for column in part.constants or ():
            kind = parse_type(column.type)
            if kind.default is not None:  # else Arrow reads NULL
                known = known & (ds.field(column.name) == pa.scalar(kind.default, kind.arrow))
        fragments += [form.make_fragment(path, disk, known) for path in part.paths]
    return ds.FileSystemDataset(fragments, schema, form, disk)


def converted_rows(source: UnitSource, columns: Sequence[Column]) -> Iterator[pa.Table]:
    """The rows of a part with these columns, a batch at a time."""
    reader = PartReader(source, [column.name for column in columns], (), None, None)
    conform = Conform(Shape(tuple(columns), ()), ())
    for batch in reader.batches(READ_ROWS, ()):
        yield conform.table(batch, source.part, reader.types)


def signed_schema(columns: Sequence[Column]) -> pa.Schema:
    """The columns' types for programs without unsigned integers: signed ones that are wide enough,
    as Spark reads unsigned integers from Parquet.
    """
    fields = arrow_schema(columns)
    return pa.schema([field.with_type(_signed(field.type)) for field in fields])


def _signed(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_signed(kind.value_type)))
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if pa.types.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}[kind.bit_width]
    return kind


def converted_batches(
    sources: Sequence[UnitSource],
    columns: Sequence[Column],
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The body of a Spark task: takes `batches` with the numbers of sources in their first column,
    and yields the rows of these sources in Spark's own schema.
    """
    pa.set_cpu_count(1)  # Spark counts on one core per task; Arrow would use them all
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for table in converted_rows(sources[number], columns):
                yield from table.cast(schema).to_batches()
