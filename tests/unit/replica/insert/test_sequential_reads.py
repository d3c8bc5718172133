"""A sequential reader sees what is on enough replicas, and nothing that may leave again."""

from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import MissingPart
from rmt_pipeline.protocol.nodes.formats import AddedParts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica import readable
from rmt_pipeline.replica.assign.merges import Assigned, optimize_partition
from rmt_pipeline.replica.insert.result import QuorumNotReached
from rmt_pipeline.replica.readable import ReplicaIsNotInQuorum
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.part_store import PartStore
from tests.support.local_replicas import Replicas, by_tens
from tests.support.quorums import ALONE, QUORUM, has_rows, insert, sends_one

ONE = PartName("all", 0, 0, 0)
SEQUENTIAL = {"select_sequential_consistency": "1"}


def sequentially(replicas: Replicas, name: str) -> list[int]:
    table = replicas.table(name).dataset(SEQUENTIAL).to_table()
    return sorted(table.column("n").to_pylist())


def reached(replicas: Replicas, value: int) -> None:
    replicas.meanwhile.append(lambda: replicas.step("r2", "fetch"))
    assert insert(replicas, value, **ALONE).rows == 1


def test_a_sequential_reader_sees_no_row_that_waits(two: Replicas) -> None:
    reached(two, 1)
    with pytest.raises(QuorumNotReached):
        insert(two, 2, **ALONE)
    assert has_rows(two, "r1") == [1, 2]
    assert sequentially(two, "r1") == [1]
    two.step("r2", "fetch")
    assert sequentially(two, "r1") == sequentially(two, "r2") == [1, 2]


def test_nor_one_that_waits_beside_others(two: Replicas) -> None:
    with pytest.raises(QuorumNotReached):
        insert(two, 1)
    assert sequentially(two, "r1") == []


def test_a_sequential_reader_is_told_when_the_rows_are_elsewhere(three: Replicas) -> None:
    reached(three, 1)
    with pytest.raises(ReplicaIsNotInQuorum, match="all_0_0_0"):
        sequentially(three, "r3")
    assert has_rows(three, "r3") == []
    three.step("r3", "fetch")
    assert sequentially(three, "r3") == [1]


def test_nor_one_that_has_the_last_rows_and_lacks_earlier_ones(
    three: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. Row 1 is on r1 and r2; r3 is still fetching it. 2. Row 2 comes, and r3 is faster with it
    than r2. 3. Who reads at r3 must not be told that row 2 is all there is.
    """
    reached(three, 1)
    right = PartStore.verify

    def slow(store: PartStore, part: PartName) -> Any:
        if part == ONE:
            raise MissingPart("it takes long", part=part)
        return right(store, part)

    def overtaken() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(PartStore, "verify", slow)
            three.step("r3", "fetch")

    three.meanwhile.append(overtaken)
    assert insert(three, 2, **ALONE).rows == 1
    assert has_rows(three, "r3") == [2]
    with pytest.raises(ReplicaIsNotInQuorum, match="all_0_0_0"):
        sequentially(three, "r3")
    three.clock.sleep_s(100.0)
    three.step("r3", "fetch")
    assert sequentially(three, "r3") == [1, 2]


def test_nor_one_that_inserted_the_last_rows_and_has_not_heard_of_earlier_ones(
    three: Replicas,
) -> None:
    three.meanwhile.append(lambda: three.step("r3", "fetch"))
    assert insert(three, 1, "r2", **ALONE).rows == 1
    three.meanwhile.append(lambda: three.step("r3", "fetch"))
    assert insert(three, 2, "r1", **ALONE).rows == 1
    assert has_rows(three, "r1") == [2]
    with pytest.raises(ReplicaIsNotInQuorum, match="all_0_0_0"):
        sequentially(three, "r1")
    three.step("r1", "fetch")
    assert sequentially(three, "r1") == [1, 2]


def test_what_comes_while_a_sequential_reader_looks_is_not_read(
    two: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. He sees that nothing waits. 2. A row comes that waits. 3. He lists the parts."""
    right = readable.readable_parts

    def then(replica: Replica) -> readable.ReadableParts:
        monkeypatch.setattr(readable, "readable_parts", right)
        with pytest.raises(QuorumNotReached):
            insert(two, 1)
        return right(replica)

    monkeypatch.setattr(readable, "readable_parts", then)
    assert sequentially(two, "r1") == []
    assert has_rows(two, "r1") == [1]


def test_rows_that_asked_for_no_quorum_are_not_waited_for(two: Replicas) -> None:
    """As in the original: what came after the last row that reached one may not be elsewhere."""
    reached(two, 1)
    two.insert("r1", 2)
    assert sequentially(two, "r1") == [1]


def test_merged_with_later_rows_those_that_reached_it_are_read_still(two: Replicas) -> None:
    """In the original they are gone from sequential reads until the next one reaches it."""
    reached(two, 1)
    two.insert("r1", 2)
    two.step("r1", "fetch")
    assert isinstance(
        optimize_partition(two["r1"], "all", final=True, skip_merged=False), Assigned
    )
    two.step("r1")
    assert sequentially(two, "r1") == [1, 2]


def test_what_was_dropped_is_asked_of_nobody(two: Replicas) -> None:
    reached(two, 1)
    two.table("r1").truncate(settings={"alter_sync": "0"})
    two.step("r1", "fetch")
    assert sequentially(two, "r1") == []
    assert two.zookeeper.nodes[f"{QUORUM}/last_part"].data == AddedParts().encode()


def test_a_drop_by_which_others_reach_their_quorum_is_asked_of_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A row of partition 0 has reached its quorum: sequential readers want it.
    2. An insert into 0 and 5 waits: only the part of 5 is on enough replicas.
    3. Partition 0 is dropped. With it goes what the insert waited for, so that the part of 5 is
       wanted now; and neither part of 0.
    """
    with Replicas(tmp_path, define=by_tens) as two:
        reached(two, 1)
        there = PartName("5", 0, 0, 0)
        sends_one(monkeypatch, there)
        two.meanwhile.append(lambda: two.step("r2", "fetch"))
        with pytest.raises(QuorumNotReached):
            two.table("r1").insert([{"n": 2}, {"n": 52}], settings=ALONE)
        assert two.parts("r2") == ["0_0_0_0", str(there)]
        two.table("r1").drop_partitions(["0"], settings={"alter_sync": "0"})
        two.step("r1", "fetch")
        assert f"{QUORUM}/status" not in two.zookeeper.nodes
        assert two.zookeeper.nodes[f"{QUORUM}/last_part"].data == AddedParts((there,)).encode()
        assert sequentially(two, "r1") == [52]
