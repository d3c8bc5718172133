"""What came into a partition after a DROP or DETACH is not seen beside what that took, on a replica
that is behind.
"""

from collections.abc import Iterator

import pytest

from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.zookeeper.keeper import Delete
from tests.support.local_replicas import Replicas, partitioned
from tests.support.lost_answers import faulty
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
