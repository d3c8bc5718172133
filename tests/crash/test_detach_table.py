"""DETACH TABLE and ATTACH TABLE: what they are to the table's server, its workers, its inserts, its
peers and the server's next start; and cut off anywhere.
"""

from contextlib import suppress
from dataclasses import replace

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.dagster.work.watching import QueueWatch
from rmt_pipeline.protocol.errors import (
    DatabaseNotEmpty,
    TableAlreadyExists,
    TableDetached,
    UnknownTable,
)
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import work
from rmt_pipeline.server.tables import Active
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.snapshot import replica_states
from tests.support.hosts import TABLE, Pausing, World, dying, looked, served
from tests.support.local_replicas import DirectPeers
from tests.support.local_session import rows
from tests.support.serving import insert

EFFECTS_MAX = 40
ROOT = "/tables/t/replicas/r1"


def with_table(directory, *others: str) -> World:
    """The table has a part, and is on r1 and on the others, which have been active."""
    world = World(directory)
    for name in ("r1", *others):
        world.context(name).create_table(TABLE)
    served(world, "r1", *others)
    insert(world.context().table("t"), b"first rows")
    for name in others:
        pull_log(world.context(name).table("t").replica)
    world.expire_all()
    return world


def node(world: World, path: str) -> bytes | None:
    found = world.zookeeper.nodes.get(f"{ROOT}/{path}")
    return None if found is None else found.data


@pytest.mark.parametrize("permanently", [False, True])
def test_a_detached_table_keeps_its_place_and_says_why_it_is_not_active(tmp_path, permanently):
    world = with_table(tmp_path, "r2")
    [(tables, keeper), (_, other)] = served(world, "r1", "r2")
    pointer = node(world, "log_pointer")
    world.context().detach_table("default", "t", permanently=permanently)
    looked(tables, keeper)
    assert dict(tables.all) == {}
    assert node(world, "is_active") is None
    assert node(world, "log_pointer") == pointer
    words = "detached permanently" if permanently else "detached"
    states = replica_states(other, world.context("r2").table("t").replica.table)
    assert states == {"r1": words, "r2": "active"}
    [row] = rows(Session(world.context()), "SELECT * FROM system.detached_tables")
    assert (row[0], row[1], row[4]) == ("default", "t", int(permanently))
    world.context().attach_table("default", "t")
    looked(tables, keeper)
    assert [type(table.state) for table in tables.all.values()] == [Active]
    states = replica_states(other, world.context("r2").table("t").replica.table)
    assert states == {"r1": "active", "r2": "active"}


def test_the_servers_start_brings_back_what_was_not_detached_permanently(tmp_path):
    world = with_table(tmp_path)
    world.context().create_table(
        replace(TABLE, name="u", engine=replace(TABLE.engine, zookeeper_path="/u"))
    )
    world.context().detach_table("default", "t", permanently=True)
    world.context().detach_table("default", "u")
    catalog = world.context().catalog
    assert catalog.tables("default") == []
    catalog.attach_again()
    assert catalog.tables("default") == ["u"]
    assert [one.words for one in catalog.detached()] == ["detached permanently"]
    [(tables, _)] = served(world, "r1")
    assert [name for _, name in tables.all] == ["u"]
    assert node(world, "detached") == b"detached permanently"


def test_a_name_is_not_given_to_another_table_while_its_table_is_detached(tmp_path):
    world = with_table(tmp_path)
    context = world.context()
    context.detach_table("default", "t")
    for change in (
        lambda: context.create_table(TABLE),
        lambda: context.catalog.add(TABLE),
    ):
        with pytest.raises(TableAlreadyExists, match=r"\(detached\): ATTACH TABLE takes it up"):
            change()
    assert not context.create_table(TABLE, if_not_exists=True)
    for change in (
        lambda: context.drop_table("default", "t"),
        lambda: context.detach_table("default", "t", permanently=True),
        lambda: context.table("t"),
    ):
        with pytest.raises(TableDetached, match="is detached: ATTACH TABLE takes it up again"):
            change()
    with pytest.raises(DatabaseNotEmpty, match=r"t \(detached\)"):
        Session(context).execute("DROP DATABASE default")
    context.attach_table("default", "t")
    with pytest.raises(TableAlreadyExists, match="attached already"):
        context.attach_table("default", "t")
    with pytest.raises(UnknownTable, match="does not exist"):
        context.attach_table("default", "nosuch")


def test_a_detach_that_is_cut_off_leaves_the_table_or_a_detached_one(tmp_path, monkeypatch):
    seen = []
    for after in (False, True):
        for at in range(1, EFFECTS_MAX):
            world = with_table(tmp_path / f"{at}-{after}")
            ended = False
            with dying(monkeypatch, at, after=after):
                world.context().detach_table("default", "t")
                ended = True
            catalog = world.context().catalog
            seen.append((catalog.tables("default"), [one.words for one in catalog.detached()]))
            [(tables, keeper)] = served(world, "r1")
            with suppress(TableAlreadyExists):
                world.context().attach_table("default", "t")
            looked(tables, keeper)
            assert [type(table.state) for table in tables.all.values()] == [Active], at
            if ended:
                assert at > 3
                break
    assert {str(state) for state in seen} == {"(['t'], [])", "([], ['detached'])"}


def test_an_attach_that_is_cut_off_leaves_the_table_or_a_detached_one(tmp_path, monkeypatch):
    for at in range(1, EFFECTS_MAX):
        world = with_table(tmp_path / str(at))
        world.context().detach_table("default", "t", permanently=True)
        ended = False
        with dying(monkeypatch, at, after=True):
            world.context().attach_table("default", "t")
            ended = True
        with suppress(TableAlreadyExists):
            world.context().attach_table("default", "t")
        [(tables, _)] = served(world, "r1")
        assert [type(table.state) for table in tables.all.values()] == [Active], at
        if ended:
            assert at > 3
            return
    pytest.fail("ATTACH has more effects than this")


def test_an_insert_that_meets_a_detach_ends_and_leaves_nothing(tmp_path):
    """The table is detached before each of its multis in turn."""
    met = 0
    for at in range(1, EFFECTS_MAX):
        world = with_table(tmp_path / str(at))
        [(tables, keeper)] = served(world, "r1")

        def detached(world=world, tables=tables, keeper=keeper) -> None:
            world.context().detach_table("default", "t")
            looked(tables, keeper)

        pausing = Pausing(world.zookeeper.connect(), at, detached)
        table = world.context(keeper=pausing).table("t")
        inserted = True
        try:
            insert(table, b"rows")
        except TableDetached:
            inserted = False
        if not world.context().catalog.detached():
            assert inserted
            assert at > 2
            assert met > 0
            return
        met += not inserted
        parts = [path for path in world.zookeeper.nodes if path.startswith(f"{ROOT}/parts/")]
        locks = [path for path in world.zookeeper.nodes if "/block-" in path]
        assert len(parts) == 1 + int(inserted), at
        assert locks == [], at
        world.context().attach_table("default", "t")
        looked(tables, keeper)
        insert(world.context().table("t"), b"rows")
        parts = [path for path in world.zookeeper.nodes if path.startswith(f"{ROOT}/parts/")]
        assert len(parts) == 2, at
    pytest.fail("an insert has more effects than this")


def test_a_worker_of_another_process_ends_when_its_table_is_detached(tmp_path):
    world = with_table(tmp_path)
    [(tables, keeper)] = served(world, "r1")
    context = world.context()
    table = context.table("t")
    looks = []

    class Waker(EventWaker):
        def wait_s(self, timeout_s: float) -> bool:
            looks.append(timeout_s)
            if len(looks) == 3:
                world.context().detach_table("default", "t")
                looked(tables, keeper)
            assert len(looks) < 10, "the worker goes on"
            return True

    tools = Tools(DirectPeers({}), LocalMerger(world.clock), LocalMutator(world.clock))
    for _ in range(2):
        summary = work(
            lambda: table.replica,
            tools,
            "fetch",
            waker=Waker(),
            linger_s=None,
            on_flush=lambda flush: None,
            should_stop=lambda: False,
        )
        assert summary.stopped == "detached"


def test_a_replica_that_is_detached_for_long_is_lost_and_is_cloned_when_it_is_attached(
    tmp_path,
):
    world = World(tmp_path)
    settings = (("max_replicated_logs_to_keep", "2"), ("min_replicated_logs_to_keep", "1"))
    for name in ("r1", "r2"):
        world.context(name).create_table(replace(TABLE, settings=settings))
    (tables, keeper), (_, other) = served(world, "r1", "r2")
    looked(tables, keeper)
    world.context().detach_table("default", "t", permanently=True)
    looked(tables, keeper)
    second = world.context("r2").table("t")
    for number in range(4):
        insert(second, b"rows %d" % number)
    pull_log(second.replica)
    carry_out(second.replica, plan_clean_up(second.replica, hysteresis=1.0))
    assert replica_states(other, second.replica.table)["r1"] == "detached permanently, lost"
    world.context().attach_table("default", "t")
    looked(tables, keeper)
    assert [type(table.state) for table in tables.all.values()] == [Active]
    assert replica_states(other, second.replica.table)["r1"] == "active"
    assert (
        len([path for path in world.zookeeper.nodes if path.startswith(f"{ROOT}/queue/")]) == 4
    )


def test_a_detached_table_needs_no_worker(tmp_path):
    world = with_table(tmp_path, "r2")
    [(tables, keeper), _] = served(world, "r1", "r2")
    insert(world.context("r2").table("t"), b"rows")
    watch = QueueWatch(world.context())
    assert watch.look({}).needed == ("fetch",)
    world.context().detach_table("default", "t")
    looked(tables, keeper)
    watched = watch.look({})
    assert watched.needed == ()
    assert "default.t is detached" in watched.words()
    world.context().attach_table("default", "t")
    looked(tables, keeper)
    assert watch.look({}).needed == ("fetch",)
