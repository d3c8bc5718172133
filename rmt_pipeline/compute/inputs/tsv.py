r"""Reads tab-separated files as rows: one per line, special characters escaped (`\t`,
`\n`, `\\`).
"""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from rmt_pipeline.compute.inputs.rows import (
    InputRows,
    InputSource,
    Tolerance,
    blocks_of_lines,
    numbered_lines,
    refuse_twice,
)
from rmt_pipeline.protocol.errors import BadValue, IncorrectData
from rmt_pipeline.types.escapes import unescape_literal

BLOCK_BYTES = 8 << 20

_BLANK_LINE = re.compile(rb"(?:\A|\n)\r?\n")


@dataclass(frozen=True, slots=True)
class TsvText:
    """One TSV text. `names` are its columns if it has no header line, else None.

    `open` returns a stream of its bytes, uncompressed. `null` is the text of NULL, before escapes
    are read.
    """

    name: str
    open: Callable[[], Any]
    names: Sequence[str] | None
    tolerance: Tolerance
    null: str = "\\N"


def tsv_source(text: TsvText) -> InputSource:
    """The rows of the text. Reading them raises BadValue for a line with too many or too few
    values, IncorrectData if the header is missing.
    """
    return InputSource(
        text.name, _rows(text), nulls_become_defaults=True, tolerance=text.tolerance
    )


def _rows(text: TsvText) -> Iterator[InputRows]:
    names = text.names
    line = 1
    with text.open() as stream:
        for block in blocks_of_lines(stream, BLOCK_BYTES):
            rest = block
            if names is None:
                header, _, rest = block.partition(b"\n")
                names = _header(text, header)
                line += 1
            lines = rest.count(b"\n")
            place: Callable[[int], str] = partial(_place, text, line)
            if not text.tolerance.is_none:
                rest, numbers = _without_wrong_lines(text, rest, names, line)
                place = numbered_lines(text.name, numbers)
            if rest:
                columns, count = _columns(text, rest, names, line)
                yield InputRows(columns, count, place)
            line += lines
    if names is None:
        raise IncorrectData(f"{text.name} has no header line. Nothing was inserted")


def _header(text: TsvText, line: bytes) -> list[str]:
    names = [
        unescape_literal(name)
        for name in line.rstrip(b"\r").decode("utf-8-sig", "replace").split("\t")
    ]
    refuse_twice(text.name, names)
    return names


def _columns(
    text: TsvText, block: bytes, names: Sequence[str], line: int
) -> tuple[dict[str, pa.ChunkedArray], int]:
    try:
        table = pyarrow.csv.read_csv(
            io.BytesIO(block),
            read_options=pyarrow.csv.ReadOptions(
                column_names=list(names), block_size=len(block) + 1, use_threads=False
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter="\t",
                quote_char=False,
                double_quote=False,
                ignore_empty_lines=False,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: pa.binary() for name in names},
                null_values=[text.null],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        _check_lines(text, block, names, line)
        raise IncorrectData(
            f"{text.name} can't be read as TSV: {error}. Nothing was inserted"
        ) from error
    if len(names) > 1 and _BLANK_LINE.search(block):  # for pyarrow it has empty values
        _check_lines(text, block, names, line)
    return {name: _unescaped(table.column(name)) for name in names}, table.num_rows


def _check_lines(text: TsvText, block: bytes, names: Sequence[str], line: int) -> None:
    """Raises BadValue for the first line with too many or too few values."""
    for number, content in enumerate(block.removesuffix(b"\n").split(b"\n"), line):
        _check_line(text, number, content, names)


def _check_line(text: TsvText, number: int, content: bytes, names: Sequence[str]) -> None:
    count = content.count(b"\t") + 1
    if count != len(names):
        raise BadValue(
            f"{text.name} line {number}: {count} values, but there are {len(names)} columns "
            f"({', '.join(names)}). Nothing was inserted"
        )


def _without_wrong_lines(
    text: TsvText, block: bytes, names: Sequence[str], line: int
) -> tuple[bytes, list[int]]:
    """The lines with as many values as there are columns, and their numbers."""
    good: list[bytes] = []
    numbers: list[int] = []
    for number, content in enumerate(block.removesuffix(b"\n").split(b"\n"), line):
        try:
            _check_line(text, number, content, names)
        except BadValue as problem:
            text.tolerance.skip(problem)
        else:
            good.append(content + b"\n")
            numbers.append(number)
    return b"".join(good), numbers


def _unescaped(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The column without escapes, as text if it is UTF-8, else as bytes, which some
    columns accept.
    """
    if pc.any(pc.match_substring(column, "\\")).as_py():
        encoded = column.combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        texts = (
            unescape_literal(value.decode("utf-8", "surrogateescape"))
            for value in encoded.dictionary.to_pylist()
        )
        distinct = pa.array([each.encode("utf-8", "surrogateescape") for each in texts])
        column = distinct.cast(pa.binary()).take(encoded.indices)
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return column


def _place(text: TsvText, line: int, row: int) -> str:
    return f"{text.name} line {line + row}"
