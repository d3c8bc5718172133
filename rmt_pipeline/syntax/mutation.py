"""The commands of a mutation: their parser, and their canonical text (spec §7.1).

ZooKeeper has the canonical text of a mutation's commands, which names a partition by its id: the
text and the table's columns are all that a replica needs to carry it out.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import assert_never

from rmt_pipeline.protocol.errors import (
    AssignedTwice,
    NotImplementedStatement,
    SyntaxProblem,
    UserError,
)
from rmt_pipeline.syntax.canonical import canonical, identifier_text, text_in_mutation
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.expression import expression, not_read_back
from rmt_pipeline.syntax.nodes import Aliased, Call, Lambda, Literal, Node
from rmt_pipeline.types.escapes import quote_text
from rmt_pipeline.values import dataclass

_OTHERS = frozenset(
    {
        *(
            "ADD",
            "ATTACH",
            "CLEAR",
            "COMMENT",
            "DETACH",
            "DROP",
            "FETCH",
            "FREEZE",
            "MATERIALIZE",
        ),
        *("MODIFY", "MOVE", "RENAME", "REPLACE", "RESET"),
    }
)
_INS = {"in", "notIn"}
_ALTERS = (
    ("CLEAR", "COLUMN"),
    ("DROP", "COLUMN"),
    ("MODIFY", "COLUMN"),
    ("RENAME", "COLUMN"),
)
"""The commands in the mutation of an ALTER of columns. Users can't write them beside DELETE and
UPDATE.
"""


@dataclass(frozen=True, slots=True)
class PartitionId:
    """`PARTITION ID '202401'`: a partition given by its id, as `system.parts` shows it."""

    id: str

    def __str__(self) -> str:
        return f"ID {quote_text(self.id)}"


@dataclass(frozen=True, slots=True)
class PartitionValue:
    """A partition given by its value of the partition key: a literal, a tuple of literals or a
    constant expression.
    """

    value: Node

    def __str__(self) -> str:
        return canonical(self.value)


Partition = PartitionId | PartitionValue


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Delete the rows for which `condition` is true. NULL is not true."""

    condition: Node
    partition: Partition | None = None

    def __str__(self) -> str:
        return f"DELETE{_in_partition(self.partition)} WHERE {text_in_mutation(self.condition)}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """`column = value` of an UPDATE. `value` is computed from the row as it was before
    the command.
    """

    column: str
    value: Node

    def __str__(self) -> str:
        return f"{identifier_text(self.column)} = {text_in_mutation(self.value)}"


@dataclass(frozen=True, slots=True)
class UpdateColumns:
    """Assign new values to columns in the rows for which `condition` is true."""

    assignments: tuple[Assignment, ...]
    condition: Node
    partition: Partition | None = None

    def __str__(self) -> str:
        assigned = ", ".join(map(str, self.assignments))
        condition = text_in_mutation(self.condition)
        return f"UPDATE {assigned}{_in_partition(self.partition)} WHERE {condition}"


@dataclass(frozen=True, slots=True)
class AlterColumn:
    """A command of ALTER for which parts are rewritten. `text` is the whole command.

    Parts are rewritten with the columns that the table has at that time, whatever the command says;
    only CLEAR COLUMN (`clears`) changes values as well.
    """

    column: str
    text: str
    clears: bool = False
    partition: Partition | None = None

    def __str__(self) -> str:
        return self.text


Command = DeleteRows | UpdateColumns | AlterColumn


def _in_partition(partition: Partition | None) -> str:
    return "" if partition is None else f" IN PARTITION {partition}"


def commands_text(commands: tuple[Command, ...]) -> str:
    """Return the canonical text, from which `parse_commands` gives the same commands. Raises
    NotReadBack if it does not: replicas carry out the text.
    """
    text = ", ".join(map(str, commands))
    if all(isinstance(one, AlterColumn) for one in commands):
        return text
    try:
        same = list(map(_meaning, parse_commands(text))) == list(map(_meaning, commands))
    except (UserError, RecursionError):
        same = False
    if not same:
        raise not_read_back("the command", text)
    return text


def _meaning(command: Command) -> Command:
    """Return the command without what the text may change. What ALTER of columns says is its text
    already.
    """
    match command:
        case DeleteRows():
            return replace(command, condition=_meant(command.condition))
        case UpdateColumns():
            assignments = tuple(
                replace(each, value=_meant(each.value)) for each in command.assignments
            )
            return replace(
                command, assignments=assignments, condition=_meant(command.condition)
            )
        case AlterColumn():
            return command
        case _:
            assert_never(command)


def _meant(node: Node) -> Node:
    """Return the node as the text of a mutation keeps it: `isNull(n)` for `n IS NULL`, `a IN 1` for
    `a IN (1)`, and `(a, b) IN (1, 2)` for `(a, b) IN ((1, 2))`.
    """
    match node:
        case Call():
            arguments = tuple(map(_meant, node.arguments))
            match arguments:
                case (left, Call("tuple", (Literal() as only,))) if node.name in _INS:
                    arguments = (left, only)
                case (
                    Call("tuple", several) as left,
                    Call("tuple", (Call("tuple", elements) as only,)),
                ) if node.name in _INS and len(several) == len(elements) > 1:
                    arguments = (left, only)
            parameters = tuple(map(_meant, node.parameters))
            name = "substring" if node.name.lower() == "substring" else node.name
            return replace(
                node, name=name, arguments=arguments, parameters=parameters, operator=False
            )
        case Lambda():
            return replace(node, body=_meant(node.body))
        case Aliased():
            return replace(node, node=_meant(node.node))
        case _:
            return node


def in_partition(command: Command, partition_id: str) -> bool:
    """Whether the command concerns this partition: it has no IN PARTITION, or this one. Raises
    SyntaxProblem if its partition is not given by its id.
    """
    match command.partition:
        case None:
            return True
        case PartitionId(given):
            return given == partition_id
        case PartitionValue():
            raise SyntaxProblem(
                f"the partition {command.partition} of a stored command is not an id: {command}"
            )
        case _:
            assert_never(command.partition)


def affected_partitions(commands: Sequence[Command]) -> list[str] | None:
    """Return the ids of the partitions that the commands name; None if one of them is for the whole
    table.
    """
    ids: set[str] = set()
    for command in commands:
        if not isinstance(command.partition, PartitionId):
            return None
        ids.add(command.partition.id)
    return sorted(ids)


def names_used(command: Command, uses: Callable[[Node], Collection[str]]) -> set[str]:
    """Return the columns that a command reads or changes; `uses` gives those of an expression."""
    match command:
        case DeleteRows():
            return set(uses(command.condition))
        case UpdateColumns():
            values = (name for one in command.assignments for name in uses(one.value))
            assigned = (one.column for one in command.assignments)
            return {*uses(command.condition), *values, *assigned}
        case AlterColumn():
            return {command.column}
        case _:
            assert_never(command)


def with_partition(command: Command, partition: Partition) -> Command:
    """Return the command with `partition` in its IN PARTITION: an id in place of a value, say."""
    return replace(command, partition=partition)


@lru_cache(maxsize=200)
def parse_commands(text: str) -> tuple[Command, ...]:
    """Parse one or more commands, separated by commas. Raises SyntaxProblem naming the place, or
    NotImplementedStatement for a command that is no mutation.
    """
    cursor = Cursor(text)
    found = cursor.several(command)
    cursor.expect_end()
    return found


def command(c: Cursor) -> Command:
    """Read one command: UPDATE, DELETE, or a change of columns that rewrites parts. Raises
    SyntaxProblem; NotImplementedStatement.
    """
    for alter in _ALTERS:
        if c.take_words(*alter):
            return _alter_column(c, alter[0])
    if c.at_word(*_OTHERS):
        words = f"{c.current.upper} {c.ahead().upper}".strip()
        raise NotImplementedStatement(
            f"{words} can't stand beside DELETE and UPDATE; it is not a mutation of rows"
        )
    if c.take_words("DELETE"):
        return delete_rows(c)
    if not c.take_words("UPDATE"):
        raise c.expected("DELETE or UPDATE")
    assignments = c.several(_assignment)
    _refuse_twice(assignments)
    partition = _in(c)
    c.expect_words("WHERE")
    return UpdateColumns(assignments, expression(c), partition)


def delete_rows(c: Cursor) -> DeleteRows:
    """Read `[IN PARTITION p] WHERE …`, which follows DELETE, or the table's name in DELETE FROM."""
    partition = _in(c)
    c.expect_words("WHERE")
    return DeleteRows(expression(c), partition)


def read_partition(c: Cursor) -> Partition:
    """Read what follows PARTITION: `ID '…'`, or the value of the partition key."""
    if c.at_word("ID") and c.ahead().kind in ("string", "number"):
        c.advance()
        return PartitionId(c.string("the id of a partition in single quotes"))
    return PartitionValue(expression(c))


def _in(c: Cursor) -> Partition | None:
    return read_partition(c) if c.take_words("IN", "PARTITION") else None


def _alter_column(c: Cursor, verb: str) -> AlterColumn:
    """Read the rest of `verb COLUMN …`, as `protocol.alter.commands` writes it for a mutation."""
    start = c.current.start
    column = c.identifier()
    partition = None
    if verb == "CLEAR":
        partition = _in(c)
    elif verb != "DROP":
        _skip(c, f"what becomes of {column}")
    text = f"{verb} COLUMN {c.source[start : c.last_end]}"
    return AlterColumn(column, text, verb == "CLEAR", partition)


def _skip(c: Cursor, what: str) -> None:
    """Skip tokens up to the next comma outside brackets. They need not be understood: parts are
    rewritten with the columns that the table has.
    """
    if c.at(",") or c.at_end:
        raise c.expected(what)
    while not (c.at(",", ";") or c.at_end):
        if c.at("(", "[", "{"):
            c.group()
        elif c.at(")", "]", "}"):
            raise c.expected("the end: a bracket is closed that was not opened")
        else:
            c.advance()


def _assignment(c: Cursor) -> Assignment:
    column = c.identifier()
    c.expect("=")
    return Assignment(column, expression(c))


def _refuse_twice(assignments: tuple[Assignment, ...]) -> None:
    names = [one.column for one in assignments]
    for name in names:
        if names.count(name) > 1:
            raise AssignedTwice(f"one UPDATE assigns to column {name} more than once")
