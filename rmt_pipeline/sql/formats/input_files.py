"""The rows of INSERT … FORMAT and INSERT … FROM INFILE, with their formats."""

import csv
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from rmt_pipeline.compute.inputs.conform import (
    CsvFile,
    File,
    TsvFile,
    file_of_format,
    paths_of,
    text_stream,
)
from rmt_pipeline.protocol.errors import UnknownFormat, UserError
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.syntax.lexer import skip_space
from rmt_pipeline.syntax.statements.nodes import FromFile, InlineRows, ValuesText

HEAD_BYTES = 65_536
SPOOL_BYTES = 32 << 20
_JSON_LINES = {"jsoneachrow", "jsonlines", "ndjson", "jsoncompacteachrow"}
_SEPARATOR = re.compile(r"\s*,?\s*")
_LINE_ENDS = re.compile(r"[\r\n]+")

_COMPRESSIONS = {"gz", "gzip", "zst", "zstd", "bz2", "lz4"}
_FORMATS = {
    "csv": "CSV",
    "tsv": "TabSeparated",
    "json": "JSONEachRow",
    "jsonl": "JSONEachRow",
    "ndjson": "JSONEachRow",
    "parquet": "Parquet",
    "pq": "Parquet",
    "arrow": "Arrow",
    "arrows": "ArrowStream",
}


def input_rows(rows: InlineRows, stdin: BinaryIO | None, until: ExitStack) -> File:
    """Return the rows in the statement or, if it has none, those on standard input.

    Many rows on standard input are written to a file, which exists for as long as `until` is open.
    Raises UnknownFormat, and UserError if there are no rows and no standard input (None).
    """
    text = rows.source[rows.start : rows.stop]
    if text.strip("\r\n"):
        if rows.format.lower() in _JSON_LINES:
            text = _one_object_per_line(text)
        content = text.encode("utf-8", "surrogateescape")
        return file_of_format(rows.format, "the statement's rows", content=content)
    if stdin is None:
        raise UserError(
            f"INSERT … FORMAT {rows.format} has no rows: they follow the format's name, or come"
            " on standard input when the statement is an argument"
        )
    head = stdin.read(SPOOL_BYTES)
    if len(head) < SPOOL_BYTES:
        return file_of_format(rows.format, "standard input", content=head)
    spooled = tempfile.NamedTemporaryFile(prefix="rmt-stdin-")  # noqa: SIM115  `until` closes it
    until.enter_context(spooled)
    spooled.write(head)
    shutil.copyfileobj(stdin, spooled, SPOOL_BYTES)
    spooled.flush()
    return file_of_format(rows.format, spooled.name)


def input_values(values: ValuesText, stdin: BinaryIO | None) -> ValuesText:
    """Return the rows of VALUES in the statement or, if it has none, those on standard input, which
    may end with a `;`.
    """
    if stdin is None or skip_space(values.source, values.start, values.stop) < values.stop:
        return values
    text = stdin.read().decode("utf-8", "surrogateescape")
    return ValuesText(text, 0, len(text.rstrip().removesuffix(";")))


def _one_object_per_line(text: str) -> str:
    """Return JSON objects with one on each line. As the original does, take objects side by side,
    with or without commas, which is common in tests.

    A text that is no list of objects is returned unchanged; its parser says what is wrong.
    """
    decoder = json.JSONDecoder()
    objects: list[str] = []
    at = _SEPARATOR.match(text, 0)
    while at is not None and at.end() < len(text):
        try:
            _, stop = decoder.raw_decode(text, at.end())
        except ValueError:
            return text
        # No other character is a line's end here: strings may have U+2028 and its like.
        objects.append(_LINE_ENDS.sub(" ", text[at.end() : stop]))
        at = _SEPARATOR.match(text, stop)
    return "\n".join(objects)


def input_file(file: FromFile, names: Sequence[str], settings: QuerySettings) -> File:
    """Return the file of INSERT … FROM INFILE with its format. If the format was not given, a first
    line that has only names of the inserted columns, `names`, is taken for a header.

    Raises UnknownFormat if neither the statement nor the file's name tells the format; UserError if
    there is no such file.
    """
    format_name = file.format or _format_of(file.path)
    found = file_of_format(format_name, file.path, compression=file.compression or "")
    if file.format is None and isinstance(found, CsvFile | TsvFile):
        return replace(found, header=_has_header(found, names, settings))
    return found


def _format_of(path: str) -> str:
    endings = [ending.lstrip(".").lower() for ending in Path(path).suffixes]
    while endings and endings[-1] in _COMPRESSIONS:
        endings.pop()
    found = _FORMATS.get(endings[-1]) if endings else None
    if found is None:
        raise UnknownFormat(
            f"the name of {path} does not tell its format; add FORMAT CSV, TabSeparated,"
            " JSONEachRow or Parquet to the statement"
        )
    return found


def _has_header(file: CsvFile | TsvFile, names: Sequence[str], settings: QuerySettings) -> bool:
    """Whether the first line that is read, of the first file if the path is a pattern, has only
    names of columns. For an unreadable file it is False; reading its rows raises the error.
    """
    try:
        with text_stream(paths_of(file)[0], file, settings.input_format_encoding) as stream:
            head = bytes(stream.read(HEAD_BYTES))
    except (OSError, pa.ArrowInvalid, UnicodeError, LookupError):
        return False
    lines = head.decode("utf-8-sig", "replace").splitlines()
    separator = "\t"
    if isinstance(file, CsvFile):
        lines = lines[settings.input_format_csv_skip_first_lines :]
        lines = [line for line in lines if line]  # in TSV an empty line is an empty value
        separator = settings.format_csv_delimiter
    first = lines[0] if lines else ""
    fields = next(csv.reader([first], delimiter=separator), [])
    return bool(fields) and set(fields) <= set(names)
