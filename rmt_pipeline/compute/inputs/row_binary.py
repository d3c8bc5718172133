"""Reads RowBinary as rows, with values in the stored form of the columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from rmt_pipeline.compute.inputs.rows import InputRows, InputSource, counted_rows
from rmt_pipeline.protocol.errors import BadValue, IncorrectData
from rmt_pipeline.types.binary import binary_decoder, take_text, take_varint
from rmt_pipeline.types.data_type import DataType

ROWS = 1 << 14
CHUNK_BYTES = 1 << 20
Head = Literal["", "names", "names and types"]


@dataclass(frozen=True, slots=True)
class RowBinaryText:
    """One such text, with the values of the columns `names`, or of those that its `head` names.
    `types` are the types of all columns that may be inserted.
    """

    name: str
    opened: Callable[[], Any]
    head: Head
    names: Sequence[str]
    types: Mapping[str, DataType]


def row_binary_source(text: RowBinaryText) -> InputSource:
    """The rows of the text. Reading them raises IncorrectData if it ends inside a row or has other
    columns, BadValue for bytes that are not a value of their column's type.
    """
    return InputSource(text.name, _rows(text))


def _rows(text: RowBinaryText) -> Iterator[InputRows]:
    with text.opened() as stream:
        data = _Taken(stream)
        names = _head(text, data)
        types = [text.types[name] for name in names]
        decoders = [binary_decoder(each) for each in types]
        first, is_first = 1, True
        while is_first or not data.is_at_end():
            columns: list[list[Any]] = [[] for _ in names]
            while len(columns[0]) < ROWS and not data.is_at_end():
                row = first + len(columns[0])
                for name, decode, values in zip(names, decoders, columns, strict=True):
                    values.append(_decoded(text.name, row, name, decode, data))
            count = len(columns[0])
            arrays = {
                name: _array(values, data_type, text.name, first, name)
                for name, values, data_type in zip(names, columns, types, strict=True)
            }
            yield InputRows(arrays, count, counted_rows(text.name, first))
            first, is_first = first + count, False


def _head(text: RowBinaryText, data: "_Taken") -> Sequence[str]:
    if not text.head:
        return text.names
    try:
        count = take_varint(data)
        names = [take_text(data) for _ in range(count)]
        types = [take_text(data) for _ in names] if text.head == "names and types" else []
    except (EOFError, ValueError) as problem:
        why = str(problem) or "it ends before"
        raise IncorrectData(f"{text.name} has no head of column names: {why}") from problem
    for name in names:
        if name not in text.types:
            known = ", ".join(text.types)
            raise IncorrectData(
                f"{text.name} has a column {name}, whose values can't be skipped without knowing "
                f"their type; columns that can be inserted: {known}"
            )
    if len(set(names)) < len(names) or not names:
        raise IncorrectData(f"{text.name}: its head names {', '.join(names) or 'no column'}")
    for name, given in zip(names, types, strict=False):
        if given != text.types[name].text:
            raise IncorrectData(
                f"{text.name}: column {name} is {given} there and {text.types[name].text} here"
            )
    return names


def _decoded(
    source: str, row: int, name: str, decode: Callable[["_Taken"], Any], data: "_Taken"
) -> Any:
    try:
        return decode(data)
    except EOFError:
        raise IncorrectData(f"{source} ends inside row {row}, column {name}") from None
    except (ValueError, OverflowError) as problem:
        raise BadValue(f"in {source} row {row}, column {name}: {problem}") from None


def _array(
    values: list[Any], data_type: DataType, source: str, first: int, name: str
) -> pa.Array:
    try:
        return pa.array(values, data_type.arrow)
    except (pa.ArrowInvalid, OverflowError) as problem:
        rows = f"rows {first} to {first + len(values) - 1}"
        raise BadValue(f"in {source} {rows}, column {name}: {problem}") from None


class _Taken:
    """Takes given numbers of bytes from a stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._chunk = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes. Raises EOFError if there are fewer."""
        stop = self._at + count
        if stop > len(self._chunk):
            self._fill(count)
            stop = count
        taken = self._chunk[self._at : stop]
        self._at = stop
        return taken

    def is_at_end(self) -> bool:
        if self._at == len(self._chunk):
            self._chunk, self._at = bytes(self._stream.read(CHUNK_BYTES)), 0
        return not self._chunk

    def _fill(self, count: int) -> None:
        pieces = [self._chunk[self._at :]]
        have = len(pieces[0])
        while have < count:
            more = bytes(self._stream.read(CHUNK_BYTES))
            if not more:
                raise EOFError
            pieces.append(more)
            have += len(more)
        self._chunk, self._at = b"".join(pieces), 0
