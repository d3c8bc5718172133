"""How far mutations are, and what a mutation would do, as this replica sees it."""

import shutil
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import DiskFull, ReplicaDropped, UserError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations import mutations
from rmt_pipeline.replica.mutations.mutations import (
    clean_mutations,
    finalize_mutations,
    load_mutations,
)
from rmt_pipeline.replica.mutations.plan import PartitionPlan, plan_mutation
from rmt_pipeline.replica.mutations.progress import MutationProgress, mutation_progress
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.work.carry import Batch
from rmt_pipeline.store.layout import MANIFEST
from rmt_pipeline.store.staging import Staging
from rmt_pipeline.syntax.mutation import parse_commands
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op
from rmt_pipeline.zookeeper.snapshot import QueueSnapshot
from tests.support.executor import Executor
from tests.support.local_replicas import Replicas, by_tens
from tests.support.lost_answers import before

SOON = QuerySettings(mutations_sync=0)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Partition 0 in two parts, of three rows and of two; partition 1 has one row."""
    with Replicas(tmp_path, define=by_tens) as opened:
        opened.insert("r1", 1, 2, 3)
        opened.insert("r1", 4, 5)
        opened.insert("r1", 11)
        opened.work_off()
        yield opened


def mutate(replicas: Replicas, text: str) -> str:
    return replicas.table("r1").mutate(text, settings=SOON)


def progress(replicas: Replicas) -> list[MutationProgress]:
    return mutation_progress(replicas["r1"])


def begin(replicas: Replicas) -> tuple[Executor, Batch]:
    """The mutations of all parts are assigned, and a worker has taken them."""
    assert isinstance(assign_mutations(replicas["r1"]), Sequence)
    pull_log(replicas["r1"])
    executor = replicas.executor("r1", "merge")
    [batch] = executor.look(None).batches
    return executor, batch


def full_for(replicas: Replicas, monkeypatch: pytest.MonkeyPatch, partition: str) -> None:
    """The disk has no room for what is made of parts of this partition."""
    store, tries = replicas["r1"].store, count(1)
    begin = store.begin

    def refuses(kind: str, hint: str) -> Staging:
        if hint.startswith(f"{partition}_"):
            raise DiskFull(f"no room at try {next(tries)}")
        return begin(kind, hint)

    monkeypatch.setattr(store, "begin", refuses)


def finish(replicas: Replicas) -> None:
    while isinstance(assign_mutations(replicas["r1"]), list):
        replicas.work_off("r1")
    finalize_mutations(replicas["r1"], load_mutations(replicas["r1"]))


def test_a_mutation_is_as_far_as_its_parts_and_their_rows(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is inserted after it is none of its."""
    mutate(replicas, "DELETE WHERE n = 1")
    replicas.insert("r1", 6)
    [at_first] = progress(replicas)
    assert (at_first.parts_done, at_first.parts_to_do, at_first.running) == (0, 3, 0)
    assert (at_first.rows_done, at_first.rows_to_do, at_first.rows_per_s) == (0, 6, 0.0)
    assert at_first.seconds_left is None
    assert at_first.words() == "0 of 3 parts done, 3 to do (0 running), 0 of 6 rows, 0 rows/s"

    full_for(replicas, monkeypatch, "1")
    executor, batch = begin(replicas)
    [at_work] = progress(replicas)
    assert at_work.running == 3
    assert {str(part) for part in at_work.report.in_progress} == {
        "0_0_0_0",
        "0_1_1_0",
        "1_0_0_0",
    }
    assert [done.error for done in executor.carry_out(batch) if done.error]

    replicas.clock.passed_s += 2
    [later] = progress(replicas)
    assert (later.parts_done, later.parts_to_do, later.running) == (2, 1, 0)
    assert (later.rows_done, later.rows_to_do, later.rows_per_s) == (4, 1, 2.0)
    assert later.seconds_left == 0.5
    assert later.words() == (
        "2 of 3 parts done, 1 to do (0 running), 4 of 5 rows, 2 rows/s, about 0 s left"
    )
    assert not later.is_done


def test_in_its_first_second_a_mutation_is_no_faster_than_its_rows(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(replicas, "DELETE WHERE n = 1")
    full_for(replicas, monkeypatch, "1")
    executor, batch = begin(replicas)
    assert len([*executor.carry_out(batch)]) == 3
    [found] = progress(replicas)
    assert found.rows_per_s == found.rows_done == 4


def test_those_that_are_finished_come_last_and_the_newest_of_them_first(
    replicas: Replicas,
) -> None:
    first = mutate(replicas, "DELETE WHERE n = 1")
    second = mutate(replicas, "DELETE WHERE n = 2")
    finish(replicas)
    assert [one.report.status.mutation_id for one in progress(replicas)] == [second, first]
    assert {one.words() for one in progress(replicas)} == {"finished"}
    third = mutate(replicas, "DELETE WHERE n = 3")
    fourth = mutate(replicas, "DELETE WHERE n = 4")
    found = [one.report.status.mutation_id for one in progress(replicas)]
    assert found == [third, fourth, second, first]


def test_a_mutation_tells_of_what_failed_last(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(replicas, "DELETE WHERE n = 1")
    [at_first] = progress(replicas)
    assert at_first.failure_words() == ""
    full_for(replicas, monkeypatch, "1")
    executor, batch = begin(replicas)
    assert len([*executor.carry_out(batch)]) == 3
    replicas.clock.passed_s += 100
    executor.step(None)
    [found] = progress(replicas)
    told = "1_0_0_0 failed 2 times, last because: "
    assert found.failure_words().startswith(told)
    assert found.failure_words().endswith("no room at try 2")


def test_what_it_waits_for_beside_its_own_work_is_told(replicas: Replicas) -> None:
    """An insert of before it has a number, and has yet to come."""
    replica = replicas["r1"]
    lock = f"{replica.table.partition('0')}/block-"
    [held] = replica.keeper.multi([Create(lock, sequence=True)])
    mutate(replicas, "DELETE WHERE n = 1")
    [found] = progress(replicas)
    assert (found.parts_to_do, found.waits_words()) == (3, "")
    finish(replicas)
    [found] = progress(replicas)
    assert found.waits_words() == "block 2 of partition 0 is still being inserted"
    replica.keeper.multi([Delete(held)])
    finish(replicas)
    [found] = progress(replicas)
    assert (found.is_done, found.waits_words()) == (True, "")


def test_what_comes_after_it_in_a_new_partition_or_is_fetched_is_none_of_its(
    replicas: Replicas,
) -> None:
    mutate(replicas, "DELETE WHERE n = 1")
    replicas.insert("r1", 21)
    replicas.insert("r2", 12)
    pull_log(replicas["r1"])
    assert replicas.executor("r1", "fetch").look(None).batches
    [found] = progress(replicas)
    assert (found.parts_to_do, found.rows_to_do, found.running) == (3, 6, 0)
    replicas.work_off()
    finish(replicas)
    assert [one.is_done for one in progress(replicas)] == [True]


def test_a_replica_that_is_dropped_while_it_is_looked_at_says_so(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(replicas, "DELETE WHERE n = 1")
    look = mutations.queue_snapshot

    def then_dropped(*given: Any, **named: Any) -> QueueSnapshot:
        found = look(*given, **named)
        replicas.drop("r1")
        return found

    monkeypatch.setattr(mutations, "queue_snapshot", then_dropped)
    with pytest.raises(ReplicaDropped):
        progress(replicas)


def plan(replicas: Replicas, text: str) -> list[PartitionPlan]:
    return plan_mutation(replicas["r1"], parse_commands(text), QuerySettings())


def test_a_plan_tells_what_would_be_rewritten(replicas: Replicas) -> None:
    """A part without a row that it is for is linked: nothing of it is written anew."""
    store = replicas["r1"].store
    first, second, third = store.parts()
    assert str(first).startswith("0_0_0")
    sizes = {part: store.manifest(part).bytes_on_disk for part in store.parts()}
    assert plan(replicas, "DELETE WHERE n IN (1, 2)") == [
        PartitionPlan("0", 2, 5, 1, 2, sizes[first]),
        PartitionPlan("1", 1, 1, 0, 0, 0),
    ]
    assert plan(replicas, "DELETE WHERE n > 3") == [
        PartitionPlan("0", 2, 5, 1, 2, sizes[second]),
        PartitionPlan("1", 1, 1, 1, 1, sizes[third]),
    ]
    assert plan(replicas, "DELETE IN PARTITION ID '1' WHERE n > 3") == [
        PartitionPlan("1", 1, 1, 1, 1, sizes[third])
    ]


def test_of_what_would_be_refused_there_is_no_plan(replicas: Replicas) -> None:
    with pytest.raises(UserError, match="rand"):
        plan(replicas, "DELETE WHERE n = rand()")


def test_a_part_that_goes_while_it_is_looked_at_is_left_out(replicas: Replicas) -> None:
    """It was merged away and removed; or it is broken, and to be fetched again."""
    mutate(replicas, "DELETE WHERE n = 4")
    gone = PartName("0", 0, 0, 0)
    shutil.rmtree(replicas["r1"].store.directory(gone))
    [found] = progress(replicas)
    assert (found.parts_to_do, found.rows_to_do) == (3, 3)
    assert [(one.partition_id, one.rows) for one in plan(replicas, "DELETE WHERE n = 5")] == [
        ("0", 2),
        ("1", 1),
    ]
    mutate(replicas, "DELETE WHERE n = 5")  # tried on a part that is there


def two_finished(replicas: Replicas) -> list[str]:
    ids = [mutate(replicas, f"DELETE WHERE n = {value}") for value in (1, 2)]
    while isinstance(assign_mutations(replicas["r1"]), list):
        replicas.work_off()
    for name in ("r1", "r2"):
        finalize_mutations(replicas[name], load_mutations(replicas[name]))
    replicas.set(finished_mutations_to_keep="1")
    return ids


def test_of_two_that_forget_what_is_finished_one_does(replicas: Replicas) -> None:
    first, second = two_finished(replicas)
    r1, r2 = replicas["r1"], replicas["r2"]
    cleaned: list[tuple[str, ...]] = []

    def removes(op: Op) -> bool:
        return isinstance(op, Delete) and op.path == r1.table.mutation(first)

    with before(r1.keeper, removes, lambda: cleaned.append(clean_mutations(r2))):
        assert clean_mutations(r1) == ()
    assert cleaned == [(first,)]
    assert r1.keeper.children(r1.table.mutations) == [second]


def test_who_is_dropped_meanwhile_is_not_asked_what_he_has_finished(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next clean-up finds out without him."""
    first, _ = two_finished(replicas)
    noted = mutations.noted_mutations

    def then_dropped(*given: Any) -> Any:
        monkeypatch.undo()
        replicas.drop("r2")
        return noted(*given)

    monkeypatch.setattr(mutations, "noted_mutations", then_dropped)
    assert clean_mutations(replicas["r1"]) == ()
    assert clean_mutations(replicas["r1"]) == (first,)


def test_a_part_that_can_not_be_read_hides_no_mutation(replicas):
    """Its manifest is damaged: its rows are not counted."""
    mutate(replicas, "DELETE WHERE n = 1")
    [first, *_] = replicas.parts("r1")
    store = replicas.stores["r1"]
    Path(store.directory(PartName.parse(first)), MANIFEST).write_bytes(b"garbage")
    store.forget_all()
    [told] = progress(replicas)
    assert (told.parts_to_do, told.rows_to_do) == (3, 3)
