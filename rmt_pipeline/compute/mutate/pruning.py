"""The bounds of a part's values, known without reading rows, from its manifest and its files'
footers. They show for most parts that no command of a mutation applies to them.

Only for integer and String columns that the part has with the table's current type.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from rmt_pipeline.compute.mutate.commands import CompiledCommands
from rmt_pipeline.compute.mutate.direct import Bounds
from rmt_pipeline.compute.mutate.units import MutateUnit
from rmt_pipeline.compute.rows.source import (
    is_compared_plainly,
    names_a_column,
    naming_the_part,
    open_parquet,
    row_group_bounds,
)
from rmt_pipeline.compute.units import Shape, UnitSource
from rmt_pipeline.store.manifest import KeyBound

PROBE_ROWS = 1 << 17
"""The rows read at a time; a condition has few and plain columns."""


def manifest_bounds(source: UnitSource, shape: Shape, known: Iterable[KeyBound]) -> Bounds:
    """The bounds of the partition key's and the sorting key's columns in the part, which are
    `known` from its manifest.
    """
    stored = _stored_names(source, shape)
    found = {one.column: (one.min, one.max) for one in known if names_a_column(one.column)}

    def bounds(column: str) -> tuple[Any, Any] | None:
        least, greatest = found.get(stored.get(column, ""), (None, None))
        same = type(least) is type(greatest) and type(least) in (int, str)
        return (least, greatest) if same else None

    return bounds


def file_bounds(source: UnitSource, shape: Shape, metadata: Any) -> Bounds:
    """The bounds of every column over the row groups of one file with this Parquet metadata."""
    stored = _stored_names(source, shape)

    def bounds(column: str) -> tuple[Any, Any] | None:
        name = stored.get(column)
        if name is None:
            return None
        found = [row_group_bounds(metadata, at, name) for at in range(metadata.num_row_groups)]
        if not found or any(one is None for one in found):
            return None
        ends: list[Any] = [end for one in found if one is not None for end in one]
        least, greatest = min(ends), max(ends)
        if not isinstance(least, bytes):
            return least, greatest
        try:
            return least.decode(), greatest.decode()
        except UnicodeDecodeError:  # Parquet may cut a bound within a character
            return None

    return bounds


def probe(unit: MutateUnit, commands: CompiledCommands) -> bool | None:
    """Whether any command applies to a row of the unit's file; None if plain columns and direct
    conditions are not enough to tell. Raises BrokenSource.
    """
    [source] = unit.sources
    [file] = source.files
    stored = _stored_names(source, unit.shape)
    if not commands.are_direct or not set(commands.condition_columns) <= stored.keys():
        return None
    names = {stored[column]: column for column in commands.condition_columns}
    with (
        open_parquet(source.part, file.path) as opened,
        naming_the_part(source.part, file.path),
    ):
        if commands.is_for_none(file_bounds(source, unit.shape, opened.metadata)):
            return False
        if not names.keys() <= set(opened.schema_arrow.names):
            return None
        for batch in opened.iter_batches(PROBE_ROWS, columns=list(names), use_threads=False):
            renamed = batch.rename_columns([names[name] for name in batch.schema.names])
            if commands.match(pa.Table.from_batches([renamed])):
                return True
    return False


def _stored_names(source: UnitSource, shape: Shape) -> dict[str, str]:
    """The source's names of those columns that are compared plainly and have the current type."""
    types = {column.name: column.type for column in shape.columns}
    plain = {name for name, text in types.items() if is_compared_plainly(text)}
    if source.stored is None:
        return {name: name for name in plain}
    return {
        one.column: one.name
        for one in source.stored
        if one.column in plain and one.type == types[one.column]
    }
