"""A restore has decided which copies are given up, and is cut off before the table is open; then a
replica for which others gave up theirs is dropped: no last copy is lost.
"""

import shutil
from collections import Counter
from contextlib import suppress

import pytest

from rmt_pipeline.protocol.errors import Conflict, RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.life.drop import drop_dead_replica
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.replica.upkeep.rewound import BeingRestored
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.zookeeper.keeper import Delete
from tests.support.between_requests import BeforeRequest
from tests.support.lost_answers import before
from tests.support.restoring import Disaster

PART = PartName("all", 0, 0, 0)


class Dies(BaseException):
    """The process is killed."""


@pytest.fixture
def two(tmp_path):
    with Disaster(tmp_path) as disaster:
        yield disaster


def with_other_rows(two, token):
    """r2's copy of `PART` has the rows of another insert, which are nowhere else."""
    two.insert("r1", 1, 2)
    two.step("r2", "fetch")
    assert two.insert_again("r1", 50, token=token) == "inserted"
    other = PartName("all", 1, 1, 0)
    mine, theirs = two["r1"].store, two["r2"].store
    theirs.remove(PART)
    shutil.copytree(LocalDisk(mine.directory(other)).local_path(""), theirs.directory(PART))
    mine.remove(other)
    two.wipe()


def dropped_at_r1(two):
    """r1 knows that everything was dropped; r2 has yet to hear of it."""
    two.insert("r1", 50)
    two.step("r2", "fetch")
    two.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
    two.step("r1", "fetch")
    two.step("r1")
    two.wipe()


def dies_before_it_is_open(two, name):
    """Who was waited for last has given up what it decided to."""
    replica = two.connect(name)

    def dies():
        raise Dies

    opens = before(replica.session, lambda op: op == Delete(replica.table.restoring), dies)
    with opens, pytest.raises(Dies):
        restore(replica, name.encode())
    two.zookeeper.expire(replica.session.session_id)


@pytest.mark.parametrize("last", ["r1", "r2"])
@pytest.mark.parametrize("token", ["", "mine"])
def test_the_copy_that_was_given_up_for_one_that_is_dropped_then_stays(two, token, last):
    with_other_rows(two, token)
    two.restore("r2" if last == "r1" else "r1")
    dies_before_it_is_open(two, last)
    drop_dead_replica(two.zookeeper.connect(), two["r1"].table, "r1")
    restored = two.restore("r2")
    assert (restored.waits_for, restored.given_up) == ((), ())
    two.live_on(["r2"])
    assert two.values("r2") == Counter([50])
    assert two["r2"].store.detached() == []
    assert two.insert_again("r2", 50, token=token) == "duplicate"


@pytest.mark.parametrize("token", ["", "mine"])
def test_rows_of_a_replica_that_is_dropped_before_it_is_open_may_be_inserted_again(two, token):
    """r1 alone has them. It has announced its parts, and its disk breaks."""
    two.insert("r1", 1)
    two.step("r2", "fetch")
    assert two.insert_again("r1", 7, token=token) == "inserted"
    two.wipe()
    two.restore("r1")
    dies_before_it_is_open(two, "r2")
    drop_dead_replica(two.zookeeper.connect(), two["r1"].table, "r1")
    two.restore("r2")
    two.live_on(["r2"])
    assert two.insert_again("r2", 7, token=token) == "inserted"
    assert two.insert_again("r2", 1) == "duplicate"
    assert two.values("r2") == Counter([1, 7])


def test_what_only_a_dropped_replica_knew_to_be_dropped_stays(two):
    dropped_at_r1(two)
    two.restore("r1")
    dies_before_it_is_open(two, "r2")
    drop_dead_replica(two.zookeeper.connect(), two["r1"].table, "r1")
    two.restore("r2")
    two.live_on(["r2"])
    assert two.values("r2") == Counter([50])
    assert two["r2"].store.detached() == []
    assert two.insert_again("r2", 50) == "duplicate"


def test_a_server_that_starts_does_not_open_it_without_the_copy(two):
    with_other_rows(two, "")
    two.restore("r1")
    dies_before_it_is_open(two, "r2")
    drop_dead_replica(two.zookeeper.connect(), two["r1"].table, "r1")
    with pytest.raises(BeingRestored, match=r"say SYSTEM RESTORE REPLICA default\.t on this"):
        two.start("r2")
    two.restore("r2")
    two.live_on(["r2"])
    assert two.values("r2") == Counter([50])


@pytest.mark.parametrize("last", ["r1", "r2"])
def test_who_goes_on_with_the_same_replicas_gives_up_the_same(two, last):
    with_other_rows(two, "")
    two.restore("r2" if last == "r1" else "r1")
    dies_before_it_is_open(two, last)
    assert two.restore(last).waits_for == ()
    two.live_on()
    for name in ("r1", "r2"):
        assert two.values(name) == Counter([1, 2]), name
    assert two["r2"].store.detached() == [f"ignored_{PART}"]
    assert two.insert_again("r1", 50) == "inserted"


def test_of_three_who_gave_up_and_did_not_come_again_is_waited_for(tmp_path):
    """r3 opens the table when r1 is gone: r2 has to announce its parts again."""
    names = ("r1", "r2", "r3")
    with Disaster(tmp_path, names) as three:
        with_other_rows(three, "")
        for name in ("r1", "r2"):
            three.restore(name)
        dies_before_it_is_open(three, "r3")
        drop_dead_replica(three.zookeeper.connect(), three["r1"].table, "r1")
        for _ in range(2):
            assert three.restore("r3").waits_for == ("r2",)
        with pytest.raises(BeingRestored, match="say it on r2"):
            three.start("r3")
        assert three.restore("r2").waits_for == ()
        three.live_on(["r2", "r3"])
        for name in ("r2", "r3"):
            assert three.values(name) == Counter([50]), name


def test_it_is_lost_between_no_two_requests(tmp_path):
    """Whoever opens dies before any of its requests; then r1 is dropped."""
    for number in range(200):
        with Disaster(tmp_path / str(number)) as two:
            with_other_rows(two, "mine")
            two.restore("r1")
            replica = two.connect("r2")
            replica.keeper.session = between = BeforeRequest(replica.session, number, killed)
            with suppress(Dies):
                restore(replica, b"r2")
            two.zookeeper.expire(between.session_id)
            if not between.has_come:
                break
            drop_dead_replica(two.zookeeper.connect(), two["r1"].table, "r1")
            with_retries(two, "r2")
            two.live_on(["r2"])
            assert two.values("r2") == Counter([50]), number
            assert two.insert_again("r2", 50, token="mine") == "duplicate", number
    assert 10 < number < 199


def killed():
    raise Dies


def with_retries(two, name):
    for _ in range(3):
        try:
            if not two.restore(name).waits_for:
                return
        except Conflict:
            continue
        except RmtError as error:
            assert "nothing to restore" in str(error)  # noqa: PT017
            return
