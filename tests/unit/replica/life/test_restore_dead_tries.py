"""Inserts that died when their parts had names on a disk, and nobody knew of them yet; and then
ZooKeeper lost the table, which is made again from the disks.
"""

import shutil
from collections import Counter
from contextlib import suppress

import pytest

from rmt_pipeline.protocol.errors import MissingPart
from rmt_pipeline.protocol.inserts.ids import insert_id_of_token
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.insert.record import read_record
from rmt_pipeline.replica.life import known_inserts, opening
from rmt_pipeline.replica.life.drop import drop_dead_replica
from rmt_pipeline.replica.life.restoring import NothingToRestore
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.between_requests import BeforeRequest
from tests.support.local_replicas import by_tens
from tests.support.restoring import Disaster, restore_until_open


@pytest.fixture
def two(tmp_path):
    with Disaster(tmp_path) as disaster:
        yield disaster


class Dies(BaseException):
    """A process that is killed."""


def die_before_the_commit(two, name, *values, token="", parts=None, settings=None):
    """An insert of which the parts, or so many, have their names on the disk, and nobody knows."""
    store = two[name].store
    publish_all = store.publish_all

    def publish(staged):
        publish_all(staged[:parts])
        raise Dies

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "publish_all", publish)
        patch.setattr(store, "withdraw", lambda *_: None)
        with pytest.raises(Dies):
            two.insert_again(name, *values, token=token, settings=settings)


@pytest.mark.parametrize("merged_too", [False, True])
@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
def test_a_try_that_died_on_one_disk_and_the_one_that_another_disk_has_are_one(
    two, order, noted, merged_too
):
    """Whether or not r2's server has seen its own promised."""
    die_before_the_commit(two, "r1", 9)
    assert two.insert_again("r2", 9) == "inserted"
    two.insert("r2", 1)
    if merged_too:
        optimize_partition(two["r2"], "all", final=True, skip_merged=False)
        two.step("r2")
    two.note = two.note if noted else lambda: None
    two.wipe()
    said = [two.restore(name) for name in order]
    assert len(said[1].given_up) + len(said[1].left_out) <= 1
    two.live_on()
    for name in order:
        assert two.values(name) == Counter([1, 9]), name
        assert two.insert_again(name, 9) == "duplicate"


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
@pytest.mark.parametrize("said_to", ["r1", "r2"])
@pytest.mark.parametrize("named", [1, 2, 3])
def test_an_insert_of_which_a_dead_try_had_named_some_parts_is_gone_on_with(
    tmp_path, order, said_to, named
):
    """It was never committed, and its retry brings what is missing: a partition, or a block."""
    values, cut = (1, 11, 12), {"max_insert_block_size": 1, "min_insert_block_size_rows": 1}
    with Disaster(tmp_path, define=by_tens) as two:
        die_before_the_commit(two, "r1", *values, token="mine", parts=named, settings=cut)
        two.wipe()
        for name in (*order, "r1"):
            with suppress(NothingToRestore):
                two.restore(name)
        two.live_on()
        assert two.values("r2").total() == named
        outcome = two.insert_again(said_to, *values, token="mine", settings=cut)
        assert outcome == ("resumed" if named < 3 else "duplicate")
        assert two.insert_again(said_to, *values, token="mine") == "duplicate"
        two.live_on()
        assert two.values("r1") == two.values("r2") == Counter([1, 11, 12])


@pytest.mark.parametrize("second", ["is committed", "is merged", "dies, too"])
@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
def test_tries_of_an_insert_with_a_token_on_two_disks_are_one(two, order, second):
    """Of the two blocks of one try, which are equal, both stay."""
    cut = {"max_insert_block_size": 1, "min_insert_block_size_rows": 1}
    die_before_the_commit(two, "r1", 9, 9, token="mine", settings=cut)
    if second == "dies, too":
        die_before_the_commit(two, "r2", 9, 9, token="mine", settings=cut)
    else:
        assert two.insert_again("r2", 9, 9, token="mine", settings=cut) == "inserted"
    if second == "is merged":
        optimize_partition(two["r2"], "all", final=True, skip_merged=False)
        two.step("r2")
    two.insert("r2", 1)
    two.wipe()
    said = [two.restore(name) for name in order]
    assert len(said[1].given_up) == 2
    two.live_on()
    for name in (*order, *order):
        assert two.values(name) == Counter([1, 9, 9]), name
        outcome = two.insert_again(name, 9, 9, token="mine", settings=cut)
        assert outcome == "duplicate"


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
def test_what_only_one_of_two_dead_tries_has_named_stays(tmp_path, order):
    cut = {"max_insert_block_size": 1, "min_insert_block_size_rows": 1}
    with Disaster(tmp_path, define=by_tens) as two:
        die_before_the_commit(two, "r1", 1, 11, token="mine", parts=1, settings=cut)
        die_before_the_commit(two, "r2", 1, 11, token="mine", settings=cut)
        two.wipe()
        for name in order:
            two.restore(name)
        two.live_on()
        assert two.values("r1") == two.values("r2") == Counter([1, 11])
        assert two.insert_again("r1", 1, 11, token="mine", settings=cut) == "duplicate"


@pytest.mark.parametrize("known_by", ["r1 saw it promised", "r2 has it"])
@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
def test_an_insert_that_was_committed_is_whole_though_some_of_it_is_merged(
    tmp_path, order, known_by
):
    with Disaster(tmp_path, define=by_tens) as two:
        assert two.insert_again("r1", 1, 11, token="mine") == "inserted"
        if known_by == "r2 has it":
            two.step("r2", "fetch")
        else:
            two.note()
        two.insert("r1", 12)
        optimize_partition(two["r1"], "1", final=True, skip_merged=False)
        two.step("r1")
        for part in ("1_0_0_0", "1_1_1_0"):
            for name in ("r1", "r2"):
                with suppress(MissingPart):
                    two[name].store.remove(PartName.parse(part))
        two.note = lambda: None
        two.wipe()
        for name in order:
            two.restore(name)
        two.live_on()
        assert two.insert_again("r2", 1, 11, token="mine") == "duplicate"
        assert two.values("r1") == two.values("r2") == Counter([1, 11, 12])


def test_the_same_rows_that_two_disks_have_seen_promised_are_two_inserts(two):
    """The ids of the first were forgotten before the second came."""
    two.insert("r1", 9)
    keeper, table = two["r1"].session, two["r1"].table
    for parent in (table.blocks, table.inserts):
        keeper.multi([Delete(f"{parent}/{name}") for name in keeper.children(parent)])
    two.insert("r2", 9)
    two.wipe()
    two.restore("r1")
    assert two.restore("r2").given_up == ()
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([9, 9])


@pytest.mark.parametrize("noted", [False, True])
def test_a_try_of_an_insert_with_a_token_that_died_on_the_disk_that_has_it_goes(two, noted):
    """Both were of the same rows; equal blocks of the one that is there are all kept."""
    cut = {"max_insert_block_size": 1, "min_insert_block_size_rows": 1}
    die_before_the_commit(two, "r1", 9, 9, token="mine", settings=cut)
    two.clock.passed_s += 3
    assert two.insert_again("r1", 9, 9, token="mine", settings=cut) == "inserted"
    two.note = two.note if noted else lambda: None
    two.wipe()
    assert two.restore("r1").left_out == ()
    assert len(two.restore("r2").given_up) == 2
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([9, 9])
    assert two.insert_again("r2", 9, 9, token="mine") == "duplicate"


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize("merges", [1, 2])
@pytest.mark.parametrize("merged_by", ["r1", "r2"])
def test_a_dead_try_across_whose_number_others_were_merged_is_not_in_the_table(
    two, order, token, merges, merged_by
):
    """The merged part of r1's disk contains its number, and not its rows. Said again it came back
    as a duplicate: rows that an answer says are there were not.
    """
    two.insert("r2", 1)
    die_before_the_commit(two, "r1", 9, token=token)
    two.stop("r1")
    two.insert("r2", 2)
    two.live_on()
    for value in range(merges):
        optimize_partition(two[merged_by], "all", final=True, skip_merged=False)
        two.live_on()
        two.insert("r2", 10 + value)
    two.wipe()
    for name in order:
        two.restore(name)
    two.live_on()
    assert two.insert_again("r1", 9, token=token) == "inserted"
    two.live_on()
    for name in order:
        assert two.values(name) == Counter([1, 2, 9, *range(10, 10 + merges)]), name
    assert two["r1"].store.detached() == ["ignored_all_1_1_0"], (
        "the dead try is kept for people"
    )


@pytest.mark.parametrize("order", [("r2", "r3"), ("r3", "r2")])
@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize("lost", ["nothing", "the part", "the disk"])
def test_what_was_inserted_again_after_a_drop_is_no_repeat_of_what_was_dropped(
    tmp_path, order, token, lost
):
    """r3 alone has carried out the drop. r2 has the block of before the drop, and of the later one
    a copy that was fetched when ZooKeeper was lost already. That copy may be the last one.
    """
    with Disaster(tmp_path, ("r1", "r2", "r3")) as three:
        three.insert_again("r2", 9, token=token)
        three.step("r3", "fetch")
        three.table("r3").drop_partitions(["all"], settings={"alter_sync": 0})
        three.step("r3", "fetch")
        three.step("r3")
        three.clock.passed_s += 3
        assert three.insert_again("r1", 9, token=token) == "inserted"
        [again] = three["r1"].store.parts()
        three.note()
        shutil.copytree(
            three["r1"].store.directory(again), three["r2"].store.disk.local_path(str(again))
        )
        if lost == "the part":
            three["r1"].store.disk.remove_tree(str(again))
        three.note = lambda: None
        three.wipe()
        if lost != "the disk":
            three.restore("r1")
        three.restore(order[0])
        if lost == "the disk":
            drop_dead_replica(three.zookeeper.connect(), three["r1"].table, "r1")
        three.restore(order[1])
        left = order if lost == "the disk" else ("r1", *order)
        three.live_on(left)
        for name in left:
            assert three.values(name) == Counter([9]), name
            assert three.insert_again(name, 9, token=token) == "duplicate"


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("dead", ["before", "after"])
def test_what_stays_of_two_tries_is_what_is_forgotten_when_it_is_dropped(
    two, order, token, noted, dead
):
    """And not the number that the try that died had."""
    if dead == "before":
        die_before_the_commit(two, "r1", 9, token=token)
        assert two.insert_again("r2", 9, token=token) == "inserted"
    else:
        assert two.insert_again("r2", 9, token=token) == "inserted"
        keeper, table = two["r2"].session, two["r2"].table
        known = [
            (f"{parent}/{name}", keeper.get(f"{parent}/{name}")[0])
            for parent in (table.blocks, table.inserts)
            for name in keeper.children(parent)
        ]
        keeper.multi([Delete(path) for path, _ in known])  # r1 has not seen them
        die_before_the_commit(two, "r1", 9, token=token)
        keeper.multi([Create(path, data) for path, data in known])
    [real] = two["r2"].store.parts()
    if not noted:
        two.note = lambda: None
    two.wipe()
    for name in order:
        two.restore(name)
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([9])
    [stays] = {PartName.parse(part) for name in order for part in two.parts(name)}
    assert stays == real or not noted
    two.table("r1").drop_part(stays, settings={"alter_sync": 0})
    two.live_on()
    assert two.insert_again("r1", 9, token=token) == "inserted"


def restore_until(two, name, step):
    """The process that restores this replica dies right after this step."""
    done = getattr(opening, step)

    def dies(*args):
        done(*args)
        raise Dies

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, step, dies)
        with pytest.raises(Dies):
            two.restore(name)


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize("step", ["_give_up", "forget_tries"])
def test_who_opens_the_table_may_die_between_what_he_does_about_dead_tries(
    two, order, token, step
):
    """Who goes on has the same records: a drop of what stays is a drop of all that they name."""
    die_before_the_commit(two, "r1", 9, token=token)
    assert two.insert_again("r2", 9, token=token) == "inserted"
    two.wipe()
    two.restore(order[0])
    restore_until(two, order[1], step)
    two.stop(order[1])
    restore_until_open(two, order)
    two.live_on()
    assert [one.record.rows for one in two.table("r1").inserts()] == [1]
    [stays] = {PartName.parse(part) for name in order for part in two.parts(name)}
    two.table("r1").drop_part(stays, settings={"alter_sync": 0})
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter()
    assert two.insert_again("r1", 9, token=token) == "inserted"


@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize("step", ["_forget_given_up", "forget_tries", "_give_up"])
def test_a_dead_try_that_stays_because_the_other_replica_is_dropped_is_what_ids_name(
    two, token, step
):
    """1. r2 announces its block, which r1 has as a dead try. 2. The process that opens the table
    dies, and so does r2, for good. 3. Now r1's copy is the one that stays.
    """
    die_before_the_commit(two, "r1", 9, token=token)
    assert two.insert_again("r2", 9, token=token) == "inserted"
    two.wipe()
    two.restore("r2")
    restore_until(two, "r1", step)
    two.stop("r1")
    drop_dead_replica(two.zookeeper.connect(), two["r1"].table, "r2")
    restore_until_open(two, ["r1"])
    two.live_on(["r1"])
    assert two.insert_again("r1", 9, token=token) == "duplicate"
    [stays] = map(PartName.parse, two.parts("r1"))
    two.table("r1").drop_part(stays, settings={"alter_sync": 0})
    two.live_on(["r1"])
    assert two.insert_again("r1", 9, token=token) == "inserted"


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
@pytest.mark.parametrize("token", ["", "mine"])
def test_what_merges_went_across_is_not_what_stays(two, order, token):
    """The try of r1 that died has a number that r2 has merged across. It covers that part by its
    name, and does not have its rows. Those are in the next try alone, which nobody has noted.
    """
    two.insert("r2", 1)
    die_before_the_commit(two, "r1", 9, token=token)
    two.stop("r1")
    two.insert("r2", 2)
    two.step("r2", "fetch")
    optimize_partition(two["r2"], "all", final=True, skip_merged=False)
    two.step("r2")
    two["r1"].store.marks.note_active(())
    two["r2"].store.marks.note_active(map(PartName.parse, two.parts("r2")))
    assert two.insert_again("r2", 9, token=token) == "inserted"
    two.note = lambda: None
    two.wipe()
    for name in order:
        two.restore(name)
    two.live_on()
    for name in order:
        assert two.values(name) == Counter([1, 2, 9]), name
        assert two.insert_again(name, 9, token=token) == "duplicate"


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
@pytest.mark.parametrize("token", ["", "mine"])
def test_a_dead_try_of_an_insert_that_an_older_copy_of_zookeeper_knows_goes(two, order, token):
    """The record in the copy is whole, and says nothing of the try."""
    die_before_the_commit(two, "r1", 9, token=token)
    assert two.insert_again("r2", 9, token=token) == "inserted"
    older = two.copy_of_zookeeper()
    two.insert("r2", 1)
    two.note()
    two.go_back_to(older)
    for name in order:
        two.restore(name)
    two.live_on()
    for name in order:
        assert two.values(name) == Counter([1, 9]), name
        assert two.insert_again(name, 9, token=token) == "duplicate"


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
def test_a_dead_try_of_an_insert_of_many_blocks_is_in_no_record(two, order, monkeypatch):
    """The record is in several nodes."""
    monkeypatch.setattr(known_inserts, "_LINES_TOGETHER", 1)
    by_row = {"max_insert_block_size": 1, "min_insert_block_size_rows": 1}
    die_before_the_commit(two, "r1", 8, 9, token="mine", settings=by_row)
    assert two.insert_again("r2", 8, 9, token="mine", settings=by_row) == "inserted"
    stays = sorted(two["r2"].store.parts())
    two.wipe()
    for name in order:
        two.restore(name)
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([8, 9])
    known = read_record(two["r1"], insert_id_of_token("mine"))
    assert [(line.first, line.last) for line in known.lines] == [
        (part.block_min, part.block_max) for part in stays
    ]
    assert (known.record.rows, known.record.rows_in) == (2, 2), "it is not in part"
    assert two.insert_again("r1", 8, 9, token="mine", settings=by_row) == "duplicate"


def test_an_id_that_goes_while_it_is_read_names_nothing(two):
    """The server of another replica forgets old ones at that moment."""
    two.insert("r1", 1)
    replica = two["r1"]
    assert len(list(opening._named(replica, {}))) == 2, "its id, and its record"
    [name] = replica.keeper.children(replica.table.blocks)

    def goes():
        two.zookeeper.connect().multi([Delete(replica.table.block(name))])

    replica.keeper.session = BeforeRequest(replica.keeper.session, 1, goes)
    assert len(list(opening._named(replica, {}))) == 1
