"""Conforms data from outside to a table's stored columns, or raises an error with the wrong row.

    conform(data, definition.columns, settings=QuerySettings())

`data` is a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a pandas or Polars DataFrame,
a list of dicts, or a file: `ParquetFile`, `ArrowFile`, `CsvFile`, `TsvFile`, `JsonLinesFile`,
`RowBinaryFile`, `OtherFile`.
"""

import codecs
import glob
import io
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmt_pipeline.compute.inputs.columns import InsertColumns
from rmt_pipeline.compute.inputs.csv import CsvText, csv_source
from rmt_pipeline.compute.inputs.json import JsonLinesText, json_source
from rmt_pipeline.compute.inputs.memory import arrow_source, parquet_source, source_of
from rmt_pipeline.compute.inputs.other import Kind, OtherText, other_source
from rmt_pipeline.compute.inputs.row_binary import Head, RowBinaryText, row_binary_source
from rmt_pipeline.compute.inputs.rows import InputRows, InputSource, Tolerance
from rmt_pipeline.compute.inputs.tsv import TsvText, tsv_source
from rmt_pipeline.protocol.errors import BadValue, IncorrectData, UnknownFormat, UserError
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column

_COMPRESSIONS = {
    "gz": "gzip",
    "gzip": "gzip",
    "zst": "zstd",
    "zstd": "zstd",
    "bz2": "bz2",
    "lz4": "lz4",
    "none": None,
}


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """Parquet files: a path, or a pattern with `*`, `?` or `[…]`, read in the order of names.

    If there is `content`, it is read instead of the file, and `path` is its name in errors.
    """

    path: str | os.PathLike[str]
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class ArrowFile:
    """Arrow IPC files or streams; `path` and `content` as in ParquetFile."""

    path: str | os.PathLike[str]
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class CsvFile:
    """CSV files; `path` and `content` as in ParquetFile.

    `header` says that the first line has the columns' names. Without it the values are those of the
    insert's columns, in their order. `compression` is gz, zst, bz2, lz4 or none; if empty, it
    follows from the file's name.
    """

    path: str | os.PathLike[str]
    header: bool = True
    content: bytes | None = None
    compression: str = ""


@dataclass(frozen=True, slots=True)
class TsvFile:
    """Tab-separated files with the original's escapes; the fields are as in CsvFile."""

    path: str | os.PathLike[str]
    header: bool = False
    content: bytes | None = None
    compression: str = ""


@dataclass(frozen=True, slots=True)
class JsonLinesFile:
    """Files with one JSON object per line or, if `compact`, one array of the values of the insert's
    columns; `path` and `content` as in ParquetFile.
    """

    path: str | os.PathLike[str]
    content: bytes | None = None
    compression: str = ""
    compact: bool = False


@dataclass(frozen=True, slots=True)
class RowBinaryFile:
    """Files in the original's RowBinary formats; `path` and `content` as in ParquetFile. `head`
    says what comes before the rows: nothing, the columns' names, or their names and types.
    """

    path: str | os.PathLike[str]
    content: bytes | None = None
    compression: str = ""
    head: Head = ""


@dataclass(frozen=True, slots=True)
class OtherFile:
    """Files of `key=value` lines (TSKV), of lines that are one value each, or of columns in JSON,
    by `kind`; `path` and `content` as in ParquetFile.
    """

    path: str | os.PathLike[str]
    kind: Kind
    content: bytes | None = None
    compression: str = ""


_OTHER: dict[str, Kind] = {
    "tskv": "key=value",
    "lineasstring": "lines",
    "jsoncolumns": "columns",
    "jsoncolumnswithmetadata": "columns",
    "jsoncompactcolumns": "compact columns",
}
_ROW_BINARY: dict[str, Head] = {
    "rowbinary": "",
    "rowbinarywithnames": "names",
    "rowbinarywithnamesandtypes": "names and types",
}
INPUT_FORMATS = (
    "CSV",
    "CSVWithNames",
    "TSV",
    "TabSeparated",
    "TSVWithNames",
    "TabSeparatedWithNames",
    "JSONEachRow",
    "JSONLines",
    "NDJSON",
    "JSONCompactEachRow",
    "JSONColumns",
    "JSONCompactColumns",
    "JSONColumnsWithMetadata",
    "TSKV",
    "LineAsString",
    "Parquet",
    "Arrow",
    "ArrowStream",
    "RowBinary",
    "RowBinaryWithNames",
    "RowBinaryWithNamesAndTypes",
    "Values",
)
"""All formats that an INSERT takes, with their other names. Values is read by the parser."""
TextFile = CsvFile | TsvFile | JsonLinesFile | RowBinaryFile | OtherFile
File = ParquetFile | ArrowFile | TextFile


def file_of_format(
    name: str, path: str, *, content: bytes | None = None, compression: str = ""
) -> File:
    """The file in the format of that name: CSV, TabSeparatedWithNames, JSONEachRow, Parquet …

    Raises UnknownFormat.
    """
    if (kind := _OTHER.get(name.lower())) is not None:
        return OtherFile(path, kind, content, compression)
    if (head := _ROW_BINARY.get(name.lower())) is not None:
        return RowBinaryFile(path, content, compression, head)
    match name.lower():
        case "parquet":
            return ParquetFile(path, content)
        case "arrow" | "arrowstream":
            return ArrowFile(path, content)
        case "csv" | "csvwithnames" as csv:
            return CsvFile(path, csv.endswith("names"), content, compression)
        case "tsv" | "tabseparated" | "tsvwithnames" | "tabseparatedwithnames" as tsv:
            return TsvFile(path, tsv.endswith("names"), content, compression)
        case "jsoneachrow" | "jsonlines" | "ndjson":
            return JsonLinesFile(path, content, compression)
        case "jsoncompacteachrow":
            return JsonLinesFile(path, content, compression, compact=True)
        case _:
            raise UnknownFormat(
                f"{name} is no format that can be inserted; there are {', '.join(INPUT_FORMATS)}"
            )


def conform(
    data: Any,
    columns: Sequence[Column],
    *,
    settings: QuerySettings,
    columns_given: Sequence[str] | None = None,
    key_columns: Collection[str] = (),
    now_s: float | None = None,
) -> Iterator[pa.Table]:
    """Yield the data as tables whose schema is exactly that of the stored columns, batch by batch.

    The data may also be a tuple of files, as `with_content` gives them.

    `columns_given` is the statement's list of columns. `key_columns` are those that the table's
    keys use, for which a NULL in a file does not become the default. Columns without values get
    their defaults, in which `now()` is `now_s`.

    Raises UnknownColumn; BadValue for a value that does not fit, naming file and line (or row),
    column, value and type; IncorrectData for a file that can't be read; UserError. After an error
    the caller must discard the tables that were yielded before.
    """
    plan = InsertColumns(columns, columns_given, settings, key_columns, now_s)
    _check(settings)
    tolerance = Tolerance(
        settings.input_format_allow_errors_num, settings.input_format_allow_errors_ratio
    )
    for source in _sources(data, plan, settings, tolerance):
        for rows in _readable(source):
            if rows.count:
                yield from _tables(plan, rows, source)
            else:
                plan.check_names(rows)


def with_content(file: File) -> tuple[File, ...]:
    """The files that the path names, with their content. So what is read of them stays the same,
    whatever becomes of the files.

    Raises UserError if there is none; IncorrectData, whose cause is the OSError, for one that can't
    be read.
    """
    if file.content is not None:
        return (file,)
    found: list[File] = []
    for path in paths_of(file):
        try:
            found.append(replace(file, path=path, content=Path(path).read_bytes()))
        except OSError as error:
            raise IncorrectData(
                f"{path} can't be read: {error}. Nothing was inserted"
            ) from error
    return tuple(found)


def _check(settings: QuerySettings) -> None:
    how = settings.date_time_input_format
    if how not in {"basic", "best_effort"}:
        raise UserError(f"date_time_input_format is basic or best_effort, not {how!r}")
    try:  # hex and zlib are codecs too, but not encodings of texts
        "".encode(settings.input_format_encoding or "utf-8")
    except LookupError:
        raise UserError(
            f"input_format_encoding: there is no encoding {settings.input_format_encoding!r}; "
            "there are e.g. utf-8, utf-16, latin1, cp1251, shift_jis"
        ) from None


def _tables(plan: InsertColumns, rows: InputRows, source: InputSource) -> Iterator[pa.Table]:
    """The rows as tables, without wrong rows if these are tolerated: halves of the rows are tried
    until the wrong ones are found.

    The line of a row is found only if it will be reported: for that a CSV file is read again.
    """
    tolerance = source.tolerance
    is_told = tolerance.is_none or (rows.count == 1 and tolerance.is_used_up)
    placed = rows if is_told else replace(rows, where=lambda _: source.name)
    try:
        table = plan.table(placed, nulls_become_defaults=source.nulls_become_defaults)
    except BadValue as problem:
        if tolerance.is_none:
            raise
        if rows.count == 1:
            tolerance.skip(problem)
            return
    else:
        tolerance.rows += rows.count
        yield table
        return
    half = rows.count // 2
    yield from _tables(plan, rows.part(0, half), source)
    yield from _tables(plan, rows.part(half, rows.count), source)


def _readable(source: InputSource) -> Iterator[InputRows]:
    try:
        yield from source.batches
    except (OSError, UnicodeError) as error:
        # The disk is broken, or the bytes can't be uncompressed or decoded.
        raise IncorrectData(
            f"{source.name} can't be read: {error}. Nothing was inserted"
        ) from error


def _sources(
    data: Any, plan: InsertColumns, settings: QuerySettings, tolerance: Tolerance
) -> Iterator[InputSource]:
    files = data if isinstance(data, tuple) else (data,)
    for file in files:
        if not isinstance(file, File):
            yield source_of(data)
            return
        for path in paths_of(file):
            yield _source(path, file, plan, settings, tolerance)


def _source(
    path: str, file: File, plan: InsertColumns, settings: QuerySettings, tolerance: Tolerance
) -> InputSource:
    if isinstance(file, ParquetFile):
        content = None if file.content is None else pa.BufferReader(file.content)
        return parquet_source(path, content or path)
    if isinstance(file, ArrowFile):
        content = None if file.content is None else pa.BufferReader(file.content)
        return arrow_source(path, content or path)
    if isinstance(file, RowBinaryFile):
        return _row_binary(path, file, plan, partial(_bytes_of, path, file))
    opened = partial(text_stream, path, file, settings.input_format_encoding)
    match file:
        case CsvFile():
            text = _csv_text(path, file, plan, settings, opened=opened, tolerance=tolerance)
            return csv_source(text, plan.names)
        case TsvFile():
            names = None if file.header else plan.accepted
            null = settings.format_tsv_null_representation
            return tsv_source(TsvText(path, opened, names, tolerance, null))
        case JsonLinesFile():
            types = {name: plan.type_of(name) for name in plan.names}
            skips = settings.input_format_skip_unknown_fields
            names = plan.accepted if file.compact else None
            return json_source(JsonLinesText(path, opened, types, tolerance, skips, names))
        case OtherFile():
            return other_source(OtherText(path, opened, file.kind, plan.accepted, tolerance))


def _row_binary(
    path: str, file: RowBinaryFile, plan: InsertColumns, opened: Callable[[], Any]
) -> InputSource:
    types = {name: plan.type_of(name) for name in plan.names}
    return row_binary_source(RowBinaryText(path, opened, file.head, plan.accepted, types))


def _csv_text(
    path: str,
    file: CsvFile,
    plan: InsertColumns,
    settings: QuerySettings,
    *,
    opened: Callable[[], Any],
    tolerance: Tolerance,
) -> CsvText:
    quotes = '"' * settings.format_csv_allow_double_quotes
    return CsvText(
        path,
        opened,
        names=None if file.header else plan.accepted,
        tolerance=tolerance,
        quotes=quotes + "'" * settings.format_csv_allow_single_quotes,
        any_width=settings.input_format_csv_allow_variable_number_of_columns,
        delimiter=settings.format_csv_delimiter,
        null=settings.format_csv_null_representation,
        skipped_lines=settings.input_format_csv_skip_first_lines,
        columns_of_bytes=frozenset(
            name for name in plan.names if plan.type_of(name).plain.family == "FixedString"
        ),
        empty_is_absent=settings.input_format_csv_empty_as_default,
    )


def paths_of(file: File) -> list[str]:
    """The path, or all files that match the pattern, sorted. Raises UserError if there is none."""
    text = os.fspath(file.path)
    if file.content is not None or Path(text).is_file():  # a name may look like a pattern
        return [text]
    matches = glob.glob(text, recursive=True)  # noqa: PTH207  Path.glob takes no absolute pattern
    found = sorted(name for name in matches if Path(name).is_file())
    if not found:
        hint = "does not exist"
        if Path(text).is_dir():
            hint = "is a directory: name its files, as in /*.csv"
        elif Path(text).exists():  # it may have to be read twice
            hint = "is a pipe or a device: INSERT … FORMAT takes its rows on standard input"
        raise UserError(f"{text} {hint}. Nothing was inserted")
    return found


def text_stream(
    path: str, file: CsvFile | TsvFile | JsonLinesFile | OtherFile, encoding: str
) -> Any:
    """A stream of the text of one of the file's paths, in UTF-8, uncompressed."""
    stream = _bytes_of(path, file)
    if not encoding or codecs.lookup(encoding).name == "utf-8":
        return stream
    return codecs.EncodedFile(stream, "utf-8", encoding)


def _bytes_of(path: str, file: TextFile) -> Any:
    named = file.compression.lower()
    if named and named not in _COMPRESSIONS:
        raise UserError(f"{named} is no compression; there are {', '.join(_COMPRESSIONS)}")
    compression = _COMPRESSIONS.get(named or Path(path).suffix.lower().removeprefix("."))
    if file.content is None:
        return pa.input_stream(path, compression=compression)
    return pa.input_stream(io.BytesIO(file.content), compression=compression)
