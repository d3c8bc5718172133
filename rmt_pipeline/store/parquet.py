"""Writes Arrow tables as Parquet and reads them. Equal rows give equal bytes with the
same library.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.syntax.types import NamedType, arrow_schema

if TYPE_CHECKING:
    import pyarrow.dataset

ROW_GROUP_ROWS = 1 << 17
ROW_GROUP_BYTES = 128 << 20
COMPRESSION = "zstd"
UNCOMPRESSED_BYTES_MAX = 4 << 10
"""Of an insert's rows in memory: their file fits into one block of the disk as it is, and is
written and read in two thirds of the time.
"""
BATCH_ROWS = 1 << 16

WRITER = f"parquet 2, pyarrow {pa.__version__}"
"""What writes the files of parts, as it stands in their manifests."""

_CHUNK_BYTES = 1 << 20
_SAMPLE_ROWS = 2048
_REPEATS_MIN = 4  # rows per distinct value, from which a dictionary pays off


def to_parquet(table: pa.Table, *, sorted_by: Sequence[str] = (), codec: str = "") -> pa.Buffer:
    """Encode one Parquet file, with `compression(codec)`, statistics and row groups of bounded
    size.

    `sorted_by` are the columns by which the rows are in ascending order, noted for readers. The
    Arrow schema is not added: our types are read back the same from Parquet's own types.
    """
    sink, size, schema = pa.BufferOutputStream(), table.nbytes, table.schema
    is_tiny = not codec and size <= UNCOMPRESSED_BYTES_MAX
    pq.write_table(
        table,
        sink,
        **compression("NONE" if is_tiny else codec),
        row_group_size=row_group_rows(table.num_rows, size),
        use_dictionary=dictionary_columns(table),
        sorting_columns=_sorting_columns(schema, sorted_by),
        write_statistics=columns_with_bounds(schema, tuple(sorted_by)),
        store_schema=False,
        write_page_checksum=True,
    )
    return sink.getvalue()


@lru_cache(maxsize=256)
def columns_with_bounds(schema: pa.Schema, sorted_by: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The columns, with the leaves of nested ones, whose least and greatest values are noted for
    readers: all but floats. Parquet leaves NaN out of these values, and DuckDB and Spark take them
    for all that there is: they find no NaN in such a file, or skip it. `sorted_by` has none.
    """
    return tuple(
        path
        for field in schema
        for path, kind in _leaves(field.name, field.type)
        if not pa.types.is_floating(kind) or field.name in sorted_by
    )


def may_hide_nan(engine_version: str) -> bool:
    """Whether the files of a part with this version in its manifest may have notes of the least and
    greatest values of floats beside NaNs: builds that did not call their writer `parquet 2` noted
    them.
    """
    return "parquet 2," not in engine_version


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The leaves of a column with their paths in Parquet."""
    if pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_dictionary(kind):
        yield from _leaves(path, kind.value_type)
    else:
        yield path, kind


def compression(codec: str) -> dict[str, Any]:
    """The arguments of pyarrow's writers for CODEC(`codec`) of a TTL … RECOMPRESS; "" is zstd."""
    name, _, level = codec.rstrip(")").partition("(")
    match name:
        case "":
            return {"compression": COMPRESSION}
        case "NONE":
            return {"compression": "none"}
        case "ZSTD":
            return {"compression": "zstd", "compression_level": int(level)}
        case "LZ4HC" if level:
            return {"compression": "lz4", "compression_level": int(level)}
        case _:
            return {"compression": "lz4"}


def chunks_of(buffer: pa.Buffer) -> Iterator[bytes]:
    """Yield the buffer's bytes in pieces, so that they are not all copied at once."""
    for start in range(0, buffer.size, _CHUNK_BYTES):
        yield buffer.slice(start, min(_CHUNK_BYTES, buffer.size - start)).to_pybytes()


def read_batches(
    path: str, *, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in order, at most `batch_rows` at a time. Raises Corruption, naming
    the file, and FileNotFoundError.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            names = None if columns is None else list(columns)
            yield from file.iter_batches(batch_size=batch_rows, columns=names)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise Corruption(f"{path} is not a readable Parquet file: {error}") from error


def open_dataset(
    files: Sequence[str], columns: Iterable[NamedType]
) -> "pyarrow.dataset.Dataset":
    """Files of parts as one pyarrow Dataset with these columns, in this order of files.

    A column that a file does not have reads as NULL. Reading a page that is not as it was written
    raises OSError.
    """
    # For start-up time: importing it takes as long as all other imports here together.
    import pyarrow.dataset as ds  # noqa: PLC0415

    schema = pa.schema([field.with_nullable(True) for field in arrow_schema(columns)])
    return ds.dataset(list(files), schema=schema, format=dataset_format())


def dataset_format() -> "pyarrow.dataset.ParquetFileFormat":
    """The Parquet format that compares pages with their check sums when they are read."""
    import pyarrow.dataset as ds  # noqa: PLC0415  start-up: see above

    return ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(
            page_checksum_verification=True
        )
    )


class ColumnBytes(NamedTuple):
    """The bytes of one column's pages on the disk, and before they were compressed."""

    compressed: int
    uncompressed: int


def column_bytes(path: str) -> dict[str, ColumnBytes]:
    """The bytes of a file's columns by name; the leaves of an Array or a Tuple count for it."""
    metadata = pq.read_metadata(path)
    names = metadata.schema.to_arrow_schema().names
    found = dict.fromkeys(names, ColumnBytes(0, 0))
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for at in range(row_group.num_columns):
            chunk = row_group.column(at)
            whose = [
                name for name in names if f"{chunk.path_in_schema}.".startswith(f"{name}.")
            ]
            name = max(whose, key=len)  # n.x of a Nested does not belong to a column n
            before = found[name]
            found[name] = ColumnBytes(
                before.compressed + chunk.total_compressed_size,
                before.uncompressed + chunk.total_uncompressed_size,
            )
    return found


def row_group_rows(rows: int, size_bytes: int) -> int:
    """How many rows a row group gets, if `rows` rows have `size_bytes` bytes in memory."""
    return max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES * rows // max(size_bytes, 1)))


def dictionary_columns(table: pa.Table) -> list[str]:
    """The columns whose values repeat, judged by a sample taken at regular distances.

    Parquet's default is to begin with a dictionary and give it up when it has grown too large. For
    columns without repetitions that costs four times as much time, and more bytes.
    """
    if table.num_rows < _SAMPLE_ROWS:
        return []
    step = table.num_rows // _SAMPLE_ROWS
    places = pa.array(range(0, _SAMPLE_ROWS * step, step), pa.int64())
    candidates = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    sample = table.select(candidates).take(places)
    distinct_max = _SAMPLE_ROWS // _REPEATS_MIN
    return [
        name
        for name, column in zip(candidates, sample.columns, strict=True)
        if pc.count_distinct(column, mode="all").as_py() <= distinct_max
    ]


def _sorting_columns(
    schema: pa.Schema, sorted_by: Sequence[str]
) -> Sequence[pq.SortingColumn] | None:
    # Parquet numbers the leaves, so behind a nested column the numbers differ from the schema's.
    # Then the order is not noted: a reader only lacks a hint.
    if not sorted_by or any(pa.types.is_nested(field.type) for field in schema):
        return None
    return [pq.SortingColumn(schema.get_field_index(name)) for name in sorted_by]
