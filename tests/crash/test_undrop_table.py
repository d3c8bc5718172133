"""DROP TABLE without SYNC and UNDROP TABLE: what is put away comes back whole until its time is
over, and nothing of it is left after that, wherever who does it dies.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.protocol.errors import (
    Conflict,
    MetadataMismatch,
    ReplicaDropped,
    TableAlreadyExists,
    TableDetached,
    UnknownDatabase,
    UnknownTable,
)
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.life.detach import DROPPED, note_detached
from rmt_pipeline.replica.life.drop import drop_dead_replica, drop_replica, remove_dropped
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.rewound import (
    ZooKeeperIsOlder,
    require_log_as_seen,
    require_promises,
)
from rmt_pipeline.server.tables import Active, Tables
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.zookeeper.keeper import Refused
from rmt_pipeline.zookeeper.snapshot import replica_states
from tests.support.hosts import TABLE, Died, Pausing, World, dying, looked, served
from tests.support.local_replicas import StillClock
from tests.support.local_session import rows
from tests.support.serving import insert

EFFECTS_MAX = 200
DELAY_S = 480
T = ("default", "t")
ROOT = "/tables/t/replicas/r1"


def with_table(directory: Path, *others: str) -> World:
    """The table has a part, and is on r1 and on the others, which have been active."""
    world = World(directory)
    for name in ("r1", *others):
        world.context(name).create_table(TABLE)
    served(world, "r1", *others)
    insert(world.context().table("t"), b"rows")
    world.expire_all()
    return world


def passes(world: World, seconds: float, tables, keeper) -> None:
    """Time goes by, and the server looks as often as it says that it has to."""
    until_s = world.clock.passed_s + seconds
    while world.clock.passed_s < until_s:
        left_s = until_s - world.clock.passed_s
        world.clock.passed_s += min(left_s, tables.next_look_s() or left_s)
        tables.look(keeper)


def files_of(world: World) -> list[str]:
    data = Path(world.config.server("r1").data)
    return sorted(
        str(file.relative_to(data))
        for file in [*data.glob("data/*/t*/**/*"), *data.glob("metadata/.dropped/*")]
    )


def test_a_dropped_table_comes_back_with_its_rows_until_its_time_is_over(tmp_path):
    world = with_table(tmp_path, "r2")
    [(tables, keeper), (_, other)] = served(world, "r1", "r2")
    opened = world.context().table("t")
    world.context().drop_table(*T, sync=False)
    looked(tables, keeper)
    assert world.context().catalog.tables("default") == []
    assert f"{ROOT}/is_active" not in world.zookeeper.nodes
    states = replica_states(other, world.context("r2").table("t").replica.table)
    assert states == {"r1": "dropped", "r2": "active"}
    with pytest.raises(
        UnknownTable, match="it was dropped, and UNDROP TABLE takes it up again"
    ):
        world.context().table("t")
    with pytest.raises(TableDetached, match="was dropped; UNDROP TABLE"):
        _ = opened.replica
    [row] = rows(Session(world.context()), "SELECT * FROM system.dropped_tables")
    assert row[:3] == (0, "default", "t")
    passes(world, DELAY_S - 1, tables, keeper)
    world.context().undrop_table(*T)
    looked(tables, keeper)
    assert [type(one.state) for one in tables.all.values()] == [Active]
    assert len(world.context().table("t").parts()) == 1
    insert(opened, b"more")
    assert len(world.context().table("t").parts()) == 2
    passes(world, 2 * DELAY_S, tables, keeper)
    assert len(world.context().table("t").parts()) == 2, "it was removed all the same"


def test_nothing_is_left_when_its_time_is_over(tmp_path):
    world = with_table(tmp_path)
    [(tables, keeper)] = served(world, "r1")
    world.context().drop_table(*T, sync=False)
    looked(tables, keeper)
    passes(world, DELAY_S - 1, tables, keeper)
    assert ROOT in world.zookeeper.nodes
    passes(world, 12, tables, keeper)
    assert [path for path in world.zookeeper.nodes if path.startswith("/tables/t")] == []
    assert files_of(world) == []
    with pytest.raises(UnknownTable, match=r"is not among those dropped: see system\.dropped"):
        world.context().undrop_table(*T)


def test_a_create_that_is_refused_leaves_what_was_dropped_to_be_taken_back(tmp_path):
    """The table has another structure on r2: the CREATE fails, and its old table is not gone."""
    world = with_table(tmp_path, "r2")
    context = world.context()
    context.drop_table(*T, sync=False)
    other = replace(TABLE, columns=(*TABLE.columns, Column("x", "Int64")))
    with pytest.raises(MetadataMismatch):
        context.create_table(other)
    context.undrop_table(*T)
    assert len(context.table("t").store.parts()) == 1
    world.context("r2").drop_table(*T)
    context.drop_table(*T, sync=False)
    assert context.create_table(other), "nobody else has it"


def test_its_name_and_its_replica_are_free_at_once(tmp_path):
    world = with_table(tmp_path)
    [(tables, keeper)] = served(world, "r1")
    context = world.context()
    context.drop_table(*T, sync=False)
    elsewhere = replace(TABLE, engine=replace(TABLE.engine, zookeeper_path="/tables/new"))
    assert context.create_table(elsewhere)
    looked(tables, keeper)
    assert [type(one.state) for one in tables.all.values()] == [Active]
    assert context.table("t").parts() == []
    with pytest.raises(TableAlreadyExists):
        context.undrop_table(*T)
    context.rename_tables((T, ("default", "u")))
    context.undrop_table(*T)
    looked(tables, keeper)
    assert len(context.table("t").parts()) == 1
    assert context.table("u").parts() == []
    context.drop_table(*T, sync=False)
    assert context.create_table(TABLE), "the same replica of the same path"
    assert context.catalog.dropped() == []
    looked(tables, keeper)
    assert [type(one.state) for one in tables.all.values()] == [Active, Active]
    assert context.table("t").parts() == []
    passes(world, 2 * DELAY_S, tables, keeper)
    assert [type(one.state) for one in tables.all.values()] == [Active, Active]


def test_a_replica_that_is_put_away_is_not_attached_beside_it(tmp_path):
    world = with_table(tmp_path)
    world.context().drop_table(*T, sync=False)
    session = Session(world.context())
    with pytest.raises(TableAlreadyExists, match="UNDROP TABLE takes it up again"):
        session.execute(
            "ATTACH TABLE u (n UInt64) ENGINE = ReplicatedMergeTree('/tables/t', '{replica}') "
            "ORDER BY n"
        )


def test_of_several_of_one_name_the_last_one_comes_back(tmp_path):
    world = World(tmp_path)
    context = world.context()
    uuids = []
    for path in ("/tables/one", "/tables/two"):
        context.create_table(replace(TABLE, engine=replace(TABLE.engine, zookeeper_path=path)))
        uuids.append(context.catalog.definition(*T).uuid)
        context.drop_table(*T, sync=False)
        world.clock.passed_s += 1
    context.undrop_table(*T)
    assert context.catalog.definition(*T).uuid == uuids[1]
    context.drop_table(*T, sync=False)
    context.undrop_table(*T, uuids[0])
    assert context.catalog.definition(*T).uuid == uuids[0]
    with pytest.raises(UnknownDatabase):
        context.undrop_table("nosuch", "t")


@pytest.mark.parametrize("after", [False, True])
def test_a_drop_that_is_cut_off_has_put_the_table_away_or_not(tmp_path, monkeypatch, after):
    seen = set()
    for at in range(1, EFFECTS_MAX):
        world = with_table(tmp_path / str(at))
        ended = False
        with dying(monkeypatch, at, after=after):
            world.context().drop_table(*T, sync=False)
            ended = True
        catalog = world.context().catalog
        seen.add((bool(catalog.tables("default")), bool(catalog.dropped())))
        if not catalog.tables("default"):
            ended_too = False
            with dying(monkeypatch, at, after=after):
                world.context().undrop_table(*T)
                ended_too = True
            again = world.context().catalog
            assert bool(again.tables("default")) != bool(again.dropped()), at
            if not ended_too and again.dropped():
                world.context().undrop_table(*T)
        [(tables, keeper)] = served(world, "r1")
        assert [type(one.state) for one in tables.all.values()] == [Active], at
        assert len(world.context().table("t").parts()) == 1
        passes(world, 2 * DELAY_S, tables, keeper)
        assert len(world.context().table("t").parts()) == 1, at
        if ended:
            break
    assert seen == {(True, False), (False, True)}


@pytest.mark.parametrize("after", [False, True])
def test_a_removal_that_is_cut_off_is_gone_on_with_by_the_servers_next_start(
    tmp_path, monkeypatch, after
):
    for at in range(1, EFFECTS_MAX):
        world = with_table(tmp_path / str(at))
        world.context().drop_table(*T, sync=False)
        world.clock.passed_s += DELAY_S
        ended = False
        with dying(monkeypatch, at, after=after) as mortal:
            tables, keeper = world.server()
            looked(tables, mortal(keeper))
            ended = True
        world.expire_all()
        if world.context().catalog.dropped():
            [removing] = world.context().catalog.dropped()
            if removing.is_removing:
                with pytest.raises(UnknownTable, match="is being removed already"):
                    world.context().undrop_table(*T)
        served(world, "r1")
        left = [path for path in world.zookeeper.nodes if path.startswith("/tables/t")]
        assert (left, files_of(world)) == ([], []), at
        if ended:
            assert at > 20
            return
    pytest.fail("it has more effects than this")


def test_who_takes_it_back_while_it_is_removed_is_told_so(tmp_path):
    """UNDROP comes before each of the multis of the removal, and CREATE after it."""
    told = 0
    for at in range(1, EFFECTS_MAX):
        world = with_table(tmp_path / str(at))
        world.context().drop_table(*T, sync=False)
        world.clock.passed_s += DELAY_S
        tables, keeper = world.server()
        stopped = []

        def undrop(world=world, stopped=stopped) -> None:
            try:
                world.context().undrop_table(*T)
            except UnknownTable as error:
                stopped += ["told"] if "is being removed already" in str(error) else []
                with suppress(Conflict):
                    world.context().create_table(TABLE)
                    stopped.append("created")
            else:
                stopped.append("back")

        looked(tables, Pausing(keeper, at, undrop))
        assert "created" not in stopped, at
        told += "told" in stopped
        if "back" in stopped:
            looked(tables, keeper)
            assert [type(one.state) for one in tables.all.values()] == [Active], at
            assert len(world.context().table("t").parts()) == 1
        if not stopped:
            assert told > 5
            return
    pytest.fail("it has more effects than this")


def test_a_table_that_was_dropped_everywhere_gives_its_path_to_another_one(tmp_path):
    """Whose columns may be others, and which has none of its rows."""
    world = with_table(tmp_path, "r2")
    [(tables, keeper), (others, other)] = served(world, "r1", "r2")
    for name, (its, own) in {"r1": (tables, keeper), "r2": (others, other)}.items():
        world.context(name).drop_table(*T, sync=False)
        looked(its, own)
    changed = replace(TABLE, columns=(Column("n", "UInt64"), Column("s", "String")))
    assert world.context().create_table(changed)
    looked(tables, keeper)
    assert [type(one.state) for one in tables.all.values()] == [Active]
    assert world.context().table("t").parts() == []
    queue = [path for path in world.zookeeper.nodes if path.startswith(f"{ROOT}/queue/")]
    assert queue == [], "it is a copy of the dropped one"
    world.context("r2").undrop_table(*T)
    looked(others, other)
    [taken_back] = others.all.values()
    assert "has no nodes at" in taken_back.reason
    world.context("r2").drop_table(*T, sync=False)
    assert world.context("r2").create_table(changed)
    looked(others, other)
    passes(world, 2 * DELAY_S, others, other)
    assert [type(one.state) for one in others.all.values()] == [Active]


def test_a_replica_that_lives_keeps_the_table_of_those_that_were_dropped(tmp_path):
    world = with_table(tmp_path, "r2")
    [(tables, keeper), _] = served(world, "r1", "r2")
    world.context().drop_table(*T, sync=False)
    looked(tables, keeper)
    with pytest.raises(MetadataMismatch):
        world.context().create_table(replace(TABLE, columns=(Column("n", "Int8"),)))
    assert world.context().create_table(TABLE)
    looked(tables, keeper)
    pulled = pull_log(world.context().table("t").replica)
    assert pulled.entries == 1, "it has not joined the other replica, which has the insert"


def test_a_note_that_is_late_is_not_taken_for_one_of_now(tmp_path):
    """It is sent before the table is taken up again, and lands after that."""
    world = with_table(tmp_path)
    [(tables, keeper)] = served(world, "r1")
    world.context().drop_table(*T, sync=False)
    late = []

    class Slow:
        def multi(self, ops):
            late.append(ops)

        def __getattr__(self, name):
            return getattr(keeper, name)

    [dropped] = world.context().catalog.dropped()
    note_detached(Slow(), dropped.definition, DROPPED)
    world.context().undrop_table(*T)
    looked(tables, keeper)
    with pytest.raises(Refused):
        keeper.multi(late[0])
    assert f"{ROOT}/detached" not in world.zookeeper.nodes


def test_a_table_that_is_made_anew_meanwhile_is_not_taken_for_the_dropped_one(tmp_path):
    """Two servers make at once the table that both have dropped, before the one's is active."""
    seen = set()
    for at in range(1, EFFECTS_MAX):
        world = with_table(tmp_path / str(at), "r2")
        running = served(world, "r1", "r2")
        for name, (its, own) in zip(("r1", "r2"), running, strict=True):
            world.context(name).drop_table(*T, sync=False)
            looked(its, own)
        stopped = []

        def other_creates(world=world, stopped=stopped) -> None:
            try:
                stopped.append(world.context("r1").create_table(TABLE))
            except Conflict:
                stopped.append(False)

        keeper = Pausing(world.zookeeper.connect(), at, other_creates)
        with suppress(Conflict):
            world.context("r2", keeper).create_table(TABLE)
        for name in ("r1", "r2"):
            if not world.context(name).catalog.tables("default"):
                assert world.context(name).create_table(TABLE)
        for its, own in running * 2:
            its.close_for_writes("look again")
            looked(its, own)
        states = [table.state for its, _ in running for table in its.all.values()]
        assert [type(state) for state in states] == [Active, Active], (at, states)
        if not stopped:
            assert seen == {True, False}
            return
        seen.update(stopped)
    pytest.fail("it has more effects than this")


@pytest.mark.parametrize("sync", [False, True])
def test_who_drops_a_table_that_lost_its_replica_leaves_its_namesake_alone(tmp_path, sync):
    """Its replica was dropped from another server, and another table has its place by now."""
    world = with_table(tmp_path, "r2")
    context = world.context()
    drop_dead_replica(world.zookeeper.connect(), context.table("t").replica.table, "r1")
    assert context.create_table(replace(TABLE, name="u"))
    [(tables, keeper), _] = served(world, "r1", "r2")
    insert(context.table("u"), b"others")
    context.drop_table(*T, sync=sync)
    passes(world, 2 * DELAY_S, tables, keeper)
    looked(tables, keeper)
    assert [type(one.state) for one in tables.all.values()] == [Active]
    assert len(context.table("u").parts()) == 1


@pytest.mark.parametrize("sync", [False, True])
def test_a_removal_that_is_gone_on_with_leaves_its_namesakes_parts_alone(
    tmp_path, monkeypatch, sync
):
    """Who removes it dies when its directory is gone; then another table of its first name is made,
    and has rows before the server goes on.
    """
    world = with_table(tmp_path)
    world.context().rename_tables((T, ("default", "old")))
    if not sync:
        world.context().drop_table("default", "old", sync=False)
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "end_drop" if sync else "end_removal", _dies)
        with suppress(Died):
            if sync:
                world.context().drop_table("default", "old")
            else:
                world.context().create_table(replace(TABLE, name="other"))
    elsewhere = replace(TABLE, engine=replace(TABLE.engine, zookeeper_path="/tables/new"))
    assert world.context().create_table(elsewhere)
    tables, keeper = world.server()
    for later in ("_finish_drops", "_remove_dropped"):  # another process seems to be at it
        monkeypatch.setattr(Tables, later, lambda self, keeper: None)
    looked(tables, keeper)
    insert(world.context().table("t"), b"rows")
    monkeypatch.undo()
    looked(tables, keeper)
    assert world.context().catalog.dropped() == []
    assert world.context().catalog.dropping("default") == []
    [part] = world.context().table("t").parts()
    assert world.context().table("t").replica.store.has(part.name)


def _dies(*_: object) -> None:
    raise Died


def put_away_twice(world: World, seconds: float = 0) -> list[str]:
    """Two tables t, one after the other; their uuids. Both are dropped, the second one later."""
    context, uuids = world.context(), []
    [(tables, keeper)] = served(world, "r1")
    for path in ("/tables/one", "/tables/two"):
        context.create_table(replace(TABLE, engine=replace(TABLE.engine, zookeeper_path=path)))
        uuids.append(context.catalog.definition(*T).uuid)
        looked(tables, keeper)
        context.drop_table(*T, sync=False)
        world.clock.passed_s += seconds
        looked(tables, keeper)
    return uuids


def notes(world: World) -> list[str]:
    return sorted(path for path in world.zookeeper.nodes if path.endswith("/r1/detached"))


def test_who_refuses_to_take_a_table_back_leaves_it_dropped_for_all(tmp_path):
    world = World(tmp_path)
    uuids = put_away_twice(world)
    both = [f"/tables/{one}/replicas/r1/detached" for one in ("one", "two")]
    assert notes(world) == both
    context = world.context()
    with pytest.raises(UnknownTable, match="is not among those dropped"):
        context.undrop_table(*T, "nosuch")
    assert notes(world) == both
    context.create_table(TABLE)
    with pytest.raises(TableAlreadyExists):
        context.undrop_table(*T)
    assert notes(world) == both
    context.rename_tables((T, ("default", "u")))
    context.undrop_table(*T, uuids[0])
    assert notes(world) == both[1:], "the one that is still dropped has its note"


def test_a_note_that_is_gone_while_the_table_is_dropped_comes_back(tmp_path, monkeypatch):
    """UNDROP dies, or is refused, after it has taken the note away."""
    world = with_table(tmp_path)
    [(tables, keeper)] = served(world, "r1")
    world.context().drop_table(*T, sync=False)
    looked(tables, keeper)
    context = world.context()
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "take_back", _refuses)
        with pytest.raises(UnknownTable, match="was faster"):
            context.undrop_table(*T)
    assert notes(world) == []
    passes(world, 11, tables, keeper)
    assert notes(world) == [f"{ROOT}/detached"]


def _refuses(*_: object) -> None:
    raise UnknownTable("another process was faster")


def test_a_drop_of_a_namesake_that_was_cut_off_ends_before_the_table_comes_back(
    tmp_path, monkeypatch
):
    for at in range(1, EFFECTS_MAX):
        world = with_table(tmp_path / str(at))
        context = world.context()
        context.drop_table(*T, sync=False)
        elsewhere = replace(TABLE, engine=replace(TABLE.engine, zookeeper_path="/tables/new"))
        context.create_table(elsewhere)
        ended = False
        with dying(monkeypatch, at, after=True) as mortal:
            world.context(keeper=mortal(world.zookeeper.connect())).drop_table(*T)
            ended = True
        world.expire_all()
        context = world.context()
        if context.catalog.has(*T):
            context.drop_table(*T)
        context.undrop_table(*T)
        [(tables, _)] = served(world, "r1")
        assert [type(one.state) for one in tables.all.values()] == [Active], at
        assert len(context.table("t").parts()) == 1, at
        left = [path for path in world.zookeeper.nodes if path.startswith("/tables/new")]
        assert left == [], at
        assert not list(Path(world.config.server("r1").data).rglob("*.dropping")), at
        if ended:
            assert at > 20
            return
    pytest.fail("it has more effects than this")


@pytest.mark.parametrize("seconds", [0, -3600])
def test_of_two_that_were_dropped_in_one_second_or_before_it_the_last_one_comes_back(
    tmp_path, seconds
):
    """The clock stands still, or is set back in between."""
    for number in range(5):  # uuids have no order
        world = World(tmp_path / str(number))
        uuids = put_away_twice(world, seconds)
        world.context().undrop_table(*T)
        assert world.context().catalog.definition(*T).uuid == uuids[1]


def test_who_removes_a_table_does_not_remove_what_is_dropped_anew(tmp_path):
    """It was looked at, then taken back, and dropped again when the clock says the same."""
    world = with_table(tmp_path)
    context = world.context()
    context.drop_table(*T, sync=False)
    [known] = context.catalog.dropped()
    context.undrop_table(*T)
    context.drop_table(*T, sync=False)
    assert not remove_dropped(context.catalog, context.keeper(), known, context.store)
    context.undrop_table(*T)
    assert len(context.table("t").parts()) == 1


@dataclass
class SetClock(StillClock):
    """Which somebody sets."""

    jump_s: float = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.jump_s


@pytest.mark.parametrize("jump_s", [86_400, -86_400])
def test_a_clock_that_is_set_takes_nothing_from_the_time_to_take_a_table_back(tmp_path, jump_s):
    world = with_table(tmp_path)
    world.clock = clock = SetClock(world.clock.passed_s)
    [(tables, keeper)] = served(world, "r1")
    world.context().drop_table(*T, sync=False)
    looked(tables, keeper)
    clock.jump_s = jump_s
    passes(world, DELAY_S - 1, tables, keeper)
    assert len(world.context().catalog.dropped()) == 1
    passes(world, 12, tables, keeper)
    assert world.context().catalog.dropped() == []


def test_a_clock_that_was_set_back_before_the_start_holds_a_removal_up_no_longer(tmp_path):
    world = with_table(tmp_path)
    world.clock = clock = SetClock(world.clock.passed_s)
    world.context().drop_table(*T, sync=False)
    clock.jump_s = -86_400
    [(tables, keeper)] = served(world, "r1")
    passes(world, DELAY_S + 12, tables, keeper)
    assert world.context().catalog.dropped() == []


def test_a_replica_whose_place_another_one_has_is_told_so_and_not_to_restore(tmp_path):
    """The other one's log is shorter than what this disk has seen: ZooKeeper is no older for it."""
    world = with_table(tmp_path, "r2")
    served(world, "r1", "r2")
    context = world.context()
    opened = context.table("t").replica
    opened.store.marks.note_log_seen(1000)
    keeper = world.zookeeper.connect()
    with pytest.raises(ZooKeeperIsOlder, match="SYSTEM RESTORE REPLICA"):
        require_promises(opened)
    for name in ("r1", "r2"):
        drop_replica(keeper, opened.table, name)
    assert context.create_table(replace(TABLE, name="u"))
    for look in (require_promises, require_log_as_seen):
        with pytest.raises(ReplicaDropped, match="another one was created in its place"):
            look(opened)
    with pytest.raises(ReplicaDropped, match="another one was created in its place"):
        context.restore(opened.definition)
