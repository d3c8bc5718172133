"""A table before and after ALTERs, a part from before, and what its rows are afterwards."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmt_pipeline.compute.merge.job import SourcePart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import Column, ColumnChange, TableDefinition
from rmt_pipeline.store.manifest import Manifest, PartColumn
from tests.support.merging import definition, sorted_table, write_part

BEFORE = definition([("id", "Int64"), ("a", "String"), ("b", "Nullable(Int32)")], ("id",))
ROWS = [
    {"id": 1, "a": "10", "b": 7},
    {"id": 2, "a": "-20", "b": None},
    {"id": 3, "a": "30", "b": 9},
]


def altered(*columns: Column, changes: tuple[ColumnChange, ...] = ()) -> TableDefinition:
    """The table with these columns behind its key, at version 5."""
    return replace(
        BEFORE,
        columns=(BEFORE.columns[0], *columns),
        metadata_version=5,
        history=changes,
    )


NOW = {
    "a column more": altered(*BEFORE.columns[1:], Column("c", "UInt16")),
    "a column less": altered(BEFORE.columns[1], changes=(ColumnChange(2, "b"),)),
    "other types": altered(Column("a", "Int16"), Column("b", "Nullable(String)")),
    "defaults in a chain": altered(
        BEFORE.columns[1],
        Column("y", "Int64", "DEFAULT", "x * 10"),
        Column("x", "Int64", "DEFAULT", "id + length(a)"),
        changes=(ColumnChange(2, "b"),),
    ),
    "another name and type": altered(
        Column("z", "Nullable(Int64)"),
        Column("a", "String"),
        Column("d", "Int64", "DEFAULT", "ifNull(z, -1)"),
        changes=(ColumnChange(3, "b", "z"),),
    ),
    "dropped and added again": altered(
        Column("a", "String"),
        BEFORE.columns[2],
        changes=(ColumnChange(2, "a"),),
    ),
    "swapped": altered(
        Column("a", "Nullable(Int32)"),
        Column("b", "String"),
        changes=tuple(ColumnChange(4, *pair) for pair in (("a", "t"), ("b", "a"), ("t", "b"))),
    ),
}
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "a column more": [(1, "10", 7, 0), (2, "-20", None, 0), (3, "30", 9, 0)],
    "a column less": [(1, "10"), (2, "-20"), (3, "30")],
    "other types": [(1, 10, "7"), (2, -20, None), (3, 30, "9")],
    "defaults in a chain": [(1, "10", 30, 3), (2, "-20", 50, 5), (3, "30", 50, 5)],
    "another name and type": [(1, 7, "10", 7), (2, None, "-20", -1), (3, 9, "30", 9)],
    "dropped and added again": [(1, "", 7), (2, "", None), (3, "", 9)],
    "swapped": [(1, 7, "10"), (2, None, "-20"), (3, 9, "30")],
}


def part_of(root: Path, name: str, rows: list[dict[str, Any]]) -> SourcePart:
    """A part that was written with the metadata of version 1."""
    part = write_part(root, name, sorted_table(rows, BEFORE))
    columns = tuple(PartColumn(column.name, column.type) for column in BEFORE.columns)
    manifest = replace(part.manifest, columns=columns, metadata_version=1)
    return replace(part, manifest=manifest)


class Parts:
    """A store with some parts."""

    def __init__(self, *sources: SourcePart) -> None:
        self.all = [_Part(PartName.parse(one.name), one.manifest) for one in sources]
        self._directories = {
            part.name: one.directory for part, one in zip(self.all, sources, strict=True)
        }

    def directory(self, part: PartName) -> str:
        return self._directories[part]


@dataclass(frozen=True)
class _Part:
    name: PartName
    manifest: Manifest
