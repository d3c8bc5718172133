"""A replica joins a table that changes while it is looked at."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import Conflict, MetadataMismatch, TooManyColumns
from rmt_pipeline.protocol.limits import NODE_BYTES_MAX
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.replica.life.create import PathInUse, create_replica, ensure_ancestors
from rmt_pipeline.replica.life.drop import drop_dead_replica, drop_replica
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, Watch
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.between_requests import BeforeRequest, BetweenAnswers
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import ROOT, Replicas, StillClock, definition_of
from tests.support.lost_answers import before, faulty
from tests.support.mortal_disk import Died
from tests.support.restoring import Disaster

TABLE = TablePaths(ROOT)


def makes(name: str) -> Callable[[Op], bool]:
    return lambda op: isinstance(op, Create) and op.path == TABLE.replica(name).root


def made_anew(replicas: Replicas, *names: str) -> None:
    """Its replicas are dropped and it with them; somebody makes another table in its place."""
    session = replicas.zookeeper.connect()
    for name in session.children(TABLE.replicas):
        replicas.stop(name)
        drop_replica(session, TABLE, name)
    for name in names:
        anew = replace(definition_of(name, [Column("n", "Int8")]), uuid=f"another of {name}")
        create_replica(session, anew, name.encode())


@pytest.mark.parametrize("names", [["r1", "r2"], ["r1"]], ids=["fewer replicas", "as many"])
def test_a_table_that_was_made_anew_meanwhile_is_looked_at_again(
    tmp_path: Path, names: list[str]
) -> None:
    """1. r3 reads the table's structure. 2. There is another table in its place. 3. r3 does not
    join it with the structure of the old one, also when all versions are the same again.
    """
    with Replicas(tmp_path, names) as replicas:
        keeper = replicas.zookeeper.connect()
        with (
            before(keeper, makes("r3"), lambda: made_anew(replicas, "r1")),
            pytest.raises(MetadataMismatch, match="`n` UInt64 here, `n` Int8 there"),
        ):
            create_replica(keeper, definition_of("r3"), b"r3")
        assert keeper.children(TABLE.replicas) == ["r1"]


@pytest.mark.parametrize("between", [BeforeRequest, BetweenAnswers])
def test_a_table_that_goes_meanwhile_is_made_by_who_came_to_join_it(
    tmp_path: Path, between: type[BeforeRequest]
) -> None:
    """Its last replica is dropped before any one of the requests."""
    for at in count():
        with Replicas(tmp_path / str(at), ["r1"]) as replicas:

            def goes(replicas: Replicas = replicas) -> None:
                replicas.stop("r1")
                drop_replica(replicas.zookeeper.connect(), TABLE, "r1")

            keeper = between(replicas.zookeeper.connect(), at, goes)
            create_replica(keeper, definition_of("r2"), b"r2")
            if not keeper.has_come:
                break
            assert keeper.children(TABLE.replicas) == ["r2"]
    assert at > 5


def test_columns_that_are_too_much_for_one_transaction_make_no_table() -> None:
    keeper = FakeZooKeeper(StillClock()).connect()
    wide = definition_of("r1", [Column("n", "Int8", comment="c" * (NODE_BYTES_MAX // 2))])
    with pytest.raises(TooManyColumns, match=r"^1 columns, .* Make fewer columns"):
        create_replica(keeper, wide, b"r1")
    assert keeper.exists(ROOT) is None


def test_nor_does_one_join_it_that_is_restored_late(tmp_path: Path) -> None:
    with Disaster(tmp_path) as two:
        two.stop("r2")
        drop_dead_replica(two["r1"].session, TABLE, "r2")
        late = two.connect("r2")
        with (
            before(late.session, makes("r2"), lambda: made_anew(two, "r1", "r3")),
            pytest.raises(Conflict, match="say it again"),
        ):
            restore(late, b"r2")


def test_who_joins_a_table_of_which_only_the_restore_has_begun_leaves_it_there(
    tmp_path: Path,
) -> None:
    """1. r1 begins to restore it, and dies: there is no replica yet, and both are waited for.
    2. r3 is created. 3. The restore goes on.
    """
    with Disaster(tmp_path) as two:
        two.insert_again("r1", 1)
        two.live_on()
        two.wipe()
        dies = faulty(two["r1"].session, makes("r1"), landed=False, error=Died())
        with dies, pytest.raises(Died):
            restore(two["r1"], b"r1")
        keeper = two.zookeeper.connect()
        assert keeper.children(TABLE.replicas) == []
        create_replica(keeper, definition_of("r3"), b"r3")
        drop_dead_replica(keeper, TABLE, "r3")
        for name in ("r1", "r2"):
            two.restore(name)
        two.live_on()
        assert two.values("r2") == {1: 1}


def test_nor_does_one_whose_parts_have_other_columns(tmp_path: Path) -> None:
    """Its disk knows the table as it was before it was lost."""
    with Disaster(tmp_path) as two:
        two.stop("r2")
        drop_dead_replica(two["r1"].session, TABLE, "r2")
        two.catalog["r2"] = replace(two["r2"].definition, columns=(Column("n", "Int8"),))
        late = two.connect("r2")
        with pytest.raises(MetadataMismatch, match="`n` Int8 here, `n` UInt64 there"):
            restore(late, b"r2")
        assert two["r1"].session.children(TABLE.replicas) == ["r1"]


def test_two_make_the_nodes_above_their_tables_at_once() -> None:
    zookeeper = FakeZooKeeper(StillClock())
    mine, other = zookeeper.connect(), zookeeper.connect()
    comes_first = before(
        mine,
        lambda op: isinstance(op, Create) and op.path == "/a",
        lambda: ensure_ancestors(other, "/a/b/other"),
    )
    with comes_first:
        ensure_ancestors(mine, "/a/b/c/mine")
    assert mine.exists("/a/b/c") is not None


def test_one_that_had_no_answer_and_no_uuid_is_created_once(tmp_path: Path) -> None:
    with Replicas(tmp_path) as replicas:
        keeper = replicas.zookeeper.connect()
        wanted = replace(definition_of("r3"), uuid="")
        first = create_replica(keeper, wanted, b"r3")
        assert create_replica(keeper, wanted, b"r3").uuid == first.uuid == ""


def below(path: str, name: str = "r1") -> TableDefinition:
    definition = definition_of(name)
    return replace(definition, engine=replace(definition.engine, zookeeper_path=path))


def test_none_is_created_below_another_nor_above() -> None:
    """DROP TABLE of the one above would remove it."""
    zookeeper = FakeZooKeeper(StillClock())
    keeper = zookeeper.connect()
    create_replica(keeper, below("/tables/t"), b"r1")
    there = sorted(zookeeper.nodes)
    for path in ("x", "replicas/x", "replicas/x/y", "x/y/z"):
        with pytest.raises(PathInUse, match="is below /tables/t, which is the path of a table"):
            create_replica(keeper, below(f"/tables/t/{path}"), b"r1")
        assert sorted(zookeeper.nodes) == there, "x would be a replica of it"
    with pytest.raises(PathInUse, match=r"/tables in ZooKeeper .* it has t below it"):
        create_replica(keeper, below("/tables"), b"r1")
    assert keeper.children("/tables/t/replicas") == ["r1"]
    drop_replica(keeper, TablePaths("/tables/t"), "r1")
    with pytest.raises(PathInUse, match=r"/tables in ZooKeeper .* it is empty"):
        create_replica(keeper, below("/tables"), b"r1")


def test_a_path_whose_other_nodes_go_meanwhile_is_free() -> None:
    """1. There is another node at the path. 2. It is removed before anybody asks what it has below
    it. 3. The table is created.
    """
    keeper = FakeZooKeeper(StillClock()).connect()
    keeper.multi([Create("/tables"), Create(ROOT)])
    children, went = keeper.children, list[str]()

    def goes(path: str, watch: Watch | None = None) -> list[str]:
        if path == ROOT and not went:
            went.append(path)
            keeper.multi([Delete(path)])
        return children(path, watch)

    keeper.children = goes  # type: ignore[method-assign]
    create_replica(keeper, definition_of("r1"), b"r1")
    assert went
    assert keeper.children(TABLE.replicas) == ["r1"]


@pytest.mark.parametrize("path", ["/tables/t/x", "/tables/t/x/y"])
def test_one_that_was_created_below_another_by_an_earlier_build_outlives_it(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = FakeZooKeeper(StillClock()).connect()
    create_replica(keeper, below("/tables/t"), b"r1")
    with monkeypatch.context() as patched:
        patched.setattr("rmt_pipeline.replica.life.create.require_apart", lambda *_: None)
        create_replica(keeper, below(path), b"r1")
    create_replica(keeper, below(path, "r2"), b"r2")
    assert drop_replica(keeper, TablePaths("/tables/t"), "r1")
    assert keeper.children("/tables/t") == ["x"]
    assert keeper.children(f"{path}/replicas") == ["r1", "r2"]
    for name in ("r1", "r2"):
        drop_replica(keeper, TablePaths(path), name)
    assert keeper.exists(path) is None
