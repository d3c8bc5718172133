r"""Reads as rows texts of `key=value` lines (TSKV), of lines that are one value each, and of
columns in JSON.

TSKV has the escapes of TSV. Columns in JSON are one JSON value, which is read into memory as a
whole.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from rmt_pipeline.compute.inputs.json import object_of_pairs
from rmt_pipeline.compute.inputs.memory import columns_of_dicts
from rmt_pipeline.compute.inputs.rows import (
    InputRows,
    InputSource,
    Tolerance,
    blocks_of_lines,
    counted_rows,
    numbered_lines,
)
from rmt_pipeline.protocol.errors import BadValue, IncorrectData
from rmt_pipeline.types.escapes import unescape_literal

Kind = Literal["key=value", "lines", "columns", "compact columns"]
BLOCK_BYTES = 1 << 20

_FIELD = re.compile(r"((?:[^=\\]|\\.)*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OtherText:
    """One such text. `open` returns a stream of its bytes, uncompressed; `names` are the columns of
    the insert.
    """

    name: str
    open: Callable[[], Any]
    kind: Kind
    names: Sequence[str]
    tolerance: Tolerance


def other_source(text: OtherText) -> InputSource:
    """The rows of the text. Reading them raises BadValue for a wrong line, IncorrectData if JSON
    does not have the form of columns.
    """
    match text.kind:
        case "key=value" | "lines":
            rows = _of_lines(text)
        case _:
            rows = _of_columns(text)
    return InputSource(text.name, rows, nulls_become_defaults=True, tolerance=text.tolerance)


def _of_lines(text: OtherText) -> Iterator[InputRows]:
    if text.kind == "lines" and len(text.names) != 1:
        raise IncorrectData(
            f"LineAsString is for one column of Strings, and there are {len(text.names)} "
            f"({', '.join(text.names)}): name one, as in INSERT INTO t (c). Nothing was inserted"
        )
    number = 0
    with text.open() as stream:
        for block in blocks_of_lines(stream, BLOCK_BYTES):
            rows: list[Mapping[str, Any]] = []
            numbers: list[int] = []
            lines = block.removesuffix(b"\n").decode("utf-8", "surrogateescape")
            for line in lines.split("\n"):
                number += 1
                if text.kind == "lines":
                    rows.append({text.names[0]: line})
                elif not line.strip("\r"):
                    continue
                else:
                    try:
                        rows.append(_pairs(text, number, line.removesuffix("\r")))
                    except BadValue as problem:
                        text.tolerance.skip(problem)
                        continue
                numbers.append(number)
            yield InputRows(
                columns_of_dicts(rows), len(rows), numbered_lines(text.name, numbers)
            )


def _pairs(text: OtherText, number: int, line: str) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for field in line.split("\t"):
        match = _FIELD.fullmatch(field)
        key = unescape_literal(match[1]) if match else ""
        if match is None or not key:
            raise BadValue(
                f"{text.name} line {number}: {field[:100]!r} is not key=value. Nothing was inserted"
            )
        if key in found:
            raise BadValue(f"{text.name} line {number} has {key!r} twice. Nothing was inserted")
        found[key] = None if match[2] == "\\N" else unescape_literal(match[2])
    return found


def _of_columns(text: OtherText) -> Iterator[InputRows]:
    with text.open() as stream:
        content = stream.read()
    if not content.strip():
        return
    try:
        # Decimals keep the digits that a float would lose.
        value = json.loads(content, parse_float=Decimal, object_pairs_hook=object_of_pairs)
    except (ValueError, RecursionError) as error:
        raise IncorrectData(
            f"{text.name} is not JSON: {error}. Nothing was inserted"
        ) from error
    if isinstance(value, dict) and "meta" in value and isinstance(value.get("data"), dict):
        value = value["data"]  # here `data` is not a column
    is_compact = text.kind == "compact columns"
    if is_compact:
        is_list = isinstance(value, list) and len(value) <= len(text.names)
        value = dict(zip(text.names, value, strict=False)) if is_list else None
    if not isinstance(value, dict) or not all(isinstance(one, list) for one in value.values()):
        wanted = (
            f"an array of at most {len(text.names)} arrays ({', '.join(text.names)})"
            if is_compact
            else 'an object {"column": [value, …], …}'
        )
        raise IncorrectData(f"{text.name} is not {wanted}. Nothing was inserted")
    lengths = {name: len(column) for name, column in value.items()}
    count = max(lengths.values(), default=0)
    for name, length in lengths.items():
        if length != count:
            raise IncorrectData(
                f"{text.name}: column {name} has {length} values, and another one {count}. "
                "Nothing was inserted"
            )
    yield InputRows(value, count, counted_rows(text.name, 1))
