"""What a table's columns are for programs that know Delta and Iceberg tables but not this one."""

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
    """A column whose values no Delta or Iceberg table holds as they are. Nothing was exported."""


def exported_columns(definition: TableDefinition, wanted: Sequence[str]) -> tuple[Column, ...]:
    """Those that are named, or all that parts have. Raises NotExportable; UserError for a name
    that is none.
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
    """Why its values are not what a reader would take them for; empty when they are."""
    if kind.family == "AggregateFunction":
        return "a state of an aggregate function means something to this program alone"
    if kind.wide_bytes:
        return "other programs would show the bytes that it is stored as"
    if kind.family == "DateTime64" and kind.numbers[0] > MICROSECOND_DIGITS:
        return "these tables have microseconds, and would lose the digits after them"
    return next(filter(None, map(_problem, kind.elements)), "")


def exported_schema(columns: Sequence[Column]) -> pa.Schema:
    """All may be NULL, as in every such table that others write to."""
    return pa.schema(
        [pa.field(column.name, _signed(parse_type(column.type).arrow)) for column in columns]
    )


def _signed(kind: pa.DataType) -> pa.DataType:
    """Neither Delta nor Iceberg has unsigned integers: as the next wider ones. There is none for 64
    bits that all readers take: `FileCounts.of` looks that no value is too large.
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
    """Of what these are, in the name of a directory."""
    return hash_16(f"{value!r}\n".encode() for value in values).hex()[:_DIGITS]


@dataclass(frozen=True, slots=True)
class Names:
    """What the names of columns mean in the files of a version. With `others`, a file may have a
    column under the name that it had before a RENAME, as long as no name means two columns.
    """

    definition: TableDefinition
    columns: tuple[Column, ...]
    others: bool
    meant: dict[str, str]
    """Columns of the table by the names that files have them by."""
    ignored: dict[str, str]
    """Types of what files have beside them."""

    @classmethod
    def of(
        cls, definition: TableDefinition, columns: tuple[Column, ...], *, others: bool
    ) -> "Names":
        own = {column.name: column.name for column in columns}
        return cls(definition, columns, others, own, {})

    def conversion(self, part: Manifest) -> str:
        """All that the rows of such bytes depend on when they are written as the table is now. Its
        version alone is not enough: a table that was dropped and made again under its name may have
        the same parts at the same version, and other defaults.
        """
        stored = stored_as(self.definition, part.columns, part.metadata_version)
        written = [column.name for column in self.columns]
        return digest_of(self.definition.columns, stored, written)

    def takes(self, part: Manifest) -> bool:
        """Whether a reader finds in the part's files, as they are, what the table has: and then
        its names mean what they mean there. Not so when an ALTER's mutation has still to rewrite
        it, or it lacks a column that is not NULL in such rows.
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
