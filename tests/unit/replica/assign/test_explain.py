"""What is said about the merges that may be assigned now, and about those that may not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.replica.assign.explain import explain_merges
from rmt_pipeline.replica.assign.merges import optimize_partition
from tests.support.local_replicas import Replicas


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path, ("r1",)) as made:
        yield made


def test_a_full_queue_is_named_with_the_setting_that_says_when_it_is_full(replicas):
    for value in range(2):
        replicas.insert("r1", value)
    optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    replicas.set(max_replicated_merges_in_queue="2")
    assert explain_merges(replicas["r1"]).limit == ""
    replicas.set(max_replicated_merges_in_queue="1")
    assert explain_merges(replicas["r1"]).limit == (
        "1 merges and mutations are queued, max_replicated_merges_in_queue is 1"
    )
