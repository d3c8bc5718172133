"""I8: only what is in ZooKeeper keeps an insert out. An id, or a record, that goes between the
refusal and the look at it, is gone: the rows are inserted, nobody is told that they are there.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, ReplicaDropped
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica import forget as forgetting
from rmt_pipeline.replica.insert import insert
from rmt_pipeline.replica.insert.result import Outcome
from rmt_pipeline.replica.partitions.drop import drop_partitions
from rmt_pipeline.replica.partitions.undo import undo_insert
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import Delete, RefusalKind, Refused
from tests.support.fake_keeper import FakeKeeper
from tests.support.local_replicas import ROOT, Replicas, partitioned
from tests.support.lost_answers import before, logs

ROWS = [{"n": 1}]
ONES = {"max_insert_block_size": "1", "min_insert_block_size_rows": "1"}


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path, ["r1"]) as opened:
        yield opened


def forget(replicas: Replicas, *parents: str) -> None:
    """As a clean-up of another replica, or a drop, does."""
    nodes = replicas.zookeeper.nodes
    ops = [
        Delete(f"{ROOT}/{parent}/{name}")
        for parent in parents
        for name in nodes[f"{ROOT}/{parent}"].children
    ]
    replicas.zookeeper.connect().multi(ops)


def drop(replicas: Replicas) -> None:
    replicas.table("r1").truncate(settings={"alter_sync": 0})
    replicas.step("r1", "fetch")


def count(replicas: Replicas) -> int:
    return replicas.table("r1").dataset().count_rows()


def test_a_block_whose_id_goes_meanwhile_is_inserted(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = replicas.table("r1")
    table.insert(ROWS)
    forget(replicas, "inserts")  # so that it is by its block that it is known
    right = insert.Insertion._take_out_duplicates

    def late(self: Any, replica: Any, blocks: Any) -> None:
        if replicas.zookeeper.nodes[f"{ROOT}/blocks"].children:
            drop(replicas)
        right(self, replica, blocks)

    monkeypatch.setattr(insert.Insertion, "_take_out_duplicates", late)
    assert table.insert(ROWS).outcome is Outcome.INSERTED
    assert count(replicas) == 1


def test_an_insert_whose_record_goes_meanwhile_is_inserted(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = replicas.table("r1")
    table.insert(ROWS)
    right = insert.Insertion._learn

    def late(self: Any, replica: Any) -> None:
        if replicas.zookeeper.nodes[f"{ROOT}/inserts"].children:
            drop(replicas)
        right(self, replica)

    monkeypatch.setattr(insert.Insertion, "_learn", late)
    assert table.insert(ROWS).outcome is Outcome.INSERTED
    assert count(replicas) == 1


def test_a_partition_that_is_there_no_more_is_made_again(replicas: Replicas) -> None:
    """This process has seen it, and does not look again before each insert."""
    replicas.insert("r1", 1)
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    keeper.multi([Delete(table.partition("all"))])
    assert replicas.table("r1").insert([{"n": 2}]).rows == 1
    assert keeper.exists(table.partition("all")) is not None


def test_who_is_dropped_makes_no_partition_and_is_told_so(replicas: Replicas) -> None:
    """Not that ZooKeeper has refused something: the INSERT's client can do nothing with that."""
    replica = replicas["r1"]
    replica.keeper.multi([Delete(replica.paths.host)])
    with pytest.raises(ReplicaDropped, match="DROP TABLE here too"):
        replicas.insert("r1", 1)
    assert replica.keeper.exists(replica.table.partition("all")) is None


def test_what_another_replica_has_dropped_is_inserted(replicas: Replicas) -> None:
    """Nothing that this process remembers keeps it out."""
    table = replicas.table("r1")
    table.insert(ROWS)
    assert table.insert(ROWS).outcome is Outcome.DUPLICATE
    drop(replicas)
    assert table.insert(ROWS).outcome is Outcome.INSERTED
    forget(replicas, "inserts", "blocks")  # they were too old
    assert table.insert(ROWS).outcome is Outcome.INSERTED
    assert count(replicas) == 2


ONE, OTHER = {"p": 1, "n": 1}, {"p": 2, "n": 2}


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Replicas]:
    """With partitions, one of which has a row."""
    with Replicas(tmp_path, define=partitioned) as opened:
        opened.table("r1").insert([ONE])
        yield opened


def dropped_and_inserted_again(replicas: Replicas) -> PartName:
    table = replicas.table("r1")
    drop_partitions(lambda: replicas["r1"], ["1"], QuerySettings(alter_sync=0), EventWaker)
    [part] = table.insert([ONE]).parts
    return part


def ids_of_one(replicas: Replicas) -> list[str]:
    """Of its block: the parts that they name."""
    nodes = replicas.zookeeper.nodes
    names = nodes[f"{ROOT}/blocks"].children
    return [nodes[f"{ROOT}/blocks/{name}"].data.decode() for name in names if name[0] == "1"]


def test_an_id_that_is_there_again_is_not_the_one_that_was_found(two: Replicas) -> None:
    """1. An insert finds that one of its blocks is there. 2. That is dropped, and inserted again:
    its id is as young as the one that was found. 3. The insert relies on it, and must not say that
    it is of what was dropped: so it would be forgotten, and the rows doubled.
    """
    again: list[PartName] = []
    with before(two["r2"].keeper, logs, lambda: again.append(dropped_and_inserted_again(two))):
        assert two.table("r2").insert([ONE, OTHER]).rows == 1
    assert ids_of_one(two) == [str(part) for part in again]
    forgetting.forget(two["r1"], [PartName.parse("1_0_0_0")])
    assert ids_of_one(two) == [str(part) for part in again]


def test_who_forgets_what_was_dropped_forgets_nothing_that_came_since(
    two: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, again = forgetting._read, list[PartName]()

    def late(*args: Any) -> Any:
        found = right(*args)
        if not again:
            again.append(PartName("1", 0, 0, 0))
            again[:] = [dropped_and_inserted_again(two)]
        return found

    monkeypatch.setattr(forgetting, "_read", late)
    forgetting.forget(two["r1"], [PartName.parse("1_0_0_0")])
    assert ids_of_one(two) == [str(part) for part in again]


def test_many_are_forgotten_with_several_multis(
    two: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each asserts that it comes after the one before."""
    two.table("r1").insert([{"p": 1, "n": n} for n in range(2, 6)], settings=ONES)
    assert len(ids_of_one(two)) == 5
    monkeypatch.setattr(limits, "MULTI_OPS_MAX", 2)
    monkeypatch.setattr(limits, "FORGET_ROUNDS_MAX", 1)
    forgetting.forget(two["r1"], [PartName.parse("1_0_9_1")])
    assert ids_of_one(two) == []


def test_ids_that_inserts_rely_on_again_and_again_are_not_said_to_be_forgotten(
    two: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Refused(RefusalKind.BAD_VERSION, "/blocks", index=1)
    tried: list[int] = []

    def multi_many(_: FakeKeeper, multis: Sequence[Any]) -> list[Refused]:
        tried.append(len(multis))
        return [refused for _ in multis]

    monkeypatch.setattr(limits, "FORGET_ROUNDS_MAX", 3)
    with monkeypatch.context() as patched:
        patched.setattr(FakeKeeper, "multi_many", multi_many)
        with pytest.raises(Conflict, match="each of 3 times; this is tried again"):
            forgetting.forget(two["r1"], [PartName.parse("1_0_9_1")])
    assert len(tried) == 3
    forgetting.forget(two["r1"], [PartName.parse("1_0_9_1")])
    assert ids_of_one(two) == []


def test_who_forgets_what_was_undone_forgets_nothing_that_was_said_again(two: Replicas) -> None:
    """1. A drop has read the record of an insert whose ids are too old. 2. The insert is undone,
    and said again: its record is as young as the one that was read. 3. The drop goes on.
    """
    one = two["r1"]
    forget(two, "blocks")
    [report] = two.table("r1").inserts()
    read = forgetting.what_to_forget(one, [PartName.parse("1_0_0_0")])
    undo_insert(lambda: one, report.insert_id, QuerySettings(alter_sync=0), EventWaker)
    assert two.table("r1").insert([ONE]).outcome is Outcome.INSERTED
    with pytest.raises(Refused):
        one.keeper.multi([op for some in read for op in some])
    assert [again.insert_id for again in two.table("r1").inserts()] == [report.insert_id]
