"""Applies the commands of mutations to rows in memory. Files are read and written elsewhere."""

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmt_pipeline.compute.mutate.direct import Bounds, Condition, direct_condition
from rmt_pipeline.compute.rows.defaults import DefaultExpressions
from rmt_pipeline.compute.rows.nested import of_equal_length, sibling_of, unequal
from rmt_pipeline.protocol.errors import UnequalArrays, UnknownColumn
from rmt_pipeline.protocol.table import Column, nested_group
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.mutation import (
    AlterColumn,
    Command,
    DeleteRows,
    UpdateColumns,
    in_partition,
    parse_commands,
)
from rmt_pipeline.syntax.nodes import Call, Literal, Node
from rmt_pipeline.syntax.types import arrow_schema, parse_type
from rmt_pipeline.translate.evaluate import evaluate
from rmt_pipeline.translate.expression import Expression, compile_node
from rmt_pipeline.translate.mutation_rules import affected, cast_to

_ALWAYS, _NEVER = Literal(1, "1"), Literal(0, "0")


@dataclass(frozen=True, slots=True)
class AppliedCommands:
    """The rows after all commands. `deleted` are the deleted ones, as they were at that moment."""

    rows: pa.Table
    deleted: tuple[pa.Table, ...]


@dataclass(frozen=True, slots=True)
class _Step:
    """A compiled command. `condition` gives 1 or 0, never NULL. `direct` computes the same without
    DuckDB, but may give NULL for false; None if that is not possible.
    """

    condition: Expression
    direct: Condition | None
    assigned: tuple[tuple[str, Expression | None], ...] = ()
    """The columns that the command sets, with their values. None stands for the default of the
    column's type, or, if there is a `lengths_of`, for arrays of such defaults.
    """
    lengths_of: str | None = None
    """The column of the same Nested group whose arrays' lengths the cleared column gets."""
    clears: bool = False

    computed: tuple[str, ...] = ()
    """The MATERIALIZED columns that are computed from the assigned ones."""

    @property
    def deletes(self) -> bool:
        return not self.assigned


class CompiledCommands:
    """The commands of one or several mutations, in order, for the parts of one partition.

    A command sees the changes of those before it. A value is computed only for the rows to which
    its command applies: from other rows it may not be computable. Raises UserError for texts that
    do not fit the columns.
    """

    def __init__(self, texts: Sequence[str], columns: Sequence[Column], partition: str) -> None:
        self._columns = tuple(columns)
        self._defaults = DefaultExpressions(columns)
        self._steps = [
            self._compiled(command, cleared)
            for text in texts
            for cleared in [_cleared(text, partition)]
            for command in parse_commands(text)
            if in_partition(command, partition) and self._does_something(command)
        ]
        self.condition_columns = tuple(
            dict.fromkeys(name for step in self._steps for name in step.condition.columns_used)
        )
        self.changed_columns = frozenset(
            name
            for step in self._steps
            for name in (*(one for one, _ in step.assigned), *step.computed)
        )

    @property
    def is_empty(self) -> bool:
        """Whether no command concerns this partition."""
        return not self._steps

    def _does_something(self, command: Command) -> bool:
        """Whether the command changes rows that have the table's current columns already. Of an
        ALTER's commands only CLEAR COLUMN does, if the column still exists.
        """
        if not isinstance(command, AlterColumn):
            return True
        return command.clears and any(one.name == command.column for one in self._columns)

    def _compiled(self, command: Command, cleared: frozenset[str]) -> _Step:
        """Compile one command. `cleared` are all columns that its ALTER clears."""
        node = _ALWAYS if isinstance(command, AlterColumn) else command.condition
        condition = self._expression(Call("if", (node, _ALWAYS, _NEVER)))
        direct = direct_condition(node, _plain_types(self._columns))
        match command:
            case DeleteRows():
                return _Step(condition, direct)
            case UpdateColumns():
                assigned = tuple(
                    (one.column, self._expression(cast_to(one.value, self._column(one.column))))
                    for one in command.assignments
                )
                computed = dict.fromkeys(
                    column.name
                    for name, _ in assigned
                    for column in affected(name, self._columns)
                    if column.name in self._defaults
                )
                return _Step(condition, direct, assigned, computed=tuple(computed))
            case AlterColumn():
                name = command.column
                kept = {column.name for column in self._columns} - cleared
                sibling = sibling_of(name, kept, self._columns)
                value = (name, self._default_of(name))
                return _Step(condition, direct, (value,), sibling, clears=True)

    def _column(self, name: str) -> Column:
        """The column of that name. Raises UnknownColumn."""
        for column in self._columns:
            if column.name == name:
                return column
        raise UnknownColumn(f"there is no column {name}, which a mutation updates")

    def _default_of(self, name: str) -> Expression | None:
        """The default that CLEAR COLUMN sets; None for the default of the type."""
        if name not in self._defaults:
            return None
        [column] = [column for column in self._columns if column.name == name]
        return self._expression(cast_to(parse_expression(column.default), column))

    def _expression(self, node: Node) -> Expression:
        # Whether a command may use `now()` was checked before it was written to ZooKeeper.
        return compile_node(node, self._columns, allow_nondeterministic=True)

    @property
    def are_direct(self) -> bool:
        """Whether all conditions can be computed without DuckDB."""
        return all(step.direct is not None for step in self._steps)

    def is_for_none(self, bounds: Bounds) -> bool:
        """Whether it is certain that no command applies to any row within the bounds."""
        return all(
            step.direct is not None and step.direct.is_for_none(bounds) for step in self._steps
        )

    def match(self, rows: pa.Table) -> bool:
        """Whether any command applies to any of these rows, which have the `condition_columns`.

        It does not matter that commands see the changes of those before them: up to the first one
        that applies to a row, nothing was changed. Raises BadValue.
        """
        return any(pc.any(_where(step, rows)).as_py() for step in self._steps)

    def touched(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Whether any command applies, for each of these rows as it is now. Raises BadValue."""
        found = np.zeros(rows.num_rows, dtype=np.bool_)
        for step in self._steps:
            found |= _where(step, rows).to_numpy(zero_copy_only=False)
        return found

    def apply(self, rows: pa.Table) -> AppliedCommands:
        """Apply all commands to `rows`, which have all columns. Raises BadValue for a value that
        can't be computed, UnequalArrays for a Nested group that an UPDATE leaves unequal.
        """
        deleted: list[pa.Table] = []
        for step in self._steps:
            where = _where(step, rows)
            if not pc.any(where).as_py():
                continue
            if step.deletes:
                deleted.append(rows.filter(where))
                rows = rows.filter(pc.invert(where))
            else:
                rows = self._updated(step, rows, where)
        return AppliedCommands(rows, tuple(deleted))

    def _updated(self, step: _Step, rows: pa.Table, where: pa.Array) -> pa.Table:
        chosen = self._decoded(rows.filter(where))
        new = dict(
            zip(
                (name for name, expression in step.assigned if expression is not None),
                evaluate([one for _, one in step.assigned if one is not None], chosen),
                strict=True,
            )
        )
        for name, expression in step.assigned:
            if expression is None:
                new[name] = self._type_default(name, chosen, step.lengths_of)
        for name, values in new.items():
            chosen = _with_column(chosen, name, values)
        for name in step.computed:
            new[name] = self._defaults.evaluate(name, chosen)
            chosen = _with_column(chosen, name, new[name])
        if not step.clears:
            self._check_lengths(chosen, new)
        for name, values in new.items():
            rows = _with_column(rows, name, _replaced(rows.column(name), where, values))
        return rows

    def _type_default(self, name: str, rows: pa.Table, lengths_of: str | None) -> pa.Array:
        [kind] = [parse_type(column.type) for column in self._columns if column.name == name]
        if lengths_of is not None:
            lengths = rows.column(lengths_of).combine_chunks()
            return of_equal_length(lengths, kind)
        return pa.repeat(pa.scalar(kind.default, kind.arrow), rows.num_rows)

    def _check_lengths(self, rows: pa.Table, names: Collection[str]) -> None:
        found = unequal(rows, self._columns, names)
        if found is not None:
            one, other, row = found
            lengths = [len(rows.column(name)[row]) for name in (one, other)]
            raise UnequalArrays(
                f"UPDATE leaves a row in which columns {one} and {other} of Nested "
                f"{nested_group(one)} have arrays of {lengths[0]} and {lengths[1]} elements"
            )

    def _decoded(self, rows: pa.Table) -> pa.Table:
        """The rows without dictionaries, as expressions need them."""
        known = [column for column in self._columns if column.name in rows.schema.names]
        return rows.select([column.name for column in known]).cast(arrow_schema(known))


@lru_cache(maxsize=1000)
def commands_of(
    texts: tuple[str, ...], columns: tuple[Column, ...], partition: str
) -> CompiledCommands:
    """The compiled commands, compiled once for all parts of a partition. Raises UserError."""
    return CompiledCommands(texts, columns, partition)


def _cleared(text: str, partition: str) -> frozenset[str]:
    """The columns that the commands of one mutation clear in this partition."""
    commands = (one for one in parse_commands(text) if isinstance(one, AlterColumn))
    return frozenset(
        one.column for one in commands if one.clears and in_partition(one, partition)
    )


def _where(step: _Step, rows: pa.Table) -> pa.Array:
    used = rows.select(step.condition.columns_used)
    for name in step.condition.columns_used:
        column = used.column(name)
        if pa.types.is_dictionary(column.type):
            used = _with_column(used, name, column.cast(column.type.value_type))
    if not step.condition.columns_used:
        used = pa.table({"": pa.nulls(rows.num_rows, pa.int8())})
    if step.direct is not None:
        return pc.fill_null(step.direct(used), False).combine_chunks()
    [found] = evaluate([step.condition], used)
    return found.cast(pa.bool_())


@lru_cache(maxsize=100)
def _plain_types(columns: tuple[Column, ...]) -> dict[str, pa.DataType]:
    """The Arrow types in which integer and String columns are stored, by column."""
    types = {column.name: parse_type(column.type) for column in columns}
    return {
        name: kind.arrow
        for name, kind in types.items()
        if kind.plain.family == "String" or (kind.is_integer and not kind.plain.wide_bytes)
    }


def _with_column(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at).with_type(values.type), values)


def _replaced(column: pa.ChunkedArray, where: pa.Array, values: pa.Array) -> pa.Array:
    """`column` with `values` where `where` is true."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    with contextlib.suppress(pa.ArrowNotImplementedError):  # nested values
        return pc.replace_with_mask(_one_chunk(column), where, values)
    whole = pa.chunked_array([*column.chunks, values], column.type).combine_chunks()
    chosen = where.to_numpy(zero_copy_only=False)
    places = np.arange(len(column), dtype=np.int64)
    places[chosen] = len(column) + np.arange(len(values))
    return whole.take(pa.array(places))


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
