"""What a process that lived through a restore remembers is not taken for what is there now."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.life.drop import delete_tree
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.work.execute import Executor
from tests.support.restoring import Disaster


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Disaster]:
    with Disaster(tmp_path) as disaster:
        yield disaster


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_worker_that_lived_through_it_carries_out_what_is_queued_now(
    two: Disaster, is_kept: bool
) -> None:
    """1. The worker of r2, in its session, has fetched what its first queue node asked for.
    2. Somebody deletes the table's nodes, and it is restored. 3. A node of the same name asks for
    what r2 lacks: it is not done because that of before is.
    """
    for value in (1, 2):
        two.insert("r1", value)
    worker, executor = two["r2"], two.executor("r2", "fetch")
    pull_log(worker)
    assert len(executor.step(None).done) == 2
    optimize_partition(two["r1"], "all", final=True, skip_merged=False)
    two.step("r1")
    two.step("r2")
    lacking = two.insert("r1", 3)
    two.note()
    two.clock.passed_s += 1000
    delete_tree(two["r1"].session, two["r1"].table.root)
    for name in ("r1", "r2"):
        two.restore(name)
    for name in ("r1", "r2"):
        two.start(name)
    pull_log(two["r2"])  # another process of its server
    assert two.queue("r2") == ["queue-0000000000", "queue-0000000001"]
    two.clock.passed_s += 60
    if not is_kept:
        executor = Executor(worker, two.tools(), "fetch")
    executor.step(None)
    assert str(lacking) in two.parts("r2")
    assert two.queue("r2") == []
