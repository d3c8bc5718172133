"""What a system table is, and what its rows may be made from."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import DiskFull, ReplicaDropped, UnknownTable
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.sql.formats.rows import Columns
from rmt_pipeline.syntax.nodes import Query, names_columns_by_star, names_in

if TYPE_CHECKING:
    from rmt_pipeline.table import Table

Row = tuple[object, ...]


class TableLeftOut(UserWarning):
    """The answer lacks the rows of a table."""


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

    def of_tables(self, rows: "Callable[[Table], Iterable[Row]]") -> Iterator[Row]:
        """The rows of every table here. One that is dropped or detached meanwhile has none, nor has
        one whose replica is gone from ZooKeeper, if that is asked. One whose directory fails has
        none either, with a warning. A session that ends is an error: nothing would show that rows
        are missing.
        """
        for definition in self.server.catalog.definitions():
            try:
                yield from rows(self.server.table_of(definition))
            except (ReplicaDropped, UnknownTable):
                continue
            except (OSError, DiskFull) as error:
                words = (
                    f"{definition.full_name} is left out: its directory can't be read ({error})"
                )
                warnings.warn(words, TableLeftOut, stacklevel=2)

    def of_replicas(self, rows: "Callable[[Table], Iterable[Row]]") -> Iterator[Row]:
        """The same, each with the table's database and name in front."""

        def named(table: "Table") -> Iterator[Row]:
            definition = table.definition_then
            for row in rows(table):
                yield definition.database, definition.name, *row

        return self.of_tables(named)

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
