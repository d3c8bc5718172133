"""Checks for many small files at once whether any command applies to a row of theirs.

A query in DuckDB takes some milliseconds, however few the rows, so a mutation of thousands of small
parts makes one query for many of them. `pruning` handles conditions that need no DuckDB.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from rmt_pipeline.compute.mutate.commands import CompiledCommands, commands_of
from rmt_pipeline.compute.mutate.unit import condition_rows
from rmt_pipeline.compute.mutate.units import MutateUnit
from rmt_pipeline.compute.units import Unit
from rmt_pipeline.protocol.errors import Conflict, RmtError
from rmt_pipeline.syntax.types import arrow_schema

FILES_MAX = 64
FILE_BYTES_MAX = 1 << 20

UnitKey = tuple[int, int]
"""Identifies a unit within its job: `merge` and `ordinal`."""


def untouched(units: Iterable[Unit]) -> frozenset[UnitKey]:
    """The units of mutations that certainly have nothing to do. Units of which that is not known,
    or whose check fails, are not among them.
    """
    groups: dict[object, list[MutateUnit]] = {}
    for unit in units:
        if isinstance(unit, MutateUnit) and _is_small(unit):
            groups.setdefault((unit.commands, unit.partition, unit.shape), []).append(unit)
    found: set[UnitKey] = set()
    for group in groups.values():
        for start in range(0, len(group), FILES_MAX):
            some = group[start : start + FILES_MAX]
            if len(some) > 1:
                found |= _untouched(some)
    return frozenset(found)


def _is_small(unit: MutateUnit) -> bool:
    size = sum(file.size for source in unit.sources for file in source.files)
    return not unit.rewrite and size <= FILE_BYTES_MAX


def _untouched(units: Sequence[MutateUnit]) -> set[UnitKey]:
    first = units[0]
    try:
        commands = commands_of(first.commands, first.shape.columns, first.partition)
        if commands.are_direct:
            return set()
        tables = [_rows(unit, commands) for unit in units]
        touched = commands.touched(pa.concat_tables(tables))
    except RmtError:
        return set()
    ends = np.cumsum([len(table) for table in tables])
    return {
        (unit.merge, unit.ordinal)
        for unit, table, end in zip(units, tables, ends, strict=True)
        if not touched[end - len(table) : end].any()
    }


def _rows(unit: MutateUnit, commands: CompiledCommands) -> pa.Table:
    """The unit's rows with the columns of conditions, without dictionaries, which not all files
    have.
    """
    tables = []
    for table in condition_rows(unit, commands):
        known = [one for one in unit.shape.columns if one.name in table.column_names]
        tables.append(table.cast(arrow_schema(known)))
    if not tables:
        raise Conflict(f"{unit.output}: the source has no rows")  # `_untouched` catches it
    return pa.concat_tables(tables)
