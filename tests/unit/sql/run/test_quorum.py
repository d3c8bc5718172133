"""insert_quorum as one types it."""

from dataclasses import replace

import pytest

from rmt_pipeline.replica.insert.quorum import TooFewLiveReplicas
from rmt_pipeline.replica.insert.result import QuorumNotReached
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.zookeeper.keeper import Create
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.local_session import create, local_session, rows

CREATE = "CREATE TABLE t (n UInt8) ENGINE = ReplicatedMergeTree('/t', '{replica}') ORDER BY n"
AWAITING = "SELECT parts_awaiting_quorum FROM system.replicas"


def with_a_peer_that_does_not_work(session: Session) -> None:
    """It is active, and fetches nothing."""
    definition = create(session, CREATE)
    engine = replace(definition.engine, replica="r2")
    keeper = session.context.server.keeper()
    create_replica(keeper, replace(definition, engine=engine), b"r2")
    keeper.multi([Create(TablePaths("/t").replica("r2").is_active, b"r2", ephemeral=True)])


def test_an_insert_says_how_many_replicas_it_wants(tmp_path):
    with local_session(tmp_path) as session:
        create(session, CREATE)
        with pytest.raises(TooFewLiveReplicas) as refused:
            session.execute("INSERT INTO t SETTINGS insert_quorum = 2 VALUES (1)")
        assert refused.value.code == "TOO_FEW_LIVE_REPLICAS"
        session.execute("SET insert_quorum = 'auto'")
        session.execute("INSERT INTO t VALUES (1)")
        assert rows(session, AWAITING) == [([],)]


def test_what_waits_is_in_system_replicas(tmp_path):
    with local_session(tmp_path) as session:
        with_a_peer_that_does_not_work(session)
        session.execute("SET insert_quorum = 2, insert_quorum_timeout = 0")
        for _ in range(2):
            with pytest.raises(QuorumNotReached) as late:
                session.execute("INSERT INTO t VALUES (1)")
            assert late.value.code == "UNKNOWN_STATUS_OF_INSERT"
        assert rows(session, AWAITING) == [(["all_0_0_0"],)]
        assert rows(session, "SELECT count() FROM t") == [(1,)]
        assert rows(
            session, "SELECT count() FROM t SETTINGS select_sequential_consistency = 1"
        ) == [(0,)]
