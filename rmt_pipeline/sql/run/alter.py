"""ALTER TABLE, DELETE FROM and KILL MUTATION of a session: changes of a table's definition (spec
§8), and of its rows (spec §7).
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from rmt_pipeline.catalog.running import LOOK_EVERY_S, ask_to_end, is_running
from rmt_pipeline.protocol.alter.commands import AddDeclared, ClearColumn, LeaveDeclared
from rmt_pipeline.protocol.errors import (
    BadValue,
    CannotKill,
    IncorrectQuery,
    RmtError,
    SyntaxProblem,
    Unfinished,
    UnknownDatabase,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.limits import NODE_BYTES_MAX
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.alter.request import request_alter
from rmt_pipeline.replica.mutations.mutations import UnknownMutation
from rmt_pipeline.replica.mutations.plan import plan_mutation
from rmt_pipeline.sql.define.alter import alter_commands
from rmt_pipeline.sql.define.materialize import on_rows
from rmt_pipeline.sql.define.partition import partition_id_of
from rmt_pipeline.sql.formats.rows import Columns, Done, Result, Rows, rows_of, small_batches
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.sql.run.tables import not_built
from rmt_pipeline.syntax import nodes
from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.mutation import (
    AlterColumn,
    Command,
    DeleteRows,
    PartitionId,
    PartitionValue,
    with_partition,
)
from rmt_pipeline.syntax.rename import with_expressions
from rmt_pipeline.syntax.statements.definition import (
    AddIndexSyntax,
    AlterSyntax,
    ClearColumnSyntax,
    ModifyColumnSyntax,
    ModifyTtlSyntax,
)
from rmt_pipeline.syntax.statements.nodes import (
    SYSTEM_DATABASE,
    AlterTable,
    KillMutation,
    KillQuery,
    MaterializeTtl,
    MutateRows,
    SelectStatement,
)
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.system import EventWaker
from rmt_pipeline.table import Table
from rmt_pipeline.translate.mutation_rules import cast_to
from rmt_pipeline.translate.select.items import aliases_in, bare
from rmt_pipeline.translate.ttl import rules_of
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.to_text import column_values, formatter

DECLARED = (AddDeclared, LeaveDeclared)


def alter_table(session: SessionContext, statement: AlterTable) -> Done:
    """Alter the table on every replica; what is each replica's own is altered only here. Waits as
    `alter_sync` says.

    Raises UnknownTable; a UserError for what can't be altered or converted, before anything is
    changed; CannotAssignAlter; Unfinished.
    """
    name = statement.table
    database = session.database_of(name)
    if database == SYSTEM_DATABASE:
        raise UserError(f"system.{name.name} can't be altered")
    table = session.server.table(name.name, database)
    query = session.query_settings(statement.settings)
    before = table.definition
    submitted = request_alter(
        lambda: table.replica,
        lambda definition: alter_commands(
            statement.commands, definition, flatten_nested=query.flatten_nested
        ),
        query,
        EventWaker,
    )
    for one in statement.commands if submitted is not None else ():
        if isinstance(one, ClearColumnSyntax):
            place = one.partition
            wanted = None if place is None else partition_id_of(place, table.definition)
            table.note_cleared(ClearColumn(one.column, wanted))
    notes = []
    if submitted is not None and any(map(_sets_ttl, statement.commands)):
        notes.append(_materialize_ttl(table, before, query, session.server.clock.now_s()))
    kinds = {one.kind for one in statement.commands if isinstance(one, DECLARED)}
    kinds |= {"INDEX" for one in statement.commands if isinstance(one, AddIndexSyntax)}
    if kinds:
        notes.append(not_built(sorted(kinds), table.definition.full_name))
    return Done("; ".join(filter(None, notes)))


def _sets_ttl(command: AlterSyntax) -> bool:
    return isinstance(command, ModifyTtlSyntax) or (
        isinstance(command, ModifyColumnSyntax) and command.ttl is not None
    )


def _materialize_ttl(
    table: Table, before: TableDefinition, query: QuerySettings, now_s: float
) -> str:
    """If the new TTL has a rule that the old one had not, start a mutation that removes expired
    rows (spec §13). When the mutation is refused, return the reason instead of raising it: the
    table has its TTL already, and merges remove the same rows.

    If this process dies before that, or does not wait for the ALTER (`alter_sync = 0`), there is no
    mutation, and merges remove the same rows, later.
    """
    now = table.definition
    known = set(rules_of(before))
    takes_more = any(rule.kind != "recompress" and rule not in known for rule in rules_of(now))
    if not query.materialize_ttl_after_modify or not takes_more:
        return ""
    commands = on_rows(MaterializeTtl(), now, now_s)
    try:
        table.mutate(
            commands_for(commands, now),
            settings=replace(query, mutations_sync=query.alter_sync),
        )
    except Unfinished:
        raise
    except RmtError as error:
        return f"what has expired is left to merges: {error}"
    return ""


# The commands of a mutation.


def commands_for(commands: Sequence[Command], definition: TableDefinition) -> list[Command]:
    """The same commands as every replica can read them in the log: with partitions named by their
    ids, and with the expressions of ALIAS columns, which an ALTER may change meanwhile, and of
    aliases that a command gives itself.

    Raises BadValue for a value that the partition key can't have.
    """
    aliases = {
        column.name: cast_to(parse_expression(column.default), column)
        for column in definition.columns
        if column.default_kind == "ALIAS"
    }
    return [
        _without_aliases(_with_partition_id(command, definition), aliases)
        for command in commands
    ]


def _without_aliases(command: Command, aliases: Mapping[str, nodes.Node]) -> Command:
    if isinstance(command, AlterColumn):
        return command
    values = () if isinstance(command, DeleteRows) else command.assignments
    given = aliases_in([command.condition, *(one.value for one in values)])
    aliases = {**aliases, **given}
    if not aliases:
        return command
    condition = bare(with_expressions(command.condition, aliases))
    if isinstance(command, DeleteRows):
        return replace(command, condition=condition)
    assignments = tuple(
        replace(one, value=bare(with_expressions(one.value, aliases))) for one in values
    )
    return replace(command, condition=condition, assignments=assignments)


def _with_partition_id(command: Command, definition: TableDefinition) -> Command:
    if not isinstance(command.partition, PartitionValue):
        return command
    return with_partition(command, PartitionId(partition_id_of(command.partition, definition)))


# Mutations: DELETE, UPDATE, KILL MUTATION.

_KILLED: Columns = (
    ("kill_status", "String"),
    ("database", "String"),
    ("table", "String"),
    ("mutation_id", "String"),
    ("command", "String"),
)
_ANSWERED: Columns = (*_KILLED, ("took_hold", "String"))
KILL_WAIT_S = 5.0
"""How long KILL without SYNC or ASYNC waits for replicas to stop."""


_PLANNED: Columns = (
    ("partition_id", "String"),
    ("parts", "UInt64"),
    ("rows", "UInt64"),
    ("parts_to_rewrite", "UInt64"),
    ("rows_touched", "UInt64"),
    ("bytes_to_rewrite", "UInt64"),
)


def mutate_rows(session: SessionContext, statement: MutateRows) -> Result:
    """Write the mutation and wait for it as `mutations_sync` says (spec §7.1, §7.7). With `dry_run`
    nothing is written, and the answer is what would be done.

    Subqueries are answered once, now, by this server: the mutation has their values in it, so that
    every replica changes the same rows.

    Raises UnknownTable; a UserError for what the commands may not do, before anything is written;
    Unfinished.
    """
    name = statement.table
    table = session.server.table(name.name, session.database_of(name))
    query = session.query_settings(statement.settings)
    if statement.is_lightweight:
        query = replace(query, mutations_sync=query.lightweight_deletes_sync)
    definition, now_s = table.definition, session.server.clock.now_s()
    given = [one for typed in statement.commands for one in on_rows(typed, definition, now_s)]
    try:
        answered = [_with_answers(session, one, definition) for one in given]
    except RecursionError:
        raise SyntaxProblem("an expression of the mutation is nested too deeply") from None
    commands = commands_for(answered, definition)
    if query.dry_run:
        plans = plan_mutation(table.replica, commands, query)
        return rows_of(_PLANNED, [astuple(plan) for plan in plans])
    table.mutate(commands, settings=query)
    return Done()


def _with_answers(
    session: SessionContext, command: Command, definition: TableDefinition
) -> Command:
    """The command with values in place of its subqueries."""
    if isinstance(command, AlterColumn):
        return command
    types = {column.name: parse_type(column.type) for column in definition.columns}
    answers = _Answers(session, types)
    condition = answers.instead_of(command.condition)
    if isinstance(command, DeleteRows):
        return replace(command, condition=condition)
    assignments = tuple(
        replace(one, value=answers.instead_of(one.value)) for one in command.assignments
    )
    return replace(command, condition=condition, assignments=assignments)


@dataclass(frozen=True, slots=True)
class _Answers:
    """Answers the subqueries of a mutation of a table with columns of these types."""

    session: SessionContext
    types: Mapping[str, DataType]

    def instead_of(self, node: nodes.Node) -> nodes.Node:
        """The same expression, with literals in place of its subqueries."""
        match node:
            case nodes.Call("in" | "notIn", (value, nodes.Subquery(query))):
                members = self._members(value, query)
                if not members.arguments:
                    return nodes.Literal(int(node.name == "notIn"))
                return replace(node, arguments=(self.instead_of(value), members))
            case nodes.Call("exists", (nodes.Subquery(query),)):
                rows = self._select(query).batches
                return nodes.Literal(int(sum(batch.num_rows for batch in rows) > 0))
            case nodes.Subquery(query):
                return self._single_value(query)
            case nodes.Call():
                return replace(
                    node, arguments=tuple(self.instead_of(each) for each in node.arguments)
                )
            case nodes.Lambda():
                return replace(node, body=self.instead_of(node.body))
            case nodes.Aliased():
                return replace(node, node=self.instead_of(node.node))
            case _:
                return node

    def _members(self, value: nodes.Node, query: nodes.Query) -> nodes.Call:
        """The different rows that a query returns, as the right side of IN. Raises UserError as
        soon as they are more than a mutation can hold, since they need much more memory than their
        text.
        """
        found = self._select(query)
        compared = self._compared_types(value)
        if len(compared) != len(found.columns):
            compared = [None] * len(found.columns)
        literals = [
            _literal_of(column.type, other)
            for column, other in zip(found.columns, compared, strict=True)
        ]
        rows: dict[tuple[nodes.Node, ...], None] = {}
        size = 0
        for row in _rows(found, literals):
            if row not in rows:
                rows[row] = None
                size += sum(len(canonical(each)) for each in row)
            if size > NODE_BYTES_MAX:
                raise UserError(
                    "a subquery of the mutation answers with more than the "
                    f"{NODE_BYTES_MAX} bytes of values that a mutation holds: answer with a part "
                    "of them at a time"
                )
        return _tuple([row[0] if len(row) == 1 else _tuple(row) for row in rows])

    def _compared_types(self, value: nodes.Node) -> list[DataType | None]:
        """The types of what stands before IN, one for each element of a tuple; None for an element
        that is not a column.
        """
        match value:
            case nodes.Call("tuple", elements):
                pass
            case _:
                elements = (value,)
        return [
            self.types.get(each.parts[0])
            if isinstance(each, nodes.Name) and len(each.parts) == 1
            else None
            for each in elements
        ]

    def _single_value(self, query: nodes.Query) -> nodes.Node:
        """The value of a subquery that stands in place of a value; NULL when it has no row."""
        found = self._select(query)
        if len(found.columns) != 1:
            raise IncorrectQuery(
                f"a subquery that stands for a value has one column, not {len(found.columns)}"
            )
        [column] = found.columns
        rows = list(itertools.islice(_rows(found, [_literal_of(column.type, None)]), 2))
        if len(rows) > 1:
            raise IncorrectQuery(
                "a subquery that stands for a value answered with more than one row: add LIMIT 1 "
                "or an aggregate function"
            )
        [value] = rows[0] if rows else (nodes.Literal(None),)
        if value == nodes.Literal(None):
            return value
        wanted = nodes.Literal(column.type.plain.text)
        if isinstance(value, nodes.Call) and value.arguments[1] == wanted:
            return value
        return nodes.Call("CAST", (value, wanted))

    def _select(self, query: nodes.Query) -> Rows:
        from rmt_pipeline.sql.run.select import select  # noqa: PLC0415  start-up: slow

        found = select(self.session, SelectStatement(query, text="(SELECT ...)"))
        assert isinstance(found, Rows)
        return found


def _tuple(elements: Sequence[nodes.Node]) -> nodes.Call:
    return nodes.Call("tuple", tuple(elements), operator=True)


def _rows(
    found: Rows, literals: Sequence[Callable[[Any], nodes.Node]]
) -> Iterator[tuple[nodes.Node, ...]]:
    for batch in small_batches(found.batches):
        columns = [
            map(literal, column_values(column))
            for literal, column in zip(literals, batch.columns, strict=True)
        ]
        yield from zip(*columns, strict=True)


_AS_THEY_ARE = {"Bool", "String", "Enum8", "Enum16"} | {
    f"{sign}{bits}" for sign in ("Int", "UInt") for bits in (8, 16, 32, 64)
}


def _literal_of(kind: DataType, compared: DataType | None) -> Callable[[Any], nodes.Node]:
    """A function that writes a value of this type as an exact literal. `compared` is the type of
    the column that the value is compared with, if it is known.

    A number in a query's text has 64 bits, so an Int128 or a Decimal would lose its last digits. A
    text is read as a time in the zone of the other side. So these values are written with their
    types, and times in UTC, in which no hour comes twice. If `compared` is the same type, the
    value's text is enough.
    """
    exact = kind.plain
    if exact.family in {"DateTime", "DateTime64"} and exact.zone:
        exact = replace(exact, zone="UTC")
    same = compared is not None and compared.plain in (
        replace(exact, zone=""),
        replace(exact, zone="UTC"),
    )
    is_text = exact.family in {"Date", "UUID"} or (
        same and not (exact.is_float or exact.elements)
    )
    text = formatter(exact, "TSV")

    def literal(value: Any) -> nodes.Node:
        if value is None or exact.family in _AS_THEY_ARE:
            return nodes.Literal(value)
        if exact.family == "FixedString":
            return nodes.Literal(_utf8(value))
        if exact.family == "Float64" and math.isfinite(value):
            return nodes.Literal(value)
        if is_text:
            return nodes.Literal(text(value))
        return nodes.Call("CAST", (nodes.Literal(text(value)), nodes.Literal(exact.text)))

    return literal


def _utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadValue(
            f"a subquery of the mutation answers with the bytes {value.hex()}, which are no UTF-8 "
            "text, as a mutation's values are: compare hex(...) of them"
        ) from None


def kill_mutations(session: SessionContext, statement: KillMutation) -> Result:
    """Kill every mutation of system.mutations for which the condition is true (spec §7.8).

    With TEST they are only shown. `kill_status` is `finished` once no active replica has anything
    queued for the mutation, else `waiting`; `took_hold` says for each replica when that was. Raises
    what a SELECT raises; TableIsReadOnly.
    """
    condition = canonical(statement.condition)
    mutations = _chosen(session, "mutations", _KILLED[1:], statement.condition)
    if not mutations:
        return Done(f"no mutation was killed: system.mutations has none WHERE {condition}")
    wait_s = KILL_WAIT_S
    if statement.sync is not None:
        wait_s = session.query_settings().receive_timeout if statement.sync else 0.0
    killed: dict[tuple[str, str, str], tuple[str, str]] = {}
    rows = []
    for database, table, mutation_id, command in mutations:
        one = (database, table, mutation_id)
        if one not in killed:  # a mutation of several commands is several rows
            killed[one] = ("", "") if statement.is_test else _kill(session, *one, wait_s)
        status, took_hold = killed[one]
        rows.append((status, *one, command, took_hold))
    return rows_of(_ANSWERED, rows, statement.answer.format)


def _chosen(
    session: SessionContext, table: str, columns: Columns, condition: nodes.Node
) -> list[tuple[str, ...]]:
    """What KILL is for: columns of a system table where the condition is true."""
    from rmt_pipeline.sql.run.select import select  # noqa: PLC0415  start-up: slow

    query = nodes.Select(
        items=tuple(nodes.Name((name,)) for name, _ in columns),
        source=nodes.NamedTable(SYSTEM_DATABASE, table),
        where=condition,
    )
    found = select(session, SelectStatement(query, text=f"KILL … WHERE {canonical(condition)}"))
    assert isinstance(found, Rows)
    return [
        tuple(map(str, values))
        for batch in found.batches
        for values in zip(*(column_values(column) for column in batch.columns), strict=True)
    ]


_KILLED_QUERIES: Columns = (
    ("kill_status", "String"),
    ("query_id", "String"),
    ("user", "String"),
    ("query", "String"),
)


def kill_queries(session: SessionContext, statement: KillQuery) -> Result:
    """End every statement of system.processes for which the condition is true, but for this one.
    What it computes is interrupted; what it waits for is not. With TEST they are only shown.

    `kill_status` is `finished` once it has ended, which SYNC waits for, else `waiting`. Raises what
    a SELECT raises; CannotKill, when all others were asked to end.
    """
    data, clock = session.server.catalog.data, session.server.clock
    chosen = _chosen(session, "processes", _KILLED_QUERIES[1:], statement.condition)
    chosen = [one for one in chosen if one[0] != session.query_id]
    runs: dict[str, bool] = {}
    refused: CannotKill | None = None
    for query_id, *_ in chosen:
        try:
            runs[query_id] = statement.is_test or ask_to_end(data, query_id)
        except CannotKill as error:
            refused = refused or error
    if refused is not None:
        raise refused
    if statement.sync and not statement.is_test:
        until_s = clock.monotonic_s() + session.query_settings().receive_timeout
        while any(runs.values()) and clock.monotonic_s() < until_s:
            clock.sleep_s(LOOK_EVERY_S)
            runs = {one: still and is_running(data, one) for one, still in runs.items()}
    status = {True: "waiting", False: "finished"}
    rows = [("" if statement.is_test else status[runs[one[0]]], *one) for one in chosen]
    return rows_of(_KILLED_QUERIES, rows, statement.answer.format)


def _kill(
    session: SessionContext, database: str, table: str, mutation_id: str, wait_s: float
) -> tuple[str, str]:
    """The status, and when the kill took hold on which replica. Another client may have been
    faster.
    """
    try:
        found = session.server.table(table, database)
        hold = found.kill_mutation(mutation_id, wait_s=wait_s)
    except (UnknownMutation, UnknownTable, UnknownDatabase):
        return "not_found", ""
    return "waiting" if hold.not_yet else "finished", hold.words()
