"""A table definition as JSON, for people to read and for this program to read back."""

import json
from dataclasses import asdict
from typing import Any, get_args

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.table import (
    Column,
    ColumnChange,
    DefaultKind,
    Engine,
    EngineKind,
    TableDefinition,
)

FORMAT = 5  # Bump when the JSON changes; keep reading every older number.


def encode_definition(definition: TableDefinition) -> bytes:
    """The definition as indented JSON; `decode_definition` is the inverse."""
    content = {"format": FORMAT, **asdict(definition)}
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def decode_definition(content: bytes, place: str) -> TableDefinition:
    """The inverse of `encode_definition`; reads every older format. `place` is the file that the
    bytes are from, for errors. Raises Corruption.
    """
    try:
        return _definition(json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Corruption(f"{place} is not a table definition: {error}") from error


def _definition(raw: dict[str, Any]) -> TableDefinition:
    number = raw.pop("format")
    if number not in range(1, FORMAT + 1):
        raise ValueError(f"its format is {number!r}; this version reads 1 to {FORMAT}")
    primary_key = raw.pop("primary_key")
    return TableDefinition(
        columns=tuple(_column(column) for column in raw.pop("columns")),
        engine=_engine(raw.pop("engine")),
        order_by=_texts(raw.pop("order_by")),
        partition_by=_texts(raw.pop("partition_by")),
        primary_key=None if primary_key is None else _texts(primary_key),
        settings=tuple(_pair(setting) for setting in raw.pop("settings")),
        metadata_version=_version(raw.pop("metadata_version", 0)),
        history=tuple(_change(change) for change in raw.pop("history", ())),
        indices=_texts(raw.pop("indices", [])),
        projections=_texts(raw.pop("projections", [])),
        constraints=_texts(raw.pop("constraints", [])),
        **_only_texts(raw),
    )


def _column(raw: dict[str, Any]) -> Column:
    column = Column(**_only_texts(raw))
    if column.default_kind not in get_args(DefaultKind):
        raise ValueError(f"unknown kind of default {column.default_kind!r}")
    return column


def _engine(raw: dict[str, Any]) -> Engine:
    engine = Engine(columns_to_sum=_texts(raw.pop("columns_to_sum")), **_only_texts(raw))
    if engine.kind not in get_args(EngineKind):
        raise ValueError(f"unknown engine {engine.kind!r}")
    return engine


def _change(raw: dict[str, Any]) -> ColumnChange:
    return ColumnChange(_version(raw.pop("version")), **_only_texts(raw))


def _version(raw: Any) -> int:
    if not isinstance(raw, int) or raw < 0:
        raise ValueError(f"{raw!r} is no version of the metadata")
    return raw


def _pair(raw: Any) -> tuple[str, str]:
    name, value = _texts(raw)
    return name, value


def _texts(raw: Any) -> tuple[str, ...]:
    if not isinstance(raw, list) or not all(isinstance(text, str) for text in raw):
        raise ValueError(f"{raw!r} is not a list of texts")
    return tuple(raw)


def _only_texts(raw: dict[str, Any]) -> dict[str, Any]:
    for key, value in raw.items():
        if not isinstance(value, str):
            raise TypeError(f"{key}: {value!r} is not a text")
    return raw
