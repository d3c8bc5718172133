"""How a part is read with the table's current columns, whichever metadata it was written with (spec
§8.4).

A part keeps its columns as they were when it was written, and the version of the metadata at that
time. The changes of names since are the table's history: each ALTER that renamed or dropped a
column left a record in ZooKeeper, at `T/alters/<version>`. So a column that was dropped and added
again, or that got the name of an old one, is never taken for the old one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.reader import TextReader
from rmt_pipeline.protocol.table import Column, ColumnChange, TableDefinition
from rmt_pipeline.protocol.text import escape, format_time, parse_time, unescape

RECORD_FORMAT = 1  # Bump when the text changes; keep decoding every older number.
CHANGES_MAX = 2**20

NamesAndTypes = Sequence[tuple[str, str]]
"""The columns of a part: names, and types as canonical texts."""


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """Where a part has the values of the table's `column`: under `name`, with the type `type`."""

    column: str
    name: str
    type: str


def stored_columns(definition: TableDefinition) -> tuple[Column, ...]:
    """The table's columns that parts have in their files: those not ALIAS or EPHEMERAL."""
    return tuple(column for column in definition.columns if column.is_stored)


def stored_as(
    definition: TableDefinition, part: NamesAndTypes, version: int
) -> tuple[StoredColumn, ...]:
    """The stored columns of the table that a part has, in the table's order. `part` are the part's
    own columns, `version` is that of the metadata with which it was written. Of the table's other
    columns the part has no values; they are read as their defaults.

    A part that is newer than `definition` is read by its names as they are (spec §16.8 U9).
    """
    return _stored_as(definition.columns, definition.history, tuple(part), version)


@lru_cache(maxsize=256)
def _stored_as(
    columns: tuple[Column, ...],
    history: tuple[ColumnChange, ...],
    part: tuple[tuple[str, str], ...],
    version: int,
) -> tuple[StoredColumn, ...]:
    """As `stored_as`. Cached: a merge asks three times for each of its sources, which mostly have
    the same columns.
    """
    names = {name: name for name, _ in part}
    for change in history:
        if change.version > version and change.column in names:
            found = names.pop(change.column)
            if change.renamed_to:
                names[change.renamed_to] = found
    types = dict(part)
    return tuple(
        StoredColumn(column.name, names[column.name], types[names[column.name]])
        for column in columns
        if column.is_stored and column.name in names
    )


@dataclass(frozen=True, slots=True)
class AlterRecord:
    """`T/alters/<version>`: when, by which replica and with which commands the table was altered,
    and the changes of its columns' names.

    A client whose request had no answer recognises its own record by `request_id`.
    """

    created_s: int
    replica: str
    request_id: str
    commands: str
    changes: tuple[ColumnChange, ...]

    def encode(self) -> bytes:
        lines = "".join(_line(change) for change in self.changes)
        return (
            f"alter format version: {RECORD_FORMAT}\n"
            f"created: {format_time(self.created_s)}\n"
            f"replica: {escape(self.replica)}\n"
            f"request: {escape(self.request_id)}\n"
            f"commands: {escape(self.commands)}\n"
            f"changes: {len(self.changes)}\n"
            f"{lines}"
        ).encode()

    @classmethod
    def decode(cls, data: bytes, version: int) -> Self:
        """The inverse of `encode`; `version` is the node's name. Raises Corruption."""
        reader = TextReader(data, f"alter {version}")
        reader.number("alter format version: ", low=1, high=RECORD_FORMAT)
        created_s = reader.field_as("created: ", parse_time)
        replica = reader.field_as("replica: ", unescape)
        request_id = reader.field_as("request: ", unescape)
        commands = reader.field_as("commands: ", unescape)
        count = reader.number("changes: ", high=CHANGES_MAX)
        changes = tuple(
            reader.parse(reader.line(), lambda line: _parse_line(line, version))
            for _ in range(count)
        )
        reader.end()
        return cls(created_s, replica, request_id, commands, changes)


def _line(change: ColumnChange) -> str:
    if not change.renamed_to:
        return f"drop\t{escape(change.column)}\n"
    return f"rename\t{escape(change.column)}\t{escape(change.renamed_to)}\n"


def _parse_line(line: str, version: int) -> ColumnChange:
    kind, *names = line.split("\t")
    fields = [unescape(name) for name in names]
    if all(fields):
        if kind == "drop" and len(fields) == 1:
            return ColumnChange(version, fields[0])
        if kind == "rename" and len(fields) == 2:
            return ColumnChange(version, *fields)
    raise Corruption(f"{line!r} is not `drop` and a column, or `rename` and two of them")


def history_of(records: Iterable[AlterRecord]) -> tuple[ColumnChange, ...]:
    """The history of a table, from its records in the order of their versions."""
    return tuple(change for record in records for change in record.changes)
