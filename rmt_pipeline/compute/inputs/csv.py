"""Reads CSV files as rows. pyarrow reads them fast. From the batch where it fails, or if it lacks
an option that is needed, they are read record by record in Python, which also knows the lines of
errors.

Every value is read as text, so that the column's type decides what it means. Within quotes, quotes
are doubled and line breaks are allowed. A delimiter at the end of a line does not begin another
value, as in the original.
"""

import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.csv

from rmt_pipeline.compute.inputs.rows import (
    InputRows,
    InputSource,
    Tolerance,
    numbered_lines,
    refuse_twice,
)
from rmt_pipeline.protocol.errors import BadValue, IncorrectData

BLOCK_BYTES = 8 << 20
SKIPPED_LINES_MAX = 2**31 - 1  # pyarrow takes no larger number
BATCH_RECORDS = 65_536
BATCH_CHARACTERS = 32 << 20
VALUE_CHARACTERS_MAX = 256 << 20  # else an unclosed quote would take the rest of a file
LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CsvText:
    """One CSV text. `names` are its columns if it has no header line, else None.

    `open` returns a stream of its bytes from the start, uncompressed; it is called again after an
    error. `columns_of_bytes` are columns whose values need not be UTF-8. `any_width` says that
    lines may have more values than columns, which are ignored, or fewer, for which the columns get
    their defaults.
    """

    name: str
    open: Callable[[], Any]
    names: Sequence[str] | None
    tolerance: Tolerance
    delimiter: str = ","
    null: str = "\\N"
    quotes: str = '"'
    skipped_lines: int = 0
    columns_of_bytes: frozenset[str] = frozenset()
    empty_is_absent: bool = False
    any_width: bool = False


def csv_source(text: CsvText, known_columns: Sequence[str]) -> InputSource:
    """The rows of the text. Reading them raises BadValue for a line with too many or too few
    values, IncorrectData if the text can't be read at all.
    """
    return InputSource(
        text.name,
        _rows(text, known_columns),
        nulls_become_defaults=True,
        tolerance=text.tolerance,
    )


def _rows(text: CsvText, known_columns: Sequence[str]) -> Iterator[InputRows]:
    kinds = {
        name: pa.binary() if name in text.columns_of_bytes else pa.string()
        for name in known_columns
    }
    if text.quotes not in {"", '"'} or text.any_width:
        yield from _records_as_rows(text, 0)
        return
    first = 0
    try:
        with text.open() as stream:
            counting = _CountingQuotes(stream)
            for batch in _reader(counting, text, kinds):
                names = batch.schema.names
                refuse_twice(text.name, names)
                columns = dict(zip(names, batch.columns, strict=True))
                yield InputRows(
                    columns,
                    batch.num_rows,
                    partial(_place, text, first),
                    empty_is_absent=text.empty_is_absent,
                )
                first += batch.num_rows
        open_quote = text.quotes and counting.quotes % 2  # pyarrow closes it at the end
    except (pa.ArrowException, UnicodeDecodeError):
        yield from _records_as_rows(text, first)
    else:
        if open_quote:
            for _ in _records(text):
                pass


class _CountingQuotes(io.RawIOBase):
    """Passes bytes on and counts the quotes: if their number is odd, one is not closed."""

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
            skip_rows=min(text.skipped_lines, SKIPPED_LINES_MAX),
            block_size=BLOCK_BYTES,
            use_threads=False,  # one batch per block, in order; small files are read faster
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=text.delimiter, newlines_in_values=True, quote_char=text.quotes or False
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=kinds,
            null_values=[text.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


# Reading record by record, in Python


@dataclass(frozen=True, slots=True)
class _Record:
    """The values of a record as texts, None for NULL; bytes that are not UTF-8 are surrogates.
    `ends_open` says that its line ends with a delimiter, so that the last value is empty, or is not
    a value.
    """

    line: int
    values: list[str | None]
    ends_open: bool = False


def _records(text: CsvText) -> Iterator[_Record]:
    """Every record, also the header. Raises BadValue for a quote that is not closed."""
    with text.open() as stream:
        is_raw = isinstance(stream, io.RawIOBase)
        whole = io.BufferedReader(stream, LINE_BYTES) if is_raw else stream
        lines = io.TextIOWrapper(whole, "utf-8-sig", "surrogateescape", newline="")
        numbered = enumerate(lines, 1)
        skipped = min(text.skipped_lines, SKIPPED_LINES_MAX)
        for number, line in itertools.islice(numbered, skipped, None):
            if line.strip("\r\n"):
                yield _record(text, number, line, numbered)


def _record(text: CsvText, number: int, line: str, more: Iterator[tuple[int, str]]) -> _Record:
    """The record that begins with `line`. While a quote is open it goes on in `more` lines."""
    values: list[str | None] = []
    at, delimiter = 0, text.delimiter
    while True:
        if line[at : at + 1] and line[at] in text.quotes:
            value, line, at = _quoted(text, number, line, at, more)
            values.append(value)
            end = line.find(delimiter, at)
            rest = (line[at:] if end < 0 else line[at:end]).strip("\r\n")
            if rest.strip(" \t"):
                raise BadValue(
                    f"{text.name} line {number}: after a closing quote comes {rest[:100]!r}, not "
                    f"{delimiter!r}. Nothing was inserted"
                )
        else:
            end = line.find(delimiter, at)
            value = line[at:].rstrip("\r\n") if end < 0 else line[at:end]
            values.append(None if value == text.null else value)
        if end < 0:
            return _Record(number, values)
        at = end + 1
        if not line[at:].strip("\r\n"):
            return _Record(number, [*values, "" if text.null else None], ends_open=True)


def _quoted(
    text: CsvText, number: int, line: str, at: int, more: Iterator[tuple[int, str]]
) -> tuple[str, str, int]:
    """The quoted value that begins at `at`; the line with its closing quote, and the place behind
    that.
    """
    quote = line[at]
    at += 1
    pieces: list[str] = []
    size = 0
    while True:
        end = line.find(quote, at)
        if end < 0:
            pieces.append(line[at:])
            size += len(pieces[-1])
            if size > VALUE_CHARACTERS_MAX:
                raise BadValue(
                    f"{text.name} line {number}: a value of more than "
                    f"{VALUE_CHARACTERS_MAX >> 20} MiB in quotes. Nothing was inserted"
                )
            _, line = next(more, (0, ""))
            at = 0
            if not line:
                raise BadValue(
                    f"{text.name}: a quote is not closed, in the record of line {number}. "
                    "Nothing was inserted"
                )
        elif line[end + 1 : end + 2] == quote:
            pieces.append(line[at : end + 1])
            at = end + 2
        else:
            pieces.append(line[at:end])
            return "".join(pieces), line, end + 1


def _records_as_rows(text: CsvText, first: int) -> Iterator[InputRows]:
    """The rows from number `first` on. A wrong record raises BadValue, unless it is tolerated; then
    it is left out.
    """
    records = _records(text)
    names = text.names
    if names is None:
        header = next(records, None)
        if header is None:
            raise IncorrectData(
                f"{text.name} can't be read as CSV: it has no header line. Nothing was inserted"
            )
        given = header.values[:-1] if header.ends_open else header.values
        names = [name or "" for name in given]
        if not all(map(_is_utf8, names)):
            raise IncorrectData(
                f"{text.name}: its header is not UTF-8: input_format_encoding says what it "
                "is, e.g. utf-16. Nothing was inserted"
            )
        refuse_twice(text.name, names)
        yield InputRows(dict.fromkeys(names, ()), 0, lambda _: f"{text.name} line 1")
    rows = _checked(text, names, records)
    for _ in itertools.islice(rows, first):
        pass
    while batch := list(_some(rows)):
        lines = [record.line for record in batch]
        columns = {
            name: _column(text, name, [record.values[place] for record in batch])
            for place, name in enumerate(names)
        }
        yield InputRows(
            columns,
            len(batch),
            numbered_lines(text.name, lines),
            empty_is_absent=text.empty_is_absent,
        )


def _some(rows: Iterator[_Record]) -> Iterator[_Record]:
    """The next records, as many as are kept in memory at a time."""
    size = 0
    for record in itertools.islice(rows, BATCH_RECORDS):
        yield record
        size += sum(len(value or "") for value in record.values)
        if size > BATCH_CHARACTERS:
            return


def _column(text: CsvText, name: str, values: list[str | None]) -> pa.Array:
    if name not in text.columns_of_bytes:
        return pa.array(values, pa.string())
    data = [
        None if each is None else each.encode("utf-8", "surrogateescape") for each in values
    ]
    return pa.array(data, pa.binary())


def _checked(
    text: CsvText, names: Sequence[str], records: Iterator[_Record]
) -> Iterator[_Record]:
    for record in records:
        try:
            yield _fitting(text, names, record)
        except BadValue as problem:
            text.tolerance.skip(problem)


def _fitting(text: CsvText, names: Sequence[str], record: _Record) -> _Record:
    wanted = len(names)
    if record.ends_open and len(record.values) == wanted + 1:
        record = _Record(record.line, record.values[:-1])
    found = len(record.values)
    if text.any_width and found != wanted:
        missing: list[str | None] = [""] * (wanted - found)
        record = _Record(record.line, [*record.values[:wanted], *missing])
    elif found != wanted:
        raise BadValue(
            f"{text.name} line {record.line}: {found} values, but there are {wanted} columns "
            f"({', '.join(names)}){_surplus(record.values[wanted:])}. With format_csv_delimiter "
            "another character is between values, with "
            "input_format_csv_allow_variable_number_of_columns lines may be longer or shorter. "
            "Nothing was inserted"
        )
    for name, value in zip(names, record.values, strict=True):
        if value is not None and name not in text.columns_of_bytes and not _is_utf8(value):
            shown = value.encode("utf-8", "surrogateescape")[:100]
            raise BadValue(
                f"{text.name} line {record.line}, column {name}: {shown!r} is not UTF-8: "
                "input_format_encoding says what it is, e.g. latin1. Nothing was inserted"
            )
    return record


def _surplus(values: Sequence[str | None]) -> str:
    """The first values for which there is no column, in words."""
    shown = ", ".join(repr(value)[:100] for value in values[:3])
    return f": {shown} is too much" if shown else ""


def _place(text: CsvText, first: int, row: int) -> str:
    """The line of row `first + row` (from 0, without the header), for people."""
    records = itertools.islice(_records(text), first + row + (text.names is None), None)
    try:
        return f"{text.name} line {next(records).line}"
    except (StopIteration, BadValue):  # pyarrow has read the lines before it differently
        return f"{text.name} row {first + row + 1}"


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
