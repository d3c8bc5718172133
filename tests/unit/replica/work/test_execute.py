"""What one look at the queue begins, when a part that it fetches contains more than was wanted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from tests.support.executor import Executor
from tests.support.local_replicas import Replicas, partitioned
from tests.support.partitioned import insert, rows, work
from tests.support.two_tables import Two, filled, source_of

NOW = QuerySettings(alter_sync=0)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    """r1 has 1_0_0_0 of the table t."""
    with Replicas(tmp_path / "s", define=source_of) as s:
        both = Two(s, Replicas(tmp_path / "t", define=partitioned, beside=s))
        filled(both)
        yield both


def merged_by_r1(two: Two) -> None:
    """All of partition 1, so that nobody has its parts any more under their own names."""
    optimize_partition(two.t["r1"], "1", final=True, skip_merged=False)
    work(two.t, "r1")
    two.t.clock.passed_s += 1000
    carry_out(two.t["r1"], plan_clean_up(two.t["r1"]))


def begun(two: Two) -> tuple[Executor, list[str]]:
    """The parts of the entries that a look of r2's begins."""
    pull_log(two.t["r2"])
    executor = two.t.executor("r2", "fetch")
    batches = executor.look(None).batches
    for batch in batches:
        assert all(not done.error for done in executor.carry_out(batch))
    return executor, sorted(str(task.how.part) for batch in batches for task in batch.tasks)


def test_of_two_parts_that_are_in_one_by_now_that_one_is_fetched_once(two: Two) -> None:
    insert(two.t, (1, 20))
    insert(two.t, (1, 21))
    merged_by_r1(two)
    executor, parts = begun(two)
    assert parts == ["1_0_2_1"]
    assert executor.step(None).finished_without_work == 2
    assert rows(two.t, "r2") == rows(two.t, "r1")


def test_a_part_that_contains_what_is_attached_here_waits_for_that(two: Two) -> None:
    """r2 has a copy of what r1 attaches, and fetches what r1 has inserted since."""
    two.t.table("r1").drop_partitions(["1"], detach=True, settings=NOW)
    work(two.t)
    two.t.table("r1").attach("1", settings=NOW)
    insert(two.t, (1, 20))
    merged_by_r1(two)
    attached = PartName("1", 2, 2, 0)
    assert begun(two)[1] == [str(attached)]
    work(two.t, "r2")
    assert rows(two.t, "r2") == rows(two.t, "r1") == [(1, 1), (1, 20), (2, 2)]


def test_a_part_that_contains_what_comes_of_another_table_waits_for_that(two: Two) -> None:
    """r2 links what r1 has attached from the table s, and fetches what r1 has inserted since."""
    two.attach()
    insert(two.t, (1, 20))
    merged_by_r1(two)
    [attachment] = begun(two)[1]
    assert attachment.startswith("1_"), attachment
    assert rows(two.t, "r2") == [(1, 1), (1, 10), (1, 11), (2, 2)]
    work(two.t, "r2")
    assert rows(two.t, "r2") == rows(two.t, "r1")


def test_what_is_given_back_is_under_way_no_more(two: Two) -> None:
    """Another process takes it, and publishes it: nothing is left of it here."""
    insert(two.t, (1, 20))
    pull_log(two.t["r2"])
    executor = two.t.executor("r2", "fetch")
    [batch] = executor.look(None).batches
    executor.give_back(batch)
    assert not batch.left
    assert two.t["r2"].keeper.children(two.t["r2"].paths.executing) == []
    [again] = executor.look(None).batches
    assert [task.node for task in again.tasks] == [task.node for task in batch.tasks]
