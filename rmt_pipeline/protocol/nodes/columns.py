"""The text of the node `columns` (spec §0.4.12), with a line for each column of a table or part."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import get_args

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Corruption, TooManyColumns
from rmt_pipeline.protocol.reader import TextReader
from rmt_pipeline.protocol.table import Column, DefaultKind
from rmt_pipeline.protocol.text import escape, parse_decimal, quote, unescape, unquote

_NAME = re.compile(r"`((?:[^`\\]|\\.)+)` ", re.DOTALL)
_DEFAULT_KINDS: tuple[DefaultKind, ...] = tuple(kind for kind in get_args(DefaultKind) if kind)
_CODEC = re.compile(r"CODEC\((.*)\)", re.DOTALL)


def columns_text(columns: Sequence[Column]) -> str:
    """The text of the node. `Column.codec` is what stands in the parentheses of CODEC(…)."""
    lines = "".join(_line(column) for column in columns)
    return f"columns format version: 1\n{len(columns)} columns:\n{lines}"


def require_writable(columns: Sequence[Column], texts: Iterable[bytes]) -> None:
    """Raise TooManyColumns if these texts, in which the columns are, are too much for one
    transaction: ZooKeeper would drop the connection.
    """
    size = sum(map(len, texts))
    if size > limits.NODE_BYTES_MAX:
        raise TooManyColumns(
            f"{len(columns)} columns, with their types, defaults and comments, need {size} bytes "
            f"in one transaction of ZooKeeper, which takes {limits.NODE_BYTES_MAX}. Make fewer "
            "columns (one Map in place of many, for instance), or shorten defaults and comments"
        )


def _line(column: Column) -> str:
    """The line of a column. Its fields are separated by tabs; escaping keeps tabs out of the
    fields.
    """
    assert column.name, "a column has a name"
    assert column.type, f"column {column.name} has a type"
    name = escape(column.name).replace("\\'", "'").replace("`", "\\`")
    fields = [f"`{name}` {escape(column.type)}"]
    if column.default_kind:
        fields += [column.default_kind, escape(column.default)]
    if column.comment:
        fields.append(f"COMMENT {escape(quote(column.comment))}")
    if column.codec:
        fields.append(f"CODEC({escape(column.codec)})")
    if column.ttl:
        fields.append(f"TTL {escape(column.ttl)}")
    return "\t".join(fields) + "\n"


def parse_columns(text: str) -> tuple[Column, ...]:
    """The inverse of `columns_text`. Raises Corruption."""
    reader = TextReader(text.encode(), "columns")
    reader.number("columns format version: ", low=1, high=1)
    count = reader.parse(reader.line(), _parse_count)
    columns = []
    while not reader.at_end:
        columns.append(reader.parse(reader.line(), _parse_line))
    if len(columns) != count:
        raise reader.corruption(f"{count} columns announced, {len(columns)} described")
    if len({column.name for column in columns}) != count:
        raise reader.corruption("two columns have the same name")
    return tuple(columns)


def _parse_count(text: str) -> int:
    if not text.endswith(" columns:"):
        raise Corruption(f"{text!r} does not say how many columns follow")
    return parse_decimal(text.removesuffix(" columns:"))


def _parse_line(line: str) -> Column:
    first, *fields = line.split("\t")
    match = _NAME.match(first)
    if match is None or match.end() == len(first):
        raise Corruption(f"{line!r} is not a column: a name in backquotes, a space and a type")
    column = Column(unescape(match[1]), unescape(first[match.end() :]))
    rest = iter(fields)
    for field in rest:
        column = _with_field(column, field, rest)
    return column


def _with_field(column: Column, field: str, rest: Iterator[str]) -> Column:
    for kind in _DEFAULT_KINDS:
        if field == kind:
            return replace(column, default_kind=kind, default=unescape(_next(rest, field)))
    if field == "COMMENT":  # the spec's form; the original writes a space instead of the tab
        return replace(column, comment=unquote(unescape(_next(rest, field))))
    if field.startswith("COMMENT "):
        return replace(column, comment=unquote(unescape(field.removeprefix("COMMENT "))))
    if (match := _CODEC.fullmatch(field)) is not None:
        return replace(column, codec=unescape(match[1]))
    if field.startswith("TTL "):
        return replace(column, ttl=unescape(field.removeprefix("TTL ")))
    raise Corruption(f"column {column.name!r} has {field!r}, which is not understood")


def _next(rest: Iterator[str], field: str) -> str:
    text = next(rest, None)
    if text is None:
        raise Corruption(f"nothing follows {field}")
    return text
