"""Writes answers as XML in the original's form, but without `statistics`, as for JSON."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rmt_pipeline.sql.formats.rows import Rows, small_batches
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.to_text import Formatter, column_values, formatter

_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def xml(rows: Rows) -> Iterator[str]:
    """Yield the pieces of XML. Each row is an element, with an element for each column, whose tag
    is the column's name if that can be a tag. Arrays, tuples and maps have elements of their own.
    """
    tags = [
        name if _TAG.fullmatch(name) else "field" for name in (c.name for c in rows.columns)
    ]
    yield "<?xml version='1.0' encoding='UTF-8' ?>\n<result>\n\t<meta>\n\t\t<columns>\n"
    for column in rows.columns:
        name, type_name = _escape(column.name), _escape(column.type.text)
        yield f"\t\t\t<column>\n\t\t\t\t<name>{name}</name>\n"
        yield f"\t\t\t\t<type>{type_name}</type>\n\t\t\t</column>\n"
    yield "\t\t</columns>\n\t</meta>\n\t<data>\n"
    count = 0
    for row in _rows(rows, tags, "\t\t\t"):
        count += 1
        yield f"\t\t<row>\n{row}\t\t</row>\n"
    yield "\t</data>\n"
    totals = rows.of_totals()
    if totals is not None:
        for row in _rows(totals, tags, "\t\t"):
            yield f"\t<totals>\n{row}\t</totals>\n"
    yield f"\t<rows>{count}</rows>\n</result>\n"


def _rows(rows: Rows, tags: Sequence[str], indent: str) -> Iterator[str]:
    texts = [_text(column.type) for column in rows.columns]
    for batch in small_batches(rows.batches):
        columns = [
            map(text, column_values(array))
            for text, array in zip(texts, batch.columns, strict=True)
        ]
        for values in zip(*columns, strict=True):
            pairs = zip(tags, values, strict=True)
            yield "".join(f"{indent}<{tag}>{value}</{tag}>\n" for tag, value in pairs)


def _escape(text: str) -> str:
    """Return the text with `&` and `<`, which would begin an entity or a tag, escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _text(data_type: DataType) -> Formatter:
    plain = data_type.plain
    match plain.family:
        case "Array":
            inner = _several("array", [_text(plain.elements[0])], repeated=True)
        case "Tuple":
            inner = _several("tuple", [_text(each) for each in plain.elements])
        case "Map":
            inner = _map(*(_text(each) for each in plain.elements))
        case "String":
            inner = _escape
        case _:
            told = formatter(plain, "TSV")

            def inner(value: Any) -> str:
                return _escape(told(value))

    return lambda value: "\\N" if value is None else inner(value)


def _several(tag: str, elements: list[Formatter], *, repeated: bool = False) -> Formatter:
    def text(value: Any) -> str:
        values = list(value.values()) if isinstance(value, dict) else list(value)
        each = elements * len(values) if repeated else elements
        inside = (f"<elem>{one(item)}</elem>" for one, item in zip(each, values, strict=True))
        return f"<{tag}>{''.join(inside)}</{tag}>"

    return text


def _map(key: Formatter, value: Formatter) -> Formatter:
    def text(pairs: Any) -> str:
        inside = (
            f"<elem><key>{key(k)}</key><value>{value(v)}</value></elem>" for k, v in pairs
        )
        return f"<map>{''.join(inside)}</map>"

    return text
