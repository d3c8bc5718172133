"""Reads data that is in memory, or that can be streamed as Arrow, as rows."""

import itertools
import numbers
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rmt_pipeline.compute.inputs.rows import ABSENT, InputRows, InputSource, counted_rows
from rmt_pipeline.compute.inputs.stored_value import is_null
from rmt_pipeline.protocol.errors import (
    DuplicateColumn,
    IllegalColumn,
    IncorrectData,
    UserError,
)

BATCH_ROWS = 1 << 17  # Arrow and pandas
PYTHON_ROWS = 1 << 14  # lists of dicts, which need far more memory per row


def source_of(data: Any) -> InputSource:
    """The rows of a table in memory. Raises UserError if `data` is not a table."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        return InputSource("", _arrow_rows(_slices(data), ""))
    if isinstance(data, Mapping):
        raise UserError(
            "one dict is not a table: pass a list of dicts (rows), a pyarrow Table, "
            "a RecordBatchReader, a Dataset, a pandas DataFrame, or a file of compute.inputs"
        )
    if type(data).__module__.startswith("pandas.") and hasattr(data, "iloc"):
        return InputSource("", _pandas_rows(data))
    if isinstance(data, pa.RecordBatchReader):
        return InputSource("", _arrow_rows(data, ""))
    if hasattr(data, "to_batches") and hasattr(data, "schema"):  # a Dataset or its Scanner
        return InputSource("", _arrow_rows(data.to_batches(), ""))
    if hasattr(data, "__arrow_c_stream__"):  # Polars, DuckDB, …
        return InputSource("", _arrow_rows(pa.RecordBatchReader.from_stream(data), ""))
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return InputSource("", _dict_rows(data))
    raise UserError(
        f"{type(data).__name__} can't be inserted: pass a pyarrow Table, RecordBatch, "
        "RecordBatchReader or Dataset, a pandas DataFrame, a list of dicts, or a file of "
        "compute.inputs (ParquetFile, CsvFile, JsonLinesFile)"
    )


def parquet_source(name: str, file: Any) -> InputSource:
    """The rows of a Parquet file; `file` is a path or a reader of bytes. Reading them raises
    IncorrectData if it is not Parquet.
    """
    rows = _arrow_rows(_parquet_batches(name, file), name)
    return InputSource(name, rows, nulls_become_defaults=True)


def _parquet_batches(name: str, file: Any) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(file) as parquet:
            yield from parquet.iter_batches(batch_size=BATCH_ROWS)
    except (pa.ArrowException, OSError) as error:
        raise IncorrectData(
            f"{name} can't be read as Parquet: {error}. Nothing was inserted"
        ) from error


def arrow_source(name: str, file: Any) -> InputSource:
    """The rows of an Arrow file or stream; `file` is a path or a reader of bytes. Reading them
    raises IncorrectData if it is neither.
    """
    return InputSource(
        name, _arrow_rows(_ipc_batches(name, file), name), nulls_become_defaults=True
    )


def _ipc_batches(name: str, file: Any) -> Iterator[pa.RecordBatch]:
    try:
        with pa.input_stream(file, compression=None) as stream:
            data = stream.read()
        if bytes(data[:6]) == b"ARROW1":
            reader = pa.ipc.open_file(data)
            yield from map(reader.get_batch, range(reader.num_record_batches))
        else:
            yield from pa.ipc.open_stream(data)
    except (pa.ArrowException, OSError) as error:
        raise IncorrectData(
            f"{name} can't be read as Arrow: {error}. Nothing was inserted"
        ) from error


def _slices(data: pa.Table | pa.RecordBatch) -> Iterator[pa.Table | pa.RecordBatch]:
    if isinstance(data, pa.Table) and data.num_rows > BATCH_ROWS:
        yield from data.to_batches(max_chunksize=BATCH_ROWS)
    else:
        yield data


def _arrow_rows(batches: Iterable[pa.Table | pa.RecordBatch], name: str) -> Iterator[InputRows]:
    first = 1
    for batch in batches:
        names = batch.schema.names
        require_own_names(names)
        columns = dict(zip(names, batch.columns, strict=True))
        yield InputRows(columns, batch.num_rows, counted_rows(name, first))
        first += batch.num_rows


def require_own_names(names: list[str]) -> None:
    """Raises DuplicateColumn for a name that two columns have."""
    if len(set(names)) != len(names):
        twice = next(each for each in names if names.count(each) > 1)
        raise DuplicateColumn(f"the data has two columns {twice!r}; give each its own name")


def with_index(frame: Any) -> Any:
    """A pandas DataFrame with the named levels of its index as columns, which they are for whoever
    has grouped by them. An index without a name only counts the rows.
    """
    named = [name for name in frame.index.names if name is not None]
    lacking = [name for name in named if name not in frame.columns]
    return frame.reset_index(level=lacking) if lacking else frame


def _pandas_rows(frame: Any) -> Iterator[InputRows]:
    frame = with_index(frame)
    for start in range(0, max(len(frame), 1), BATCH_ROWS):
        piece = frame.iloc[start : start + BATCH_ROWS]
        columns = {}
        for place, name in enumerate(piece.columns):
            if not isinstance(name, str) or name in columns:
                raise IllegalColumn(
                    f"the DataFrame's column {name!r} has no name of its own that is text; "
                    "name its columns as the table's"
                )
            columns[name] = _pandas_column(piece.iloc[:, place])
        where = counted_rows("", start + 1)
        yield InputRows(columns, len(piece), where, nan_may_be_null=True)


def _pandas_column(series: Any) -> Any:
    """The values of a pandas column, with NULL for NaN, by which pandas represents missing values.

    In a float column NaN may also be a value. Such columns keep it until the table's type of the
    column is known.
    """
    if isinstance(series.dtype, np.dtype) and series.dtype.kind == "f":
        return pa.array(series.to_numpy())
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        # Values of several kinds, or too large for the type that Arrow has guessed.
        return [None if _is_missing(value) else value for value in series]


def _is_missing(value: Any) -> bool:
    """Whether pandas takes it for missing. NA equals nothing, and is neither true nor false."""
    is_number = isinstance(value, numbers.Number)
    return is_null(value) or (is_number and value != value)  # noqa: PLR0124  NaN


def _dict_rows(rows: Iterable[Any]) -> Iterator[InputRows]:
    first = 1
    iterator = iter(rows)
    while piece := list(itertools.islice(iterator, PYTHON_ROWS)):
        require_dicts(piece, first)
        yield InputRows(columns_of_dicts(piece), len(piece), counted_rows("", first))
        first += len(piece)


def require_dicts(rows: list[Any], first: int = 1) -> None:
    """Raises IncorrectData for a row that is none; the rows are counted from `first` on."""
    for number, row in enumerate(rows, first):
        if not isinstance(row, Mapping):
            raise IncorrectData(f"row {number} is a {type(row).__name__}; a row is a dict")


def columns_of_dicts(rows: list[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The columns of rows that are dicts; ABSENT for a key that a row lacks."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, ABSENT) for row in rows] for name in names}
