"""What is said about the merges that may be assigned now, and about those that may not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.replica.assign.explain import _coming, explain_merges
from rmt_pipeline.replica.assign.merges import merge_view, optimize_partition
from tests.support.local_replicas import Replicas, by_tens


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


def test_merges_that_are_stopped_by_hand_are_not_shown_as_if_they_were_to_come(replicas):
    replicas.stores["r1"].marks.stop(Background.MERGES)
    limit = explain_merges(replicas["r1"]).limit
    assert limit == "MERGES are stopped by hand on this server (SYSTEM START MERGES)"


def test_of_one_partition_nothing_is_said_of_others(tmp_path: Path) -> None:
    """Nor of parts that are still to come."""
    with Replicas(tmp_path, define=by_tens) as made:
        for value in (1, 2, 11, 12):
            made.insert("r1", value)
        assert {one.partition for one in explain_merges(made["r1"]).ranges} == {"0", "1"}
        assert {one.partition for one in explain_merges(made["r1"], "1").ranges} == {"1"}
        view = merge_view(made["r2"])
        assert {part.partition for part in _coming(view, None)} == {"0", "1"}
        assert {part.partition for part in _coming(view, "1")} == {"1"}
