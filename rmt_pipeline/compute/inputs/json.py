"""Reads JSON lines as rows: one object (or array) per line, by pyarrow, or by Python if need be.

pyarrow reads a block of lines into columns of known types, ten times as fast as Python. It has no
line numbers, does not read objects as Map, and does not distinguish NULL from a missing key; a
block where this matters is read by Python.
"""

import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.json

from rmt_pipeline.compute.inputs.memory import columns_of_dicts
from rmt_pipeline.compute.inputs.rows import (
    InputRows,
    InputSource,
    Tolerance,
    blocks_of_lines,
    numbered_lines,
)
from rmt_pipeline.protocol.errors import BadValue
from rmt_pipeline.types.data_type import DataType

BLOCK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class JsonLinesText:
    """One text of JSON lines. `open` returns a stream of its bytes from the start, uncompressed.

    `types` has the columns that may be inserted; other keys are ignored if `skips_unknown`, else
    they are an error. If there are `names`, each line is an array of the values of these columns.
    """

    name: str
    open: Callable[[], Any]
    types: Mapping[str, DataType]
    tolerance: Tolerance
    skips_unknown: bool = False
    names: Sequence[str] | None = None


def json_source(text: JsonLinesText) -> InputSource:
    """The rows of the text. Reading them raises BadValue for a line that is not a JSON object (or
    array), naming it.
    """
    return InputSource(
        text.name, _rows(text), nulls_become_defaults=True, tolerance=text.tolerance
    )


def _rows(text: JsonLinesText) -> Iterator[InputRows]:
    schema = _schema(text.types) if text.names is None else None
    line = 1
    with text.open() as stream:
        for block in blocks_of_lines(stream, BLOCK_BYTES):
            rows = None if schema is None else _fast(text, block, schema, line)
            if rows is None:
                rows = _slow(text, block, line)
            if rows.count:
                yield rows
            line += block.count(b"\n")


def _schema(types: Mapping[str, DataType]) -> pa.Schema | None:
    """The types as which pyarrow is to read the columns; None if it can't read one of them."""
    fields = [(name, _readable(kind)) for name, kind in types.items()]
    return None if any(kind is None for _, kind in fields) else pa.schema(fields)


def _readable(kind: DataType) -> pa.DataType | None:
    plain = kind.plain
    if plain.family == "Array":
        element = _readable(plain.elements[0])
        return None if element is None else pa.list_(element)
    if plain.family in {"Tuple", "Map"} or plain.wide_bytes:
        return None
    if plain.is_numeric or plain.family == "Bool":
        return plain.arrow
    return pa.string()


def _fast(text: JsonLinesText, block: bytes, schema: pa.Schema, line: int) -> InputRows | None:
    try:
        table = pyarrow.json.read_json(
            io.BytesIO(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema,
                unexpected_field_behavior="ignore" if text.skips_unknown else "error",
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if table.num_rows != sum(1 for _ in _lines(block, line)):
        return None  # an object has several lines, or a line several objects
    columns = dict(zip(table.column_names, table.columns, strict=True))
    return InputRows(
        columns,
        table.num_rows,
        partial(_place, text, block, line),
        again=partial(_slow, text, block, line),
    )


def _slow(text: JsonLinesText, block: bytes, line: int) -> InputRows:
    rows: list[Mapping[str, Any]] = []
    numbers: list[int] = []
    for number, content in _lines(block, line):
        try:
            rows.append(_parsed(text, number, content))
        except BadValue as problem:
            text.tolerance.skip(problem)
        else:
            numbers.append(number)
    columns = columns_of_dicts(rows)
    return InputRows(columns, len(rows), numbered_lines(text.name, numbers))


def _parsed(text: JsonLinesText, number: int, content: bytes) -> Mapping[str, Any]:
    try:
        # Decimals keep the digits that a float would lose.
        row = json.loads(content, parse_float=Decimal, object_pairs_hook=object_of_pairs)
    except (ValueError, RecursionError) as error:
        raise BadValue(
            f"{text.name} line {number} is not JSON: {error}. Nothing was inserted"
        ) from error
    if text.names is not None:
        if not isinstance(row, list) or len(row) != len(text.names):
            raise BadValue(
                f"{text.name} line {number} is not an array of {len(text.names)} values "
                f"({', '.join(text.names)}): {content[:100]!r}. Nothing was inserted"
            )
        return dict(zip(text.names, row, strict=True))
    if not isinstance(row, dict):
        raise BadValue(
            f'{text.name} line {number} is not an object {{"column": value, …}}: '
            f"{content[:100]!r}. Nothing was inserted"
        )
    return row


def object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object with these keys. Raises ValueError for a key that is there twice, as one of its
    values would be lost.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, _ in pairs if sum(name == each for each, _ in pairs) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _lines(block: bytes, line: int) -> Iterator[tuple[int, bytes]]:
    """The numbers and contents of the lines that are not blank; the first line has
    number `line`.
    """
    for number, content in enumerate(block.split(b"\n"), line):
        if content.strip():
            yield number, content


def _place(text: JsonLinesText, block: bytes, line: int, row: int) -> str:
    number, _ = next(itertools.islice(_lines(block, line), row, None))
    return f"{text.name} line {number}"
