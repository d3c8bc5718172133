"""What a client's statements are carried out with: the server, the database and the settings."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO

from rmt_pipeline import __version__
from rmt_pipeline.catalog.directory import started_s
from rmt_pipeline.catalog.running import RunningStatement, StatementNote, running_directory
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.settings.query import QuerySettings, find_query_setting
from rmt_pipeline.protocol.settings.setting import checked
from rmt_pipeline.sql.run.progress import StatementProgress
from rmt_pipeline.syntax.settings import Settings
from rmt_pipeline.syntax.statements.nodes import TableName
from rmt_pipeline.system import RandomIds, account

if TYPE_CHECKING:
    import duckdb

    from rmt_pipeline.replica.reading import Snapshot


class SessionContext:
    """A session remembers the database of USE and the settings of SET; all else is in the catalog,
    in ZooKeeper and in the directories of parts.
    """

    def __init__(self, server: ServerContext) -> None:
        self.server = server
        self.database = "default"
        self.query_id = ""
        """Of the statement that runs, or ran last."""
        self.stdin: BinaryIO | None = None
        """Where INSERT … FORMAT reads rows from if the statement has none."""
        self.held: dict[str, Snapshot] = {}
        """Snapshots of tables, by their full names. Queries read these parts, which the caller has
        pinned.
        """
        self.progress = StatementProgress()
        self._settings: dict[str, str] = {}
        self._computing: list[duckdb.DuckDBPyConnection] = []

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of SET, by their names."""
        return self._settings

    @contextmanager
    def computing(self, connection: "duckdb.DuckDBPyConnection") -> Iterator[None]:
        """While it is open, `interrupt` ends what the connection computes."""
        self._computing.append(connection)
        try:
            yield
        finally:
            self._computing.remove(connection)

    def interrupt(self) -> None:
        """Stop the query that the session computes, which ends with an error. For other threads."""
        computing = tuple(self._computing)
        if not computing:
            return
        import duckdb  # noqa: PLC0415  start-up: already loaded when something computes

        for connection in computing:
            with suppress(duckdb.Error):  # the connection is closed already
                connection.interrupt()

    def begin(self, query: str) -> StatementNote:
        """Note that this statement runs from now on, until the note is ended."""
        self.query_id = RandomIds().new_id()
        data, now_s = self.server.catalog.data, self.server.clock.now_s()
        statement = RunningStatement(
            self.query_id, query, self._user, self.database, now_s, os.getpid()
        )
        return StatementNote(running_directory(data), statement, self.interrupt)

    def set(self, settings: Settings) -> None:
        """Take all of these settings or none. Raises UnknownSetting, BadSetting."""
        self._settings |= checked(settings, find_query_setting)

    def query_settings(self, own: Settings = ()) -> QuerySettings:
        """The session's settings, overridden by a statement's own."""
        return QuerySettings.of(self._settings | checked(own, find_query_setting))

    def session_values(self) -> dict[str, str]:
        """The values of functions about the session. The user is the account that runs this
        process; the value of `uptime` is when the server was started last.
        """
        since_s = started_s(self.server.catalog.data) or self.server.clock.now_s()
        return {
            "currentDatabase": self.database,
            "currentUser": self._user,
            "hostName": socket.gethostname(),
            "uptime": str(int(since_s)),
            "version": __version__,
        }

    @cached_property
    def _user(self) -> str:
        return account()  # kept, since it reads the system's list of accounts

    def database_of(self, table: TableName) -> str:
        return table.database or self.database
