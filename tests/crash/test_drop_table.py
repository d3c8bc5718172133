"""DROP TABLE dies at every effect it has, in ZooKeeper and on the disk: whoever comes next gets
past what is left. Real catalog and real parts, a ZooKeeper in memory.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.catalog import contents
from rmt_pipeline.protocol.errors import Conflict, OutcomeUnknown, UnknownTable
from rmt_pipeline.server.tables import Active
from rmt_pipeline.sql.run.session import Session
from tests.support.fake_keeper import FakeKeeper
from tests.support.hosts import TABLE, Pausing, World, dying, with_table

EFFECTS_MAX = 400
ATTACH = """ATTACH TABLE t (n UInt64)
ENGINE = ReplicatedMergeTree('/tables/t', '{replica}') ORDER BY n"""


def cut_off_everywhere(tmp_path, monkeypatch, *others: str):
    """A world for each place where the DROP of r1 can die, its session not yet over."""
    for after in (False, True):
        for at in range(1, EFFECTS_MAX):
            world = with_table(tmp_path / f"{at}-{after}", *others)
            ended = False
            with dying(monkeypatch, at, after=after) as mortal:
                world.context(keeper=mortal(world.zookeeper.connect())).drop_table(
                    "default", "t"
                )
                ended = True
            yield world, f"died {'after' if after else 'before'} effect {at}"
            if ended:
                assert at > 20, "DROP has more effects than this"
                break
        else:
            pytest.fail(f"DROP has {EFFECTS_MAX} effects: the test is not there to the end")


def test_a_second_drop_finishes_what_the_first_one_left(tmp_path, monkeypatch):
    for world, where in cut_off_everywhere(tmp_path, monkeypatch):
        world.expire_all()
        with suppress(UnknownTable):  # the first one was at its end
            world.context().drop_table("default", "t")
        assert world.is_clean(), where


def test_a_drop_while_the_dead_ones_session_lives_says_so_and_goes_on_later(
    tmp_path, monkeypatch
):
    refused = []
    for world, where in cut_off_everywhere(tmp_path, monkeypatch):
        try:
            with suppress(UnknownTable):
                world.context().drop_table("default", "t")
        except Conflict as conflict:
            refused.append(str(conflict))
            assert not world.is_clean()
            world.expire_all()
            world.context().drop_table("default", "t")
        assert world.is_clean(), where
    assert len(refused) > 10
    assert [words for words in refused if "session ends soon" not in words] == []


def test_the_server_finishes_what_was_left(tmp_path, monkeypatch):
    for world, where in cut_off_everywhere(tmp_path, monkeypatch):
        world.expire_all()
        tables = world.served()
        if tables.all:  # it died before it had dropped anything
            assert world.context().catalog.has("default", "t"), where
            world.context().drop_table("default", "t")
        assert world.is_clean(), where


def test_a_server_that_met_the_dead_ones_session_tries_again(tmp_path, monkeypatch):
    for world, where in cut_off_everywhere(tmp_path, monkeypatch):
        tables, keeper = world.server()
        tables.follow_catalog(keeper)
        tables.look(keeper)
        for session in set(world.zookeeper.sessions) - {keeper.session_id}:
            world.zookeeper.expire(session)
        for _ in range(20):  # tables that are active are looked at for ever
            world.clock.passed_s += tables.next_look_s() or 1.0
            tables.look(keeper)
        if tables.all:
            world.context().drop_table("default", "t")
        assert world.is_clean(), where


def test_create_goes_on_and_makes_a_new_table(tmp_path, monkeypatch):
    tried = 0
    for world, where in cut_off_everywhere(tmp_path, monkeypatch):
        world.expire_all()
        if world.context().catalog.has("default", "t"):
            continue  # it died before it had dropped anything
        assert world.context().create_table(TABLE), where
        [table] = world.served().all.values()
        assert isinstance(table.state, Active), where
        assert table.store.parts() == [], where
        assert table.store.detached() == [], (
            f"{where}: the old table's parts are in the new one"
        )
        tried += 1
    assert tried > 10


def test_create_gets_past_a_replica_that_was_half_removed_by_a_catalog_that_is_lost(
    tmp_path, monkeypatch
):
    tried = 0
    for world, where in cut_off_everywhere(tmp_path, monkeypatch):
        world.expire_all()
        if f"{TABLE.engine.zookeeper_path}/replicas/r1/host" in world.zookeeper.nodes:
            continue  # nothing of it was removed: it is another server's replica
        other = World(tmp_path / f"lost {where}")
        other.zookeeper = world.zookeeper
        assert other.context().create_table(TABLE), where
        [table] = other.served().all.values()
        assert isinstance(table.state, Active), where
        tried += 1
    assert tried > 10


def test_attach_says_what_to_do(tmp_path, monkeypatch):
    said = 0
    for world, _ in cut_off_everywhere(tmp_path, monkeypatch):
        world.expire_all()
        context = world.context()
        if not context.catalog.is_dropping("default", "t"):
            continue
        session = Session(context)
        with pytest.raises(UnknownTable, match="DROP TABLE or CREATE TABLE"):
            session.execute(ATTACH)
        said += 1
    assert said > 10


def test_a_replica_of_the_same_name_that_was_made_since_is_left_alone(tmp_path, monkeypatch):
    """Its catalog entry is all that the dead process had still to remove; the name went to
    another host meanwhile.
    """
    tried = 0
    for world, where in cut_off_everywhere(tmp_path, monkeypatch, "r2"):
        world.expire_all()
        root = "/tables/t/replicas/r1"
        if root in world.zookeeper.nodes or not world.context().catalog.is_dropping(
            "default", "t"
        ):
            continue
        elsewhere = World(tmp_path / f"elsewhere {where}")
        elsewhere.zookeeper = world.zookeeper
        elsewhere.context().create_table(TABLE)
        world.served()
        assert f"{root}/host" in world.zookeeper.nodes, where
        assert not world.context().catalog.is_dropping("default", "t"), where
        tried += 1
    assert tried > 0


def test_the_other_replica_stays_and_then_goes_with_the_table(tmp_path, monkeypatch):
    for world, where in cut_off_everywhere(tmp_path, monkeypatch, "r2"):
        world.expire_all()
        [other] = world.served("r2").all.values()
        assert isinstance(other.state, Active), where
        world.expire_all()
        world.context("r2").drop_table("default", "t")
        with suppress(UnknownTable):
            world.context().drop_table("default", "t")
        assert world.is_clean(), where


def test_two_hosts_drop_the_last_two_replicas_at_once(tmp_path, monkeypatch):
    """One is stopped at each of its effects, and the other one drops meanwhile."""
    for at in range(1, EFFECTS_MAX):
        world = with_table(tmp_path / str(at), "r2")
        stopped = []

        def other_drops(world=world, stopped=stopped) -> None:
            stopped.append(True)
            try:
                world.context("r2").drop_table("default", "t")
            except Conflict:
                stopped.append(False)

        keeper = Pausing(world.zookeeper.connect(), at, other_drops)
        try:
            world.context(keeper=keeper).drop_table("default", "t")
        except Conflict:
            world.context().drop_table("default", "t")
        if not stopped:
            assert at > 10
            return
        if False in stopped:
            world.context("r2").drop_table("default", "t")
        assert world.is_clean(), f"stopped at {at}"
        assert not world.context("r2").catalog.is_dropping("default", "t")
    pytest.fail("it has more effects than this test looks at")


def test_a_drop_whose_answer_is_lost_goes_on_in_the_same_session(tmp_path):
    for landed in (False, True):
        for at in range(1, EFFECTS_MAX):
            world = with_table(tmp_path / f"{at}-{landed}")
            keeper = Losing(world.zookeeper.connect(), at, landed=landed)
            context = world.context(keeper=keeper)
            try:
                context.drop_table("default", "t")
            except OutcomeUnknown:
                with suppress(UnknownTable):
                    context.drop_table("default", "t")
            assert world.is_clean(), f"lost at {at}, landed: {landed}"
            if keeper.left > 0:
                assert at > 10
                break


class Losing:
    """The answer to its multi of that number does not come."""

    def __init__(self, keeper: FakeKeeper, at: int, *, landed: bool) -> None:
        self._keeper, self.left, self._landed = keeper, at, landed

    def multi(self, ops):
        self.left -= 1
        if self.left == 0:
            if self._landed:
                self._keeper.multi(ops)
            raise OutcomeUnknown("no answer")
        return self._keeper.multi(ops)

    def multi_many(self, multis):
        return FakeKeeper.multi_many(self, multis)

    def __getattr__(self, name):
        return getattr(self._keeper, name)


def test_a_dropped_name_is_given_up_by_nobody_who_is_late(tmp_path):
    """Two processes drop one table: the second one comes when the first is between two steps."""
    world = with_table(tmp_path)
    first, second = world.context(), world.context()
    definition = first.catalog.definition("default", "t")
    with first.catalog.begin_drop(definition, 1):
        with pytest.raises(Conflict, match="is being dropped by another process"):
            second.drop_table("default", "t")
        with pytest.raises(Conflict, match="is being dropped by another process"):
            second.create_table(TABLE)
    second.drop_table("default", "t")
    with pytest.raises(UnknownTable, match="does not exist"):
        first.drop_table("default", "t")


def test_of_two_who_begin_to_drop_one_table_the_second_one_finds_none(tmp_path):
    world = with_table(tmp_path)
    catalog = world.context().catalog
    definition = catalog.definition("default", "t")
    with catalog.begin_drop(definition, 1):
        pass
    with pytest.raises(UnknownTable), catalog.begin_drop(definition, 1):
        pytest.fail("it dropped a table that was dropped")
    again = replace(definition, uuid="another")
    catalog.end_drop(definition)
    catalog.add(again)
    with pytest.raises(UnknownTable, match="created again"), catalog.begin_drop(definition, 1):
        pytest.fail("it dropped a table that it has not seen")
    staging = Path(world.config.server("r1").data) / "metadata" / contents._STAGING
    assert list(staging.iterdir()) == []
