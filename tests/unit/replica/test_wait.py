"""Waiting until a replica has carried out what is in the log: neither too short nor for ever."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.alter.commands import AddColumn
from rmt_pipeline.protocol.errors import ReplicaDropped, Timeout, Unfinished
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.alter.request import request_alter
from rmt_pipeline.replica.assign.merges import Assigned, optimize_partition
from rmt_pipeline.replica.life.clone import clone_if_lost
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.mutations.request import wait_as_asked
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.sync import SyncMode, sync_replica
from rmt_pipeline.replica.wait import wait_as_asked_for, wait_for_kinds, wait_for_others
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from tests.support.local_replicas import ClockWaker, Meanwhile, Replicas


def wait(
    replicas: Replicas,
    number: int = 0,
    *,
    timeout_s: float = 5.0,
    inactive_timeout_s: float = 0.0,
) -> None:
    """Of r1, until r2 has carried out the entry of that number."""
    r1 = replicas["r1"]
    path = r1.table.log_entry(f"log-{number:010d}")
    data, _ = r1.keeper.get(path)
    query = QuerySettings(
        alter_sync=2,
        receive_timeout=int(timeout_s),
        replication_wait_for_inactive_replica_timeout=int(inactive_timeout_s),
    )
    wait_for_others(lambda: r1, lambda text: text == data, query, ClockWaker(replicas.clock))


def two_inserts(replicas: Replicas) -> None:
    replicas.insert("r1", 1)
    replicas.insert("r1", 2)


def test_who_has_not_copied_the_entry_has_not_done_it(replicas: Replicas) -> None:
    two_inserts(replicas)
    with pytest.raises(Unfinished, match="these replicas have not done it yet: r2"):
        wait(replicas)


def test_who_has_copied_only_those_before_it_has_not_done_it(replicas: Replicas) -> None:
    replicas.insert("r1", 1)
    pull_log(replicas["r2"])
    replicas.insert("r1", 2)
    with pytest.raises(Unfinished):
        wait(replicas, number=1)


def test_who_has_it_in_the_queue_has_not_done_it(replicas: Replicas) -> None:
    two_inserts(replicas)
    pull_log(replicas["r2"])
    for number in (0, 1):
        with pytest.raises(Unfinished):
            wait(replicas, number=number)


def test_who_has_another_entry_in_the_queue_has_done_it(replicas: Replicas) -> None:
    replicas.insert("r1", 1)
    replicas.work_off("r2")
    replicas.insert("r1", 2)
    pull_log(replicas["r2"])
    wait(replicas, number=0)
    with pytest.raises(Unfinished):
        wait(replicas, number=1)
    replicas.work_off("r2")
    wait(replicas, number=1)


def test_who_has_done_it_between_two_reads_has_done_it(replicas: Replicas) -> None:
    """It is listed in the queue, and gone when it is read."""
    two_inserts(replicas)
    pull_log(replicas["r2"])
    keeper, queue = replicas["r1"].session, replicas["r2"].paths.queue
    get_many = keeper.get_many

    def late(paths: Any) -> Any:
        if any(path.startswith(f"{queue}/") for path in paths):
            keeper.get_many = get_many
            replicas.step("r2", "fetch")
        return get_many(paths)

    keeper.get_many = late
    wait(replicas)
    assert replicas.clock.passed_s == 0.0


def test_it_is_waited_for_until_the_time_is_over(replicas: Replicas) -> None:
    two_inserts(replicas)
    began_s = replicas.clock.monotonic_s()
    with pytest.raises(Unfinished):
        wait(replicas, timeout_s=100.0)
    assert replicas.clock.monotonic_s() - began_s >= 100.0


@pytest.mark.parametrize("inactive_timeout_s", [0.0, 50.0])
def test_who_is_away_is_waited_for_as_long_as_was_said(
    replicas: Replicas, inactive_timeout_s: float
) -> None:
    two_inserts(replicas)
    replicas.stop("r2")
    began_s = replicas.clock.monotonic_s()
    with pytest.raises(Unfinished):
        wait(replicas, timeout_s=1000.0, inactive_timeout_s=inactive_timeout_s)
    waited_s = replicas.clock.monotonic_s() - began_s
    assert inactive_timeout_s <= waited_s < inactive_timeout_s + 10.0


def test_who_is_lost_has_not_done_what_the_pointer_that_it_clones_is_past(
    replicas: Replicas,
) -> None:
    """A clone sets the pointer and empties the queue before the parts that were dropped go."""
    two_inserts(replicas)
    r2 = replicas["r2"]
    r2.keeper.multi([SetData(r2.paths.is_lost, b"1"), SetData(r2.paths.log_pointer, b"2")])
    with pytest.raises(Unfinished):
        wait(replicas)
    r2.keeper.multi([SetData(r2.paths.is_lost, b"0")])
    wait(replicas)


@pytest.mark.parametrize("when", ["the queue is listed", "its entries are read"])
def test_what_a_clone_has_queued_since_is_waited_for(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """1. The queue is listed when the clone has emptied it. 2. The clone ends, with the entry in
    the queue that its source has yet to carry out. 3. It is not done.
    """
    replicas.insert("r1", 1)
    keeper, paths = replicas["r1"].keeper, replicas["r2"].paths
    r2, right = replicas["r2"].keeper, (keeper.children, keeper.get_many)
    pull_log(replicas["r2"])
    [node] = r2.children(paths.queue)
    entry, _ = r2.get(paths.queue_entry(node))
    r2.multi([Delete(paths.queue_entry(node))])
    times: list[int] = []

    def ends() -> None:
        times.append(1)
        if len(times) == 1:
            r2.multi([SetData(paths.is_lost, b"1")])
            r2.multi([SetData(paths.is_lost, b"0"), Create(paths.queue_entry(node), entry)])

    def children(path: str, *watch: Any) -> list[str]:
        names = right[0](path, *watch)
        if path == paths.queue and when == "the queue is listed":
            ends()
        return names

    def get_many(asked: list[str]) -> Any:
        if len(asked) < 2 and when == "its entries are read":
            ends()
        return right[1](asked)

    monkeypatch.setattr(keeper, "children", children)
    monkeypatch.setattr(keeper, "get_many", get_many)
    with pytest.raises(Unfinished):
        wait(replicas)
    assert times


@pytest.mark.parametrize("has_pulled", [True, False])
def test_who_was_dropped_is_not_waited_for(replicas: Replicas, has_pulled: bool) -> None:
    two_inserts(replicas)
    if has_pulled:
        pull_log(replicas["r2"])
    replicas.stop("r2")
    drop_replica(replicas["r1"].session, replicas["r1"].table, "r2")
    wait(replicas, timeout_s=1000.0)


def test_kinds_are_waited_for_and_others_are_not(replicas: Replicas) -> None:
    two_inserts(replicas)
    replicas.work_off("r2")
    r2, waker = replicas["r2"], ClockWaker(replicas.clock)
    assigned = optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    assert isinstance(assigned, Assigned)
    looks: list[int] = []

    def give_up() -> bool:
        looks.append(1)
        return len(looks) > 3

    assert not wait_for_kinds(r2, {"GET_PART"}, give_up, waker), "the log is not copied yet"
    pull_log(r2)
    assert wait_for_kinds(r2, {"GET_PART"}, lambda: True, waker)
    assert not wait_for_kinds(r2, {"MERGE_PARTS"}, lambda: True, waker)
    replicas.step("r2")
    assert wait_for_kinds(r2, {"MERGE_PARTS"}, lambda: True, waker)


def test_what_is_done_before_it_is_looked_at_is_not_waited_for(replicas: Replicas) -> None:
    """It is listed in the queue, and gone when it is read."""
    replicas.insert("r1", 1)
    replica, waker = replicas["r2"], ClockWaker(replicas.clock)
    get_many = replica.session.get_many

    def late(paths: Any) -> Any:
        if any(path.startswith(f"{replica.paths.queue}/") for path in paths):
            replica.session.get_many = get_many
            replicas.step("r2", "fetch")
        return get_many(paths)

    pull_log(replica)
    replica.session.get_many = late
    sync_replica(replica, SyncMode.LIGHTWEIGHT, 5.0, waker)
    assert replicas.parts("r2") == ["all_0_0_0"]
    assert replicas.clock.passed_s == 0.0


@pytest.mark.parametrize("mode", [SyncMode.DEFAULT, SyncMode.STRICT, SyncMode.LIGHTWEIGHT])
def test_who_syncs_from_some_waits_for_what_these_wrote(tmp_path, mode: SyncMode) -> None:
    """Nobody can send what r3 wrote: it is away. Once it is dropped, its entries may be anybody's,
    and are waited for.
    """
    with Replicas(tmp_path, ("r1", "r2", "r3")) as replicas:
        replicas.insert("r3", 2)
        replicas.insert("r1", 1)
        replicas.stop("r3")

        def sync(*names: str) -> None:
            waker = Meanwhile(replicas.clock, [lambda: replicas.step("r2", "fetch")])
            sync_replica(replicas["r2"], mode, 5.0, waker, names)

        sync("r1")
        assert replicas.parts("r2") == ["all_1_1_0"]
        for names in ([], ["r3"], ["r1", "r3"]):
            with pytest.raises(Timeout):
                sync(*names)
        began_s = replicas.clock.passed_s
        sync("r1")
        assert replicas.clock.passed_s == began_s
        drop_replica(replicas.zookeeper.connect(), replicas["r1"].table, "r3")
        with pytest.raises(Timeout):
            sync("r1")


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("mode", [SyncMode.DEFAULT, SyncMode.STRICT, SyncMode.LIGHTWEIGHT])
def test_who_syncs_waits_for_what_a_clone_has_queued_meanwhile(
    replicas: Replicas, mode: SyncMode, at_once: bool
) -> None:
    """1. r2, whose server was away, is waited for. 2. It was marked as lost: its server clones it
    when it is back, and the entries that were waited for are not in the queue any more. 3. Its
    parts have yet to be fetched: it is not level. 4. r1 had not copied its own inserts from the
    log: they are copied, and found done.
    """
    two_inserts(replicas)
    replica = replicas["r2"]

    def cloned() -> None:
        replicas["r1"].session.multi([SetData(replica.paths.is_lost, b"1")])
        clone_if_lost(replica)

    def cloned_and_worked_off() -> None:
        cloned()
        replicas.work_off("r2")

    steps = [cloned_and_worked_off] if at_once else [cloned, lambda: replicas.work_off("r2")]
    steps.append(lambda: replicas.work_off("r2"))
    sync_replica(replica, mode, 5.0, Meanwhile(replicas.clock, steps))
    assert len(replicas.parts("r2")) == 2
    assert replicas.clock.passed_s == 0.0, "nothing was left to wait for"


@pytest.mark.parametrize("mode", [SyncMode.DEFAULT, SyncMode.STRICT, SyncMode.LIGHTWEIGHT])
def test_who_syncs_waits_for_what_a_clone_has_yet_to_copy(
    tmp_path: Path, mode: SyncMode
) -> None:
    """As above; but the replica that is cloned has yet to copy the log itself, which begins there
    once more: the queue is empty, and nothing is there.
    """
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as replicas:
        two_inserts(replicas)
        r1, replica = replicas["r1"].paths, replicas["r3"]

        def cloned() -> None:
            session = replicas["r2"].session
            session.multi([SetData(one.is_lost, b"1") for one in (r1, replica.paths)])
            cloned = clone_if_lost(replica)
            assert cloned is not None
            assert cloned.source == "r2"
            session.multi([SetData(r1.is_lost, b"0")])

        steps = [cloned, lambda: replicas.work_off("r3")]
        sync_replica(replica, mode, 5.0, Meanwhile(replicas.clock, steps))
        assert len(replicas.parts("r3")) == 2


@pytest.mark.parametrize("mode", [SyncMode.DEFAULT, SyncMode.STRICT, SyncMode.LIGHTWEIGHT])
def test_who_syncs_does_not_wait_for_the_log_of_a_table_of_the_same_name(
    replicas: Replicas, mode: SyncMode
) -> None:
    """The table is dropped and created again: its log counts from the start, and nothing is in
    it.
    """
    two_inserts(replicas)
    steps = [lambda: replicas.create_again("r1", "r2")]
    with pytest.raises(ReplicaDropped):
        sync_replica(replicas["r2"], mode, 5.0, Meanwhile(replicas.clock, steps))
    assert replicas.clock.passed_s == 0.0


def alter(table: Table, query: QuerySettings) -> None:
    request_alter(
        lambda: table.replica,
        lambda _: [AddColumn(Column("s", "String"))],
        query,
        table.new_waker,
    )


def undo(table: Table, query: QuerySettings) -> None:
    table.undo(table.inserts()[0].insert_id, settings=query)


COMMANDS: dict[str, Callable[[Table, QuerySettings], object]] = {
    "DROP PARTITION": lambda table, query: table.drop_partitions(["all"], settings=query),
    "DROP PART": lambda table, query: table.drop_part(PartName("all", 0, 0, 0), settings=query),
    "ATTACH": lambda table, query: table.attach("all", settings=query),
    "OPTIMIZE": lambda table, query: table.optimize(final=True, settings=query),
    "REPLACE": lambda table, query: table.replace([{"n": 9}], partition="all", settings=query),
    "UNDO": undo,
    "ALTER": alter,
    "UPDATE": lambda table, query: table.mutate("DELETE WHERE n = 1", settings=query),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("sync", [0, 2])
def test_a_command_waits_for_others_if_that_is_said(replicas, command, sync) -> None:
    """r2 does nothing."""
    two_inserts(replicas)
    if command == "ATTACH":
        replicas.table("r1").drop_partitions(
            ["all"], detach=True, settings=QuerySettings(alter_sync=0)
        )
    replicas.work_off()
    query = QuerySettings(alter_sync=sync, mutations_sync=sync, receive_timeout=1)
    with pytest.raises(Unfinished, match="r2") if sync else nullcontext():
        COMMANDS[command](replicas.table("r1"), query)


def test_who_waits_for_a_table_that_is_dropped_is_told_that(replicas: Replicas) -> None:
    replicas.insert("r1", 1)
    r1, waker = replicas["r1"], ClockWaker(replicas.clock)
    entries = [(r1.table.log_entry("log-0000000000"), b"")]
    replicas.drop("r1", "r2")
    query = QuerySettings(alter_sync=2)
    with pytest.raises(ReplicaDropped):
        wait_as_asked_for(lambda: r1, entries, query, waker)
    with pytest.raises(ReplicaDropped):
        wait_for_others(lambda: r1, bool, query, waker)
    for sync in (1, 2):
        with pytest.raises(ReplicaDropped):
            wait_as_asked(lambda: r1, "0000000000", query, sync, waker)


def test_many_entries_are_looked_for_in_a_queue_together(replicas: Replicas) -> None:
    """TRUNCATE of thousands of partitions: the whole queue was read once for each of them."""
    for number in range(10):
        replicas.insert("r1", number)
    r1, r2 = replicas["r1"], replicas["r2"]
    pull_log(r2)
    *queued, _ = r2.keeper.children(r2.paths.queue)
    logged = [r1.table.log_entry(name) for name in r1.keeper.children(r1.table.log)[:-1]]
    entries = [(path, r1.keeper.get(path)[0]) for path in logged]
    get_many, asked = r1.session.get_many, [0]

    def counted(paths: list[str]) -> Any:
        asked[0] += sum(path.startswith(f"{r2.paths.queue}/") for path in paths)
        return get_many(paths)

    r1.session.get_many = counted  # type: ignore[method-assign]
    r2.keeper.multi([Delete(r2.paths.queue_entry(node)) for node in queued[1:]])
    work = [replicas.work_off]
    query = QuerySettings(alter_sync=2)
    wait_as_asked_for(lambda: r1, entries, query, Meanwhile(replicas.clock, work))
    assert asked[0] <= 2


def test_who_waits_for_many_entries_goes_on_while_one_after_the_other_is_done(
    replicas: Replicas,
) -> None:
    """OPTIMIZE FINAL of many partitions ended after `receive_timeout` in all, whatever was done."""
    for number in range(4):
        replicas.insert("r1", number)
    r1, r2 = replicas["r1"], replicas["r2"]
    replicas.work_off("r1")
    pull_log(r2)
    queued = r2.keeper.children(r2.paths.queue)
    logged = [r1.table.log_entry(name) for name in r1.keeper.children(r1.table.log)]
    entries = [(path, r1.keeper.get(path)[0]) for path in logged]

    def carry_out_one() -> None:
        replicas.clock.passed_s += 4.0
        r2.keeper.multi([Delete(r2.paths.queue_entry(queued.pop(0)))])

    work = [carry_out_one] * len(queued)
    query = QuerySettings(alter_sync=2, receive_timeout=5)
    wait_as_asked_for(lambda: r1, entries, query, Meanwhile(replicas.clock, [*work]))
    assert queued == []
    pull_log(r2)
    replicas.insert("r1", 9)
    replicas.work_off("r1")
    path = r1.table.log_entry(r1.keeper.children(r1.table.log)[-1])
    with pytest.raises(Unfinished, match="r2"):
        wait_as_asked_for(
            lambda: r1, [(path, r1.keeper.get(path)[0])], query, ClockWaker(replicas.clock)
        )
