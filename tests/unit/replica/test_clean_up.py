"""What clean-up removes, and what it must leave alone although it meant to remove it."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName, drop_range
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.backoff import record_failure
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.upkeep.clean_up import (
    CleanedUp,
    CleanUpPlan,
    carry_out,
    plan_clean_up,
)
from rmt_pipeline.store import layout
from rmt_pipeline.store.marks import CommitNote
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from tests.support.local_replicas import Replicas

SOURCES = ["all_0_0_0", "all_1_1_0"]
MERGED = "all_0_1_1"


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    """Two parts and what they were merged into, which is older than old parts are kept."""
    with Replicas(tmp_path) as opened:
        for value in range(2):
            opened.insert("r1", value)
        optimize_partition(opened["r1"], "all", final=True, skip_merged=False)
        opened.step("r1")
        assert opened.parts("r1") == sorted([*SOURCES, MERGED])
        opened.clock.passed_s += 1000
        yield opened


def planned(replicas: Replicas) -> CleanUpPlan:
    plan = plan_clean_up(replicas["r1"])
    assert [str(part) for part in plan.parts.remove] == SOURCES
    return plan


def give_up(replicas: Replicas, part: str) -> None:
    """It is found broken: no longer promised, and queued for a fetch."""
    store = replicas.stores["r1"]
    (Path(store.directory(PartName.parse(part))) / "part.json").write_text("?")
    assert check_part(replicas["r1"], PartName.parse(part)) is not None


def on_disk(replicas: Replicas) -> list[str]:
    return [str(part) for part in replicas.stores["r1"].parts()]


def test_covered_parts_go_from_zookeeper_and_from_disk(replicas):
    cleaned = carry_out(replicas["r1"], planned(replicas))
    assert [str(part) for part in cleaned.parts] == SOURCES
    assert replicas.parts("r1") == on_disk(replicas) == [MERGED]


PART = PartName.parse("all_0_0_0")


@pytest.mark.parametrize(
    ("cleaned", "words"),
    [
        (CleanedUp(), "nothing to remove"),
        (CleanedUp(parts=(PART,), block_ids=2), "removed 1 old parts, 2 block ids"),
        (CleanedUp(marked_lost=("r2", "r3")), "nothing to remove; marked as lost: r2, r3"),
        (
            CleanedUp(lost=(PART,)),
            (
                "nothing to remove; LOST on all replicas, and empty parts now: all_0_0_0 "
                "(system.lost_parts says which inserts to repeat)"
            ),
        ),
        (CleanedUp(detached=("a", "b")), "nothing to remove; set aside: a, b"),
        (CleanedUp(pinned=(PART,)), "nothing to remove; 1 old parts are being read and stay"),
        (
            CleanedUp(log_entries=3, stopped_because="it ended"),
            "removed 3 log entries; it ended",
        ),
    ],
)
def test_what_was_removed_is_said_and_nothing_else(cleaned, words):
    assert cleaned.words() == words


def test_an_old_plan_removes_nothing_once_what_covers_was_given_up(replicas):
    """1. The plan: the merged part covers its sources. 2. The merged part is found broken, and is
    no longer promised: the sources are all that this replica has. 3. The plan is carried out.
    """
    plan = planned(replicas)
    give_up(replicas, MERGED)
    cleaned = carry_out(replicas["r1"], plan)
    assert cleaned.parts == ()
    assert "was given up, or the replica was marked lost, since" in cleaned.words()
    assert replicas.parts("r1") == SOURCES
    assert set(SOURCES) <= set(on_disk(replicas))


def test_an_old_plan_removes_nothing_once_what_covered_was_taken_away(replicas):
    """By whatever: without what covers them they are not old."""
    plan = planned(replicas)
    replica = replicas["r1"]
    replica.keeper.multi([Delete(replica.paths.part(PartName.parse(MERGED)))])
    assert carry_out(replica, plan).parts == ()
    assert replicas.parts("r1") == SOURCES
    assert set(SOURCES) <= set(on_disk(replicas))


def test_an_old_plan_removes_nothing_once_what_covers_was_fetched_again(replicas):
    """It is there again, but only since a moment ago: old parts stay a while beside what is new."""
    plan = planned(replicas)
    replica = replicas["r1"]
    header, _ = replica.keeper.get(replica.paths.part(PartName.parse(MERGED)))
    give_up(replicas, MERGED)
    replica.keeper.multi([Create(replica.paths.part(PartName.parse(MERGED)), header)])
    assert len(carry_out(replica, plan).kept) == 2
    assert replicas.parts("r1") == sorted([*SOURCES, MERGED])


def test_nothing_is_planned_for_a_replica_that_is_lost(replicas):
    """It is going to be cloned, and the clone decides what stays."""
    replica = replicas["r1"]
    replica.keeper.multi([SetData(replica.paths.is_lost, b"1")])
    plan = plan_clean_up(replica)
    assert plan.parts.remove == plan.leftovers == plan.unexpected == ()


def test_a_plan_that_another_clean_up_has_carried_out_does_no_harm(replicas):
    plan = planned(replicas)
    carry_out(replicas["r1"], planned(replicas))
    assert carry_out(replicas["r1"], plan).kept == ()
    assert replicas.parts("r1") == on_disk(replicas) == [MERGED]


def test_an_old_plan_forgets_no_insert_that_was_made_again_since(replicas):
    """1. The plan: ids outside the window. 2. Another clean-up removes them. 3. The same rows come
    once more. 4. The plan is carried out: their ids are the newest, and a retry relies on them.
    """
    replicas.set(replicated_deduplication_window="1")
    keeper, table = replicas["r1"].keeper, replicas["r1"].table

    def ids() -> list[str]:
        return keeper.children(table.blocks) + keeper.children(table.inserts)

    replicas.insert("r1", 7)
    plan = plan_clean_up(replicas["r1"])
    assert (len(plan.ids.blocks.remove), len(plan.ids.inserts.remove)) == (2, 2)
    carry_out(replicas["r2"], plan_clean_up(replicas["r2"]))
    [kept, _] = ids()
    replicas.clock.passed_s += 1
    replicas.insert("r1", 0)
    young = set(ids())
    assert young & {*plan.ids.blocks.remove, *plan.ids.inserts.remove}
    cleaned = carry_out(replicas["r1"], plan)
    assert (cleaned.block_ids, cleaned.insert_ids) == (0, 0)
    assert set(ids()) == young
    result = replicas.table("r1").insert([{"n": 0}])
    assert (result.parts, result.rows_duplicate) == ((), 1)
    carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
    assert kept not in ids()
    assert len(ids()) == 2


def test_a_retry_is_known_after_a_leader_whose_clock_is_behind(replicas):
    """Another server of ZooKeeper leads, and dates its nodes before those that are there:
    what was inserted just then is not the oldest, but is what is said again.
    """
    replicas.set(replicated_deduplication_window="2")
    replicas.clock.passed_s -= 2000
    replicas.insert("r1", 7)
    carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
    result = replicas.table("r1").insert([{"n": 7}])
    assert (result.parts, result.rows_duplicate) == ((), 1)
    replicas.insert("r1", 0)  # the oldest by far, and forgotten


def test_many_ids_go_in_several_steps(replicas, monkeypatch):
    """Each asserts the version that the one before has left."""
    monkeypatch.setattr(limits, "CLEAN_UP_OPS_PER_MULTI_MAX", 3)
    for value in range(2, 10):
        replicas.clock.passed_s += 1
        replicas.insert("r1", value)
    replicas.set(replicated_deduplication_window="2")
    cleaned = carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
    assert (cleaned.block_ids, cleaned.insert_ids) == (8, 8)
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    assert (len(keeper.children(table.blocks)), len(keeper.children(table.inserts))) == (2, 2)


@pytest.mark.parametrize("is_large", [False, True])
def test_a_record_that_can_not_be_read_stays_and_stops_nothing_else(replicas, is_large):
    """It may be of an insert in part, by a newer version. What is old on the disk goes."""
    replicas.set(replicated_deduplication_window="1")
    replica = replicas["r1"]
    keeper, table = replica.keeper, replica.table
    path = table.insert(keeper.children(table.inserts)[0])
    keeper.multi([SetData(path, b"insert format version: 999\n")])
    if is_large:
        keeper.multi([Create(f"{path}/0000000000")])
    replicas.clock.passed_s += 10_000
    replicas.insert("r1", 7)
    cleaned = carry_out(replica, plan_clean_up(replica))
    assert {str(part) for part in cleaned.parts} == set(SOURCES)
    assert cleaned.insert_ids == 1
    assert cleaned.stopped_because.startswith(f"{path} can't be read, and stays: ")
    assert keeper.exists(path) is not None
    assert len(keeper.children(table.inserts)) == 2


def test_notes_of_an_insert_whose_record_can_not_be_read_stay(replicas):
    """They stop nothing else."""
    replica = replicas["r1"]
    [insert_id, *_] = replica.keeper.children(replica.table.inserts)
    path = replica.table.insert(insert_id)
    text, _ = replica.keeper.get(path)
    replica.store.marks.note_commit(insert_id, CommitNote(0, text))
    replica.keeper.multi([SetData(path, b"insert format version: 999\n")])
    cleaned = carry_out(replica, plan_clean_up(replica))
    assert "something can't be read, and is left alone" in cleaned.stopped_because
    assert insert_id in replica.store.marks.commit_notes()


def test_a_directory_that_somebody_publishes_meanwhile_stays(replicas):
    """1. A removal died after ZooKeeper: the directory is a leftover. 2. Clean-up is about to
    remove it, and stops for a while. 3. The part is queued again (another replica's state was
    taken over), and who fetches it finds the directory as good as what arrived. 4. Clean-up
    goes on.
    """
    replica = replicas["r1"]
    left = PartName.parse(SOURCES[0])
    replica.keeper.multi([Delete(replica.paths.part(left))])
    plan = plan_clean_up(replica)
    assert plan.leftovers == (left,)
    header = replica.store.manifest(left).header().encode()
    replica.keeper.multi([Create(replica.paths.part(left), header)])
    assert left not in carry_out(replica, plan).parts
    assert str(left) in on_disk(replicas)


def test_what_is_being_published_is_neither_removed_nor_set_aside(replicas):
    """A claim says so before there is a directory, and until ZooKeeper promises the part."""
    replica = replicas["r1"]
    left = PartName.parse(SOURCES[0])
    replica.keeper.multi([Delete(replica.paths.part(left))])
    plan = plan_clean_up(replica)
    claim = Create(replica.paths.claim("queue-7"), Claim("w", (left,)).encode(), ephemeral=True)
    replica.keeper.multi([claim])
    cleaned = carry_out(replica, plan)
    assert left not in cleaned.parts
    assert cleaned.pinned == (), "nobody reads it, and nobody is said to"
    assert str(left) in on_disk(replicas)
    unknown = PartName.parse("all_9_9_0")
    Path(replica.store.directory(PartName.parse(MERGED))).rename(
        replica.store.directory(unknown)
    )
    assert carry_out(replica, replace(plan, unexpected=(unknown,))).detached == (
        "detached/unexpected_all_9_9_0",
    )


def test_why_an_entry_failed_is_kept_as_long_as_it_waits(replicas):
    r2 = replicas["r2"]
    pull_log(r2)
    nodes = r2.keeper.children(r2.paths.queue)
    for node in nodes:
        record_failure(r2, node, 1, "nobody answers")
    r2.keeper.multi([Delete(r2.paths.queue_entry(nodes[0]))])
    carry_out(r2, plan_clean_up(r2))
    assert sorted(r2.keeper.children(r2.paths.attempts)) == sorted(nodes[1:]) != []


@pytest.mark.parametrize("is_old", [False, True])
def test_what_was_dropped_is_known_as_long_as_a_slow_process_may_bring_it(replicas, is_old):
    """One that does not know yet that its session is over."""
    replica = replicas["r1"]
    replicas.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
    replicas.work_off()
    [dropped] = replica.store.drops.ranges()
    age_s = replica.settings.temporary_directories_lifetime + (10 if is_old else -10)
    noted = Path(replica.store.disk.local_path(""), layout.dropped(dropped))
    os.utime(noted, (replicas.clock.now_s() - age_s,) * 2)
    carry_out(replica, plan_clean_up(replica))
    assert replica.store.drops.ranges() == ([] if is_old else [dropped])


def test_a_drop_that_never_happened_is_not_noted_for_long(replicas):
    """Its process noted it when ZooKeeper had lost the table, and the restored one has the rows."""
    replica = replicas["r1"]
    undone = drop_range("all", 2)
    replica.store.drops.note(undone)
    carry_out(replica, plan_clean_up(replica))
    assert replica.store.drops.ranges() == []
    assert replicas.parts("r1")
