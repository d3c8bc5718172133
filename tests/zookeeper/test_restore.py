"""ZooKeeper's data directory is wiped under two servers: they make the table again."""

import shutil
from collections import Counter

import pytest

from examples.flights.ports import free_port
from rmt_pipeline.context import ServerContext
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
from rmt_pipeline.replica.reading import ReadWithoutZooKeeper
from rmt_pipeline.sql.run.session import Session
from tests.support.serving import SHORT_S, Served, config_at
from tests.support.waiting import until

pytestmark = pytest.mark.zookeeper

CREATE = """CREATE TABLE t (n UInt64)
ENGINE = ReplicatedMergeTree('/tables/t', '{replica}') ORDER BY n"""


def rows(config, server: str) -> Counter[int]:
    with ServerContext.open(config, server) as context:
        return Counter(context.table("t").dataset().to_table().column("n").to_pylist())


def noted(config, server: str) -> int:
    """Active parts that the server has noted for when there is no ZooKeeper."""
    with ServerContext.open(config, server) as context:
        seen = context.table("t").store.marks.active_seen()
        return 0 if seen is None else len(seen.parts)


def said(config, server: str, statement: str) -> str:
    with ServerContext.open(config, server) as context, Session(context) as session:
        return str(session.execute(statement))


def test_the_rows_of_both_are_there_once_and_the_table_works_on(tmp_path):
    port, data = free_port(), tmp_path / "zookeeper"
    with EmbeddedZooKeeper(data, port) as zookeeper:
        # Its servers' sessions of before the loss have to end; a new ZooKeeper does not know them.
        config = config_at(tmp_path, zookeeper.hosts, session_timeout_s=3 * SHORT_S)
        with (
            Served(config, "r1", work=True) as first,
            Served(config, "r2", work=True) as second,
        ):
            for server in ("r1", "r2"):
                said(config, server, CREATE)
            first.until(first.is_active)
            second.until(second.is_active)
            with ServerContext.open(config, "r1") as context:
                for value in range(5):
                    context.table("t").insert([{"n": value}], token=f"token {value}")
            until(lambda: rows(config, "r2") == Counter(range(5)), lambda: rows(config, "r2"))
            for server in ("r1", "r2"):
                until(lambda server=server: noted(config, server) == 5, lambda: "not noted")
            zookeeper.stop()
            shutil.rmtree(data)
            with EmbeddedZooKeeper(data, port):
                first.until(lambda: "SYSTEM RESTORE REPLICA default.t" in str(first.health()))
                second.until(lambda: "SYSTEM RESTORE REPLICA default.t" in str(second.health()))
                with pytest.warns(ReadWithoutZooKeeper, match="ZooKeeper has nothing of"):
                    assert rows(config, "r1") == Counter(range(5))
                assert "r2" in said(config, "r1", "SYSTEM RESTORE REPLICA t")
                with pytest.warns(ReadWithoutZooKeeper, match="is being restored"):
                    assert rows(config, "r1") == Counter(range(5))
                said(config, "r2", "SYSTEM RESTORE REPLICA t")
                first.until(first.is_active)
                second.until(second.is_active)
                with ServerContext.open(config, "r2") as context:
                    again = context.table("t").insert([{"n": 4}], token="token 4")
                    assert again.outcome.value == "duplicate"
                    context.table("t").insert([{"n": 5}])
                wanted = Counter(range(6))
                until(lambda: rows(config, "r1") == wanted, lambda: rows(config, "r1"))
                assert rows(config, "r2") == wanted
        zookeeper.stop()
