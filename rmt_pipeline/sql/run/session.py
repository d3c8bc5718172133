"""Statements carried out against one server's tables, as one client's session.

A session remembers the database of USE and the settings of SET; all else is in the catalog, in
ZooKeeper and in the part directories, so any number of sessions may work on one server at once.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import BinaryIO, Self, assert_never

from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.protocol.settings import QuerySettings, find_query_setting
from rmt_pipeline.sql.formats.rows import Done, OutputOptions, Result
from rmt_pipeline.sql.run import show, tables
from rmt_pipeline.syntax.statements.nodes import (
    SYSTEM_DATABASE,
    AlterTable,
    Answer,
    AttachTable,
    CreateDatabase,
    CreateTable,
    DescribeTable,
    DetachTable,
    DropDatabase,
    DropTable,
    ExistsDatabase,
    ExistsTable,
    Insert,
    KillMutation,
    MutateRows,
    Optimize,
    Select,
    SetSettings,
    Settings,
    ShowCreateTable,
    ShowDatabases,
    ShowSettings,
    ShowTables,
    Statement,
    SystemSwitch,
    SystemSyncReplica,
    TableName,
    Use,
)
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.syntax.statements.split import Piece


class Session:
    """Not thread-safe: one client's. Use it as a context manager, or close it."""

    def __init__(
        self,
        server: ServerContext,
        settings: Mapping[str, str] | None = None,
        stdin: BinaryIO | None = None,
    ) -> None:
        """`stdin` is where INSERT … FORMAT without rows in the statement takes them from.

        Raises UnknownSetting, BadSetting.
        """
        self.server = server
        self.database = "default"
        self.stdin = stdin
        self._settings: dict[str, str] = {}
        self.set(tuple((settings or {}).items()))

    @classmethod
    def open(
        cls, config: Config, server: str, settings: Mapping[str, str] | None = None
    ) -> Self:
        """A session with the server of this name. Raises UserError when there is none."""
        return cls(ServerContext(config, server), settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the ZooKeeper session, if one was needed."""
        self.server.close()

    # --- what statements are carried out with ---

    @property
    def settings(self) -> Mapping[str, str]:
        """What SET has said, by the settings' own names."""
        return self._settings

    def set(self, settings: Settings) -> None:
        """All of them or none. Raises UnknownSetting, BadSetting."""
        self._settings |= _checked(settings)

    def query_settings(self, own: Settings = ()) -> QuerySettings:
        """The session's settings, and over them a statement's own."""
        return QuerySettings.of(self._settings | _checked(own))

    def database_of(self, table: TableName) -> str:
        return table.database or self.database

    # --- statements ---

    def execute(self, statement: Piece | str) -> Result:
        """Carry out one statement.

        Rows of an answer are read while they are iterated: take them before the next statement.
        Raises RmtError; unless its class says otherwise, nothing was changed.
        """
        parsed = parse(statement)
        result = self._run(parsed)
        if isinstance(result, Done):
            return result
        answer = getattr(parsed, "answer", Answer())
        return replace(result, options=OutputOptions.of(self.query_settings(answer.settings)))

    def _run(self, statement: Statement) -> Result:  # noqa: C901, PLR0912  one line each
        match statement:
            case CreateTable():
                return tables.create_table(self, statement)
            case AttachTable():
                return tables.attach_table(self, statement)
            case DetachTable():
                return tables.detach_table(self, statement)
            case DropTable():
                return tables.drop_tables(self, statement)
            case CreateDatabase():
                return tables.create_database(self, statement)
            case DropDatabase():
                return tables.drop_database(self, statement)
            case Use():
                return self._use(statement)
            case ShowDatabases():
                return show.show_databases(self, statement)
            case ShowTables():
                return show.show_tables(self, statement)
            case ShowCreateTable():
                return show.show_create_table(self, statement)
            case ShowSettings():
                return show.show_settings(self, statement)
            case DescribeTable():
                return show.describe_table(self, statement)
            case ExistsTable():
                return show.exists_table(self, statement)
            case ExistsDatabase():
                return show.exists_database(self, statement)
            case Insert():
                from rmt_pipeline.sql.run.insert import insert  # noqa: PLC0415

                return insert(self, statement)
            case Select():
                from rmt_pipeline.sql.run.select import select  # noqa: PLC0415

                return select(self, statement)
            case Optimize():
                from rmt_pipeline.sql.run.upkeep import optimize  # noqa: PLC0415

                return optimize(self, statement)
            case SystemSyncReplica():
                from rmt_pipeline.sql.run.upkeep import sync_replica  # noqa: PLC0415

                return sync_replica(self, statement)
            case MutateRows():
                from rmt_pipeline.sql.run.mutate import mutate_rows  # noqa: PLC0415

                return mutate_rows(self, statement)
            case AlterTable():
                from rmt_pipeline.sql.run.alter import alter_table  # noqa: PLC0415

                return alter_table(self, statement)
            case KillMutation():
                from rmt_pipeline.sql.run.mutate import kill_mutations  # noqa: PLC0415

                return kill_mutations(self, statement)
            case SystemSwitch():
                verb = "START" if statement.start else "STOP"
                raise NotImplementedStatement(
                    f"SYSTEM {verb} {statement.what.value} is not implemented"
                )
            case SetSettings():
                self.set(statement.settings)
                return Done()
            case _:
                assert_never(statement)

    def _use(self, statement: Use) -> Result:
        if statement.database != SYSTEM_DATABASE:
            self.server.catalog.require_database(statement.database)
        self.database = statement.database
        return Done()


def _checked(settings: Settings) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in settings:
        setting = find_query_setting(name)
        setting.parse(value)
        found[setting.name] = value
    return found
