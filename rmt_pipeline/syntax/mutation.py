"""A mutation's commands: text to values, values to their one canonical text (spec §7.1).

What is written to the log is canonical, and a partition is named by its id there: whoever carries
it out needs no more than the text and the columns.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NoReturn, assert_never

from rmt_pipeline.protocol.errors import NotImplementedStatement, SyntaxProblem
from rmt_pipeline.syntax.canonical import canonical, identifier_text
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.lexer import shown_place
from rmt_pipeline.syntax.types import quote_text

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
_ALTERS = (
    ("CLEAR", "COLUMN"),
    ("DROP", "COLUMN"),
    ("MODIFY", "COLUMN"),
    ("RENAME", "COLUMN"),
)
"""What an ALTER's mutation consists of. Whoever asks for a mutation of rows may not say it."""


@dataclass(frozen=True, slots=True)
class PartitionId:
    id: str

    def __str__(self) -> str:
        return f"ID {quote_text(self.id)}"


@dataclass(frozen=True, slots=True)
class PartitionValue:
    """The value of the partition key, as typed."""

    text: str

    def __str__(self) -> str:
        return self.text


Partition = PartitionId | PartitionValue


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Rows for which `condition` (canonical text) is true go. NULL is not true."""

    condition: str
    partition: Partition | None = None

    def __str__(self) -> str:
        return f"DELETE{_in_partition(self.partition)} WHERE {self.condition}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """`value` is canonical text, computed from the row as it was before the command."""

    column: str
    value: str

    def __str__(self) -> str:
        return f"{identifier_text(self.column)} = {self.value}"


@dataclass(frozen=True, slots=True)
class UpdateColumns:
    """Columns get new values in the rows for which `condition` is true."""

    assignments: tuple[Assignment, ...]
    condition: str
    partition: Partition | None = None

    def __str__(self) -> str:
        assigned = ", ".join(map(str, self.assignments))
        return f"UPDATE {assigned}{_in_partition(self.partition)} WHERE {self.condition}"


@dataclass(frozen=True, slots=True)
class AlterColumn:
    """The data part of an ALTER's command, in its words. Rows are rewritten with the columns that
    the table has by then; only CLEAR COLUMN (`clears`) changes values beside that.
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
    """What `parse_commands` reads back as the same commands."""
    return ", ".join(map(str, commands))


def in_partition(command: Command, partition_id: str) -> bool:
    """Whether the command is for rows of this partition at all."""
    match command.partition:
        case None:
            return True
        case PartitionId(given):
            return given == partition_id
        case PartitionValue(text):
            raise SyntaxProblem(
                f"the partition {text} of a stored command is not an id: {command}"
            )
        case _:
            assert_never(command.partition)


def affected_partitions(commands: Sequence[Command]) -> list[str] | None:
    """The ids that all commands name; None when one of them is for the whole table."""
    ids: set[str] = set()
    for command in commands:
        if not isinstance(command.partition, PartitionId):
            return None
        ids.add(command.partition.id)
    return sorted(ids)


def names_used(command: Command, uses: Callable[[str], Collection[str]]) -> set[str]:
    """The columns that a command reads or changes; `uses` are those of an expression."""
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
    return replace(command, partition=partition)


@lru_cache(maxsize=200)
def parse_commands(text: str) -> tuple[Command, ...]:
    """One or more commands with commas between. Raises SyntaxProblem naming the place, or
    NotImplementedStatement for a command that is none of the two.
    """
    cursor = Cursor(text)
    commands = [_command(cursor)]
    while cursor.take(","):
        commands.append(_command(cursor))
    cursor.expect_end()
    return tuple(commands)


def _command(cursor: Cursor) -> Command:
    for alter in _ALTERS:
        if cursor.take_words(*alter):
            return _alter_column(cursor, alter[0])
    if cursor.current.upper in _OTHERS:
        words = f"{cursor.current.upper} {cursor.ahead().upper}".strip()
        raise NotImplementedStatement(
            f"{words} can't stand beside DELETE and UPDATE; it is not a mutation of rows"
        )
    if cursor.take_words("DELETE"):
        partition = _partition(cursor)
        cursor.expect_words("WHERE")
        return DeleteRows(_condition(cursor), partition)
    if not cursor.take_words("UPDATE"):
        cursor.fail("expected DELETE or UPDATE")
    assignments = cursor.several(_assignment)
    _refuse_twice(assignments)
    partition = _partition(cursor)
    cursor.expect_words("WHERE")
    return UpdateColumns(assignments, _condition(cursor), partition)


def _alter_column(cursor: Cursor, verb: str) -> AlterColumn:
    """As `protocol.alter_commands` writes them for the log."""
    start = cursor.current.start
    column = cursor.identifier()
    partition = None
    if verb == "CLEAR":
        partition = _partition(cursor)
    elif verb != "DROP":
        _text_up_to(cursor, f"what becomes of {column}", words=())
    end = cursor.tokens[cursor.place - 1].end
    text = f"{verb} COLUMN {cursor.text[start:end]}"
    return AlterColumn(column, text, verb == "CLEAR", partition)


def _assignment(cursor: Cursor) -> Assignment:
    column = cursor.identifier()
    cursor.expect("=")
    text = _text_up_to(cursor, f"a value for {column}", words=("WHERE",))
    return Assignment(column, canonical(parse_expression(text)))


def _refuse_twice(assignments: tuple[Assignment, ...]) -> None:
    names = [one.column for one in assignments]
    for name in names:
        if names.count(name) > 1:
            raise SyntaxProblem(f"one UPDATE assigns to column {name} more than once")


def _partition(cursor: Cursor) -> Partition | None:
    if not cursor.take_words("IN", "PARTITION"):
        return None
    if cursor.take_words("ID"):
        if cursor.current.kind != "string":
            cursor.fail("expected the id of a partition in single quotes")
        return PartitionId(cursor.advance().text)
    return PartitionValue(_text_up_to(cursor, "the value of a partition", words=("WHERE",)))


def _condition(cursor: Cursor) -> str:
    return canonical(parse_expression(_text_up_to(cursor, "a condition", words=())))


def _text_up_to(cursor: Cursor, what: str, *, words: tuple[str, ...]) -> str:
    """The text up to a comma, IN PARTITION, or one of `words`, outside of brackets. What it
    means is for the parser of expressions.
    """
    start = cursor.current.start
    depth = 0
    end = start
    while cursor.current.kind != "end":
        if depth == 0 and (
            cursor.at(",", ";")
            or cursor.at_word(*words)
            or (cursor.at_word("IN") and cursor.ahead().upper == "PARTITION")
        ):
            break
        depth += cursor.at("(", "[", "{") - cursor.at(")", "]", "}")
        if depth < 0:
            _unopened(cursor)
        end = cursor.advance().end
    if end == start:
        cursor.fail(f"expected {what}")
    return cursor.text[start:end]


def _unopened(cursor: Cursor) -> NoReturn:
    place = shown_place(cursor.text, cursor.current.start)
    raise SyntaxProblem(f"a bracket is closed that was not opened, at {place}")
