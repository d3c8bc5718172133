"""How a table's columns appear in a Delta or Iceberg table."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from rmt_pipeline.protocol.alter.history import stored_as, stored_columns
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.store.hashes.checksums import hash_16
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.data_type import DataType

INT64_MAX = 2**63 - 1
MICROSECOND_DIGITS = 6
_DIGITS = 16


class NotExportable(UserError):
    """A column whose values no Delta or Iceberg table can hold as they are. Nothing
    was exported.
    """


def exported_columns(definition: TableDefinition, wanted: Sequence[str]) -> tuple[Column, ...]:
    """The columns that are named, or all that are stored in parts. Raises NotExportable; UserError
    for an unknown name.
    """
    stored = {column.name: column for column in stored_columns(definition)}
    for name in wanted:
        if name not in stored:
            raise UserError(
                f"{definition.full_name} stores no column {name}: {', '.join(stored)}"
            )
    found = tuple(stored[name] for name in wanted or stored)
    for column in found:
        problem = _problem(parse_type(column.type))
        if problem:
            raise NotExportable(
                f"column {column.name} of {definition.full_name} is {column.type}: {problem}. "
                "Name the columns to export without it"
            )
    return found


def _problem(kind: DataType) -> str:
    """Why a reader would misunderstand values of this type; empty if it would not."""
    if kind.family == "AggregateFunction":
        return "a state of an aggregate function means something to this program alone"
    if kind.wide_bytes:
        return "other programs would show the bytes that it is stored as"
    if kind.family == "DateTime64" and kind.numbers[0] > MICROSECOND_DIGITS:
        return "these tables have microseconds, and would lose the digits after them"
    return next(filter(None, map(_problem, kind.elements)), "")


def exported_schema(columns: Sequence[Column]) -> pa.Schema:
    """The Arrow schema of the export. All columns may be NULL, as these formats usually have it."""
    return pa.schema(
        [pa.field(column.name, _signed(parse_type(column.type).arrow)) for column in columns]
    )


def _signed(kind: pa.DataType) -> pa.DataType:
    """The type without unsigned integers, which neither Delta nor Iceberg has: the next wider
    signed one. For 64 bits all readers know no wider one, so `_require_signed` checks the values
    instead.
    """
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _signed(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_signed(kind.key_type), _signed(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_signed(field.type)) for field in kind])
    if pa.types.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32()}.get(kind.bit_width, pa.int64())
    return kind


def digest_of(*values: object) -> str:
    """A short digest of these values, for the name of a directory."""
    return hash_16(f"{value!r}\n".encode() for value in values).hex()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class Names:
    """What the names of columns in the files of an export mean. With `others` a file may have a
    column under the name that it had before a RENAME, as long as no name means two columns.
    """

    definition: TableDefinition
    columns: tuple[Column, ...]
    others: bool
    meant: dict[str, str]
    """The table's column for each name in files."""
    ignored: dict[str, str]
    """The type of each further column of files, which the export leaves out."""

    @classmethod
    def of(
        cls, definition: TableDefinition, columns: tuple[Column, ...], *, others: bool
    ) -> "Names":
        own = {column.name: column.name for column in columns}
        return cls(definition, columns, others, own, {})

    def conversion(self, part: Manifest) -> str:
        """What the rows of a part depend on when it is rewritten with the table's current columns.
        The version of the metadata alone is not enough: a table that was dropped and created again
        may have the same parts at the same version, but other defaults.
        """
        stored = stored_as(self.definition, part.columns, part.metadata_version)
        written = [column.name for column in self.columns]
        return digest_of(self.definition.columns, stored, written)

    def takes(self, part: Manifest) -> bool:
        """Whether the part's files can be exported as they are. They can't if an ALTER's mutation
        has still to rewrite the part, or if it lacks a column whose default is not NULL.
        """
        version = part.metadata_version
        found = {one.column: one for one in stored_as(self.definition, part.columns, version)}
        meant: dict[str, str] = {}
        for column in self.columns:
            one = found.get(column.name)
            if one is None:
                if column.default or not parse_type(column.type).nullable:
                    return False
            elif one.type != column.type or (one.name != column.name and not self.others):
                return False
            else:
                meant[one.name] = column.name
        ignored = {name: kind for name, kind in part.columns if name not in meant}
        if any(self.meant.get(name, column) != column for name, column in meant.items()):
            return False
        if any(name in self.meant for name in ignored) or meant.keys() & self.ignored.keys():
            return False
        if any(self.ignored.get(name, kind) != kind for name, kind in ignored.items()):
            return False
        self.meant.update(meant)
        self.ignored.update(ignored)
        return True
