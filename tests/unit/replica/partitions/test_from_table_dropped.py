"""MOVE PARTITION of what is dropped while it is read (P39, §9.6, §16.5)."""

import pytest

from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.replica.partitions import from_table
from rmt_pipeline.replica.partitions.swap import PartitionChanged
from tests.support.local_replicas import Replicas, partitioned
from tests.support.lost_answers import before
from tests.support.partitioned import rows, swaps, work
from tests.support.two_tables import NOW, Two, filled, source_of


@pytest.fixture
def two(tmp_path):
    with Replicas(tmp_path / "s", define=source_of) as s:
        yield Two(s, Replicas(tmp_path / "t", define=partitioned, beside=s))


def test_a_source_that_is_dropped_meanwhile_does_not_come_back_in_the_other_table(two):
    """Its drop is in the queue, and the parts are promised until that is carried out."""
    filled(two)
    drop = two.s.table("r2").drop_partitions
    with (
        before(two.t["r1"].keeper, swaps, lambda: drop(["1"], settings=NOW)),
        pytest.raises(Unavailable, match="has yet to carry out"),
    ):
        two.move()
    work(two.s)
    work(two.t)
    assert rows(two.s, "r1") == rows(two.s, "r2") == []
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 1), (2, 2)]


def test_what_was_attached_before_is_there_or_nothing_is_attached(two):
    filled(two)
    two.attach()
    ids = two.t["r1"].keeper.children(two.t["r1"].table.blocks)
    assert len(from_table._still_there(two.t["r1"], ids)) == len(ids) > 0
    with pytest.raises(PartitionChanged, match="were dropped meanwhile; nothing was changed"):
        from_table._still_there(two.t["r1"], [*ids, "of_one_that_was_dropped"])
