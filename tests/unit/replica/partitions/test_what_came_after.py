"""What came into a partition after a DROP or DETACH is not seen beside what that took, on a replica
that is behind.
"""

import errno
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.insert.result import QuorumNotReached
from rmt_pipeline.replica.life.clone import clone_if_lost
from rmt_pipeline.replica.partitions import attach as attaching
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.sql.system.replication import queue_of
from rmt_pipeline.zookeeper.keeper import Delete, SetData
from tests.support.local_replicas import DirectPeers, Replicas, partitioned
from tests.support.lost_answers import before, faulty, logs
from tests.support.partitioned import insert, rows

NOW = QuerySettings(alter_sync=0)
OLD = [(1, 0), (1, 1)]


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    """Both have partition 1, in two parts."""
    with Replicas(tmp_path, define=partitioned) as opened:
        for pair in OLD:
            insert(opened, pair)
        opened.work_off()
        yield opened


def forgets_parts(op):
    """The step of a drop at which readers see it."""
    return isinstance(op, Delete) and "/parts/" in op.path


def attached(replicas):
    replicas.table("r1").drop_partitions(["1"], detach=True, settings=NOW)
    replicas.work_off("r1")
    replicas.table("r1").attach("1")
    return OLD


def inserted(replicas):
    replicas.table("r1").drop_partitions(["1"], settings=NOW)
    replicas.work_off("r1")
    insert(replicas, (1, 1))
    return [(1, 1)]


def inserted_and_merged(replicas):
    replicas.table("r1").drop_partitions(["1"], settings=NOW)
    replicas.work_off("r1")
    insert(replicas, (1, 1))
    insert(replicas, (1, 2))
    replicas.table("r1").optimize("1", final=True, settings=NOW)
    replicas.work_off("r1")
    return [(1, 1), (1, 2)]


@pytest.mark.parametrize("change", [attached, inserted, inserted_and_merged])
def test_a_drop_that_fails_at_first_keeps_back_what_came_after_it(replicas, change):
    """P14."""
    new = change(replicas)
    with faulty(replicas["r2"].keeper, forgets_parts, landed=False, times=4):
        pull_log(replicas["r2"])
        for pool in ("fetch", "merge"):
            executor = replicas.executor("r2", pool)
            for _ in range(3):
                executor.step(None)
                assert rows(replicas, "r2") == OLD
    replicas.clock.passed_s += 100
    replicas.work_off("r2")
    assert rows(replicas, "r2") == new


def clones(replicas):
    replicas["r2"].keeper.multi([SetData(replicas["r2"].paths.is_lost, b"1")])
    cloned = clone_if_lost(replicas["r2"])
    assert cloned is not None
    return cloned


def sees_the_old_rows_until_they_are_dropped(replicas):
    """And then the new one, although the drop fails at first."""
    with faulty(replicas["r2"].keeper, forgets_parts, landed=False, times=4):
        executor = replicas.executor("r2", "fetch")
        for _ in range(3):
            executor.step(None)
            assert rows(replicas, "r2") == OLD
    replicas.clock.passed_s += 100
    replicas.work_off()
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 1)]


def test_a_clone_carries_out_drops_before_what_its_source_inserted_after_them(
    replicas,
):
    """P14. The source, which has yet to drop, has what was inserted there; its part is the first
    that is taken over, as it is in no log entry that the replica will pull.
    """
    replicas.table("r1").drop_partitions(["1"], settings=NOW)
    pull_log(replicas["r1"])
    insert(replicas, (1, 1))
    pull_log(replicas["r1"])
    cloned = clones(replicas)
    assert cloned.fetches == 1
    sees_the_old_rows_until_they_are_dropped(replicas)


def test_a_clone_pulls_what_its_source_inserted_after_a_drop_that_it_has_not_pulled(replicas):
    """P14. The source has the part, and the drop comes first when the replica pulls the log."""
    replicas.table("r2").drop_partitions(["1"], settings=NOW)
    insert(replicas, (1, 1))
    cloned = clones(replicas)
    assert cloned.fetches == len(OLD)
    pull_log(replicas["r2"])
    sees_the_old_rows_until_they_are_dropped(replicas)


def test_what_came_after_is_not_begun_beside_a_drop_that_is_under_way(replicas):
    """P14. The two would be carried out at the same time, by two threads."""
    attached(replicas)
    pull_log(replicas["r2"])
    executor = replicas.executor("r2", "fetch")
    [batch] = executor.look(None).batches
    [task] = batch.tasks
    assert str(task.part) == "1_0_1_999999999_999999999"
    assert executor.look(None).batches == (), "nor by the next look, while it is under way"
    assert [one.kind for one in executor.carry_out(batch)] == ["DROP_RANGE"]
    replicas.work_off("r2")
    assert rows(replicas, "r2") == OLD


def half_detach(replicas):
    """r1 has copied the parts, and has them still."""
    replicas.table("r1").drop_partitions(["1"], detach=True, settings=NOW)
    pull_log(replicas["r1"])
    with faulty(replicas["r1"].keeper, forgets_parts, landed=False, times=4):
        [done] = replicas.executor("r1", "fetch").step(None).done
    assert done.error
    assert len(replicas.stores["r1"].detached()) == 2


def test_what_a_detach_has_copied_is_not_attached_before_it_has_taken_it_away(replicas):
    """P14. Here readers would see each row twice, until the detach is tried again."""
    half_detach(replicas)
    with pytest.raises(Unavailable, match="has yet to carry out queue-0000000000, which drops"):
        replicas.table("r1").attach("1")
    assert rows(replicas, "r1") == OLD
    replicas.clock.passed_s += 100
    replicas.work_off()
    assert rows(replicas, "r1") == []
    replicas.table("r1").attach("1")
    assert rows(replicas, "r1") == OLD


def test_nor_if_the_detach_begins_when_an_attach_has_waited_for_none(replicas, monkeypatch):
    """P14. What it had taken up is given back."""
    choose = attaching._choose

    def then(*asked):
        half_detach(replicas)
        return choose(*asked)

    monkeypatch.setattr(attaching, "_choose", then)
    with pytest.raises(Unavailable, match="has yet to carry out queue-0000000000, which drops"):
        replicas.table("r1").attach("1")
    assert rows(replicas, "r1") == OLD
    assert replicas.stores["r1"].detached() == ["1_0_0_0", "1_1_1_0"]


@pytest.mark.parametrize("what", ["partition", "parts"])
def test_nor_if_the_detach_is_decided_after_the_look(replicas, what):
    """P14. r2 attaches its copies of the parts, and detaches them again, while r1 attaches its own:
    r1 has yet to drop what it got from r2.
    """
    replicas.table("r1").drop_partitions(["1"], detach=True, settings=NOW)
    replicas.work_off()

    def by_another():
        parts = replicas.table("r2").attach("1").parts
        replicas.work_off("r1")
        if what == "partition":
            replicas.table("r2").drop_partitions(["1"], detach=True, settings=NOW)
        else:
            for part in parts:
                replicas.table("r2").drop_part(part, detach=True, settings=NOW)

    with (
        before(replicas["r1"].keeper, logs, by_another),
        pytest.raises(Unavailable, match=r"has yet to carry out queue-\d+, which drops"),
    ):
        replicas.table("r1").attach("1")
    assert rows(replicas, "r1") == OLD
    assert replicas.stores["r1"].detached() == ["1_0_0_0", "1_1_1_0"], "given back"


def test_a_drop_elsewhere_meanwhile_is_no_reason_to_attach_nothing(replicas):
    insert(replicas, (2, 2))
    replicas.table("r1").drop_partitions(["1"], detach=True, settings=NOW)
    replicas.work_off()

    def by_another():
        replicas.table("r2").drop_partitions(["2"], settings=NOW)

    with before(replicas["r1"].keeper, logs, by_another):
        assert len(replicas.table("r1").attach("1").parts) == 2
    replicas.work_off()
    assert rows(replicas, "r1") == rows(replicas, "r2") == OLD


def test_drops_elsewhere_that_come_as_often_as_it_publishes_do_not_hold_it_up(
    replicas, monkeypatch
):
    """Partitions are replaced all the time. To publish some hundred parts takes seconds."""
    insert(replicas, (2, 2))
    replicas.table("r1").drop_partitions(["1"], detach=True, settings=NOW)
    replicas.work_off()
    publish, published = replicas.stores["r1"].publish_all, []

    def slowly(parts):
        published.append(len(parts))
        if len(published) < 4:
            replicas.table("r2").drop_partitions(["2"], settings=NOW)
        return publish(parts)

    monkeypatch.setattr(replicas.stores["r1"], "publish_all", slowly)
    assert len(replicas.table("r1").attach("1").parts) == 2
    assert published == [2]


def test_nothing_is_attached_beside_an_insert_that_is_yet_to_be_undone(replicas):
    """P14. The undo is decided after the look."""
    replicas.table("r1").drop_partitions(["1"], detach=True, settings=NOW)
    replicas.work_off()
    undone = insert(replicas, (1, 5), at="r2")
    replicas.work_off()

    def by_another():
        replicas.table("r2").undo(undone.insert_id, settings=NOW)

    with (
        before(replicas["r1"].keeper, logs, by_another),
        pytest.raises(Unavailable, match=r"has yet to carry out queue-\d+, which drops"),
    ):
        replicas.table("r1").attach("1")
    assert rows(replicas, "r1") == [(1, 5)]
    replicas.work_off()
    replicas.table("r1").attach("1")
    assert rows(replicas, "r1") == OLD


def test_nor_beside_a_part_that_is_being_fetched_and_was_dropped_meanwhile(
    replicas, monkeypatch
):
    """P14. Nothing of the partition is here when ATTACH looks, but it comes."""
    replicas.table("r1").drop_partitions(["1"], detach=True, settings=NOW)
    replicas.work_off()
    insert(replicas, (1, 5), at="r2")
    fetch = DirectPeers.fetch

    def meanwhile(peers, requests, store):
        monkeypatch.setattr(DirectPeers, "fetch", fetch)
        replicas.table("r2").drop_partitions(["1"], settings=NOW)
        with pytest.raises(Unavailable, match=r"has yet to carry out queue-\d+, which drops"):
            replicas.table("r1").attach("1", settings=replace(NOW, receive_timeout=0))
        return fetch(peers, requests, store)

    monkeypatch.setattr(DirectPeers, "fetch", meanwhile)
    replicas.step("r1", "fetch")
    assert rows(replicas, "r1") == [(1, 5)]
    replicas.work_off()
    replicas.table("r1").attach("1")
    assert rows(replicas, "r1") == OLD


def test_an_attach_waits_for_the_detach(replicas):
    """It is woken when the drop has left the queue."""
    half_detach(replicas)
    waits = []

    def time_passes():
        waits.append(replicas.clock.monotonic_s())
        replicas.clock.passed_s += 100
        replicas.work_off("r1")

    replicas.meanwhile.append(time_passes)
    assert len(replicas.table("r1").attach("1").parts) == 2
    assert len(waits) == 1
    assert rows(replicas, "r1") == OLD
    assert replicas.stores["r1"].detached() == []


def test_the_queue_says_which_drop_holds_back_what_came_after_it_and_why_that_fails(replicas):
    """As does the insert that waits for its quorum, which says where to look."""
    replicas.table("r1").drop_partitions(["1"], settings=NOW)
    replicas.work_off("r1")
    disk_fails = OSError(errno.EIO, "Input/output error")

    def tried():
        with faulty(
            replicas["r2"].keeper, forgets_parts, landed=False, error=disk_fails, times=1
        ):
            pull_log(replicas["r2"])
            replicas.executor("r2", "fetch").step(None)

    replicas.meanwhile.append(tried)
    with pytest.raises(QuorumNotReached, match="on the other replicas what holds them back"):
        insert(replicas, (1, 5), settings={"insert_quorum": "2", "insert_quorum_timeout": "1"})
    drop, held = queue_of(replicas["r2"])
    assert "Input/output error" in drop["last_exception"]
    assert held["postpone_reason"].startswith(
        f"{drop['node_name']}, which drops 1_0_1_999999999_999999999, must run first (it failed"
    )
    assert "Input/output error" in held["postpone_reason"]
    replicas.clock.passed_s += 100
    replicas.work_off("r2")
    assert rows(replicas, "r2") == [(1, 5)]
