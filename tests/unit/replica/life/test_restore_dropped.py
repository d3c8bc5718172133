"""Partitions were dropped before ZooKeeper lost the table: what a replica had carried out stays so
on all of them, and what only ZooKeeper knew is gone.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.replica.life.drop import drop_dead_replica
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store import layout
from rmt_pipeline.zookeeper import restore_transactions
from rmt_pipeline.zookeeper.keeper import Delete, SetData
from tests.support.local_replicas import DirectPeers
from tests.support.restoring import Disaster


class Dies(BaseException):
    """A process that is killed."""


@pytest.fixture
def two(tmp_path):
    with Disaster(tmp_path) as disaster:
        yield disaster


def test_a_dropped_partition_does_not_come_back_from_the_replica_that_had_not_heard(two):
    two.insert("r1", 1)
    two.step("r2", "fetch")
    two.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
    two.step("r1", "fetch")
    two.step("r1")
    assert two.values("r1") == Counter()
    assert two["r1"].store.drops.ranges(), "r1 remembers what was dropped"
    two.wipe()
    two.restore("r2")
    two.restore("r1")
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter()
    assert two["r2"].store.detached() == ["ignored_all_0_0_0"]


@pytest.mark.parametrize("first", ["r1", "r2"])
def test_what_was_inserted_again_after_a_drop_has_its_id(two, first):
    """r2 had not heard of the drop: its copy of the block has the same id, and is dropped."""
    two.insert("r1", 1)
    two.step("r2", "fetch")
    two.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
    two.step("r1", "fetch")
    two.step("r1")
    again = two.insert("r1", 1)
    two.wipe()
    for name in (first, "r2" if first == "r1" else "r1"):
        two.restore(name)
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1])
    keeper, table = two["r1"].keeper, two["r1"].table
    named = [keeper.get(table.block(one))[0].decode() for one in keeper.children(table.blocks)]
    assert named == [str(again)]


def test_a_replica_whose_drop_begins_while_the_table_is_opened_is_cloned_by_nobody(
    two, monkeypatch
):
    """DROP TABLE on r1, which has announced its parts; its process dies at the next step."""
    two.insert("r1", 1)
    two.step("r2", "fetch")
    two.wipe()
    two.restore("r1")
    left, opens = two["r1"].paths, restore_transactions.open_table

    def dropped(*asked, **named):
        monkeypatch.setattr(restore_transactions, "open_table", opens)
        two["r1"].session.multi([SetData(left.is_lost, b"1")])
        two["r1"].session.multi([Delete(left.host)])
        return opens(*asked, **named)

    monkeypatch.setattr(restore_transactions, "open_table", dropped)
    with pytest.raises(Conflict):
        two.restore("r2")
    two["r2"].session.exists("/")  # its session gives the lock back
    assert two.restore("r2").waits_for == ()
    assert two["r2"].keeper.get(left.is_lost)[0] == b"1"
    two.live_on(["r2"])
    assert two.values("r2") == Counter([1])


@pytest.mark.parametrize("heard", [False, True])
def test_what_was_dropped_stays_so_however_long_another_replica_was_away(two, heard):
    """r1 has dropped it days ago. r2 was switched off all the time, or has `heard` of it."""
    two.insert("r1", 1)
    two.step("r2", "fetch")
    two.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
    two.step("r1", "fetch")
    two.step("r1")
    if heard:
        two.step("r2", "fetch")
        two.step("r2")
    store = two["r1"].store
    [dropped] = store.drops.ranges()
    os.utime(Path(store.disk.local_path(""), layout.dropped(dropped)), (0, 0))
    carry_out(two["r1"], plan_clean_up(two["r1"]))
    assert store.drops.ranges() == ([] if heard else [dropped])
    two.wipe()
    two.restore("r2")
    two.restore("r1")
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter()


def test_a_drop_that_only_zookeeper_knew_is_gone_and_that_is_said(two):
    two.insert("r1", 1)
    two.step("r2", "fetch")
    two.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
    two.wipe()
    assert "that no replica had carried out" not in two.restore("r2").words()
    assert "that no replica had carried out is not known any more" in two.restore("r1").words()
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1])


def test_what_was_dropped_between_two_restores_does_not_come_back(two):
    """What is done unbound is not bound to the replica that the first restore made."""
    two.insert("r1", 1)
    two.wipe()
    two.restore("r1")
    two.restore("r2")
    two.live_on()
    two.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
    two.step("r1", "fetch")
    two.step("r1")
    two.wipe()
    two.restore("r2")
    assert two.restore("r1").waits_for == ()
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter()
    assert two.insert_again("r1", 1) == "inserted"


def test_a_dropped_partition_goes_on_all_who_had_not_heard(tmp_path):
    names = "r1", "r2", "r3"
    with Disaster(tmp_path, names) as three:
        three.insert("r1", 1)
        for name in ("r2", "r3"):
            three.step(name, "fetch")
        three.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
        three.step("r1", "fetch")
        three.step("r1")
        three.wipe()
        for name in names:
            three.restore(name)
        three.live_on()
        for name in names:
            assert three.values(name) == Counter(), name
        for name in ("r2", "r3"):
            assert three[name].store.detached() == ["ignored_all_0_0_0"]


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1")])
def test_what_was_dropped_by_who_had_yet_to_fetch_it_stays_so(two, order):
    """r1 has carried the drop out, and fetches nothing of it any more; r2 has yet to hear of it."""
    two.insert("r2", 1)
    two.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
    pull_log(two["r1"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two, "peers", lambda: DirectPeers({}))  # nobody answers
        two.step("r1", "fetch")
    assert two.queue("r1") == []
    assert two["r1"].store.parts() == []
    assert two.values("r2") == Counter([1])
    two.wipe()
    for name in order:
        two.restore(name)
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter()
    assert two.insert_again("r1", 1) == "inserted"


def test_what_was_replaced_by_who_had_yet_to_fetch_it_stays_so(tmp_path):
    """r1 replaced the rows, and its disk is gone; r3 has carried that out, and r2 has yet to."""
    with Disaster(tmp_path, ("r1", "r2", "r3")) as three:
        three.insert("r2", 1)
        three.table("r1").replace([{"n": 2}], whole=True, settings={"alter_sync": 0})
        pull_log(three["r3"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(three, "peers", lambda: DirectPeers({"r1": three["r1"].store}))
            three.step("r3", "fetch")
        assert three.queue("r3") == []
        assert three.values("r2") == Counter([1])
        assert three.values("r3") == Counter([2])
        three.wipe()
        three.restore("r2")
        drop_dead_replica(three.zookeeper.connect(), three["r1"].table, "r1")
        three.restore("r3")
        three.live_on(["r2", "r3"])
        assert three.values("r2") == three.values("r3") == Counter([2])


def test_a_drop_that_is_noted_and_not_carried_out_yet_stays_noted(two, monkeypatch):
    """Its parts are still promised, and its entry is in the queue. ZooKeeper is lost then."""
    two.insert("r1", 1)
    two.work_off()
    two.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
    drops = two["r1"].store.drops
    note = drops.note

    def noted(dropped):
        note(dropped)
        carry_out(two.connect("r1"), plan_clean_up(two["r1"]))
        raise Dies

    monkeypatch.setattr(drops, "note", noted)
    with pytest.raises(Dies):
        two.step("r1", "fetch")
    assert two["r1"].store.drops.ranges() != []
    two.wipe()
    for name in ("r1", "r2"):
        two.restore(name)
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter()
