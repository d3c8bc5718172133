"""Inserts whose rows were dropped and inserted again before ZooKeeper went back to a copy from
before the drop: said once more, they are in the table once.
"""

from collections import Counter

import pytest

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.life import opening
from rmt_pipeline.replica.upkeep.rewound import remember_log
from tests.support.local_replicas import by_tens
from tests.support.restoring import Disaster, restore_until_open

BY_ROW = {"max_insert_block_size": 1, "min_insert_block_size_rows": 1}
NOW = {"alter_sync": 0}
ORDERS = [("r1", "r2"), ("r2", "r1")]
LAST = [(here, noted) for here in (("r1",), ("r1", "r2")) for noted in (False, True)]


@pytest.fixture
def two(tmp_path):
    with Disaster(tmp_path, define=by_tens) as disaster:
        yield disaster


def go_back(two, older, order, *, noted):
    """With `noted`, each server has noted which parts it had."""
    if noted:
        two.note()
    else:
        for name in order:
            remember_log(two[name])
    two.go_back_to(older)
    for name in order:
        two.restore(name)
    two.live_on()


def drop(two, *partitions, by="r1"):
    """Both carry it out."""
    two.table(by).drop_partitions(partitions, settings=NOW)
    two.live_on()


def drop_parts(two):
    """Each by its name: one has two blocks of the insert."""
    optimize_partition(two["r1"], "0", final=True, skip_merged=False)
    two.live_on()
    for part in PartSet(map(PartName.parse, two.parts("r1"))):
        two.table("r1").drop_part(part, settings=NOW)
        two.live_on()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("dropped", ["partitions", "one partition", "parts", "undone"])
def test_what_was_dropped_and_inserted_again_is_known(two, order, token, last, dropped):
    """Whether its later blocks are on one disk or both, and whether their servers have noted them;
    and when it is dropped once more it can be inserted.
    """
    values, (here, noted) = (1, 2, 11), last
    assert two.insert_again("r1", *values, token=token, settings=BY_ROW) == "inserted"
    two.live_on()
    older = two.copy_of_zookeeper()
    match dropped:
        case "partitions":
            drop(two, "0", "1")
        case "one partition":
            drop(two, "0")
        case "parts":
            drop_parts(two)
        case "undone":
            [known] = two.table("r1").inserts()
            two.table("r1").undo(known.insert_id, settings=NOW)
            two.live_on()
    two.clock.passed_s += 3
    outcome = two.insert_again("r1", *values, token=token, settings=BY_ROW)
    assert outcome == ("resumed" if dropped == "one partition" else "inserted")
    for name in here:
        two.step(name, "fetch")
    go_back(two, older, order, noted=noted)
    for name in order:
        assert two.values(name) == Counter(values)
        assert two.insert_again(name, *values, token=token, settings=BY_ROW) == "duplicate"
        assert two.insert_again(name, *values, token=token) == "duplicate", "cut otherwise"
    two.live_on()
    assert two.values("r2") == Counter(values)
    drop_parts(two)
    assert two.insert_again("r2", *values, token=token, settings=BY_ROW) == "inserted"
    two.live_on()
    assert two.values("r1") == Counter(values)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("cuts", [({}, BY_ROW), (BY_ROW, {})])
def test_what_was_inserted_again_cut_otherwise_is_known(two, order, token, noted, cuts):
    values = (1, 2, 3, 11)
    first, second = cuts
    assert two.insert_again("r1", *values, token=token, settings=first) == "inserted"
    two.live_on()
    older = two.copy_of_zookeeper()
    drop(two, "0", "1")
    two.clock.passed_s += 3
    assert two.insert_again("r2", *values, token=token, settings=second) == "inserted"
    two.step("r1", "fetch")
    go_back(two, older, order, noted=noted)
    for name in order:
        for settings in cuts:
            assert two.insert_again(name, *values, token=token, settings=settings) == (
                "duplicate"
            )
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter(values)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("others", ["", "yours"])
def test_an_insert_of_the_same_rows_under_another_token_is_another_one(
    two, order, noted, others
):
    """Or under none. What was dropped is not known by the rows that it has brought since."""
    assert two.insert_again("r1", 1, token="mine") == "inserted"
    two.live_on()
    older = two.copy_of_zookeeper()
    drop(two, "0")
    assert two.insert_again("r1", 1, token=others) == "inserted"
    two.step("r2", "fetch")
    go_back(two, older, order, noted=noted)
    assert two.insert_again("r1", 1, token=others) == "duplicate"
    assert two.insert_again("r2", 1, token="mine") == "inserted"
    assert two.insert_again("r2", 1, token="a third one") == "inserted"
    two.live_on()
    assert two.values("r1") == Counter([1, 1, 1])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("token", ["", "mine"])
def test_a_disk_that_has_yet_to_drop_it_may_be_heard_first(two, order, token):
    """ZooKeeper has nothing at all; one disk has both blocks."""
    assert two.insert_again("r1", 1, token=token) == "inserted"
    two.live_on()
    two.note()
    two.table("r1").drop_partitions(["0"], settings=NOW)
    two.step("r1", "fetch")
    two.step("r1")
    two.clock.passed_s += 3
    assert two.insert_again("r1", 1, token=token) == "inserted"
    for name in order:
        remember_log(two[name])
    two.note = lambda: None
    two.wipe()
    for name in order:
        two.restore(name)
    two.live_on()
    for name in order:
        assert two.values(name) == Counter([1])
        assert two.insert_again(name, 1, token=token) == "duplicate"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize("step", ["_give_up", "_name_what_came_again", "_forget_dropped"])
def test_who_opens_the_table_may_die_in_between(two, monkeypatch, order, token, step):
    assert two.insert_again("r1", 1, 2, token=token, settings=BY_ROW) == "inserted"
    two.live_on()
    older = two.copy_of_zookeeper()
    drop(two, "0")
    assert two.insert_again("r1", 1, 2, token=token, settings=BY_ROW) == "inserted"
    two.step("r2", "fetch")
    for name in order:
        remember_log(two[name])
    two.go_back_to(older)
    two.restore(order[0])
    done = getattr(opening, step)

    def dies(*args):
        done(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(opening, step, dies)
        with pytest.raises(KeyboardInterrupt):
            two.restore(order[1])
    two.stop(order[1])
    restore_until_open(two, order)
    two.live_on()
    for name in order:
        assert two.insert_again(name, 1, 2, token=token, settings=BY_ROW) == "duplicate"
    two.live_on()
    assert two.values("r1") == Counter([1, 2])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("token", ["", "mine"])
def test_what_was_merged_since_is_known_by_what_is_left_of_its_blocks(two, order, token):
    assert two.insert_again("r1", 1, 2, token=token, settings=BY_ROW) == "inserted"
    two.live_on()
    older = two.copy_of_zookeeper()
    drop(two, "0")
    assert two.insert_again("r1", 1, 2, token=token, settings=BY_ROW) == "inserted"
    two.live_on()
    optimize_partition(two["r1"], "0", final=True, skip_merged=False)
    two.live_on()
    go_back(two, older, order, noted=False)
    for name in order:
        assert two.insert_again(name, 1, 2, token=token, settings=BY_ROW) == "duplicate"
    two.live_on()
    assert two.values("r2") == Counter([1, 2])
