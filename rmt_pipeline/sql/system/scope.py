"""What a system table is, and what its rows may be made from."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import ReplicaRetired
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.syntax.nodes import Query, names_columns_by_star, names_in

if TYPE_CHECKING:
    from rmt_pipeline.table import Table

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class SystemScope:
    """What a system table is made from: the server, the settings that the session has set, and the
    query that uses the table.

    `system` has all system tables by name. `ask` answers another query of the same session.
    """

    server: ServerContext
    settings: Mapping[str, str]
    query: Query
    system: Mapping[str, "SystemTable"]
    ask: Callable[[Query], Sequence[Sequence[object]]]

    def of_replicas(self, rows: "Callable[[Table], Iterable[Row]]") -> Iterator[Row]:
        """The rows of every table here, each with its database and name in front. A replica that is
        gone from ZooKeeper has none.
        """
        for definition in self.server.catalog.definitions():
            with suppress(ReplicaRetired):
                for row in rows(self.server.table_of(definition)):
                    yield definition.database, definition.name, *row

    def mentions(self, *names: str) -> bool:
        """Whether the query may use one of these columns. A star uses all."""
        mentioned = names_in(self.query)
        return not mentioned.isdisjoint(names) or names_columns_by_star(self.query)


@dataclass(frozen=True, slots=True)
class SystemTable:
    """A system table. `rows` returns values in stored forms, and is called when a query names the
    table. `aliases` are other names of columns, as (name, type, column), which are not in `*`.
    """

    columns: Columns
    rows: Callable[[SystemScope], Iterable[Sequence[object]]]
    aliases: tuple[tuple[str, str, str], ...] = ()

    def definitions(self) -> list[Column]:
        """All of its columns, as those of an ordinary table."""
        return [
            *(Column(name, data_type) for name, data_type in self.columns),
            *(Column(name, data_type, "ALIAS", of) for name, data_type, of in self.aliases),
        ]
