"""Ctrl-C in `rmt sql` while it changes a table: nothing is half done, and nothing holds it back."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmt_pipeline.config import Config, load_config
from rmt_pipeline.sql.run.session import Session
from tests.support.local_session import rows
from tests.support.serving import Served, config_at
from tests.support.terminal import FIRST, SAYS, Terminal


@pytest.fixture
def config(zookeeper_server, tmp_path: Path) -> Iterator[Config]:
    config = config_at(tmp_path, zookeeper_server.hosts, data={"r1": str(tmp_path / "r1")})
    with Served(config, "r1"), Session.open(config, "r1") as session:
        session.execute("CREATE TABLE t (n UInt64) ENGINE = ReplicatedMergeTree ORDER BY n")
        yield config
        session.execute("DROP TABLE t SYNC")


@contextmanager
def sql(config: Config, statement: str) -> Iterator[Terminal]:
    assert config.path is not None
    arguments = ("--config", str(config.path), "sql", f"{FIRST} {statement}")
    running = Terminal(config.path.parent, *arguments)
    try:
        running.until(SAYS)
        yield running
    finally:
        running.kill()


def test_an_insert_that_is_interrupted_has_inserted_nothing(config) -> None:
    statement = (
        "INSERT INTO t SELECT a.number FROM numbers(1000000) a, numbers(1000000) b "
        "WHERE (a.number * b.number) % 1000003 < 1000"
    )
    with sql(config, statement) as running:
        running.until(" rows, ")
        running.interrupt()
        assert "Traceback" not in running.until("interrupted\r\n")
        assert running.ends() == 130
    assert config.path is not None
    with Session.open(load_config(config.path), "r1") as session:
        assert rows(session, "SELECT count() FROM t") == [(0,)]
        assert rows(session, "SELECT count() FROM system.parts WHERE table = 't'") == [(0,)]
        table = session.context.server.table("t", "default")
        directory = session.context.server.catalog.table_directory(table.definition)
        assert [one.name for one in directory.rglob("*.parquet")] == []
        session.execute("INSERT INTO t VALUES (1)")
        assert rows(session, "SELECT n FROM t") == [(1,)]


def test_an_optimize_that_is_interrupted_waits_no_more(config) -> None:
    """What it assigned stays in the log, as when its client has gone away."""
    with Session.open(config, "r1") as session:
        session.execute("INSERT INTO t VALUES (1)")
        session.execute("INSERT INTO t VALUES (2)")
    with sql(config, "OPTIMIZE TABLE t FINAL") as running:  # nobody works this server's queue
        running.until("Progress: waiting for its merges, which may wait for Spark to start")
        running.interrupt()
        assert "Traceback" not in running.until("interrupted\r\n")
        assert running.ends() == 130
    with Session.open(config, "r1") as session:
        assert rows(session, "SELECT n FROM t ORDER BY n") == [(1,), (2,)]
