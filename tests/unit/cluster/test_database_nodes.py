"""The nodes of a Replicated database in ZooKeeper, while several processes make and remove them."""

from collections.abc import Iterator

import pytest

from rmt_pipeline.cluster import database as databases
from rmt_pipeline.cluster.database import (
    drop_database_replica,
    make_database,
    move_pointer,
    register,
    remove_replica,
    why_not_registered,
)
from rmt_pipeline.protocol.errors import Conflict, OutcomeUnknown, ReplicaIsActive, UserError
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op
from rmt_pipeline.zookeeper.paths import DatabasePaths
from tests.support.fake_keeper import FakeKeeper, FakeZooKeeper
from tests.support.local_replicas import StillClock
from tests.support.lost_answers import before, faulty

PATHS = DatabasePaths("/databases/d")
ONE, TWO = "1|r1", "1|r2"


@pytest.fixture
def zookeeper() -> FakeZooKeeper:
    return FakeZooKeeper(StillClock())


@pytest.fixture
def keeper(zookeeper: FakeZooKeeper) -> Iterator[FakeKeeper]:
    """Of a server that lives on; the database has two replicas."""
    opened = zookeeper.connect()
    register(opened, PATHS, "d", replica=ONE, server="r1")
    register(opened, PATHS, "d", replica=TWO, server="r2")
    yield opened
    opened.close()


def removes(op: Op) -> bool:
    return isinstance(op, Delete) and op.path.startswith(PATHS.replica(TWO))


def ends(op: Op) -> bool:
    return isinstance(op, Delete) and op.path == PATHS.root


def takes_the_lock(op: Op) -> bool:
    return isinstance(op, Create) and op.path == PATHS.dropping


def test_a_replica_whose_server_starts_meanwhile_is_not_dropped(zookeeper, keeper):
    active = PATHS.queue.server_active(TWO)
    starts = zookeeper.connect()
    with (
        before(keeper, removes, lambda: starts.multi([Create(active, ephemeral=True)])),
        pytest.raises(ReplicaIsActive),
    ):
        drop_database_replica(keeper, PATHS, TWO)
    assert keeper.exists(active) is not None
    assert keeper.exists(PATHS.log_ptr(TWO)) is not None


def test_a_replica_that_was_made_anew_meanwhile_is_not_dropped(zookeeper, keeper):
    """1. P and Q drop the dead r2 at once. 2. P removes it, and its user makes a new r2, whose
    server has yet to start. 3. Q goes on.
    """
    move_pointer(keeper, PATHS, TWO, 7)
    other = zookeeper.connect()

    def made_anew() -> None:
        drop_database_replica(other, PATHS, TWO)
        register(other, PATHS, "d", replica=TWO, server="r9")

    with before(keeper, removes, made_anew), pytest.raises(Conflict, match="or made again"):
        drop_database_replica(keeper, PATHS, TWO)
    assert keeper.get(PATHS.replica(TWO))[0] == b"r9"


def test_what_is_left_of_a_replica_can_be_dropped(keeper):
    """Its removal was cut off, by an earlier version."""
    keeper.multi([Delete(PATHS.log_ptr(TWO))])
    assert drop_database_replica(keeper, PATHS, TWO) is False
    assert keeper.exists(PATHS.replica(TWO)) is None
    assert drop_database_replica(keeper, PATHS, ONE) is True
    assert keeper.exists(PATHS.root) is None


def test_a_server_does_not_remove_the_replica_of_another_one_in_its_place(keeper):
    """1. r2 is gone, and its replica dropped. 2. Another server has its shard and replica name now.
    3. r2 comes back, and is told to DROP DATABASE.
    """
    drop_database_replica(keeper, PATHS, TWO)
    register(keeper, PATHS, "d", replica=TWO, server="r9")
    problem = why_not_registered(keeper, PATHS, "d", TWO, "r2")
    assert isinstance(problem, UserError)
    assert "is server r9's" in str(problem)
    assert why_not_registered(keeper, PATHS, "d", TWO, "r9") is None
    assert remove_replica(keeper, PATHS, TWO, "r2") is False
    assert keeper.get(PATHS.replica(TWO))[0] == b"r9"


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("at", [takes_the_lock, ends])
def test_who_could_not_finish_a_removal_leaves_no_lock(zookeeper, keeper, at, landed):
    """His session lives on; another process finishes it, or makes the database anew."""
    remove_replica(keeper, PATHS, ONE, "r1")
    with faulty(keeper, at, landed=landed), pytest.raises(OutcomeUnknown):
        remove_replica(keeper, PATHS, TWO, "r2")
    keeper.exists("/")  # anything at all is asked in the session
    make_database(zookeeper.connect(), PATHS, "d")
    assert keeper.exists(PATHS.dropping) is None
    assert keeper.exists(PATHS.metadata) is not None


def test_nor_who_is_interrupted(zookeeper, keeper, monkeypatch):
    remove_replica(keeper, PATHS, ONE, "r1")

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(databases, "_remove_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            remove_replica(keeper, PATHS, TWO, "r2")
    keeper.exists("/")
    assert remove_replica(zookeeper.connect(), PATHS, TWO, "r2") is True
    assert keeper.exists(PATHS.root) is None
