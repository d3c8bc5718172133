"""Which merges OPTIMIZE assigns, and what it refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.replica.assign.optimize import UnknownPartition
from tests.support.local_replicas import Replicas, by_tens

AT_ONCE = {"alter_sync": 0}


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Two parts in each of two partitions."""
    with Replicas(tmp_path, ("r1",), define=by_tens) as made:
        for value in (1, 2, 11, 12):
            made.insert("r1", value)
        yield made


def optimize(replicas: Replicas, partition: str | None = None, *, final: bool = False):
    found = replicas.table("r1").optimize(partition, final=final, settings=AT_ONCE)
    return [str(part) for part in found]


def test_without_a_partition_one_merge_is_assigned_wherever_it_is_best(replicas):
    assert optimize(replicas) in (["0_0_1_1"], ["1_0_1_1"])


def test_final_without_a_partition_is_a_merge_in_each(replicas):
    assert optimize(replicas, final=True) == ["0_0_1_1", "1_0_1_1"]


@pytest.mark.parametrize("final", [False, True])
def test_with_a_partition_it_is_merged_and_no_other_one(replicas, final):
    assert optimize(replicas, "1", final=final) == ["1_0_1_1"]


def test_a_partition_that_never_had_a_row_is_named_with_those_that_have(replicas):
    with pytest.raises(UnknownPartition, match=r"no partition with the id 7; there are: 0, 1$"):
        optimize(replicas, "7")
