"""Statements carried out against one server's tables, as one client's session.

Any number of sessions may work on one server at once. The modules for a kind of statement are
loaded with the first statement of that kind, so SHOW TABLES does not wait for DuckDB (the imports
inside `_run`).

Imports inside functions are for start-up time.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Self, assert_never

from rmt_pipeline.catalog.replicated import replicated_database
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.sql.formats.rows import Done, OutputOptions, Result
from rmt_pipeline.sql.run import show, tables
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.syntax.statements.nodes import (
    SYSTEM_DATABASE,
    AlterPartitions,
    AlterTable,
    Answer,
    AttachTable,
    CheckTable,
    CreateDatabase,
    CreateTable,
    DetachTable,
    DropDatabase,
    DropTable,
    ExchangeTables,
    Insert,
    KillMutation,
    KillQuery,
    MutateRows,
    OnCluster,
    Optimize,
    RenameDatabase,
    RenameTables,
    SelectStatement,
    SetSettings,
    ShowStatement,
    Statement,
    SystemStatement,
    Truncate,
    UndropTable,
    Use,
)
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.syntax.statements.split import Piece

_OF_NAMES = (
    CreateTable,
    AttachTable,
    DetachTable,
    DropTable,
    UndropTable,
    RenameTables,
    ExchangeTables,
    RenameDatabase,
    AlterTable,
)
"""The statements that may concern a Replicated database."""


class Session:
    """One client's session. Not thread-safe. Use it as a context manager, or close it."""

    def __init__(
        self, server: ServerContext, settings: Mapping[str, str] | None = None
    ) -> None:
        """Raises UnknownSetting, BadSetting."""
        self.context = SessionContext(server)
        self.context.set(tuple((settings or {}).items()))

    @classmethod
    def open(
        cls, config: Config, server: str, settings: Mapping[str, str] | None = None
    ) -> Self:
        """A session on the server of this name. Raises UserError when there is none."""
        return cls(ServerContext(config, server), settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the ZooKeeper session, if one was needed."""
        self.context.server.close()

    def execute(self, statement: Piece | str) -> Result:
        """Carry out one statement.

        The rows of an answer are read while they are iterated: take them before the next statement.
        Raises RmtError; unless its class says otherwise, nothing was changed.
        """
        note = self.context.begin(statement if isinstance(statement, str) else statement.text)
        try:
            result = self._execute(statement)
            if isinstance(result, Done):
                note.end()
                return result
            return replace(result, batches=note.until_read(result.batches))
        except BaseException as error:
            note.end()
            if isinstance(error, RmtError):
                server = self.context.server
                server.errors.add(error.code, str(error), server.clock.now_s())
            raise

    def _execute(self, statement: Piece | str) -> Result:
        parsed = parse(statement)
        if isinstance(parsed, _OF_NAMES):
            from rmt_pipeline.sql.run import replicated  # noqa: PLC0415

            database = replicated.replicated_of(self.context, parsed)
            if database:
                text = statement if isinstance(statement, str) else statement.text
                return replicated.ask_replicas(self.context, parsed, text, database)
        return self.carry_out(parsed)

    def carry_out(self, parsed: Statement) -> Result:
        """Carry out a parsed statement, on this server even if it is in a Replicated database."""
        result = self._run(parsed)
        if isinstance(result, Done):
            return result
        answer = getattr(parsed, "answer", Answer())
        return replace(
            result, options=OutputOptions.of(self.context.query_settings(answer.settings))
        )

    def _run(self, statement: Statement) -> Result:  # noqa: C901, PLR0912  one line each
        if isinstance(statement, ShowStatement):
            return show.show_or_describe(self.context, statement)
        if isinstance(statement, Optimize | CheckTable | SystemStatement):
            from rmt_pipeline.sql.run.upkeep import upkeep  # noqa: PLC0415

            return upkeep(self.context, statement)
        match statement:
            case CreateTable():
                return tables.create_table(self.context, statement)
            case AttachTable():
                return tables.attach_table(self.context, statement)
            case DetachTable():
                return tables.detach_table(self.context, statement)
            case DropTable():
                return tables.drop_tables(self.context, statement)
            case UndropTable():
                return tables.undrop_table(self.context, statement)
            case RenameTables() | ExchangeTables() | RenameDatabase():
                return tables.rename(self.context, statement)
            case CreateDatabase(replicated=engine) if engine is not None:
                from rmt_pipeline.sql.run.databases import create_replicated  # noqa: PLC0415

                return create_replicated(self.context, statement, engine)
            case CreateDatabase():
                return tables.create_database(self.context, statement)
            case DropDatabase():
                return self._drop_database(statement)
            case Use():
                return _use(self.context, statement)
            case Insert():
                from rmt_pipeline.sql.run.insert import insert  # noqa: PLC0415

                return insert(self.context, statement)
            case SelectStatement():
                from rmt_pipeline.sql.run.select import select  # noqa: PLC0415

                return select(self.context, statement)
            case (
                MutateRows()
                | AlterTable()
                | AlterPartitions()
                | Truncate()
                | KillMutation()
                | KillQuery()
            ):
                return self._change(statement)
            case SetSettings():
                self.context.set(statement.settings)
                return Done()
            case OnCluster():
                from rmt_pipeline.sql.run.on_cluster import ask_servers  # noqa: PLC0415

                return ask_servers(self.context, statement)
            case _:
                assert_never(statement)

    def _drop_database(self, statement: DropDatabase) -> Result:
        replicated = replicated_database(self.context.server.catalog, statement.name)
        if replicated is None:
            return tables.drop_database(self.context, statement)
        from rmt_pipeline.sql.run.databases import drop_replicated  # noqa: PLC0415  start-up

        return drop_replicated(self.context, statement, replicated)

    def _change(
        self,
        statement: MutateRows
        | AlterTable
        | AlterPartitions
        | Truncate
        | KillMutation
        | KillQuery,
    ) -> Result:
        """Carry out a statement that changes a table or its rows, or ends others."""
        from rmt_pipeline.sql.run import alter, partitions  # noqa: PLC0415

        match statement:
            case MutateRows():
                return alter.mutate_rows(self.context, statement)
            case AlterTable():
                return alter.alter_table(self.context, statement)
            case AlterPartitions():
                return partitions.alter_partitions(self.context, statement)
            case Truncate():
                return partitions.truncate(self.context, statement)
            case KillMutation():
                return alter.kill_mutations(self.context, statement)
            case KillQuery():
                return alter.kill_queries(self.context, statement)
            case _:
                assert_never(statement)


def _use(session: SessionContext, statement: Use) -> Result:
    if statement.database != SYSTEM_DATABASE:
        session.server.catalog.require_database(statement.database)
    session.database = statement.database
    return Done()
