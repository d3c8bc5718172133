"""When a server that works its queues cleans its tables."""

import errno
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import ZooKeeperUnreachable
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.clean_up import (
    CleanedUp,
    is_settled,
    nodes_to_read,
    plan_clean_up,
)
from rmt_pipeline.server import upkeep
from rmt_pipeline.server.upkeep import CLEAN_ANYWAY_S, UpkeepLoop
from rmt_pipeline.store import layout
from rmt_pipeline.store.marks import CommitNote
from rmt_pipeline.zookeeper.keeper import Create, SetData
from tests.support.counting import Counting
from tests.support.denied import Denied
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


def another(replica: str) -> TableDefinition:
    one = definition_of(replica, settings=SETTINGS)
    engine = replace(one.engine, zookeeper_path=f"{one.engine.zookeeper_path}_denied")
    return replace(one, name="denied", engine=engine, uuid=f"{one.uuid}-denied")


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


@pytest.mark.parametrize("breaks", ["its replica", "its clean-up"])
def test_whatever_is_wrong_with_one_table_the_others_are_cleaned(
    replicas, breaks, monkeypatch, tmp_path
):
    """A bug, or a disk that fails, is that table's: it is tried again, and the others go on."""
    right = upkeep.plan_clean_up

    def plan(replica: Replica, *, hysteresis: float) -> Any:
        if replica.name == "r2":
            raise IndexError("list index out of range")
        return right(replica, hysteresis=hysteresis)

    monkeypatch.setattr(upkeep, "plan_clean_up", plan)
    looked = Looked(replicas)
    good = definition_of("r1", settings=SETTINGS)
    bad = replace(good, name="bad")
    asked: list[str] = []

    def replica_of(table: TableDefinition) -> Replica:
        asked.append(table.name)
        if table.name == "bad" and breaks == "its replica":
            raise IndexError("list index out of range")
        return others["r2"] if table.name == "bad" else replicas["r1"]

    with Replicas(tmp_path / "bad", ["r2"]) as others:
        looked.loop = UpkeepLoop(replica_of, replicas.clock, random.Random(1))
        looked.loop.follow([bad, good])
        looked.for_s(80)
    assert asked == ["bad", "t", "bad", "t"]


class Counted(Looked):
    """Also what it asks ZooKeeper for."""

    def __init__(self, replicas: Replicas) -> None:
        super().__init__(replicas)
        self.asked: Counter[str] = Counter()
        replica: Any = replicas["r1"]
        replica.keeper.session = Counting(replica.keeper.session, self.asked)

    def cleaned(self, seconds: int) -> int:
        """How often a clean-up looked at everything."""
        self.asked.clear()
        self.for_s(seconds)
        return self.asked["children t/log"]


def settled(replicas: Replicas, *inserts: int) -> Counted:
    for value in inserts:
        replicas.insert("r1", value)
    looked = Counted(replicas)
    looked.follow()
    looked.for_s(80)
    return looked


def test_a_table_in_which_nothing_changes_costs_one_request_each_time(replicas):
    looked = settled(replicas, 1, 2)
    assert looked.cleaned(600) == 0
    assert looked.asked.total() == len(looked.at) == 10


def test_it_is_cleaned_once_a_day_all_the_same(replicas):
    looked = settled(replicas, 1)
    replicas.clock.passed_s += CLEAN_ANYWAY_S
    assert looked.cleaned(90) == 1


def a_part(replicas: Replicas) -> None:
    replicas.insert("r1", 100)


def a_directory(replicas: Replicas) -> None:
    replicas.stores["r1"].begin("merge", "all_0_1_1")


def another_replica(replicas: Replicas) -> None:
    replicas.create("r2")


def an_attempt(replicas: Replicas) -> None:
    replica = replicas["r1"]
    replica.keeper.multi([Create(replica.paths.attempts_of("queue-0000000000"))])


def a_failed_quorum(replicas: Replicas) -> None:
    replica = replicas["r1"]
    replica.keeper.multi([Create(replica.table.quorum_failed("all_7_7_0"))])


def a_dropped_range(replicas: Replicas) -> None:
    replicas.stores["r1"].drops.note(PartName.parse("all_0_5_999999999"))


@pytest.mark.parametrize(
    "change",
    [a_part, a_directory, another_replica, an_attempt, a_failed_quorum, a_dropped_range],
)
def test_what_changes_is_looked_at(replicas, change):
    looked = settled(replicas, 1, 2)
    change(replicas)
    assert looked.cleaned(70) >= 1


def is_at_rest(replica: Replica) -> bool:
    found = replica.keeper.get_many(nodes_to_read(replica))
    return is_settled(replica, found, plan_clean_up(replica), CleanedUp())


def made(path: Callable[[Replica], str]) -> Callable[[Replica], object]:
    return lambda replica: replica.keeper.multi([Create(path(replica))])


def on_disk(path: str) -> Callable[[Replica], object]:
    return lambda replica: replica.store.disk.make_directory(
        layout.join(replica.store.root, path)
    )


WAITING: dict[str, Callable[[Replica], object]] = {
    "a log that is longer than it need be": lambda replica: [
        replica.keeper.multi([Create(replica.table.log_prefix, sequence=True)])
        for _ in range(replica.settings.min_replicated_logs_to_keep)
    ],
    "more mutations than are kept": lambda replica: [
        replica.keeper.multi([Create(f"{replica.table.mutations}/", sequence=True)])
        for _ in range(replica.settings.finished_mutations_to_keep + 1)
    ],
    "a failure": made(lambda replica: replica.paths.attempts_of("queue-0000000000")),
    "a quorum": made(lambda replica: replica.table.quorum_of(PartName("all", 0, 0, 0))),
    "a quorum that failed": made(lambda replica: replica.table.quorum_failed("all_7_7_0")),
    "the one quorum at a time": made(lambda replica: replica.table.quorum_status),
    "a replica that is to be cloned": lambda replica: replica.keeper.multi(
        [SetData(replica.paths.is_lost, b"1")]
    ),
    "a part that is not on the disk": made(
        lambda replica: replica.paths.part(PartName("all", 7, 7, 0))
    ),
    "a part that is nowhere else": on_disk("all_7_7_0"),
    "a part in the making": lambda replica: replica.store.begin("merge", "all_0_1_1"),
    "a dropped range": lambda replica: replica.store.drops.note(PartName("all", 0, 5, 9)),
    "an insert that is in part": lambda replica: replica.store.marks.note_commit(
        "one", CommitNote(0, b"")
    ),
    "a part that is being attached": on_disk("detached/attaching_all_7_7_0"),
    "a part that is being removed": on_disk("detached/deleting_all_7_7_0"),
}


@pytest.mark.parametrize("waits", WAITING)
def test_no_table_is_at_rest_as_long_as_something_waits(replicas, waits):
    replicas.set(**SETTINGS, finished_mutations_to_keep="2", min_replicated_logs_to_keep="2")
    replicas.insert("r1", 1)
    replicas.insert("r1", 2)
    replica = replicas["r1"]
    assert is_at_rest(replica)
    WAITING[waits](replica)
    assert not is_at_rest(replica)


def test_what_waits_to_grow_old_is_looked_at_each_time(replicas):
    """A part that is covered by another one, for longer than the table was looked at."""
    replicas.set(**{**SETTINGS, "old_parts_lifetime": "300"})
    for value in range(2):
        replicas.insert("r1", value)
    optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    replicas.step("r1")
    looked = settled(replicas)
    assert looked.cleaned(400) >= 3
    assert [str(part) for part in replicas.stores["r1"].parts()] == ["all_0_1_1"]


def test_a_note_that_waits_to_grow_old_is_looked_at_each_time(replicas):
    a_failed_quorum(replicas)
    looked = settled(replicas, 1, 2)
    assert looked.cleaned(400) >= 3


def test_a_log_that_somebody_holds_up_is_looked_at_each_time(replicas):
    """The other one copies it without a word to those who clean."""
    another_replica(replicas)
    looked = settled(replicas, *range(12))
    assert looked.cleaned(200) >= 3


@pytest.mark.parametrize(
    ("setting", "value"),
    [("min_replicated_logs_to_keep", "2"), ("replicated_deduplication_window", "3")],
)
def test_a_setting_that_is_altered_is_looked_at(replicas, setting, value):
    looked = settled(replicas, *range(6))
    replicas.step("r1")
    assert looked.cleaned(70) == 0
    replicas.set(**{**SETTINGS, setting: value})
    looked.follow(**{setting: value})
    assert looked.cleaned(70) >= 1
    replica = replicas["r1"]
    node = replica.table.log if "logs" in setting else replica.table.blocks
    assert len(replica.keeper.children(node)) == int(value)


def test_a_disk_that_fails_under_a_table_at_rest_ends_no_clean_up(replicas, monkeypatch):
    """It is that table's trouble, and only as long as it lasts."""
    looked = settled(replicas, 1, 2)

    def fails() -> frozenset[str]:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(replicas.stores["r1"], "names", fails)
        looked.for_s(70)
    a_directory(replicas)
    assert looked.cleaned(70) >= 1


def test_a_bug_where_tables_are_read_together_ends_no_clean_up(replicas, monkeypatch):
    looked = settled(replicas, 1, 2)

    def fails(_: Any) -> None:
        raise IndexError("list index out of range")

    with monkeypatch.context() as broken:
        broken.setattr(replicas["r1"].keeper, "get_many", fails)
        looked.for_s(70)
    a_directory(replicas)
    assert looked.cleaned(70) >= 1


def test_a_table_that_may_not_be_read_keeps_no_other_one_from_its_rest(replicas, tmp_path):
    """Whatever is asked together with it has no answer."""
    looked = settled(replicas, 1, 2)
    good = looked.loop._tables
    with Replicas(tmp_path / "denied", ["r1"], define=another, beside=replicas) as denied:
        for one in (replicas, denied):
            keeper: Any = one["r1"].keeper
            keeper.session = Denied(keeper.session, denied["r1"].table.log)
        looked.loop = UpkeepLoop(
            lambda table: (denied if table.name == "denied" else replicas)["r1"],
            replicas.clock,
            random.Random(1),
        )
        looked.loop.follow([denied["r1"].definition, *good])
        looked.for_s(100)
        assert looked.cleaned(300) == 0


def test_a_table_with_a_setting_of_a_newer_version_does_not_end_the_loop(replicas):
    """The others are cleaned on. Each try to clean this one fails, and says so."""
    looked = Looked(replicas)
    known = replicas["r1"].definition
    odd = replace(known, name="odd", settings=(("new_in_a_later_version", "1"),))
    looked.loop.follow([odd, known])
    looked.loop.look()
    assert sorted(looked.loop._turns) == ["default.odd", known.full_name]
