"""ClickHouse's types: parsing, canonical text, stored form, defaults, values from text."""

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa

from rmt_pipeline.syntax.type_parser import parse_type
from rmt_pipeline.types.data_type import DataType, quote_name, quote_text

__all__ = ["DataType", "arrow_schema", "parse_type", "quote_name", "quote_text"]


class NamedType(Protocol):
    """What has a name and a type's text: `protocol.table.Column`."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...


def arrow_schema(columns: Iterable[NamedType]) -> pa.Schema:
    """The Arrow schema in which rows of these columns are stored. Raises UnknownType."""
    fields = []
    for column in columns:
        data_type = parse_type(column.type)
        fields.append(pa.field(column.name, data_type.arrow, nullable=data_type.nullable))
    return pa.schema(fields)
