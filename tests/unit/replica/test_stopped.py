"""SYSTEM STOP and START: nothing of that kind is done for the table, by any process of the host."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.compute.merge import unit as merge_unit
from rmt_pipeline.compute.progress import Progress, UnitProgress
from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import Timeout
from rmt_pipeline.protocol.log.codec import decode, encode
from rmt_pipeline.protocol.log.entry import MERGE_TTL_DELETE
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import Assigned, Nothing, optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.pull_log import PUT_OFF_S, PullingIsStopped, pull_log
from rmt_pipeline.replica.sync import SyncMode, sync_replica
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.queue_status import queue_status
from rmt_pipeline.replica.work.running import stop_by_hand
from rmt_pipeline.replica.work.worker import PATIENCE_MAX_S, Worker
from rmt_pipeline.server.upkeep import UpkeepLoop
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import SetData
from tests.support.local_replicas import ClockWaker, DirectPeers, Replicas


@pytest.fixture
def two(tmp_path):
    with Replicas(tmp_path) as replicas:
        yield replicas


def stop(replicas: Replicas, name: str, what: Background) -> None:
    replicas.stores[name].marks.stop(what)


def go_on(replicas: Replicas, name: str, what: Background) -> None:
    replicas.stores[name].marks.go_on(what)


def reasons(replicas: Replicas, name: str) -> list[str]:
    return [one.reason for one in queue_status(replicas[name]).waiting]


def test_fetches(two):
    part = two.insert("r1", 1)
    stop(two, "r2", Background.FETCHES)
    two.step("r2", "fetch")
    assert two.parts("r2") == []
    assert reasons(two, "r2") == [
        "FETCHES are stopped by hand on this server (SYSTEM START FETCHES)"
    ]
    go_on(two, "r2", Background.FETCHES)
    two.step("r2", "fetch")
    assert two.parts("r2") == [str(part)]


def merge_both(two: Replicas) -> None:
    two.insert("r1", 1)
    two.insert("r1", 2)
    two.step("r2", "fetch")


def test_merges_are_neither_assigned_nor_carried_out(two):
    merge_both(two)
    stop(two, "r2", Background.MERGES)
    refused = optimize_partition(two["r2"], "all", final=True, skip_merged=False)
    assert isinstance(refused, Nothing)
    assert "MERGES are stopped by hand" in refused.reason
    assert isinstance(
        optimize_partition(two["r1"], "all", final=True, skip_merged=False), Assigned
    )
    two.step("r1")
    two.step("r2")
    assert "all_0_1_1" in two.parts("r1")
    assert "all_0_1_1" not in two.parts("r2")
    assert "MERGES are stopped by hand" in reasons(two, "r2")[0]
    go_on(two, "r2", Background.MERGES)
    two.step("r2")
    assert "all_0_1_1" in two.parts("r2")


def test_ttl_merges_alone_leave_others_alone(two):
    merge_both(two)
    stop(two, "r1", Background.TTL_MERGES)
    assert isinstance(
        optimize_partition(two["r1"], "all", final=True, skip_merged=False), Assigned
    )
    two.step("r1")
    assert "all_0_1_1" in two.parts("r1")


class Interrupted(LocalMerger):
    """Somebody says SYSTEM STOP when the first batch of rows has been merged."""

    def __init__(self, replicas: Replicas, name: str, what: Background, monkeypatch) -> None:
        super().__init__(replicas.clock)
        self.batches = 0
        whole = UnitProgress.tell

        def tell(unit: UnitProgress, progress: Progress) -> None:
            whole(unit, progress)
            self.batches += 1
            if self.batches == 1:
                store = replicas.stores[name]
                stop_by_hand(store, what, lambda: replicas[name])

        monkeypatch.setattr(UnitProgress, "tell", tell)
        monkeypatch.setattr(merge_unit, "batch_rows_for", lambda *_: 1)


def merging(two: Replicas, name: str, monkeypatch, what: Background) -> Interrupted:
    """A merge of many batches on `name`, which is interrupted after the first one."""
    for number in range(3):
        two.table(name).insert([{"n": 10 * number + row} for row in range(10)])
    assigned = optimize_partition(two[name], "all", final=True, skip_merged=False)
    assert isinstance(assigned, Assigned)
    return Interrupted(two, name, what, monkeypatch)


def staged(two: Replicas, name: str) -> list[str]:
    return two.stores[name].staged()


def test_a_merge_that_runs_is_interrupted_and_nothing_of_it_stays(two, monkeypatch):
    merger = merging(two, "r1", monkeypatch, Background.MERGES)
    [failed] = two.step("r1", merger=merger).done
    assert "MERGES are stopped by hand on this server (SYSTEM START MERGES)" in failed.error
    assert merger.batches == 1, "it ended at once, with most of its rows to come"
    assert staged(two, "r1") == []
    assert two.parts("r1") == ["all_0_0_0", "all_1_1_0", "all_2_2_0"]
    assert "MERGES are stopped by hand" in reasons(two, "r1")[0]
    go_on(two, "r1", Background.MERGES)
    two.clock.passed_s += 1
    two.step("r1", merger=merger)
    assert "all_0_2_1" in two.parts("r1")
    there = Path(two.stores["r1"].directory(PartName.parse("all_0_2_1")))
    assert not (there / "stop").exists()


@pytest.mark.parametrize(
    ("kind", "ends"), [("merge", True), ("mutate", True), ("fetch", False)]
)
def test_of_what_runs_a_stop_ends_its_own_kind_alone(two, kind, ends):
    store = two.stores["r1"]
    name = f"tmp_{kind}_all_0_0_0_{'0' * 32}"
    store.disk.make_directory(name)
    stop_by_hand(store, Background.MERGES, lambda: two["r1"])
    _, directory = store.staged_at(name)
    assert (Path(directory) / "stop").exists() == ends


def test_a_mutation_that_runs_is_interrupted_with_the_merges(two, monkeypatch):
    two.insert("r1", 1)
    two.insert("r1", 2)
    begun = []

    def begin(store, kind, hint):
        staging = whole(store, kind, hint)
        begun.append((kind, hint))
        stop_by_hand(two.stores["r1"], Background.MERGES, lambda: two["r1"])
        return staging

    whole = PartStore.begin
    monkeypatch.setattr(PartStore, "begin", begin)
    two.table("r1").mutate("DELETE WHERE n = 1")
    assign_mutations(two["r1"])
    done = two.step("r1").done
    assert begun
    assert all("MERGES are stopped by hand" in one.error for one in done)
    assert staged(two, "r1") == []
    assert two.parts("r1") == ["all_0_0_0", "all_1_1_0"]


def test_a_stop_between_the_look_and_the_merge_is_seen(two, monkeypatch):
    """The entry is claimed; the directory that STOP looks for is not there yet."""

    class Never(LocalMerger):
        def merge(self, jobs):
            pytest.fail(f"{jobs} are merged all the same")

    merge_both(two)
    optimize_partition(two["r1"], "all", final=True, skip_merged=False)
    whole = PartStore.begin

    def begin(store, kind, hint):
        stop_by_hand(store, Background.MERGES, lambda: two["r1"])
        return whole(store, kind, hint)

    monkeypatch.setattr(PartStore, "begin", begin)
    [failed] = two.step("r1", merger=Never(two.clock)).done
    assert "MERGES are stopped by hand" in failed.error
    assert staged(two, "r1") == []


def test_other_merges_go_on_when_those_for_ttl_are_stopped(two, monkeypatch):
    merger = merging(two, "r1", monkeypatch, Background.TTL_MERGES)
    two.step("r1", merger=merger)
    assert merger.batches > 1
    assert "all_0_2_1" in two.parts("r1")


def test_a_merge_for_ttl_is_interrupted(two, monkeypatch):
    merger = merging(two, "r1", monkeypatch, Background.TTL_MERGES)
    keeper, log = two["r1"].keeper, two["r1"].table.log
    node = f"{log}/{max(keeper.children(log))}"
    entry = decode(keeper.get(node)[0])
    keeper.multi([SetData(node, encode(replace(entry, merge_type=MERGE_TTL_DELETE)))])
    [failed] = two.step("r1", merger=merger).done
    assert "TTL MERGES are stopped by hand" in failed.error
    assert merger.batches == 1
    assert staged(two, "r1") == []


def test_the_whole_queue(two):
    two.insert("r1", 1)
    stop(two, "r2", Background.REPLICATION_QUEUES)
    two.step("r2", "fetch")
    assert two.parts("r2") == []
    assert "REPLICATION QUEUES are stopped by hand" in reasons(two, "r2")[0]
    go_on(two, "r2", Background.REPLICATION_QUEUES)
    two.step("r2", "fetch")
    assert len(two.parts("r2")) == 1


def worker_of(two: Replicas, name: str, **named: bool) -> Worker:
    tools = Tools(DirectPeers(two.stores), LocalMerger(two.clock), LocalMutator(two.clock))
    return Worker(two[name], tools, "fetch", EventWaker(), select=True, **named)


def test_nothing_is_pulled_and_nothing_is_assigned_by_what_was_not_pulled(two):
    stop(two, "r2", Background.PULLING_REPLICATION_LOG)
    worker = worker_of(two, "r2")
    two.insert("r1", 1)
    for _ in range(3):
        worker.turn()
        two.clock.passed_s += PATIENCE_MAX_S
    queue = two["r2"].paths.queue
    assert two["r2"].keeper.children(queue) == []
    with pytest.raises(PullingIsStopped, match="PULLING REPLICATION LOG is stopped by hand"):
        pull_log(two["r2"])
    with pytest.raises(PullingIsStopped):
        sync_replica(two["r2"], SyncMode.DEFAULT, 1.0, EventWaker())
    worker.turn()
    assert worker.idle_s() == PATIENCE_MAX_S, "it looks again: no watch tells that it goes on"
    go_on(two, "r2", Background.PULLING_REPLICATION_LOG)
    two.clock.passed_s += worker.idle_s()
    look, _ = worker.turn()
    assert look.batches, "the entry that came meanwhile"
    for batch in look.batches:
        worker.executor.give_back(batch)


def test_the_pointer_of_who_merges_nothing_is_behind_what_was_inserted_here(two):
    stop(two, "r1", Background.MERGES)
    worker = worker_of(two, "r1", is_endless=True)
    worker.turn()
    two.insert("r1", 1)
    worker.turn()
    assert worker.idle_s() <= PUT_OFF_S


def test_clean_up(two):
    merge_both(two)
    optimize_partition(two["r1"], "all", final=True, skip_merged=False)
    two.step("r1")
    two.clock.passed_s += 10_000
    loop = UpkeepLoop(lambda _: two["r1"], two.clock, random.Random(1))
    loop.follow([two["r1"].definition])
    stop(two, "r1", Background.CLEANUP)
    for _ in range(3):
        loop.look()
        two.clock.passed_s += 1000
    assert len(two.parts("r1")) == 3
    go_on(two, "r1", Background.CLEANUP)
    loop.look()
    assert two.parts("r1") == ["all_0_1_1"]


def test_sync_from_some_replicas_waits_for_theirs_alone(tmp_path):
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as three:
        three.insert("r1", 1)
        stop(three, "r3", Background.FETCHES)
        timeout_s = 0.01
        sync_replica(three["r3"], SyncMode.LIGHTWEIGHT, timeout_s, EventWaker(), ["r2"])
        with pytest.raises(Timeout):
            sync_replica(
                three["r3"], SyncMode.LIGHTWEIGHT, timeout_s, ClockWaker(three.clock), ["r1"]
            )
        with pytest.raises(Timeout):
            sync_replica(three["r3"], SyncMode.DEFAULT, timeout_s, ClockWaker(three.clock))
