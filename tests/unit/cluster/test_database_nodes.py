"""The nodes of a Replicated database in ZooKeeper, while several processes make and remove them."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace

import pytest

from rmt_pipeline.cluster import database as databases
from rmt_pipeline.cluster.database import (
    drop_database_replica,
    make_database,
    register,
    remove_replica,
    update_record,
    why_not_registered,
)
from rmt_pipeline.cluster.queue import put_in
from rmt_pipeline.protocol.errors import (
    AccessDenied,
    Conflict,
    OutcomeUnknown,
    ReplicaIsActive,
    UserError,
)
from rmt_pipeline.protocol.nodes.tasks import TableRecord, Task
from rmt_pipeline.replica.life.create import PathInUse, create_replica
from rmt_pipeline.replica.life.drop import drop_dead_replica
from rmt_pipeline.sql.run.replicated import _changes, _Records
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, Refused, SetData
from rmt_pipeline.zookeeper.paths import DatabasePaths, TablePaths
from tests.support.fake_keeper import FakeKeeper, FakeZooKeeper
from tests.support.local_replicas import StillClock, definition_of
from tests.support.lost_answers import before, faulty
from tests.support.waiting import LIMIT_S

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
    other = zookeeper.connect()

    def made_anew() -> None:
        drop_database_replica(other, PATHS, TWO)
        register(other, PATHS, "d", replica=TWO, server="r9")

    with before(keeper, removes, made_anew), pytest.raises(Conflict, match="or made again"):
        drop_database_replica(keeper, PATHS, TWO)
    assert keeper.get(PATHS.replica(TWO))[0] == b"r9"


def test_who_drops_a_replica_keeps_no_database_that_goes(zookeeper, keeper):
    """1. Q is about to note that r2 is dropped. 2. Both servers drop the database, and what was
    noted is removed. 3. Q goes on.
    """
    other, reached, goes_on = zookeeper.connect(), threading.Event(), threading.Event()

    def stands_still() -> None:
        reached.set()
        assert goes_on.wait(LIMIT_S)

    def notes(op: Op) -> bool:
        return isinstance(op, Create) and op.path == PATHS.dropped_replicas

    def dropped() -> None:
        with before(other, notes, stands_still):
            drop_database_replica(other, PATHS, TWO)

    with ThreadPoolExecutor() as threads:
        told = threads.submit(dropped)
        assert reached.wait(LIMIT_S)
        assert not remove_replica(keeper, PATHS, ONE, "r1")
        with before(keeper, ends, lambda: (goes_on.set(), told.exception())):
            assert remove_replica(keeper, PATHS, TWO, "r2")
    assert keeper.exists(PATHS.root) is None
    with pytest.raises(Conflict):
        told.result()


def test_a_replica_of_a_table_is_none_of_a_database(zookeeper, keeper):
    """Its path has `replicas`, too."""
    create_replica(keeper, definition_of("r1"), b"r1")
    before_it = dict(zookeeper.nodes)
    with pytest.raises(
        UserError, match="/tables/t in ZooKeeper is not the path of a Replicated"
    ):
        drop_database_replica(keeper, DatabasePaths("/tables/t"), "r1")
    assert zookeeper.nodes == before_it


def test_a_replica_of_a_database_is_none_of_a_table(zookeeper, keeper):
    """SYSTEM DROP REPLICA of one removed the whole database, whether its servers ran or not."""
    before_it = dict(zookeeper.nodes)
    for name in (ONE, "r9"):
        with pytest.raises(UserError, match="SYSTEM DROP DATABASE REPLICA"):
            drop_dead_replica(keeper, TablePaths(PATHS.root), name)
    assert zookeeper.nodes == before_it


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


def test_nor_one_that_comes_in_its_place_just_then(zookeeper, keeper):
    """1. r2 is told to DROP DATABASE, and finds its replica. 2. Somebody who takes r2 for gone
    drops that, and another server gets its shard and replica name. 3. r2 goes on.
    """
    other = zookeeper.connect()

    def in_its_place() -> None:
        drop_database_replica(other, PATHS, TWO)
        register(other, PATHS, "d", replica=TWO, server="r9")

    with before(keeper, removes, in_its_place):
        assert remove_replica(keeper, PATHS, TWO, "r2") is False
    assert keeper.get(PATHS.replica(TWO))[0] == b"r9"
    assert keeper.exists(PATHS.log_ptr(TWO)) is not None


def test_a_server_that_runs_removes_its_own_replica(zookeeper, keeper):
    active = PATHS.queue.server_active(TWO)
    starts = zookeeper.connect()
    with before(keeper, removes, lambda: starts.multi([Create(active, ephemeral=True)])):
        assert remove_replica(keeper, PATHS, TWO, "r2") is False
    assert keeper.exists(PATHS.replica(TWO)) is None


def makes(op: Op) -> bool:
    return isinstance(op, Create) and op.path == PATHS.replica(ONE)


def begins(op: Op) -> bool:
    return isinstance(op, Create) and op.path == PATHS.root


@pytest.mark.parametrize("at", [makes, begins])
def test_who_comes_while_the_last_replica_goes_makes_the_database(zookeeper, keeper, at):
    remove_replica(keeper, PATHS, ONE, "r1")
    other = zookeeper.connect()
    with before(keeper, at, lambda: remove_replica(other, PATHS, TWO, "r2")):
        register(keeper, PATHS, "d", replica=ONE, server="r1")
    assert why_not_registered(keeper, PATHS, "d", ONE, "r1") is None
    assert keeper.children(PATHS.replicas) == [ONE]


def test_who_comes_while_its_own_replica_goes_makes_it_anew(zookeeper, keeper):
    other = zookeeper.connect()

    def looks_anew(op: Op) -> bool:
        return isinstance(op, SetData) and op.path == PATHS.log_ptr(ONE)

    with before(keeper, looks_anew, lambda: drop_database_replica(other, PATHS, ONE)):
        register(keeper, PATHS, "d", replica=ONE, server="r1")
    assert why_not_registered(keeper, PATHS, "d", ONE, "r1") is None


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


def said(keeper: FakeKeeper, query: str, request_id: str) -> tuple[Sequence[Op], Task]:
    """What a client is about to put into the log."""
    task = Task(query, (), ONE, request_id, "d", ())
    changes = _changes(_Records(keeper, PATHS, "d"), parse(query), task)
    assert changes is not None
    return changes, task


def does(zookeeper: FakeZooKeeper, query: str, request_id: str) -> None:
    other = zookeeper.connect()
    changes, task = said(other, query, request_id)
    put_in(other, PATHS.queue, task, StillClock(), changes)


CREATE = "CREATE TABLE d.{} (n UInt64) ENGINE = ReplicatedMergeTree ORDER BY n"


@pytest.mark.parametrize(
    "query",
    ["RENAME TABLE d.t TO d.u", "EXCHANGE TABLES d.t AND d.v", "DETACH TABLE d.t PERMANENTLY"],
)
def test_a_record_is_not_written_over_that_of_a_table_made_meanwhile(zookeeper, keeper, query):
    """The servers would find that their table is not the one of the record, and set it aside."""
    does(zookeeper, CREATE.format("t"), "first")
    does(zookeeper, CREATE.format("v"), "other")
    changes, _ = said(keeper, query, "late")
    does(zookeeper, "DROP TABLE d.t", "drop")
    does(zookeeper, CREATE.format("t"), "second")
    with pytest.raises(Refused) as refused:
        keeper.multi(changes)
    assert refused.value.path in {op.path for op in changes}  # it is looked at again
    keeper.multi(said(keeper, query, "late")[0])
    origins = {
        TableRecord.decode(keeper.get(f"{PATHS.metadata}/{name}")[0]).origin
        for name in keeper.children(PATHS.metadata)
    }
    assert origins == {"second", "other"}


def test_what_an_alter_made_of_a_table_is_not_told_of_one_made_meanwhile(zookeeper, keeper):
    """1. r1 has carried out an ALTER, and read the table's record. 2. The table is dropped, and
    another one created. 3. r1 writes what it has.
    """
    does(zookeeper, CREATE.format("t"), "first")
    told = TableRecord("first", CREATE.format("t"), version=1, task=1)

    def made_anew() -> None:
        does(zookeeper, "DROP TABLE d.t", "drop")
        does(zookeeper, CREATE.format("t"), "second")

    def tells(op: Op) -> bool:
        return isinstance(op, SetData) and op.path == PATHS.table("t")

    with before(keeper, tells, made_anew):
        update_record(keeper, PATHS, "t", told)
    assert TableRecord.decode(keeper.get(PATHS.table("t"))[0]).origin == "second"


@pytest.mark.parametrize(
    "path", ["/databases/d/x", "/databases/d/metadata/x", "/databases/d/log/x/y"]
)
def test_nothing_is_made_below_a_database(zookeeper, keeper, path):
    """Its servers would take x for the record of a table, and it could not be removed."""
    there = sorted(zookeeper.nodes)
    with pytest.raises(PathInUse, match=r"is below /databases/d, .* of a Replicated database"):
        register(keeper, DatabasePaths(path), "e", replica=ONE, server="r1")
    table = definition_of("r1")
    table = replace(table, engine=replace(table.engine, zookeeper_path=path))
    with pytest.raises(PathInUse, match=r"is below /databases/d, .* of a Replicated database"):
        create_replica(keeper, table, b"r1")
    assert sorted(zookeeper.nodes) == there


def test_nor_is_a_database_while_the_one_above_is_made(zookeeper):
    keeper, other = zookeeper.connect(), zookeeper.connect()

    def makes_what_is_above(op: Op) -> bool:
        return isinstance(op, Create) and op.path == PATHS.root

    below, made = DatabasePaths(f"{PATHS.root}/x"), list[str]()

    def other_makes_it() -> None:
        register(other, PATHS, "d", replica=ONE, server="r1")
        made.extend(sorted(zookeeper.nodes))

    refused = pytest.raises(PathInUse, match="is below /databases/d")
    with refused, before(keeper, makes_what_is_above, other_makes_it):
        register(keeper, below, "e", replica=ONE, server="r1")
    assert sorted(zookeeper.nodes) == made


def test_a_node_above_that_is_not_for_us_to_read_keeps_nothing_from_being_made(
    zookeeper, monkeypatch
):
    """An administrator has made it, and given us one below it."""
    keeper = zookeeper.connect()
    get_many = keeper.get_many

    def refusing(paths: Sequence[str]) -> object:
        if "/theirs" in paths:
            raise AccessDenied("ZooKeeper refuses /theirs")
        return get_many(paths)

    monkeypatch.setattr(keeper, "get_many", refusing)
    database = DatabasePaths("/theirs/ours/d")
    register(keeper, database, "d", replica=ONE, server="r1")
    for path, is_apart in ((f"{database.root}/x", False), ("/theirs/ours/t", True)):
        table = definition_of("r1")
        table = replace(table, engine=replace(table.engine, zookeeper_path=path))
        refused = pytest.raises(PathInUse, match=f"is below {database.root}")
        with nullcontext() if is_apart else refused:
            create_replica(keeper, table, b"r1")


def test_a_database_is_not_made_below_a_table(zookeeper, keeper):
    create_replica(keeper, definition_of("r1"), b"r1")
    there = sorted(zookeeper.nodes)
    with pytest.raises(PathInUse, match="is below /tables/t, which is the path of a table"):
        register(keeper, DatabasePaths("/tables/t/replicas/x/y"), "e", replica=ONE, server="r1")
    assert sorted(zookeeper.nodes) == there
