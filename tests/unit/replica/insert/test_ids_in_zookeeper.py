"""I8: only what is in ZooKeeper keeps an insert out. An id, or a record, that goes between the
refusal and the look at it, is gone: the rows are inserted, nobody is told that they are there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.replica.insert import insert
from rmt_pipeline.replica.insert.result import Outcome
from rmt_pipeline.zookeeper.keeper import Delete
from tests.support.local_replicas import ROOT, Replicas

ROWS = [{"n": 1}]


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
