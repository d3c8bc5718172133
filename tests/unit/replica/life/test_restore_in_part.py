"""An INSERT of several commits was cut off, then ZooKeeper lost the table, and its replicas make it
again from their disks: said again, the insert brings what is missing, and nothing twice.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.inserts.ids import insert_id_of_token
from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.insert.record import noted_records, read_record
from rmt_pipeline.replica.life import known_inserts
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from tests.support.local_replicas import by_tens
from tests.support.lost_answers import before, dies_at_a_commit, logs
from tests.support.restoring import Disaster

VALUES = (1, 2, 11, 12, 21, 22, 31, 32, 41, 42)  # two rows in each of five partitions
IN_TWO_BLOCKS = {"max_insert_block_size": 1, "min_insert_block_size_rows": 1}


@pytest.fixture
def two(tmp_path, monkeypatch):
    """Each partition of an insert is a commit of its own."""
    monkeypatch.setattr(limits, "INSERT_BYTES_MAX", 1)
    with Disaster(tmp_path, define=by_tens) as disaster:
        yield disaster


def cut_off(two, name, commits, *, token="", landed=False, settings=None):
    """An insert that dies at its commit after so many others; that one may have landed."""
    with dies_at_a_commit(two[name], after=commits, landed=landed):
        two.insert_again(name, *VALUES, token=token, settings=settings)


def restore(two, order):
    for name in order:
        two.restore(name)
    two.live_on()


def merge_all(two, name, *partitions):
    for partition in partitions:
        optimize_partition(two[name], partition, final=True, skip_merged=False)
        two.step(name)


def everything_is_there_once(two):
    two.live_on()
    for name in ("r1", "r2"):
        assert two.values(name) == Counter(VALUES), name


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
@pytest.mark.parametrize("said_to", ["r1", "r2"])
@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize("fetched", [False, True])
def test_what_was_not_committed_is_brought_by_who_says_it_again(
    two, order, said_to, token, fetched
):
    cut_off(two, "r1", 2, token=token)
    if fetched:
        two.step("r2", "fetch")
    two.wipe()
    restore(two, order)
    settings = {} if token or said_to == "r1" else IN_TWO_BLOCKS
    outcome = two.insert_again(said_to, *VALUES, token=token, settings=settings)
    assert outcome == "resumed"
    assert two.insert_again("r1", *VALUES, token=token) == "duplicate"
    everything_is_there_once(two)


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
@pytest.mark.parametrize("token", ["", "mine"])
def test_what_was_committed_and_merged_since_is_not_brought_again(two, order, token):
    cut_off(two, "r1", 2, token=token)
    merge_all(two, "r1", "0", "1")
    two.step("r2", "fetch")
    two.wipe()
    restore(two, order)
    outcome = two.insert_again("r2", *VALUES, token=token, settings=IN_TWO_BLOCKS)
    assert outcome == "resumed"
    everything_is_there_once(two)


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
@pytest.mark.parametrize("token", ["", "mine"])
def test_an_insert_that_another_replica_went_on_with_and_ended_is_whole(two, order, token):
    """r1 has noted how far it came. Its next clean-up finds that the insert is whole."""
    cut_off(two, "r1", 2, token=token)
    assert two.insert_again("r2", *VALUES, token=token) == "resumed"
    two.live_on()
    carry_out(two["r1"], plan_clean_up(two["r1"]))
    merge_all(two, "r1", "0", "1")
    two.wipe()
    restore(two, order)
    if token:
        assert two.insert_again("r1", *VALUES, token=token) == "duplicate"
        everything_is_there_once(two)
    assert two["r1"].store.marks.commit_notes() == two["r2"].store.marks.commit_notes() == {}


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
def test_two_that_went_on_with_an_insert_know_together_what_is_in(two, order):
    """r1 made two commits and died; r2 another one, and died."""
    cut_off(two, "r1", 2, token="mine")
    cut_off(two, "r2", 1, token="mine")
    two.wipe()
    restore(two, order)
    known = read_record(two["r1"], insert_id_of_token("mine"))
    assert known is not None
    assert (known.record.rows_in, len(known.lines)) == (8, 4), "each of their rows counts once"
    assert two.insert_again("r1", *VALUES, token="mine") == "resumed"
    everything_is_there_once(two)


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
@pytest.mark.parametrize("token", ["", "mine"])
def test_a_whole_insert_of_several_commits_leaves_no_note(two, order, token):
    assert two.insert_again("r1", *VALUES, token=token) == "inserted"
    assert two["r1"].store.marks.commit_notes() == {}
    two.wipe()
    restore(two, order)
    assert two.insert_again("r2", *VALUES, token=token) == "duplicate"
    everything_is_there_once(two)


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
def test_of_a_partition_that_was_being_named_the_missing_blocks_are_brought(two, order):
    """The insert died when one of the two blocks of its third partition had its name."""
    cut_off(two, "r1", 2, token="mine", settings=IN_TWO_BLOCKS)
    store = two["r1"].store
    [_, last] = [part for part in store.parts() if part.partition == "2"]
    store.remove(last)
    two.wipe()
    restore(two, order)
    settings = IN_TWO_BLOCKS
    assert two.insert_again("r2", *VALUES, token="mine", settings=settings) == "resumed"
    everything_is_there_once(two)


def forget_notes(two, name):
    marks = two[name].store.marks
    for insert_id, notes in marks.commit_notes().items():
        marks.forget_commits(insert_id, notes)


def test_a_part_that_was_announced_adds_all_rows_of_its_partition_to_an_older_copy(two):
    """The copy knows of the first commit, and the disk has noted that the second one landed."""
    store = two["r1"].store
    cut_off(two, "r1", 1, token="mine")
    store.remove(max(store.parts()))  # of the commit that did not land
    older = two.copy_of_zookeeper()
    cut_off(two, "r1", 1, token="mine")
    store.remove(max(store.parts()))
    forget_notes(two, "r1")
    two.note()
    two.go_back_to(older)
    restore(two, ("r1", "r2"))
    known = read_record(two["r1"], insert_id_of_token("mine"))
    assert known is not None
    assert len(known.partitions) == 2
    assert (known.record.rows_in, known.record.missing) == (4, ())


@pytest.mark.parametrize("token", ["", "mine"])
def test_what_an_older_copy_of_zookeeper_says_of_an_insert_in_part_is_added_to(two, token):
    """The copy knows of the first commit; two more came since."""
    cut_off(two, "r1", 1, token=token)
    forget_notes(two, "r1")
    older = two.copy_of_zookeeper()
    cut_off(two, "r2", 2, token=token)
    two.note()
    two.go_back_to(older)
    restore(two, ("r1", "r2"))
    assert two.insert_again("r1", *VALUES, token=token) == "resumed"
    everything_is_there_once(two)


def test_a_restored_insert_in_part_is_remembered_until_it_is_whole(two):
    cut_off(two, "r1", 2, token="mine")
    two.wipe()
    restore(two, ("r1", "r2"))
    [(name, record)] = plan_clean_up(two["r2"]).ids.inserts_in_part
    assert name == insert_id_of_token("mine")
    assert (record.rows, record.rows_there) == (10, 6)
    known = read_record(two["r2"], name)
    assert known is not None
    assert known.partitions == {"0", "1", "2"}


@pytest.mark.parametrize("commits", [0, 2])
def test_what_is_noted_of_a_commit_that_never_landed_is_forgotten(two, commits):
    """Its blocks have numbers that nobody else gets, and a merge goes across them: then a part of
    this disk contains them, which says nothing.
    """
    cut_off(two, "r1", commits, token="mine")
    replica = two["r1"]
    store = replica.store
    last = max(part for part in store.parts())
    store.remove(last)
    notes = Path(store.disk.local_path(""), "in_part")
    for note in notes.iterdir():
        os.utime(note, (0, 0))
    carry_out(replica, plan_clean_up(replica))
    noted = [
        line.partition
        for records in noted_records(replica).values()
        for record in records
        for line in record.partitions
    ]
    assert noted == [str(partition) for partition in range(commits)]


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize("merged_by", ["r1", "r2"])
def test_a_merge_across_what_never_landed_does_not_have_its_rows(two, order, token, merged_by):
    """The insert has noted its first commit and died. Two others have the numbers before and after
    that of its block, and are merged. All that within a minute, before any clean-up.
    """
    two.insert_again("r2", 3)
    cut_off(two, "r1", 0, token=token)
    two.stop("r1")
    two.insert_again("r2", 4)
    two.live_on()
    merge_all(two, merged_by, "0")
    two.live_on()
    assert [str(part) for part in two["r1"].store.parts() if part.level] == ["0_0_2_1"]
    two.wipe()
    restore(two, order)
    two.insert_again("r1", *VALUES, token=token)
    two.live_on()
    for name in ("r1", "r2"):
        assert two.values(name) == Counter([*VALUES, 3, 4]), name


@pytest.mark.parametrize("is_old", [False, True])
def test_a_note_of_a_commit_that_is_under_way_stays(two, is_old):
    """A clean-up of the same host comes between the note and the commit, perhaps late: the disk is
    slow, or a clock jumps.
    """
    replica = two["r1"]
    noted = []

    def meanwhile():
        for note in Path(replica.store.directory("in_part")).iterdir() if is_old else ():
            os.utime(note, (0, 0))
        carry_out(replica, plan_clean_up(replica))
        noted.append(len(replica.store.marks.commit_notes()))

    with before(replica.session, logs, meanwhile):
        two.insert_again("r1", *VALUES, token="mine")
    assert noted == [1]


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
def test_an_insert_of_more_blocks_than_fit_into_one_node_is_known_again(
    two, order, monkeypatch
):
    """Of those that were whole nothing is noted: each part tells of it. r2 has the later ones."""
    assert two.insert_again("r1", *VALUES[:8], token="mine") == "inserted"
    two.step("r2", "fetch")
    monkeypatch.setattr(known_inserts, "_LINES_TOGETHER", 3)
    two.wipe()
    assert two.restore(order[0]).inserts == 1
    two.restore(order[1])
    path = two["r1"].table.insert(insert_id_of_token("mine"))
    record = InsertRecord.decode(two["r1"].session.get(path)[0])
    assert (len(record.partitions), record.batches) == (0, 2)
    known = read_record(two["r1"], insert_id_of_token("mine"))
    assert (known.record.is_whole, known.record.rows_in, len(known.lines)) == (True, 8, 4)
    two.live_on()
    assert two.insert_again("r2", *VALUES[:8], token="mine") == "duplicate"
    assert two.values("r1") == two.values("r2") == Counter(VALUES[:8])


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
def test_of_such_an_insert_what_another_disk_alone_has_is_known_too(two, order, monkeypatch):
    """r1 has lost its last block, r2 its first two."""
    assert two.insert_again("r1", *VALUES[:8], token="mine") == "inserted"
    two.step("r2", "fetch")
    first, second, _, last = two["r1"].store.parts()
    two["r1"].store.remove(last)
    two["r2"].store.remove(first)
    two["r2"].store.remove(second)
    monkeypatch.setattr(known_inserts, "_LINES_TOGETHER", 2)
    two.wipe()
    restore(two, order)
    known = read_record(two["r1"], insert_id_of_token("mine"))
    assert (known.record.is_whole, known.record.rows_in, len(known.lines)) == (True, 8, 4)
    assert two.insert_again("r2", *VALUES[:8], token="mine") == "duplicate"
    assert two.values("r1") == two.values("r2") == Counter(VALUES[:8])


def test_a_disk_that_knows_how_many_rows_there_are_and_no_more_of_them_adds_no_batch(
    two, monkeypatch
):
    """r2 has all parts of the insert, but only r1 has noted that it is one in part."""
    cut_off(two, "r1", 2, token="mine")
    two["r1"].store.remove(max(two["r1"].store.parts()))  # of the commit that did not land
    two.work_off("r2")
    monkeypatch.setattr(known_inserts, "_LINES_TOGETHER", 1)
    two.wipe()
    two.restore("r2")
    path = two["r2"].table.insert(insert_id_of_token("mine"))
    before_r1 = InsertRecord.decode(two["r2"].session.get(path)[0])
    assert (before_r1.rows, before_r1.batches) == (4, 2)
    two.restore("r1")
    record = InsertRecord.decode(two["r1"].session.get(path)[0])
    assert (record.rows, record.batches) == (10, 2)
    assert len(two["r1"].session.children(path)) == 2
    two.live_on()
    assert two.insert_again("r1", *VALUES, token="mine") == "resumed"
    everything_is_there_once(two)


def test_the_first_note_of_a_disk_tells_what_others_have_committed_before(two):
    """Else rows of theirs would be brought once more after a restore of this disk alone."""
    cut_off(two, "r1", 2, token="mine")
    cut_off(two, "r2", 1, token="mine")
    [first, *_] = noted_records(two["r2"])[insert_id_of_token("mine")]
    assert [line.partition for line in first.partitions] == ["0", "1", "2"]
