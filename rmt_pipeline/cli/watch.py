"""What the commands that look at servers share."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from rmt_pipeline.catalog.contents import FullName
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import UnknownTable
from rmt_pipeline.table import Table

CLEAR = "\x1b[H\x1b[J"
"""Clears the terminal; printed before each look of a command with `--watch`."""


@contextmanager
def opened_servers(
    config: Config, server: str | None, purpose: str
) -> Iterator[list[ServerContext]]:
    """One server or all, in the order of their names, each with a session. Raises UserError for an
    unknown one.
    """
    names = [config.server(server).name] if server else sorted(config.servers)
    with ExitStack() as opened:
        yield [
            opened.enter_context(ServerContext.open(config, name, purpose=purpose))
            for name in names
        ]


def full_name(text: str) -> FullName:
    """The database and the table in a text [DATABASE.]TABLE."""
    database, _, table = text.rpartition(".")
    return database or "default", table


def typed_table(context: ServerContext, name: str) -> Table:
    """The server's table for a text [DATABASE.]TABLE. Raises UnknownTable."""
    database, table = full_name(name)
    return context.table(table, database)


def tables_of(
    contexts: Sequence[ServerContext], table: str | None
) -> list[tuple[ServerContext, Table]]:
    """All tables, or all replicas of the named one. Raises UnknownTable when no server has it."""
    wanted = None if table is None else ".".join(full_name(table))
    found = [
        (opened, one)
        for opened in contexts
        for one in opened.tables()
        if wanted in (None, one.definition.full_name)
    ]
    if wanted is not None and not found:
        names = ", ".join(opened.server.name for opened in contexts)
        raise UnknownTable(f"there is no table {wanted} on {names}")
    return found


def tables_to_tell_of(
    contexts: Sequence[ServerContext], table: str | None, *, replicated: bool = False
) -> list[tuple[ServerContext, Table]]:
    """The same, for a command that prints lines about each: it prints that there is none. With
    `replicated` without those that have one replica, unless one is named.
    """
    found = tables_of(contexts, table)
    told = [
        (opened, one)
        for opened, one in found
        if table is not None or not (replicated and one.definition.engine.is_private)
    ]
    if not told:
        print("no replicated tables" if found else "no tables")
    return told
