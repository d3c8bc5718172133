"""CSV files → rows. pyarrow reads; when something is wrong, the line is found by reading again.

Every value is read as text, so that the column's own type decides what it means. Quoting is
the usual one: double quotes, doubled within, line breaks allowed within.
"""

import csv
import io
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.csv

from rmt_pipeline.compute.inputs.rows import InputRows, InputSource
from rmt_pipeline.protocol.errors import BadValue, IncorrectData

BLOCK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class CsvText:
    """One CSV text. `names` are its columns when it has no header line, else None.

    `open` gives its bytes from the start, uncompressed; it is called again after an error.
    `columns_of_bytes`: columns whose values need not be UTF-8.
    """

    name: str
    open: Callable[[], Any]
    names: Sequence[str] | None
    delimiter: str = ","
    null: str = "\\N"
    skipped_lines: int = 0
    columns_of_bytes: frozenset[str] = frozenset()
    empty_is_absent: bool = False


def csv_source(text: CsvText, known_columns: Sequence[str]) -> InputSource:
    """Raises BadValue for a line with too many or too few values, IncorrectData for what can't
    be read at all.
    """
    return InputSource(text.name, _rows(text, known_columns), nulls_become_defaults=True)


def _rows(text: CsvText, known_columns: Sequence[str]) -> Iterator[InputRows]:
    kinds = {
        name: pa.binary() if name in text.columns_of_bytes else pa.string()
        for name in known_columns
    }
    first = 0
    try:
        with text.open() as stream:
            counting = _CountingQuotes(stream)
            for batch in _reader(counting, text, kinds):
                names = batch.schema.names
                _refuse_twice(text, names)
                columns = dict(zip(names, batch.columns, strict=True))
                yield InputRows(
                    columns,
                    batch.num_rows,
                    partial(_place, text, first),
                    empty_is_absent=text.empty_is_absent,
                )
                first += batch.num_rows
            if counting.quotes % 2:  # pyarrow takes the end of the file for the missing quote
                _check_records(text)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        if text.names is not None and first == 0 and next(_records(text), None) is None:
            return  # an empty file without a header: no rows
        _explain(text, error)


class _CountingQuotes(io.RawIOBase):
    """Passes bytes on and counts the quotes: an odd number means that one is not closed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.quotes = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self.quotes += data.count(b'"')
        return data


def _reader(stream: Any, text: CsvText, kinds: dict[str, pa.DataType]) -> Any:
    return pyarrow.csv.open_csv(
        stream,
        read_options=pyarrow.csv.ReadOptions(
            column_names=None if text.names is None else list(text.names),
            skip_rows=text.skipped_lines,
            block_size=BLOCK_BYTES,
            use_threads=False,  # a batch per block, in order; small files are read faster
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=text.delimiter, newlines_in_values=True
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=kinds,
            null_values=[text.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _refuse_twice(text: CsvText, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise IncorrectData(
                f"{text.name}: its header has {name!r} twice. Nothing was inserted"
            )


# Reading again, in Python, to say where something is.


def _records(text: CsvText) -> Iterator[tuple[int, list[str]]]:
    """Line numbers (from 1) and values of every record, the header among them.

    Bytes that are no UTF-8 come as surrogates. Raises csv.Error at a quote that is not closed.
    """
    csv.field_size_limit(sys.maxsize)
    with text.open() as stream:
        lines = io.TextIOWrapper(
            io.BufferedReader(stream) if isinstance(stream, io.RawIOBase) else stream,
            encoding="utf-8-sig",
            errors="surrogateescape",
            newline="",
        )
        for _ in range(text.skipped_lines):
            lines.readline()
        reader = csv.reader(lines, delimiter=text.delimiter, strict=True)
        line = text.skipped_lines + 1
        for record in reader:
            if record:
                yield line, record
            line = text.skipped_lines + reader.line_num + 1


def _place(text: CsvText, first: int, row: int) -> str:
    """Where row `first + row` (from 0, the header not counted) begins."""
    records = itertools.islice(_records(text), first + row + (text.names is None), None)
    try:
        line, _ = next(records)
    except (StopIteration, csv.Error):  # the two readers do not agree about the lines before
        return f"{text.name} row {first + row + 1}"
    return f"{text.name} line {line}"


def _explain(text: CsvText, error: Exception) -> NoReturn:
    """Find the first line that can't be right, and raise what is to be said of it."""
    _check_records(text)
    reason = "it has no header line" if "Empty CSV" in str(error) else str(error)
    if "straddling object" in reason:
        reason = (
            f"a line is longer than {BLOCK_BYTES >> 20} MiB, the most that is read of CSV at once; "
            "JSONEachRow and Parquet have no such limit"
        )
    raise IncorrectData(
        f"{text.name} can't be read as CSV: {reason}. Nothing was inserted"
    ) from error


def _check_records(text: CsvText) -> None:
    """Raises BadValue for the first line with a wrong number of values, or bytes that are no
    text, or whose quote is not closed.
    """
    names = None if text.names is None else list(text.names)
    line = 0
    try:
        for line, record in _records(text):
            names = record if names is None else names
            _check_record(text, line, names, record)
    except csv.Error as problem:
        raise BadValue(
            f"{text.name}: a quote is not closed, in the record after line {line} ({problem}). "
            "Nothing was inserted"
        ) from problem


def _check_record(text: CsvText, line: int, names: list[str], record: list[str]) -> None:
    if len(record) != len(names):
        raise BadValue(
            f"{text.name} line {line}: {len(record)} values, but there are {len(names)} columns "
            f"({', '.join(names)}). Nothing was inserted"
        )
    for name, value in zip(names, record, strict=True):
        if name not in text.columns_of_bytes and not _is_utf8(value):
            shown = value.encode("utf-8", "surrogateescape")[:100]
            raise BadValue(
                f"{text.name} line {line}, column {name}: {shown!r} is not UTF-8. "
                "Nothing was inserted"
            )


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
