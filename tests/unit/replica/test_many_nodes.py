"""Thousands of nodes that are to change at once do not fit into one packet of ZooKeeper. Here the
packets are small.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.insert.result import Outcome, QuorumNotReached
from rmt_pipeline.replica.partitions.drop import drop_partitions
from rmt_pipeline.replica.partitions.swap import PartsDoNotFit
from rmt_pipeline.replica.quorum import clean_quorums
from rmt_pipeline.replica.upkeep import lost
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.upkeep.lost import lost_parts, replace_lost_parts
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import SetData
from tests.support import fake_keeper
from tests.support.local_replicas import ROOT, Replicas, partitioned

MANY = 100
NOW = QuerySettings(alter_sync=0)
WHOLE = PartName("all", 0, MANY - 1, 1)
QUORUM = {"insert_quorum": "2", "insert_quorum_timeout": "1000"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_keeper, "MULTI_BYTES_MAX", 10_000)
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 7_000)
    monkeypatch.setattr(limits, "MULTI_OPS_MAX", 20)
    monkeypatch.setattr(limits, "ENTRIES_PER_CLAIM_MAX", 20)
    monkeypatch.setattr(limits, "CLEAN_UP_OPS_PER_MULTI_MAX", 20)


@pytest.fixture
def replicas(tmp_path: Path, small: None) -> Iterator[Replicas]:
    with Replicas(tmp_path, define=partitioned) as opened:
        yield opened


def waiting(replicas: Replicas) -> list[str]:
    return replicas["r1"].keeper.children(replicas["r1"].table.quorum_parallel)


def await_quorums(replicas: Replicas) -> None:
    """Of many inserts: nothing works on r2."""
    for number in range(MANY):
        with pytest.raises(QuorumNotReached):
            replicas.table("r1").insert([{"p": 1, "n": number}], settings=QUORUM)
    assert len(waiting(replicas)) == MANY


def test_of_many_that_wait_for_a_replica_that_is_dropped_none_waits_on(
    replicas: Replicas,
) -> None:
    await_quorums(replicas)
    replicas.drop("r2")
    assert clean_quorums(replicas["r1"]) == MANY
    assert waiting(replicas) == []


def test_a_partition_in_which_many_wait_is_dropped(replicas: Replicas) -> None:
    await_quorums(replicas)
    drop_partitions(lambda: replicas["r1"], ["1"], NOW, EventWaker)
    assert not [one.error for one in replicas.work_off("r1") if one.error]
    assert waiting(replicas) == []
    assert replicas.parts("r1") == []


@pytest.fixture
def alone(tmp_path: Path, small: None) -> Iterator[Replicas]:
    """The only replica has lost a part in which the rows of many inserts were merged."""
    with Replicas(tmp_path, ["r1"]) as replicas:
        for number in range(MANY):
            replicas.insert("r1", number)
        replicas.table("r1").optimize(final=True, settings=NOW)
        replicas.work_off()
        replicas.clock.sleep_s(10_000.0)
        carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))  # what was merged
        assert replicas.parts("r1") == [str(WHOLE)]
        shutil.rmtree(replicas.stores["r1"].directory(WHOLE))
        check_part(replicas["r1"], WHOLE)
        replicas.step("r1", "fetch")
        yield replicas


def test_the_inserts_of_a_lost_part_of_many_are_forgotten(alone: Replicas) -> None:
    """Any of them, said again, brings its rows back."""
    assert replace_lost_parts(alone["r1"]) == (WHOLE,)
    assert len(lost_parts(alone["r1"])[WHOLE].inserts) == MANY
    for number in (0, MANY // 2, MANY - 1):
        assert alone.table("r1").insert([{"n": number}]).outcome is Outcome.INSERTED


def test_who_dies_once_they_are_forgotten_has_told_which_they_are(
    alone: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(lost, "publish", dies)
        with pytest.raises(KeyboardInterrupt):
            replace_lost_parts(alone["r1"])
    assert replace_lost_parts(alone["r1"]) == (WHOLE,)
    assert len(lost_parts(alone["r1"])[WHOLE].inserts) == MANY
    assert alone.zookeeper.nodes[f"{ROOT}/lost_part_count"].data == b"1"


def test_nothing_is_forgotten_once_the_part_may_not_be_lost(
    alone: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. It is lost. 2. Another replica has it after all, or something is assigned. 3. The inserts
    are forgotten: whoever said one again had its rows twice.
    """
    replica, forget = alone["r1"], lost.forget_lost

    def late(*args: Any) -> None:
        alone.zookeeper.connect().multi([SetData(replica.table.log)])
        forget(*args)

    monkeypatch.setattr(lost, "forget_lost", late)
    assert replace_lost_parts(replica) == ()
    assert len(replica.keeper.children(replica.table.blocks)) == MANY
    assert len(replica.keeper.children(replica.table.inserts)) == MANY


def test_a_replacement_of_too_many_partitions_is_refused(tmp_path: Path, small: None) -> None:
    """Nothing is held, or left on the disk."""
    with Replicas(tmp_path, ["r1"], define=partitioned) as replicas:
        rows = [{"p": number, "n": 1} for number in range(MANY)]
        with pytest.raises(PartsDoNotFit, match="100 parts that come in 100 partitions do not"):
            replicas.table("r1").replace(rows, settings=NOW)
        assert replicas.stores["r1"].staged() == []
        assert replicas["r1"].keeper.children(replicas["r1"].table.block_numbers) == []


def test_replacements_of_many_parts_are_claimed_some_at_a_time(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each claim names all parts that the entry brings."""
    table = replicas.table("r1")
    for partition in range(MANY // 4):
        for number in range(2):
            table.insert([{"p": partition, "n": number}])
        rows = [{"p": partition, "n": number} for number in range(11)]
        asked = replace(NOW, max_insert_block_size=1, min_insert_block_size_rows=1)
        assert len(table.replace(rows, settings=asked).parts) == 11
    monkeypatch.setattr(fake_keeper, "MULTI_BYTES_MAX", 8_500)
    assert not [one.error for one in replicas.work_off("r2") if one.error]
    assert replicas.parts("r2") == replicas.parts("r1")
