"""When a server that works its queues cleans its tables."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rmt_pipeline.protocol.errors import ZooKeeperUnreachable
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.server.upkeep import UpkeepLoop
from tests.support.local_replicas import Replicas, definition_of

SETTINGS = {
    "cleanup_delay_period": "30",
    "cleanup_delay_period_random_add": "0",
    "max_cleanup_delay_period": "60",
    "old_parts_lifetime": "20",
}


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with Replicas(tmp_path, ["r1"]) as opened:
        opened.set(**SETTINGS)
        yield opened


class Looked:
    """The loop without its thread, looked at every second; `at` are the times it cleaned."""

    def __init__(self, replicas: Replicas, chance: random.Random | None = None) -> None:
        self.at: list[float] = []
        self.fails = False
        self._replicas = replicas
        self.loop = UpkeepLoop(self._replica, replicas.clock, chance or random.Random(1))

    def _replica(self, table: TableDefinition) -> Replica:
        self.at.append(self._replicas.clock.passed_s)
        if self.fails:
            raise ZooKeeperUnreachable("nobody there")
        return self._replicas["r1"]

    def follow(self, **settings: str) -> None:
        definition = definition_of("r1", settings={**SETTINGS, **settings})
        self.loop.follow([definition])

    def for_s(self, seconds: int) -> list[float]:
        self.at.clear()
        for _ in range(seconds):
            self.loop.look()
            self._replicas.clock.passed_s += 1
        return self.at


def test_a_table_with_nothing_to_clean_is_looked_at_more_and_more_seldom(replicas):
    looked = Looked(replicas)
    looked.follow()
    assert looked.for_s(260) == [30, 75, 135, 195, 255]


def test_old_parts_go_and_then_it_is_looked_at_again_soon(replicas):
    looked = Looked(replicas)
    looked.follow()
    looked.for_s(80)
    for value in range(2):
        replicas.insert("r1", value)
    optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    replicas.step("r1")
    assert looked.for_s(100) == [135, 165]
    assert [str(part) for part in replicas.stores["r1"].parts()] == ["all_0_1_1"]


def test_replicas_do_not_all_clean_at_once(replicas):
    looked = Looked(replicas)
    looked.follow(cleanup_delay_period_random_add="1000")
    assert looked.for_s(31) == []


def test_a_failure_is_tried_again_and_a_table_that_is_gone_is_not(replicas):
    looked = Looked(replicas)
    looked.fails = True
    looked.follow()
    assert looked.for_s(100) == [30, 60, 90]
    looked.loop.follow([])
    assert looked.for_s(100) == []


def test_whatever_is_wrong_with_one_table_the_others_are_cleaned(replicas):
    """A bug, or a disk that fails, is that table's: it is tried again, and the others go on."""
    looked = Looked(replicas)
    good = definition_of("r1", settings=SETTINGS)
    bad = replace(good, name="bad")
    asked: list[str] = []

    def replica_of(table: TableDefinition) -> Replica:
        asked.append(table.name)
        if table.name == "bad":
            raise IndexError("list index out of range")
        return replicas["r1"]

    looked.loop = UpkeepLoop(replica_of, replicas.clock, random.Random(1))
    looked.loop.follow([bad, good])
    looked.for_s(80)
    assert asked == ["bad", "t", "bad", "t"]
