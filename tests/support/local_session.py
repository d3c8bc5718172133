"""A client's session in this process: statements as typed, real disks, a fake ZooKeeper."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.sql.define.table import define_table
from rmt_pipeline.sql.formats.rows import Rows
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.syntax.statements.nodes import CreateTable
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.system import SystemClock
from tests.support.fake_keeper import FakeZooKeeper

TABLE = (
    "CREATE TABLE {0} (n UInt64) ENGINE = ReplicatedMergeTree('/tables/{0}', 'r1') ORDER BY n"
)
NUMBERS = TABLE.format("t")


@contextmanager
def local_session(directory: Path) -> Iterator[Session]:
    """Of server r1, whose tables are made by `create`."""
    file = directory / "rmt.toml"
    file.write_text(
        f'[servers.r1]\ndata = "{directory / "r1"}"\nlisten = "127.0.0.1:9009"\n'
        'macros = {shard = "1", replica = "r1"}\n'
    )
    context = ServerContext(load_config(file), "r1")
    context.use(FakeZooKeeper(SystemClock()).connect())
    with Session(context) as session:
        yield session


@contextmanager
def session_with_numbers(directory: Path) -> Iterator[Session]:
    """A local session with a table `t` of one column `n`."""
    with local_session(directory) as session:
        create(session, NUMBERS)
        yield session


@contextmanager
def session_with_two_tables(directory: Path) -> Iterator[Session]:
    """A local session with tables `t` and `u`, each of one column `n`."""
    with local_session(directory) as session:
        for name in ("t", "u"):
            create(session, TABLE.format(name))
        yield session


def commands_use(patch: pytest.MonkeyPatch, server: ServerContext) -> None:
    """Commands of `rmt` that open a server's context have this one."""
    patch.setattr(ServerContext, "open", lambda *_, **__: nullcontext(server))


def create(session: Session, text: str) -> TableDefinition:
    """CREATE TABLE, and the table's replica active in this session, as its server would."""
    statement = parse(text)
    assert isinstance(statement, CreateTable)
    definition = define_table(
        statement.table,
        statement.syntax,
        session.context.database,
        session=tuple(session.context.session_values().items()),
    )
    session.context.server.create_table(definition)
    definition = session.context.server.catalog.definition(definition.database, definition.name)
    replica = session.context.server.replica(definition)
    address = ReplicaAddress("r1", 9009, 9000, definition.database, definition.name)
    start(replica, identity="r1", incarnation="1", address=address)
    return definition


def rows(session: Session, query: str) -> list[tuple[object, ...]]:
    """The answer's rows, in stored forms."""
    answer = session.execute(query)
    assert isinstance(answer, Rows)
    return [
        values
        for batch in answer.batches
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
