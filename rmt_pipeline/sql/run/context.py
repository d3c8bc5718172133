"""What a client's statements are carried out with: its server, database and settings."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO

from rmt_pipeline import __version__
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.settings.query import QuerySettings, find_query_setting
from rmt_pipeline.protocol.settings.setting import checked
from rmt_pipeline.sql.run.progress import StatementProgress
from rmt_pipeline.syntax.settings import Settings
from rmt_pipeline.syntax.statements.nodes import TableName
from rmt_pipeline.system import account

if TYPE_CHECKING:
    import duckdb

    from rmt_pipeline.table import Snapshot


class SessionContext:
    """A session remembers the database of USE and the settings of SET; all else is in the catalog,
    in ZooKeeper and in the part directories.
    """

    def __init__(self, server: ServerContext) -> None:
        self.server = server
        self.database = "default"
        self.stdin: BinaryIO | None = None
        """Where INSERT … FORMAT without rows in the statement takes them from."""
        self.held: dict[str, Snapshot] = {}
        """Of tables, by their full names: queries read these parts, which somebody has pinned."""
        self.progress = StatementProgress()
        self._settings: dict[str, str] = {}
        self._computing: list[duckdb.DuckDBPyConnection] = []

    @property
    def settings(self) -> Mapping[str, str]:
        """What SET has said, by the settings' own names."""
        return self._settings

    @contextmanager
    def computing(self, connection: "duckdb.DuckDBPyConnection") -> Iterator[None]:
        """While it is open `interrupt` ends what the connection computes."""
        self._computing.append(connection)
        try:
            yield
        finally:
            self._computing.remove(connection)

    def interrupt(self) -> None:
        """Stop the query that the session computes: it ends with an error. For other threads."""
        computing = tuple(self._computing)
        if not computing:
            return
        import duckdb  # noqa: PLC0415  start-up; it is there when something computes

        for connection in computing:
            with suppress(duckdb.Error):  # it is closed by now
                connection.interrupt()

    def set(self, settings: Settings) -> None:
        """All of them or none. Raises UnknownSetting, BadSetting."""
        self._settings |= checked(settings, find_query_setting)

    def query_settings(self, own: Settings = ()) -> QuerySettings:
        """The session's settings, and over them a statement's own."""
        return QuerySettings.of(self._settings | checked(own, find_query_setting))

    def session_values(self) -> dict[str, str]:
        """What functions about the session answer. The user is the account that runs this."""
        return {
            "currentDatabase": self.database,
            "currentUser": self._user,
            "hostName": socket.gethostname(),
            "version": __version__,
        }

    @cached_property
    def _user(self) -> str:
        return account()  # the system's list of accounts is read for it

    def database_of(self, table: TableName) -> str:
        return table.database or self.database
