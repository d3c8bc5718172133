"""The checks that refuse a mutation before it is written to ZooKeeper (spec §7.1, §16.8)."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from rmt_pipeline.protocol.alter.definition import place_in_keys
from rmt_pipeline.protocol.errors import (
    BadValue,
    NoSuchColumn,
    NotImplementedStatement,
    UserError,
)
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.mutation import (
    AlterColumn,
    Assignment,
    Command,
    DeleteRows,
    PartitionId,
)
from rmt_pipeline.syntax.nodes import Call, Node
from rmt_pipeline.syntax.special_forms import cast_node
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.translate.compiler import NotDeterministic
from rmt_pipeline.translate.evaluate import evaluate
from rmt_pipeline.translate.expression import (
    Expression,
    compile_expression,
    compile_node,
    is_deterministic,
)


class CannotUpdateColumn(UserError):
    """UPDATE can't assign to a column that is computed, or that decides where or how a
    row is kept.
    """

    code = "CANNOT_UPDATE_COLUMN"


class BadCondition(UserError):
    """The WHERE of a mutation is no condition, because its type is neither a number nor Bool."""

    code = "ILLEGAL_TYPE_OF_COLUMN_FOR_FILTER"


class InvalidPartition(UserError):
    """The text can't be the id of a partition, so a mutation of it would never find any rows."""

    code = "INVALID_PARTITION_VALUE"


_PARTITION_ID = re.compile(r"[A-Za-z0-9-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Rules:
    """The table and its stored columns, against which the commands are checked."""

    definition: TableDefinition
    columns: tuple[Column, ...]
    allow_nondeterministic: bool

    def compile(self, node: Node) -> Expression:
        return compile_node(
            node, self.columns, allow_nondeterministic=self.allow_nondeterministic
        )


def check_commands(
    commands: Sequence[Command],
    definition: TableDefinition,
    *,
    allow_nondeterministic: bool = False,
) -> None:
    """Check the commands of a mutation. Raises a UserError that names the command, the column or
    function, and the reason.

    Columns, functions, types and constants are checked. Whether other values can be computed is
    only known when the rows are read.
    """
    stored = tuple(column for column in definition.columns if column.is_stored)
    rules = _Rules(definition, stored, allow_nondeterministic)
    for command in commands:
        if isinstance(command, AlterColumn):
            raise NotImplementedStatement(
                f"{command} can't stand beside DELETE and UPDATE: it changes what the table is. "
                "Say it in an ALTER of its own"
            )
        if isinstance(command.partition, PartitionId):
            check_partition(command.partition.id, command)
        condition = rules.compile(command.condition)
        if not condition.condition_sql:
            raise BadCondition(
                f"{condition.canonical} has the type {condition.type.text}, which is neither true "
                f"nor false (in {command})"
            )
        if isinstance(command, DeleteRows):
            continue
        for assignment in command.assignments:
            _check_assignment(assignment, rules)


def check_partition(partition: str, command: object) -> None:
    """Raise InvalidPartition for an id that no partition can have. `command` is for the message."""
    if _PARTITION_ID.fullmatch(partition) is None:
        raise InvalidPartition(
            f"{partition!r} can't be the id of a partition: ids are of letters, digits and '-', "
            f"see system.parts.partition_id (in {command})"
        )


def _check_assignment(assignment: Assignment, rules: _Rules) -> None:
    definition, name = rules.definition, assignment.column
    column = definition.column(name)
    if column is None:
        known = ", ".join(each.name for each in rules.columns)
        raise NoSuchColumn(
            f"UPDATE {assignment}: {definition.full_name} has no column {name}; it has {known}"
        )
    is_set = column.default_kind not in ("ALIAS", "EPHEMERAL", "MATERIALIZED")
    is_own = (
        column.default_kind == "MATERIALIZED" and canonical(assignment.value) == column.default
    )
    if not is_set and not is_own:
        raise CannotUpdateColumn(
            f"UPDATE {assignment}: {name} is {column.default_kind} and has no values of its own "
            f"to set: it is always {column.default}"
        )
    if (place := _place_of(name, definition)) is not None:
        raise CannotUpdateColumn(
            f"UPDATE {assignment}: {name} is {place} and says where or how a row is kept. Delete "
            "the rows and insert them with the new value"
        )
    for computed in affected(name, rules.columns):
        if not is_deterministic(computed.default):
            raise NotDeterministic(
                f"UPDATE {assignment}: the MATERIALIZED column {computed.name} follows from {name} "
                f"and is {computed.default}, which would be another value on each replica. Make "
                f"it a DEFAULT with MODIFY COLUMN, or insert the rows again"
            )
        if (place := _place_of(computed.name, definition)) is not None:
            raise CannotUpdateColumn(
                f"UPDATE {assignment}: the MATERIALIZED column {computed.name} is computed from "
                f"{name}, and is {place}"
            )
    value = rules.compile(cast_to(assignment.value, column))
    if value.is_constant:  # if it can't be computed now, it never can
        try:
            evaluate([value], pa.table({"": pa.nulls(1, pa.int8())}))
        except UserError as problem:
            raise BadValue(f"UPDATE {assignment}: {problem}") from problem


def cast_to(value: Node, column: Column) -> Call:
    """Return an assignment's value, cast to the column's type."""
    return cast_node(value, parse_type(column.type))


def affected(name: str, columns: Sequence[Column]) -> list[Column]:
    """Return the MATERIALIZED columns that change when column `name` does, in an order in which
    they can be computed.
    """
    changed, found = {name}, list[Column]()
    waiting = [column for column in columns if column.default_kind == "MATERIALIZED"]
    while True:
        ready = [
            column
            for column in waiting
            if changed & set(_used(column.default, columns))
            and not _used_later(column, waiting, columns, changed)
        ]
        if not ready:
            return found
        found += ready
        changed |= {column.name for column in ready}
        waiting = [column for column in waiting if column not in ready]


def _used_later(
    column: Column, waiting: Iterable[Column], columns: Sequence[Column], changed: set[str]
) -> bool:
    """Whether `column` is computed from another waiting column that changes too, and so must be
    computed first.
    """
    inputs = set(_used(column.default, columns))
    return any(
        other is not column
        and other.name in inputs
        and changed & set(_used(other.default, columns))
        for other in waiting
    )


def _used(text: str, columns: Sequence[Column]) -> tuple[str, ...]:
    return compile_expression(text, columns, allow_nondeterministic=True).columns_used


def _place_of(name: str, definition: TableDefinition) -> str | None:
    """Return what the column is used for, in words, if its values must not change; None if they
    may.
    """
    if name == definition.engine.version_column:
        return "the engine's version column"
    if name == definition.engine.sign_column:
        return "the engine's sign column"
    return place_in_keys(name, definition, _used)
