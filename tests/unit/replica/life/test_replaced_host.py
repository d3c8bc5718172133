"""A host is gone for good: docs/operations.md, Backup and restore, step by step."""

from collections.abc import Iterator

import pytest

from rmt_pipeline.cli.upkeep import run_force_restore_data
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import (
    ReplicaAlreadyExists,
    ReplicaIsActive,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.zookeeper.keeper import Create, Delete
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import Replicas, definition_of
from tests.support.local_session import create, local_session

TABLE = TablePaths("/tables/t")
MADE = "CREATE TABLE t (n UInt64) ENGINE = ReplicatedMergeTree('/tables/t', 'r1') ORDER BY n"


@pytest.fixture
def session(tmp_path) -> Iterator[Session]:
    """Of r1; r2 is another replica of its table `t`, not active."""
    with local_session(tmp_path) as opened:
        create(opened, MADE)
        create_replica(opened.context.server.keeper(), definition_of("r2"), b"r2")
        yield opened


def replicas_of(session: Session) -> list[str]:
    return sorted(session.context.server.keeper().children(TABLE.replicas))


@pytest.mark.parametrize(
    "where", [" FROM TABLE t", " FROM ZKPATH '/tables/t/'", " FROM DATABASE default", ""]
)
def test_what_a_dead_replica_has_left_is_removed(session, where):
    session.execute(f"SYSTEM DROP REPLICA 'r2'{where}")
    assert replicas_of(session) == ["r1"]
    create_replica(session.context.server.keeper(), definition_of("r2"), b"new r2")


def test_until_then_its_name_is_taken(session):
    with pytest.raises(ReplicaAlreadyExists, match="SYSTEM DROP REPLICA 'r2' FROM ZKPATH '/"):
        create_replica(session.context.server.keeper(), definition_of("r2"), b"new r2")


def test_one_that_lives_is_refused(session):
    keeper = session.context.server.keeper()
    keeper.multi([Create(TABLE.replica("r2").is_active, ephemeral=True)])
    with pytest.raises(ReplicaIsActive, match="its server runs"):
        session.execute("SYSTEM DROP REPLICA 'r2' FROM TABLE t")
    assert replicas_of(session) == ["r1", "r2"]
    assert keeper.get(TABLE.replica("r2").is_lost)[0] != b"0", "it joined, and had yet to clone"


def test_its_own_is_refused(session):
    for where in (" FROM TABLE t", " FROM ZKPATH '/tables/t'", ""):
        with pytest.raises(UserError, match=r"own replica.*DROP TABLE"):
            session.execute(f"SYSTEM DROP REPLICA 'r1'{where}")
    assert replicas_of(session) == ["r1", "r2"]


def test_one_that_is_not_there_is_told_with_those_that_are(session):
    with pytest.raises(UserError, match="has no replica 'r3'; it has: r1, r2"):
        session.execute("SYSTEM DROP REPLICA 'r3' FROM TABLE t")
    with pytest.raises(UnknownTable):
        session.execute("SYSTEM DROP REPLICA 'r2' FROM TABLE u")


@pytest.mark.parametrize("gone", [["host"], ["host", "is_lost"], ["host", "queue", "is_lost"]])
def test_a_removal_that_was_cut_off_is_finished(session, gone):
    keeper, replica = session.context.server.keeper(), TABLE.replica("r2")
    for name in gone:
        keeper.multi([Delete(f"{replica.root}/{name}")])
    session.execute("SYSTEM DROP REPLICA 'r2' FROM TABLE t")
    assert replicas_of(session) == ["r1"]


def test_the_last_one_takes_the_table_with_it(tmp_path):
    with local_session(tmp_path) as session:
        keeper = session.context.server.keeper()
        keeper.multi([Create("/tables")])
        create_replica(keeper, definition_of("r2"), b"r2")
        session.execute("SYSTEM DROP REPLICA 'r2' FROM ZKPATH '/tables/t'")
        assert keeper.children("/tables") == []


def test_the_new_host_clones_under_the_old_name(tmp_path):
    """All of it: the dead one's nodes go, the table is created again, and its rows come back."""
    with Replicas(tmp_path / "old") as replicas:
        replicas.insert("r1", 1, 2, 3)
        replicas.step("r1", "fetch")
        replicas["r2"].keeper.close()  # the host is gone, and its disk with it
        zookeeper: FakeZooKeeper = replicas.zookeeper
        directory = tmp_path / "living"
        directory.mkdir()
        with local_session(directory) as session:
            session.context.server.use(zookeeper.connect())
            session.execute("SYSTEM DROP REPLICA 'r2' FROM ZKPATH '/tables/t'")
        new = Replicas.__new__(Replicas)
        for name, value in vars(replicas).items():
            setattr(new, name, value)
        new.stores = dict(replicas.stores)
        new.stores["r2"] = type(replicas.stores["r2"])(
            type(replicas.stores["r2"].disk)(tmp_path / "new"), ids=replicas._ids, durable=False
        )
        new._uuids = {"r2": "another host's"}
        replica = new._start("r2")
        new._replicas = {**replicas._replicas, "r2": replica}
        new.step("r2", "fetch")
        assert new.parts("r2") == ["all_0_0_0"]
        assert new.table("r2").dataset().to_table().column("n").to_pylist() == [1, 2, 3]


def test_the_flag_is_for_tables_that_do_not_start(tmp_path, capsys, monkeypatch):
    with local_session(tmp_path) as session:
        create(session, MADE)
        server = session.context.server
        zookeeper: FakeZooKeeper = server.keeper()._zookeeper

        def opened(*_: object, **__: object) -> ServerContext:
            return server

        monkeypatch.setattr("rmt_pipeline.cli.upkeep.ServerContext", opened)
        with pytest.raises(UserError, match="is active"):
            run_force_restore_data(server.config, "r1", "t")
        server.use(zookeeper.connect())  # the server's session has ended, and is_active with it
        assert run_force_restore_data(server.config, "r1", "t") == 0
        assert "next start" in capsys.readouterr().out
        server.use(zookeeper.connect())
        replica = server.table("t").replica
        assert replica.keeper.exists(replica.paths.force_restore_data) is not None
        address = ReplicaAddress("r1", 9009, 9000, "default", "t")
        start(replica, identity="r1", incarnation="2", address=address)
        assert replica.keeper.exists(replica.paths.force_restore_data) is None
