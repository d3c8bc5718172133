"""Arrow to Parquet and back. The same rows and library give the same bytes."""

from collections.abc import Iterable, Iterator, Sequence
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
BATCH_ROWS = 1 << 16

_CHUNK_BYTES = 1 << 20
_SAMPLE_ROWS = 2048
_REPEATS_MIN = 4  # rows per distinct value from which on a dictionary pays


def to_parquet(table: pa.Table, *, sorted_by: Sequence[str] = (), codec: str = "") -> pa.Buffer:
    """One Parquet file: `compression(codec)`, statistics, row groups of bounded size.

    `sorted_by`: columns by which the rows are in ascending order, told to readers. The Arrow
    schema is not added: what we store reads back the same from Parquet's own types.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        **compression(codec),
        row_group_size=row_group_rows(table.num_rows, table.nbytes),
        use_dictionary=dictionary_columns(table),
        sorting_columns=_sorting_columns(table.schema, sorted_by),
        store_schema=False,
        write_page_checksum=True,
    )
    return sink.getvalue()


def compression(codec: str) -> dict[str, Any]:
    """What pyarrow's writers take for CODEC(`codec`), as a TTL … RECOMPRESS has it; "" is zstd."""
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
    """The bytes in pieces, so that they need not be copied all at once."""
    for start in range(0, buffer.size, _CHUNK_BYTES):
        yield buffer.slice(start, min(_CHUNK_BYTES, buffer.size - start)).to_pybytes()


def read_batches(
    path: str, *, columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """A file in its order, `batch_rows` rows at a time. Raises Corruption naming the file."""
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

    A column that a file does not have reads as NULL. A page that is not as it was written is an
    OSError when it is read.
    """
    # For start-up time.
    import pyarrow.dataset as ds  # noqa: PLC0415  as slow to import as all else here together

    schema = pa.schema([field.with_nullable(True) for field in arrow_schema(columns)])
    return ds.dataset(list(files), schema=schema, format=dataset_format())


def dataset_format() -> "pyarrow.dataset.ParquetFileFormat":
    """Parquet whose pages are compared with their check sums when they are read."""
    import pyarrow.dataset as ds  # noqa: PLC0415  start-up: see above

    return ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(
            page_checksum_verification=True
        )
    )


class ColumnBytes(NamedTuple):
    """Of one column, in its pages as they lie on the disk, and before they were compressed."""

    compressed: int
    uncompressed: int


def column_bytes(path: str) -> dict[str, ColumnBytes]:
    """Of a file's columns, by their names; those inside of an Array or a Tuple count for it."""
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
            name = max(whose, key=len)  # n.x of Nested is no part of a column n
            before = found[name]
            found[name] = ColumnBytes(
                before.compressed + chunk.total_compressed_size,
                before.uncompressed + chunk.total_uncompressed_size,
            )
    return found


def row_group_rows(rows: int, size_bytes: int) -> int:
    """Rows per row group, for rows of this size on average."""
    return max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES * rows // max(size_bytes, 1)))


def dictionary_columns(table: pa.Table) -> list[str]:
    """Columns whose values repeat, by a sample taken at regular distances.

    Parquet's own way, to begin with a dictionary and give it up when it has grown too large,
    costs four times as much for columns without repetitions, and more bytes.
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
    # Parquet counts leaves: behind a nested column the numbers are others. Keys are never
    # nested, and a reader loses only a hint.
    if not sorted_by or any(pa.types.is_nested(field.type) for field in schema):
        return None
    return [pq.SortingColumn(schema.get_field_index(name)) for name in sorted_by]
