"""ALTER TABLE, DELETE FROM and KILL MUTATION of a session: what a table is (spec §8), and its rows
(spec §7).
"""

import io
from collections.abc import Sequence
from dataclasses import astuple, replace

from rmt_pipeline.protocol.alter.commands import AddDeclared, ClearColumn, LeaveDeclared
from rmt_pipeline.protocol.errors import IncorrectQuery, UnknownTable, UserError
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.alter.request import request_alter
from rmt_pipeline.replica.mutations.mutations import UnknownMutation
from rmt_pipeline.replica.mutations.plan import plan_mutation
from rmt_pipeline.sql.define.alter import alter_commands
from rmt_pipeline.sql.define.materialize import on_rows
from rmt_pipeline.sql.define.partition import partition_id_of
from rmt_pipeline.sql.formats.rows import Columns, Done, Result, Rows, rows_of
from rmt_pipeline.sql.formats.write import write_rows
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
    MaterializeTtl,
    MutateRows,
    SelectStatement,
    TableName,
)
from rmt_pipeline.system import EventWaker
from rmt_pipeline.translate.ttl import rules_of
from rmt_pipeline.types.to_text import column_values

DECLARED = (AddDeclared, LeaveDeclared)


def alter_table(session: SessionContext, statement: AlterTable) -> Done:
    """On every replica, or here alone what is each replica's own; waits as `alter_sync` says.

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
        notes.append(_materialize_ttl(session, name, before, query))
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
    session: SessionContext, name: TableName, before: TableDefinition, query: QuerySettings
) -> str:
    """What has expired goes, if the TTL of now has a rule that the one of before had not
    (spec §13). Of a mutation that is refused the reason is told, and no error: the table has its
    TTL by now, and merges take away the same rows.

    Who dies in between, or does not wait for the ALTER (`alter_sync = 0`), has told nobody:
    merges take away the same rows, later.
    """
    table = session.server.table(name.name, session.database_of(name))
    now = table.definition
    known = set(rules_of(before))
    takes_more = any(rule.kind != "recompress" and rule not in known for rule in rules_of(now))
    if not query.materialize_ttl_after_modify or not takes_more:
        return ""
    commands = on_rows(MaterializeTtl(), now, session.server.clock.now_s())
    try:
        table.mutate(
            commands_for(commands, now),
            settings=replace(query, mutations_sync=query.alter_sync),
        )
    except UserError as refused:
        return f"what has expired is left to merges: {refused}"
    return ""


# The commands of a mutation.


def commands_for(commands: Sequence[Command], definition: TableDefinition) -> list[Command]:
    """The same commands, naming partitions by their ids: any replica can read that in the log.

    Raises BadValue for what is no value of the partition key.
    """
    return [_with_partition_id(command, definition) for command in commands]


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
"""What KILL without SYNC or ASYNC waits for replicas to stop."""


_PLANNED: Columns = (
    ("partition_id", "String"),
    ("parts", "UInt64"),
    ("rows", "UInt64"),
    ("parts_to_rewrite", "UInt64"),
    ("rows_touched", "UInt64"),
    ("bytes_to_rewrite", "UInt64"),
)


def mutate_rows(session: SessionContext, statement: MutateRows) -> Result:
    """Write the mutation and wait for it as `mutations_sync` says (spec §7.1, §7.7). With
    `dry_run` nothing is written, and the answer is what would be done.

    Subqueries are answered once, now, by this server: the mutation has their values in it, so that
    every replica changes the same rows.

    Raises UnknownTable; a UserError for what the commands may not do, before anything is
    written; Unfinished.
    """
    name = statement.table
    table = session.server.table(name.name, session.database_of(name))
    query = session.query_settings(statement.settings)
    if statement.is_lightweight:
        query = replace(query, mutations_sync=query.lightweight_deletes_sync)
    definition, now_s = table.definition, session.server.clock.now_s()
    given = [one for typed in statement.commands for one in on_rows(typed, definition, now_s)]
    answered = [_with_answers(session, one) for one in given]
    commands = commands_for(answered, definition)
    if query.dry_run:
        plans = plan_mutation(table.replica, commands, query)
        return rows_of(_PLANNED, [astuple(plan) for plan in plans])
    table.mutate(commands, settings=query)
    return Done()


def _with_answers(session: SessionContext, command: Command) -> Command:
    """The command with values in the place of its subqueries."""
    if isinstance(command, AlterColumn):
        return command
    condition = _answered(session, command.condition)
    if isinstance(command, DeleteRows):
        return replace(command, condition=condition)
    assignments = tuple(
        replace(one, value=_answered(session, one.value)) for one in command.assignments
    )
    return replace(command, condition=condition, assignments=assignments)


def _answered(session: SessionContext, node: nodes.Node) -> nodes.Node:
    match node:
        case nodes.Call("in" | "notIn", (value, nodes.Subquery(query))):
            members, _ = _values_of(session, query)
            if not members:
                return nodes.Literal(int(node.name == "notIn"))
            among = parse_expression(f"x IN ({members})")
            assert isinstance(among, nodes.Call)
            return replace(node, arguments=(_answered(session, value), among.arguments[1]))
        case nodes.Call("exists", (nodes.Subquery(query),)):
            return nodes.Literal(int(bool(_values_of(session, query)[0])))
        case nodes.Subquery(query):
            return _single_value(*_values_of(session, query))
        case nodes.Call():
            return replace(
                node, arguments=tuple(_answered(session, each) for each in node.arguments)
            )
        case nodes.Lambda():
            return replace(node, body=_answered(session, node.body))
        case nodes.Aliased():
            return replace(node, node=_answered(session, node.node))
        case _:
            return node


def _single_value(rows: str, kinds: Sequence[str]) -> nodes.Node:
    """What a subquery stands for where a value is asked for; NULL when it has no row."""
    if len(kinds) != 1:
        raise IncorrectQuery(
            f"a subquery that stands for a value has one column, not {len(kinds)}"
        )
    if not rows:
        return nodes.Literal(None)
    made = parse_expression(f"[{rows}]")
    assert isinstance(made, nodes.Call)
    if len(made.arguments) > 1:
        raise IncorrectQuery(
            f"a subquery that stands for a value answered with {len(made.arguments)} rows: add "
            "LIMIT 1 or an aggregate function"
        )
    return nodes.Call("CAST", (*made.arguments, nodes.Literal(kinds[0])))


def _values_of(session: SessionContext, query: nodes.Query) -> tuple[str, list[str]]:
    """The rows that a query answers with, as literals with commas between, and their types."""
    from rmt_pipeline.sql.run.select import select  # noqa: PLC0415  start-up: slow

    found = select(session, SelectStatement(query, text="(SELECT ...)"))
    assert isinstance(found, Rows)
    out = io.BytesIO()
    write_rows(found, "Values", out)
    return out.getvalue().decode(), [column.type.text for column in found.columns]


def kill_mutations(session: SessionContext, statement: KillMutation) -> Result:
    """Every mutation of system.mutations for which the condition is true (spec §7.8).

    With TEST they are only shown. `kill_status` is `finished` once no replica that is active has
    anything queued for it, else `waiting`; `took_hold` says when that was, on each. Raises what a
    SELECT raises; TableIsReadOnly.
    """
    from rmt_pipeline.sql.run.select import select  # noqa: PLC0415  start-up: slow

    condition = canonical(statement.condition)
    query = nodes.Select(
        items=tuple(nodes.Name((name,)) for name, _ in _KILLED[1:]),
        source=nodes.NamedTable(SYSTEM_DATABASE, "mutations"),
        where=statement.condition,
    )
    found = select(session, SelectStatement(query, text=f"KILL MUTATION WHERE {condition}"))
    assert isinstance(found, Rows)
    mutations = [
        tuple(map(str, values))
        for batch in found.batches
        for values in zip(*(column_values(column) for column in batch.columns), strict=True)
    ]
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


def _kill(
    session: SessionContext, database: str, table: str, mutation_id: str, wait_s: float
) -> tuple[str, str]:
    """Status, and when it took hold where. Another client may have been faster."""
    try:
        found = session.server.table(table, database)
        hold = found.kill_mutation(mutation_id, wait_s=wait_s)
    except (UnknownMutation, UnknownTable):
        return "not_found", ""
    return "waiting" if hold.not_yet else "finished", hold.words()
