"""ZooKeeper loses everything, or goes back in time: the replicas make the table again from their
disks, and not a row is lost or doubled.
"""

import shutil
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.cli import upkeep
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import Conflict, ReplicaDropped, TableIsReadOnly, UserError
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import of_disk
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.life import opening
from rmt_pipeline.replica.life import restore as restore_module
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.drop import drop_dead_replica, drop_replica
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.replica.life.restoring import NothingToRestore
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.replica.partitions.detached import why_kept
from rmt_pipeline.replica.replica import Memory, Replica
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.upkeep.rewound import (
    BeingRestored,
    ZooKeeperIsOlder,
    require_promises,
)
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import Delete, SetData
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import definition_of
from tests.support.local_session import create, local_session, rows
from tests.support.parts import clone
from tests.support.restoring import Disaster

NO_WAIT = QuerySettings(alter_sync=0)


def merged(disaster: Disaster, name: str) -> None:
    """This replica has merged everything; the others have not heard of it."""
    optimize_partition(disaster[name], "all", final=True, skip_merged=False)
    disaster.step(name)


@pytest.fixture
def two(tmp_path):
    with Disaster(tmp_path) as disaster:
        yield disaster


def test_what_a_server_says_when_zookeeper_has_nothing_of_the_table_names_the_remedy(two):
    two.insert("r1", 1)
    two.wipe()
    with pytest.raises(
        ReplicaDropped, match=r"SYSTEM RESTORE REPLICA default\.t, or rmt restore"
    ):
        two.start("r1")


def test_no_part_of_the_table_of_before_is_put_back_afterwards(two):
    """One that was given up then: its name may be another part's now."""
    two.insert("r1", 1)
    gone, marks = PartName("all", 7, 7, 0), two["r1"].store.marks
    marks.give_up(gone, promise=b"a header")
    two.wipe()
    two.restore("r1")
    assert not marks.is_unseen(gone)


def test_all_rows_of_all_disks_are_there_once_on_every_replica(two):
    """r1 has merged what r2 has in pieces; each has an insert that the other has not received."""
    for value in (1, 2, 3):
        two.insert("r1", value)
    two.step("r2", "fetch")
    merged(two, "r1")
    two.insert("r1", 4, 4)
    two.insert("r2", 5)
    two.wipe()
    assert two.restore("r1").waits_for == ("r2",)
    with pytest.raises(BeingRestored, match="say it on r2"):
        two.start("r1")
    assert two.restore("r2").waits_for == ()
    two.live_on()
    for name in ("r1", "r2"):
        assert two.values(name) == Counter([1, 2, 3, 4, 4, 5]), name
        assert two[name].store.detached() == []


def test_the_order_in_which_they_come_does_not_matter(two):
    for value in (1, 2, 3):
        two.insert("r2", value)
    two.step("r1", "fetch")
    merged(two, "r1")
    two.wipe()
    two.restore("r2")
    two.restore("r1")
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1, 2, 3])


def test_numbers_go_on_where_the_disks_are(two):
    last = [two.insert("r1", value) for value in range(5)][-1]
    two.wipe()
    two.restore("r1")
    two.restore("r2")
    two.live_on()
    assert two.insert("r2", 77).block_min > last.block_max
    two.live_on()
    assert two.values("r1") == Counter([0, 1, 2, 3, 4, 77])


def test_a_number_that_only_the_other_disk_knows_is_not_given_out_again(two):
    """r2 took an insert that r1 never heard of; r1 comes first."""
    two.insert("r1", 1)
    alone = two.insert("r2", 2)
    two.wipe()
    two.restore("r1")
    two.restore("r2")
    two.live_on()
    assert two.insert("r1", 3).block_min > alone.block_min
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1, 2, 3])


@pytest.mark.parametrize("token", ["", "mine"])
def test_a_retry_of_an_insert_of_before_is_a_duplicate(two, token):
    two.insert_again("r1", 1, 2, token=token)
    two.wipe()
    two.restore("r1")
    two.restore("r2")
    two.live_on()
    assert two.insert_again("r2", 1, 2, token=token) == "duplicate"
    assert two.insert_again("r2", 1, 3, token="" if not token else "other") == "inserted"


def test_a_retry_by_block_is_a_duplicate_too(two):
    part = two.insert("r1", 1, 2)
    block = two[("r1")].store.manifest(part).content_hash
    before = two["r1"].keeper.children(two["r1"].table.blocks)
    two.wipe()
    two.restore("r1")
    two.restore("r2")
    assert block
    assert two["r1"].keeper.children(two["r1"].table.blocks) == before


def in_blocks(disaster: Disaster, name: str, values: list[int], size: int) -> str:
    """An insert without a token, cut into blocks of this many rows."""
    cut = {"max_insert_block_size": size, "min_insert_block_size_rows": size}
    rows_ = [{"n": value} for value in values]
    return disaster.table(name).insert(rows_, settings=cut).outcome.value


@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 3), (2, 1), (1, 2)])
def test_a_retry_that_is_cut_otherwise_is_a_duplicate_too(two, before, after):
    """P6. Other inserts of other times are beside it."""
    values = [11, 12, 13]
    in_blocks(two, "r1", [1, 2], 1)
    two.clock.passed_s += 1
    in_blocks(two, "r1", values, before)
    two.clock.passed_s += 1
    in_blocks(two, "r1", [3], 1)
    two.wipe()
    two.restore("r1")
    two.restore("r2")
    two.live_on()
    assert in_blocks(two, "r2", values, after) == "duplicate"
    assert in_blocks(two, "r2", [*values, 14], 4) == "inserted"
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1, 2, 3, *values, *values, 14])


def test_blocks_of_several_inserts_of_one_second_are_known_one_by_one(two):
    in_blocks(two, "r1", [1, 2], 2)
    in_blocks(two, "r1", [3, 4], 2)
    two.wipe()
    two.restore("r1")
    two.restore("r2")
    two.live_on()
    assert in_blocks(two, "r1", [3, 4], 1) == in_blocks(two, "r2", [2, 1], 1) == "duplicate"
    assert two.values("r1") == Counter([1, 2, 3, 4])


def test_an_insert_that_is_known_by_its_rows_again_goes_with_them(two):
    in_blocks(two, "r1", [1, 2, 3], 1)
    two.wipe()
    two.restore("r1")
    two.restore("r2")
    two.live_on()
    two.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
    two.live_on()
    assert in_blocks(two, "r2", [1, 2, 3], 3) == "inserted"
    two.live_on()
    assert two.values("r1") == Counter([1, 2, 3])


def test_reads_of_the_log_of_before_do_not_stop_the_new_one(two):
    for value in range(4):
        two.insert("r1", value)
    two.step("r2", "fetch")
    two.wipe()
    two.restore("r1")
    two.restore("r2")
    two.live_on()
    assert two["r1"].store.marks.log_seen() > 0


def test_a_try_of_an_insert_that_was_never_announced_does_not_double_it(two):
    """A process published part 1 of the insert and died; another one inserted it as part 2."""
    first = two.insert("r1", 9)
    replica = two["r1"]
    staged = clone(replica.store, first, "insert", "x")
    two.insert("r1", 8)
    later = PartName("all", 7, 7, 0)
    replica.store.publish(staged, later)
    two.wipe()
    restored = two.restore("r1")
    assert restored.left_out == ()
    [given_up] = two.restore("r2").given_up
    assert given_up.startswith(f"{later} of replica r1 is set aside")
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([8, 9])
    assert two["r1"].store.detached() == [f"ignored_{later}"]


def test_equal_blocks_of_an_insert_with_a_token_are_all_kept(two):
    result = two.table("r1").insert(
        [{"n": 1}, {"n": 1}],
        token="twice",
        settings={"max_insert_block_size": 1, "min_insert_block_size_rows": 1},
    )
    if len(result.parts) != 2:
        pytest.skip("one block")
    two.wipe()
    two.restore("r1")
    two.restore("r2")
    two.live_on()
    assert two.values("r2") == Counter([1, 1])


def test_parts_of_one_name_and_other_rows_are_not_mixed(two):
    part = two.insert("r1", 1, 2)
    two.step("r2", "fetch")
    other = two.insert("r1", 50)
    store = two["r2"].store
    store.remove(part)
    staged = clone(two["r1"].store, other, "attach", "x")
    two["r1"].store.publish(staged, PartName("all", 99, 99, 0))
    source = LocalDisk(two["r1"].store.directory(PartName("all", 99, 99, 0)))
    target = store.directory(part)
    two["r1"].store.remove(other)
    shutil.copytree(source.local_path(""), target)
    two["r1"].store.remove(PartName("all", 99, 99, 0))
    two.wipe()
    two.restore("r1")
    restored = two.restore("r2")
    assert any("replica r2 is set aside" in line for line in restored.given_up), restored
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1, 2])
    assert store.detached() == [f"ignored_{part}"]


@pytest.mark.parametrize("token", ["", "mine"])
def test_rows_of_a_part_that_is_given_up_may_be_inserted_again(two, token):
    """r2's copy has the rows of another insert, which are nowhere else."""
    part = two.insert("r1", 1, 2)
    two.step("r2", "fetch")
    assert two.insert_again("r1", 50, token=token) == "inserted"
    other = PartName("all", 1, 1, 0)
    mine, theirs = two["r1"].store, two["r2"].store
    theirs.remove(part)
    shutil.copytree(LocalDisk(mine.directory(other)).local_path(""), theirs.directory(part))
    mine.remove(other)
    two.wipe()
    two.restore("r1")
    assert two.restore("r2").given_up
    two.live_on()
    assert two.insert_again("r1", 1, 2) == "duplicate"
    assert two.insert_again("r1", 50, token=token) == "inserted"
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1, 2, 50])


def test_of_a_part_that_overlaps_what_is_in_no_other_may_be_inserted_again(two):
    """An older copy of ZooKeeper knows the ids of all blocks that are in it."""
    for value in (1, 2, 3):
        two.insert("r1", value)
    two.step("r2", "fetch")
    older = two.copy_of_zookeeper()
    two.insert("r1", 4)
    two.step("r2", "fetch")
    two.note()
    for name, merged_part in (("r1", "all_0_1_1"), ("r2", "all_1_2_1")):
        store, into = two[name].store, PartName.parse(merged_part)
        last = PartName("all", into.block_max, into.block_max, 0)
        store.publish(clone(store, last, "attach", "x"), into)
        for block in range(3):
            store.remove(PartName("all", block, block, 0))
    two.go_back_to(older)
    two.restore("r1")
    assert "all_1_2_1 of replica r2 is set aside" in " ".join(two.restore("r2").given_up)
    two.live_on()
    assert two.insert_again("r1", 2) == two.insert_again("r2", 1) == "duplicate"
    assert two.insert_again("r2", 3) == "inserted"
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([2, 3, 4])


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted), max_size=4),
    st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted),
)
def test_blocks_that_no_part_has_are_those_of_the_part_itself(
    others: list[list[int]], own: list[int]
) -> None:
    """And none beside it: what is inserted again must not be what is there, nor be doubled."""
    names = [PartName("all", first, last, 0) for first, last in others]
    parts = of_disk([*names, PartName("b", 0, 9, 0)])
    found = list(opening._not_in(parts, PartName("all", own[0], own[1], 0)))
    blocks = [block for one in found for block in range(one.block_min, one.block_max + 1)]
    held = {
        block
        for part in parts.in_partition("all")
        for block in range(part.block_min, part.block_max + 1)
    }
    assert blocks == [block for block in range(own[0], own[1] + 1) if block not in held]


def test_one_that_is_gone_for_good_is_not_waited_for_any_more(two):
    two.insert("r1", 1)
    two.wipe()
    assert two.restore("r1").waits_for == ("r2",)
    drop_dead_replica(two["r1"].session, two["r1"].table, "r2")
    two.live_on(["r1"])
    assert two.values("r1") == Counter([1])


def test_who_comes_late_clones_and_keeps_what_is_equal(two):
    part = two.insert("r1", 1)
    two.step("r2", "fetch")
    alone = two.insert("r2", 2)
    two.wipe()
    two.restore("r1")
    drop_dead_replica(two["r1"].session, two["r1"].table, "r2")
    two.live_on(["r1"])
    two.insert("r1", 3)
    manifest = Path(two["r2"].store.directory(part), "part.json")
    inode = manifest.stat().st_ino
    restored = two.restore("r2")
    assert manifest.stat().st_ino == inode, "what is equal stays where it is"
    assert restored.joined
    assert restored.words().startswith(
        "1 rows in 1 parts of this disk are in ZooKeeper, which other replicas have, too; "
        "the rest is cloned from them"
    )
    assert restored.parts == 1
    assert two["r2"].keeper.get(two["r2"].paths.is_lost)[0] == b"1", "it has yet to clone"
    assert any(str(alone) == name and "1 rows" in why for name, why in restored.left_out)
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1, 3])
    assert f"ignored_{alone}" in two["r2"].store.detached()
    names = two["r2"].store.detached_parts.names()
    told = {str(name): kept.is_safe for name, kept in why_kept(two["r2"], names)}
    assert not told[f"ignored_{alone}"], "the part of that name has another insert's rows"


def test_a_replica_that_works_is_not_restored(two):
    """Nor is a part that was given up, whose files may be whole, kept from being looked at."""
    part = two.insert("r1", 1)
    two["r1"].store.marks.give_up(part, promise=b"its header")
    with pytest.raises(NothingToRestore, match="is active"):
        two.restore("r1")
    assert two["r1"].store.marks.promise(part) == b"its header"
    two.zookeeper.expire(two["r1"].keeper.session_id)
    two.connect("r1")
    for session in list(two.zookeeper.sessions):
        two.zookeeper.expire(session)
    with pytest.raises(NothingToRestore, match="knows all that this disk has seen"):
        two.restore("r1")


def test_nothing_is_cleaned_up_meanwhile(two):
    """By a schedule, or by hand: what covers a part may yet be given up."""
    two.insert("r1", 1)
    two.insert("r1", 2)
    two.step("r2", "fetch")
    merged(two, "r1")
    two.wipe()
    two.restore("r1")
    two.clock.passed_s += 10_000
    before = set(two.parts("r1"))
    with pytest.raises(BeingRestored, match="nothing is cleaned up until SYSTEM RESTORE"):
        plan_clean_up(two["r1"])
    two.restore("r2")
    two.live_on()
    carry_out(two["r1"], plan_clean_up(two["r1"]))
    assert set(two.parts("r1")) < before
    assert two.values("r1") == two.values("r2") == Counter([1, 2])


def test_no_part_is_promised_that_a_clean_up_of_before_removes(two):
    """It stopped promising the part, and then ZooKeeper lost the table (seed 96000343)."""
    first = two.insert("r1", 1)
    two.insert("r1", 2)
    merged(two, "r1")
    two.wipe()
    said = []

    def sure(held):
        with pytest.raises(Conflict, match=f"a clean-up.* is removing parts: .*{first}"):
            two.restore("r1")
        said.append(first)
        return held

    assert two["r1"].store.remove_all([first], sure) == []
    assert said
    two.restore("r1")
    assert str(first) not in two.parts("r1")
    two.restore("r2")
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1, 2])


def test_an_older_copy_of_zookeeper_is_made_what_the_disks_say(two):
    two.insert("r1", 1)
    two.step("r2", "fetch")
    older = two.copy_of_zookeeper()
    for value in (2, 3):
        two.insert("r1", value)
    two.step("r2", "fetch")
    two.insert("r2", 4)
    two.note()
    merged(two, "r1")
    two.note()
    two.go_back_to(older)
    with pytest.raises(ZooKeeperIsOlder, match=r"SYSTEM RESTORE REPLICA default\.t"):
        two.start("r1")
    with pytest.raises(ZooKeeperIsOlder):  # nor does a reader believe that less is promised
        require_promises(two["r1"])
    assert two.restore("r1").waits_for == ("r2",)
    assert two.restore("r2").waits_for == ()
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1, 2, 3, 4])
    assert two.insert_again("r1", 1) == "duplicate", "the old copy knew this one"
    assert two["r1"].store.detached() == two["r2"].store.detached() == []


def test_a_copy_from_before_the_first_start_is_made_what_the_disks_say(two):
    """It has the replicas without an address: as who joins has, which clones."""
    older = two.copy_of_zookeeper()
    two.insert("r1", 1)
    two.step("r2", "fetch")
    two.note()
    hosts = [two[name].paths.host for name in ("r1", "r2")]
    older.connect().multi([SetData(host, b"") for host in hosts])
    two.go_back_to(older)
    assert two.restore("r1").waits_for == ("r2",)
    assert two.restore("r2").waits_for == ()
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1])


def without_r2(two: Disaster) -> None:
    """ZooKeeper goes back to before r2 was created, which has the only copy of a row since."""
    two.insert("r1", 1)
    older = two.copy_of_zookeeper(without=two["r2"].paths.root)
    two.step("r2", "fetch")
    two.insert("r2", 2)
    two.note()
    two.go_back_to(older)


def test_who_an_older_copy_does_not_know_is_not_restored_before_those_that_it_knows(two):
    """As one that joins it would set aside what nobody else has."""
    without_r2(two)
    with pytest.raises(ZooKeeperIsOlder, match="on the servers of r1 first") as told:
        two.restore("r2")
    assert "2 rows in 2 parts here are unknown to it" in str(told.value)
    assert two["r2"].store.detached() == []
    assert two.restore("r1").waits_for == ("r2",)
    assert two.restore("r2").waits_for == ()
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1, 2])
    assert two["r1"].store.detached() == two["r2"].store.detached() == []


def test_who_an_older_copy_does_not_know_joins_those_that_work_with_it(two):
    without_r2(two)
    two["r1"].store.marks.forget_log_seen()
    two.start("r1")
    assert two.restore("r2").joined
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1])


def test_an_older_copy_is_not_touched_while_another_replica_works_with_it(two):
    two.insert("r1", 1)
    two.step("r2", "fetch")
    older = two.copy_of_zookeeper()
    for value in (2, 3):
        two.insert("r1", value)
    two.note()
    two.move_to(older)
    two["r2"].store.marks.forget_log_seen()
    two.start("r2")
    with pytest.raises(UserError, match="Stop its server"):
        two.restore("r1")


def test_said_twice_at_once_it_is_done_once(two):
    two.insert("r1", 1)
    two.wipe()
    two.restore("r1")
    two.restore("r1")
    two.restore("r2")
    two.live_on()
    with pytest.raises((NothingToRestore, Conflict)):
        two.restore("r2")
    assert two.values("r2") == Counter([1])


def test_who_finds_the_table_open_when_he_has_announced_is_done(two, monkeypatch):
    """Another process of the same server was as far, and faster."""
    two.insert("r1", 1)
    two.wipe()
    two.restore("r1")
    announce = restore_module.announce

    def slowly(replica: Replica, creator: bytes, disk: object) -> int:
        monkeypatch.setattr(restore_module, "announce", announce)
        found = announce(replica, creator, disk)
        assert restore_module.restore(replica, creator).waits_for == ()
        return found

    monkeypatch.setattr(restore_module, "announce", slowly)
    restored = two.restore("r2")
    assert (restored.waits_for, restored.given_up, restored.joined) == ((), (), False)
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1])


def test_the_statement_and_the_command_say_what_they_did(tmp_path, capsys):
    made = (
        "CREATE TABLE t (n UInt64) ENGINE = ReplicatedMergeTree('/tables/t', 'r1') ORDER BY n"
    )
    with local_session(tmp_path) as session:
        create(session, made)
        session.execute("INSERT INTO t VALUES (1), (2)")
        server = session.context.server
        with pytest.raises(NothingToRestore, match="is active"):
            session.execute("SYSTEM RESTORE REPLICA t")
        assert run_restore_with(server, None) == 0
        assert "nothing to restore" in capsys.readouterr().out
        server.use(FakeZooKeeper(server.clock).connect())
        definition = server.catalog.definition("default", "t")
        assert "2 rows in 1 parts" in server.restore(definition).words()
        start(server.replica(definition), identity="r1", incarnation="2", address=ADDRESS)
        assert rows(session, "SELECT n FROM t ORDER BY n") == [(1,), (2,)]
        server.use(FakeZooKeeper(server.clock).connect())
        assert run_restore_with(server, "t") == 0
        assert "default.t: 2 rows in 1 parts of this disk" in capsys.readouterr().out


def test_what_could_be_restored_beside_what_could_not_is_no_error(tmp_path, capsys):
    with local_session(tmp_path) as session:
        server = session.context.server
        for name in ("a", "b", "c"):
            create(
                session,
                f"CREATE TABLE {name} (n UInt64) "
                f"ENGINE = ReplicatedMergeTree('/{name}', 'r1') ORDER BY n",
            )
        restore = server.restore

        def failing(definition):
            if definition.name == "b":
                raise Conflict("somebody else is at it")
            return restore(definition)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server, "restore", failing)
            assert run_restore_with(server, None) == 1
    said = capsys.readouterr()
    assert [line.split(":")[0] for line in said.out.splitlines()] == ["default.a", "default.c"]
    assert said.err == "default.b: Code: CONFLICT. somebody else is at it\n"


ADDRESS = ReplicaAddress("r1", 9009, 9000, "default", "t")


def run_restore_with(server: ServerContext, table: str | None) -> int:
    """`rmt restore`, in the session of this context."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "ServerContext", lambda *_, **__: nullcontext(server))
        return upkeep.run_restore(server.config, "r1", table)


def test_an_insert_of_what_was_dropped_is_no_duplicate_afterwards(two):
    """The disk of the replica that had not heard of the drop says that the block is there."""
    two.insert("r1", 1)
    two.step("r2", "fetch")
    two.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
    two.step("r1", "fetch")
    two.step("r1")
    two.wipe()
    two.restore("r2")
    two.restore("r1")
    two.live_on()
    assert two.insert_again("r1", 1) == "inserted"
    two.step("r2", "fetch")
    assert two.values("r1") == two.values("r2") == Counter([1])


def test_who_is_created_while_the_first_one_begins_does_not_remove_the_table(two, monkeypatch):
    two.insert("r1", 1)
    two.step("r2", "fetch")
    two.wipe()

    def dies(*_: object) -> int:
        raise Conflict("the process died here")

    with monkeypatch.context() as patch:
        patch.setattr(restore_module, "announce", dies)
        with pytest.raises(Conflict):
            two.restore("r1")
    create_replica(two.zookeeper.connect(), definition_of("r3"), b"r3")
    restored = [two.restore(name) for name in ("r1", "r2")]
    assert not any(one.joined for one in restored), restored
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1])


@pytest.mark.parametrize("announced", [("r1", "r2"), ("r1",), ("r2",)])
def test_one_that_is_dropped_while_others_restore_is_not_among_them_any_more(
    tmp_path, announced
):
    names = "r1", "r2", "r3"
    with Disaster(tmp_path, names) as three:
        three.insert("r1", 1)
        three.step("r2", "fetch")
        three.wipe()
        for name in announced:
            three.restore(name)
        drop_replica(three.zookeeper.connect(), three["r1"].table, "r1")
        left = [three.restore(name) for name in ("r2", "r3")]
        assert left[-1].waits_for == ()
        three.live_on(["r2", "r3"])
        assert three.values("r2") == three.values("r3") == Counter([1])


def test_a_namesake_that_was_created_since_is_not_restored_over(two, tmp_path):
    """r1 was dropped while its server was away, and the table was created again there."""
    for value in range(5):
        two.insert("r1", value)
    two.note()
    old = two["r1"]
    namesake = replace(definition_of("r1"), uuid="another")
    for name in ("r1", "r2"):
        drop_replica(two.zookeeper.connect(), old.table, name)
    create_replica(two.zookeeper.connect(), namesake, b"another")
    session = two.zookeeper.connect()
    elsewhere = PartStore(LocalDisk(tmp_path / "elsewhere"), ids=old.ids, durable=False)
    bound = Replica(namesake, session, elsewhere, old.clock, old.ids, old.settings, worker="b")
    start(
        bound,
        identity="b",
        incarnation="1",
        address=ReplicaAddress("b", 9009, 9000, "default", "t"),
    )
    two.zookeeper.expire(session.session_id)  # its server is restarted
    before = dict(two.zookeeper.nodes)
    with pytest.raises(ReplicaDropped, match="is not the replica"):
        two.restore("r1")
    assert two.zookeeper.nodes == before


def test_what_a_session_saw_before_zookeeper_was_wiped_is_not_believed(two):
    """Its server is behind: there the table is still as it was, and works."""
    two.insert("r1", 1, 2)
    two.note()
    behind = two.zookeeper.connect(lag=lambda unseen: unseen)
    paths = [path for path in two.zookeeper.nodes if path != "/"]
    two.zookeeper.connect().multi([Delete(path) for path in sorted(paths, reverse=True)])
    two.clock.passed_s += 1000
    assert behind.exists(two["r1"].paths.is_active) is not None
    replica = replace(two.connect("r1"), keeper=behind, memory=Memory())
    assert restore(replica, b"r1").rows == 2


def test_what_is_announced_has_its_name_after_a_crash_of_the_host_too(two, monkeypatch):
    """Who gave a part its name may have died before the name was synced, or its disk failed then
    (simulated seed 21475).
    """
    for value in (1, 2):
        two.insert("r1", value)
    two.wipe()
    synced: set[PartName] = set()
    sync_names = PartStore.sync_names

    def noted(store: PartStore) -> None:
        synced.update(store.parts())
        sync_names(store)

    monkeypatch.setattr(PartStore, "sync_names", noted)
    two.restore("r1")
    assert {str(part) for part in synced} == set(two.parts("r1")) != set()


def test_a_drop_that_is_said_while_the_table_is_restored_is_not_answered_as_done(two):
    """The table has no partitions yet: there seemed to be nothing to drop, and the rows were back
    with the restore.
    """
    two.insert("r1", 1)
    two.wipe()
    two.restore("r1")
    for partitions in (["all"], None):
        with pytest.raises(ReplicaDropped, match="made again by SYSTEM RESTORE"):
            two.table("r2").drop_partitions(partitions, settings={"alter_sync": 0})
    two.restore("r2")
    two.live_on()
    two["r2"].session.multi([Delete(two["r2"].paths.is_active)])
    with pytest.raises(TableIsReadOnly, match="nothing was dropped"):
        two.table("r2").drop_partitions(["other"], settings={"alter_sync": 0})
    two.live_on()
    assert two.values("r1") == Counter([1])
    two.table("r2").drop_partitions(["all"], settings={"alter_sync": 0})
    two.live_on()
    assert two.values("r1") == Counter()
