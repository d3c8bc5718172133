"""Mutations on replicas in this process: which of them are done, and who is told so (spec §7.6)."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    MissingPart,
    ReplicaDropped,
    TableIsReadOnly,
    TooManyMutations,
    Unavailable,
    Unfinished,
)
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.duty import STAND_BACK_S, MutationDuty
from rmt_pipeline.replica.assign.merges import Nothing
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.replica.mutations import mutations
from rmt_pipeline.replica.mutations.mutations import (
    UnknownMutation,
    clean_mutations,
    create_mutation,
    finalize_mutations,
    kill_mutation,
    load_mutations,
    status_by_pointer,
    status_of_mutations,
    wait_for_mutation,
)
from rmt_pipeline.replica.mutations.request import (
    mutation_reports,
    throttle_mutation,
    wait_as_asked,
)
from rmt_pipeline.replica.pull_log import Pulled, pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import refetch
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, SetData
from rmt_pipeline.zookeeper.snapshot import noted_mutations
from tests.support.counting import Counting
from tests.support.local_replicas import ClockWaker, Replicas, by_tens
from tests.support.lost_answers import before

POOLS: tuple[Pool, ...] = ("fetch", "merge")


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path, define=by_tens) as made:
        yield made


def done(replica: Replica) -> dict[str, bool]:
    """By id, whether each mutation is done as this replica sees it."""
    statuses = status_of_mutations(replica, load_mutations(replica))
    return {one.mutation_id: one.is_done for one in statuses}


def delete(replica: Replica, partition: int, text: str = "n >= 0") -> str:
    commands = f"DELETE IN PARTITION ID '{partition}' WHERE {text}"
    return create_mutation(replica, commands, [str(partition)])


def finalize(replica: Replica) -> tuple[str, ...]:
    return finalize_mutations(replica, load_mutations(replica))


def rows(replicas: Replicas, name: str) -> list[int]:
    return sorted(replicas.table(name).dataset().to_table().column("n").to_pylist())


def work(replicas: Replicas, name: str) -> None:
    """Mutations are assigned, and everything is carried out, until nothing is left."""
    goes_on = True
    while goes_on:
        goes_on = isinstance(assign_mutations(replicas[name]), list)
        for pool in POOLS:
            goes_on = replicas.step(name, pool).did_something or goes_on


@pytest.mark.parametrize("late", [0, 1])
def test_of_the_parts_that_fail_the_one_that_failed_last_is_told(replicas, late):
    for value in (1, 2):
        replicas.insert("r1", value)
    delete(replicas["r1"], 0)
    assign_mutations(replicas["r1"])
    pull_log(replicas["r1"])
    keeper, paths = replicas["r1"].keeper, replicas["r1"].paths
    for number, node in enumerate(sorted(keeper.children(paths.queue))):
        failed_s = 2000 if number == late else 1000
        attempts = Attempts(
            tries=1,
            last_exception=f"at {failed_s}",
            last_attempt_s=failed_s,
            postpone_reason="",
        )
        keeper.multi([Create(paths.attempts_of(node), attempts.encode())])
    [report] = mutation_reports(replicas["r1"])
    assert report.failure is not None
    assert (report.failure.time_s, report.failure.reason) == (2000, "at 2000")


def test_a_mutation_with_nothing_to_do_finishes_none_that_came_before_it(replicas):
    """P30."""
    one = replicas["r1"]
    replicas.insert("r1", *range(10, 13))
    first, second = delete(one, 1), delete(one, 777)
    finalize(one)
    assert done(one) == {first: False, second: True}
    work(replicas, "r1")
    finalize(one)
    assert done(one) == {first: True, second: True}
    assert rows(replicas, "r1") == []


def test_every_mutation_is_carried_out_also_when_the_newest_partition_comes_first(
    replicas, monkeypatch
):
    """P30."""
    monkeypatch.setattr(limits, "SMALL_MUTATION_BYTES", 0)
    one = replicas["r1"]
    for month in range(1, 13):
        replicas.insert("r1", 10 * month, 10 * month + 1)
    for month in range(12, 0, -1):
        delete(one, month, "n % 10 = 0")
    for _ in range(100):
        assign_mutations(one)
        replicas.step("r1")
        finalize(one)
        for status in status_of_mutations(one, load_mutations(one)):
            if status.is_done:
                [(partition, _)] = status.entry.block_numbers
                assert 10 * int(partition) not in rows(replicas, "r1")
        if all(done(one).values()):
            break
    assert rows(replicas, "r1") == [10 * month + 1 for month in range(1, 13)]


class Waiting:
    """A waker of a clock that stands still: to wait is to let time pass."""

    def __init__(self, replicas: Replicas) -> None:
        self._clock = replicas.clock

    def wake(self) -> None:
        """Somebody noted something."""

    def wait_s(self, timeout_s: float) -> bool:
        self._clock.sleep_s(timeout_s)
        return False


def wait(
    replicas: Replicas,
    mutation: str,
    *names: str,
    timeout_s: float = 5.0,
    inactive_timeout_s: float = 5.0,
    why_stuck: Callable[[], str] = lambda: "",
) -> None:
    wait_for_mutation(
        replicas["r1"],
        mutation,
        names,
        timeout_s=timeout_s,
        inactive_timeout_s=inactive_timeout_s,
        waker=Waiting(replicas),
        why_stuck=why_stuck,
    )


def stuck_and_done(replicas: Replicas) -> tuple[str, str]:
    """Two mutations: nobody carries out the first one; the second one is finished on r1."""
    replicas.insert("r1", *range(10, 13))
    stuck, later = delete(replicas["r1"], 1), delete(replicas["r1"], 777)
    assert finalize(replicas["r1"]) == (later,)
    return stuck, later


def test_who_waits_for_a_later_mutation_does_not_wait_for_an_earlier_one(replicas):
    """U11. Also on another replica, which only reads what was noted; the earlier may never end."""
    stuck, later = stuck_and_done(replicas)
    wait(replicas, later, "r1")
    with pytest.raises(Unfinished, match="have not finished it yet: r2"):
        wait(replicas, later, "r1", "r2")
    pull_log(replicas["r2"])
    finalize(replicas["r2"])
    wait(replicas, later, "r1", "r2")
    with pytest.raises(Unfinished, match="have not finished it yet: r1"):
        wait(replicas, stuck, "r1")
    statuses = status_by_pointer(replicas["r2"], load_mutations(replicas["r2"]))
    assert [one.is_done for one in statuses] == [False, True]


def test_a_mutation_that_is_killed_while_it_is_waited_for_is_not_told_to_be_done(
    replicas, monkeypatch
):
    """P30. A later one is finished: then the pointer passes the one that is gone."""
    stuck, _ = stuck_and_done(replicas)
    look = mutations._has_finished

    def killed(*asked):
        kill_mutation(replicas["r1"], stuck)
        finalize(replicas["r1"])
        assert stuck in noted_mutations(replicas["r1"].keeper, replicas["r1"].paths).finished
        return look(*asked)

    monkeypatch.setattr(mutations, "_has_finished", killed)
    with pytest.raises(UnknownMutation, match="was killed or removed while it was waited for"):
        wait(replicas, stuck, "r1")


def test_nor_if_one_of_a_table_of_the_same_name_is_done(replicas):
    """P42. The table is dropped and created again, and counts its mutations from the start."""
    stuck, _ = stuck_and_done(replicas)
    waiting = replicas["r1"]

    def made_anew():
        replicas.drop("r1", "r2")
        replicas.create("r1", "r2")
        assert delete(replicas["r1"], 777) == stuck
        finalize(replicas["r1"])
        return ""

    with pytest.raises(ReplicaDropped):
        wait_for_mutation(
            waiting,
            stuck,
            ["r1"],
            timeout_s=5.0,
            inactive_timeout_s=5.0,
            waker=Waiting(replicas),
            why_stuck=made_anew,
        )


@pytest.mark.parametrize(
    ("timeout_s", "inactive_timeout_s", "waited_s"), [(60, 10, 10), (10, 60, 10), (0, 60, 0)]
)
def test_who_is_not_active_is_waited_for_no_longer_than_either_limit(
    replicas, timeout_s, inactive_timeout_s, waited_s
):
    stuck, _ = stuck_and_done(replicas)
    replicas.stop("r2")
    replicas.clock.passed_s += 5  # it is not the beginning of all time
    before_s = replicas.clock.monotonic_s()
    with pytest.raises(Unfinished, match="yet: r2"):
        wait(
            replicas,
            stuck,
            "r2",
            timeout_s=timeout_s,
            inactive_timeout_s=inactive_timeout_s,
        )
    assert replicas.clock.monotonic_s() - before_s == waited_s


def test_who_is_active_is_waited_for_however_soon_one_that_is_not_is_given_up(replicas):
    stuck, _ = stuck_and_done(replicas)
    before_s = replicas.clock.monotonic_s()
    with pytest.raises(Unfinished, match="yet: r2"):
        wait(replicas, stuck, "r2", timeout_s=20, inactive_timeout_s=0)
    assert replicas.clock.monotonic_s() - before_s == 20


def test_who_waits_in_vain_is_told_why_at_once(replicas):
    stuck, _ = stuck_and_done(replicas)
    before_s = replicas.clock.monotonic_s()
    with pytest.raises(Unfinished, match="does not get on: the disk is full"):
        wait(replicas, stuck, "r1", why_stuck=lambda: "the disk is full")
    assert replicas.clock.monotonic_s() == before_s


def test_nobody_is_told_that_a_mutation_was_finished_that_was_killed(replicas):
    """The pointer has passed it."""
    stuck, later = stuck_and_done(replicas)
    kill_mutation(replicas["r1"], stuck)
    finalize(replicas["r1"])
    assert stuck in noted_mutations(replicas["r1"].keeper, replicas["r1"].paths).finished
    with pytest.raises(UnknownMutation, match="was killed or removed"):
        wait(replicas, stuck, "r1")
    wait(replicas, later, "r1")


def test_a_mutation_that_is_killed_lets_the_pointer_pass(replicas):
    """P30."""
    one = replicas["r1"]
    stuck, later = stuck_and_done(replicas)
    assert one.keeper.get(one.paths.mutation_pointer)[0] == b""
    kill_mutation(one, stuck)
    assert finalize(one) == ()
    assert one.keeper.get(one.paths.mutation_pointer)[0] == later.encode()
    assert one.keeper.exists(one.paths.finished_mutations) is None


def test_mutations_beyond_one_that_is_stuck_are_cleaned_and_do_not_throttle(replicas):
    """P23."""
    replicas.set(finished_mutations_to_keep="1", number_of_mutations_to_throw="2")
    one, two = replicas["r1"], replicas["r2"]
    stuck, later = stuck_and_done(replicas)
    newest = delete(one, 778)
    for replica in (one, two):
        finalize(replica)
        throttle_mutation(replica)
    assert clean_mutations(one) == (later,)
    assert list(load_mutations(one).entries) == [stuck, newest]
    finalize(one)
    delete(one, 779)
    with pytest.raises(TooManyMutations, match="2 unfinished"):
        throttle_mutation(one)


def test_what_others_noted_meanwhile_is_not_taken_back(replicas, monkeypatch):
    """Two processes of one replica: one of them looked before the other, and writes after it."""
    one = replicas["r1"]
    _, later = stuck_and_done(replicas)
    newest = delete(one, 778)
    slow = load_mutations(one)
    multi = one.keeper.multi

    def other_first(ops):
        monkeypatch.setattr(one.keeper, "multi", multi)
        assert finalize(one) == (newest,)
        return multi(ops)

    monkeypatch.setattr(one.keeper, "multi", other_first)
    assert finalize_mutations(one, slow) == ()
    [_, second, third] = status_by_pointer(one, slow)
    assert (second.mutation_id, second.is_done, third.is_done) == (later, True, True)


def become_lost(replica: Replica) -> None:
    replica.keeper.multi(
        [SetData(replica.paths.is_lost, b"1"), Delete(replica.paths.is_active)]
    )


def begin(replica: Replica) -> None:
    address = ReplicaAddress("host", 9009, 9000, "default", "t")
    start(replica, identity=replica.name, incarnation="2", address=address)


def test_a_clone_of_a_replica_that_is_behind_has_not_finished_what_it_had(replicas):
    """P30, C4. It has lost its disk as well: its parts are those of the source, which the mutation
    has still to change.
    """
    one, two = replicas["r1"], replicas["r2"]
    replicas.insert("r1", *range(10, 13))
    work(replicas, "r2")
    mutation = delete(one, 1)
    work(replicas, "r2")
    assert finalize(two) == (mutation,)
    assert rows(replicas, "r2") == []
    become_lost(two)
    for name in replicas.parts("r2"):
        two.keeper.multi([Delete(two.paths.part(name))])
        two.store.remove(PartName.parse(name))
    begin(two)
    while replicas.step("r2", "fetch").did_something:
        pass
    assert rows(replicas, "r2") == [10, 11, 12]
    assert done(two) == {mutation: False}
    work(replicas, "r2")
    assert finalize(two) == (mutation,)
    assert rows(replicas, "r2") == []


def test_a_clone_between_the_reads_of_a_status_is_noticed(replicas, monkeypatch):
    """P30. The log's pointer goes back, and what was pulled before says nothing any more."""
    two = replicas["r2"]
    replicas.insert("r2", *range(10, 13))  # r1, which is cloned, has not pulled it
    mutation = delete(two, 1)

    def cloned_just_after(replica: Replica, **how: bool) -> Pulled:
        monkeypatch.undo()
        pulled = pull_log(replica, **how)
        become_lost(two)
        begin(two)
        return pulled

    monkeypatch.setattr(mutations, "pull_log", cloned_just_after)
    assert done(two) == {mutation: False}


def test_a_part_that_is_given_up_between_two_listings_is_still_to_be_mutated(
    replicas, monkeypatch
):
    """1. The queue is listed. 2. The part is found broken, and goes from the parts to the queue.
    3. The parts are listed: it is in neither, and the mutation looks done.
    """
    replica = replicas["r1"]
    part = replicas.insert("r1", 1)
    work(replicas, "r1")
    created = delete(replica, 0)
    real, left = replica.keeper.children, [1]

    def listed(path, *watch):
        queue = real(path, *watch)
        if left and path == replica.paths.queue:
            left.pop()
            Path(replica.store.files(part)[0]).unlink()
            assert refetch(replica, part) is not None
        return queue

    monkeypatch.setattr(replica.keeper, "children", listed)
    assert done(replica) == {created: False}
    assert not left


def test_a_mutation_is_not_done_while_the_part_from_before_it_is_active_again(replicas):
    """P30. The mutated part is given up: until it is fetched its source is active again, though
    nobody is answered from it.
    """
    replica = replicas["r1"]
    replicas.insert("r1", 1, 2)
    work(replicas, "r1")
    for _ in range(2):
        created = delete(replica, 0, "n = 1")
    work(replicas, "r1")
    assert finalize(replica)[-1] == created
    made = max(map(PartName.parse, replicas.parts("r1")), key=lambda part: part.mutation)
    Path(replica.store.files(made)[0]).write_bytes(b"no parquet")
    assert refetch(replica, made) is not None
    with pytest.raises(MissingPart, match=str(made)):
        rows(replicas, "r1")
    assert not any(done(replica).values())
    assert finalize(replica) == ()


def test_what_is_taken_back_is_noted_again_when_the_part_is_back(replicas):
    """P30. Nothing was open when the part was given up: the note that goes wakes who notes."""
    replica = replicas["r1"]
    replicas.insert("r1", 1, 2)
    created = delete(replica, 0, "n = 1")
    for name in ("r1", "r2"):
        work(replicas, name)
    duty, woken = MutationDuty(replica), []

    def turn() -> None:
        duty.turn(lambda: woken.append(1), progress=False)

    turn()
    assert noted(replica, created)
    turn()  # what it noted itself woke it, and nothing is open
    assert duty.next_s(replica.clock.monotonic_s()) == math.inf
    woken.clear()
    made = max(map(PartName.parse, replicas.parts("r1")), key=lambda part: part.mutation)
    Path(replica.store.files(made)[0]).write_bytes(b"no parquet")
    assert refetch(replica, made) is not None
    assert woken
    turn()
    assert not noted(replica, created)
    assert duty.next_s(replica.clock.monotonic_s()) < math.inf
    while replicas.step("r1", "fetch").did_something:
        pass
    duty.turn(lambda: woken.append(1), progress=True)
    assert noted(replica, created)


@pytest.mark.parametrize("fails", ["exists", "children"])
def test_a_list_of_mutations_that_could_not_be_read_is_read_again(replicas, monkeypatch, fails):
    """The change was told once, and nobody tells of it again."""
    replica = replicas["r1"]
    replicas.insert("r1", 1, 2)
    duty = MutationDuty(replica)
    duty.turn(lambda: None, progress=False)
    delete(replica, 0, "n = 1")

    def no_answer(*_):
        raise Unavailable("no answer")

    with monkeypatch.context() as patch:
        for name in (fails, "children_stat") if fails == "children" else (fails,):
            patch.setattr(replica.keeper, name, no_answer)
        with pytest.raises(Unavailable):
            duty.turn(lambda: None, progress=False)
    assert len(duty.turn(lambda: None, progress=False)) == 1


def test_who_stands_back_waits_for_the_newest_mutation_alone(replicas):
    """Of two replicas the first assigns; the second one 2 s after it has seen a new mutation, and
    not later because an old one was noted, or killed, meanwhile.
    """
    replicas.insert("r1", 1, 2)
    replicas.step("r2", "fetch")
    duty = MutationDuty(replicas["r2"])
    delete(replicas["r2"], 0, "n = 1")
    assert duty.turn(lambda: None, progress=False) == []
    replicas.clock.passed_s += STAND_BACK_S - 0.5
    duty.look_again()
    assert duty.turn(lambda: None, progress=False) == []
    replicas.clock.passed_s += 0.5
    duty.look_again()
    assert len(duty.turn(lambda: None, progress=False)) == 1


def test_who_stands_back_does_not_do_so_for_ever_while_mutations_keep_coming(replicas):
    """Nobody works at r1, which comes first."""
    replicas.insert("r1", 1, 2)
    replicas.step("r2", "fetch")
    duty, assigned = MutationDuty(replicas["r2"]), []
    for _ in range(int(3 * STAND_BACK_S)):
        delete(replicas["r2"], 0, "n = 1")
        assigned += duty.turn(lambda: None, progress=False)
        replicas.clock.passed_s += STAND_BACK_S / 2
    assert assigned


@pytest.mark.parametrize("how", ["done", "killed"])
def test_who_has_stood_back_does_so_at_the_next_mutation_too(replicas, how):
    """What it stood back from is over. Else both would assign each mutation that follows at once,
    and collide.
    """
    replicas.insert("r1", 1, 2, 3)
    replicas.step("r2", "fetch")
    duty = MutationDuty(replicas["r2"])
    first = delete(replicas["r2"], 0, "n = 1")
    assert duty.turn(lambda: None, progress=False) == []
    if how == "killed":
        kill_mutation(replicas["r1"], first)
    for name in ("r1", "r2"):
        work(replicas, name)
    assert duty.turn(lambda: None, progress=True) == []
    replicas.clock.passed_s += 1000
    delete(replicas["r2"], 0, "n = 2")
    assert duty.turn(lambda: None, progress=False) == []
    replicas.clock.passed_s += STAND_BACK_S
    assert len(duty.turn(lambda: None, progress=False)) == 1


def test_the_first_replica_assigns_at_once(replicas):
    replicas.insert("r1", 1, 2)
    duty = MutationDuty(replicas["r1"])
    delete(replicas["r1"], 0, "n = 1")
    assert len(duty.turn(lambda: None, progress=False)) == 1


def test_nobody_looks_for_what_was_killed(replicas):
    """Else the loop that asks when to look again is told "now", for ever."""
    replica = replicas["r1"]
    replicas.insert("r1", 1, 2)
    created = delete(replica, 0, "n = 1")
    duty = MutationDuty(replica)
    duty.turn(lambda: None, progress=False)
    assert duty.next_s(replica.clock.monotonic_s()) < math.inf
    kill_mutation(replica, created)
    replicas.clock.passed_s += 10
    duty.turn(lambda: None, progress=False)
    assert duty.next_s(replica.clock.monotonic_s()) == math.inf


def test_whoever_works_its_queue_looks_at_no_mutation_while_none_is_open(replicas):
    """Else each part that comes or goes would cost a look at all parts."""
    replica: Any = replicas["r1"]
    replicas.insert("r1", 1, 2)
    delete(replica, 0, "n = 1")
    duty = MutationDuty(replica)
    for _ in range(3):
        duty.turn(lambda: None, progress=True)
        work(replicas, "r1")
        replicas.clock.passed_s += 10
    assert set(done(replica).values()) == {True}
    asked = Counter[str]()
    replica.keeper.session = Counting(replica.keeper.session, asked)
    assert duty.turn(lambda: None, progress=True) == []
    assert not asked


def test_who_is_not_active_tells_of_mutations_what_it_has_noted(replicas):
    replica = replicas["r1"]
    replicas.insert("r1", 1, 2)
    finished = delete(replica, 0, "n = 1")
    work(replicas, "r1")
    finalize(replica)
    other = delete(replica, 0, "n = 2")
    replica.keeper.multi([Delete(replica.paths.is_active)])
    replicas.insert("r2", 3)  # to be pulled, which it can't
    told = {one.status.mutation_id: one.status for one in mutation_reports(replica)}
    assert {one: status.is_done for one, status in told.items()} == {
        finished: True,
        other: False,
    }
    assert "is not active" in told[other].waits_for


@pytest.mark.parametrize(
    ("sync", "worked", "is_away", "waits"),
    [
        (0, "", False, False),
        (1, "", False, True),
        (1, "r1", False, False),
        (2, "r1", False, True),
        (2, "r1", True, True),
        (2, "r1 r2", False, False),
        (3, "r1", False, True),
        (3, "r1", True, False),
    ],
)
def test_a_mutation_is_waited_for_where_it_was_said(replicas, sync, worked, is_away, waits):
    replicas.insert("r1", 1, 2)
    replicas.step("r2", "fetch")
    mutation = delete(replicas["r1"], 0, "n = 1")
    for name in worked.split():
        work(replicas, name)
        finalize(replicas[name])
    if is_away:
        replicas.stop("r2")
    query = QuerySettings(receive_timeout=1, replication_wait_for_inactive_replica_timeout=1)
    with pytest.raises(Unfinished) if waits else nullcontext():
        wait_as_asked(lambda: replicas["r1"], mutation, query, sync, ClockWaker(replicas.clock))


def noted(replica: Replica, mutation: str) -> bool:
    return mutation in noted_mutations(replica.keeper, replica.paths).finished


def test_what_was_found_finished_before_a_clone_is_not_noted_after_it(replicas):
    """P30. The parts that were looked at are not those of the source."""
    two = replicas["r2"]
    replicas.insert("r1", *range(10, 13))
    mutation = delete(replicas["r1"], 1)
    work(replicas, "r2")

    def clone() -> None:
        become_lost(two)
        begin(two)

    with before(two.keeper, notes, clone):
        assert finalize(two) == ()
    assert two.keeper.get(two.paths.mutation_pointer)[0] == b""
    assert done(two) == {mutation: False}


def notes(op: Op) -> bool:
    return isinstance(op, SetData) and op.path.endswith("/mutation_pointer")


def test_a_replica_that_is_lost_finishes_nothing(replicas):
    """P30. Its queue may be empty because it is just being cloned."""
    one = replicas["r1"]
    delete(one, 777)
    pull_log(one)  # and remembers that nothing is left to pull
    become_lost(one)
    with pytest.raises(TableIsReadOnly, match="is lost"):
        finalize(one)


def test_two_threads_that_load_mutations_do_not_take_each_others_away(replicas, monkeypatch):
    """P29. Or a merge would be decided without a mutation that was there, and span its number."""
    one = replicas["r1"]
    first = delete(one, 1)
    children = one.keeper.children

    def slow(path, watch=None):
        listed = children(path, watch)
        monkeypatch.undo()
        second = delete(one, 2)
        newer.append(load_mutations(one))
        assert list(newer[0].entries) == [first, second]
        return listed

    newer: list = []
    monkeypatch.setattr(one.keeper, "children", slow)
    assert list(load_mutations(one).entries) == [first]
    assert len(newer[0].entries) == 2
    assert len(load_mutations(one).entries) == 2


def test_parts_that_wait_for_the_oldest_mutation_are_mutated_first(replicas, monkeypatch):
    """P29. A steady stream of mutations of the first partition keeps no other one waiting."""
    monkeypatch.setattr(limits, "SMALL_MUTATION_BYTES", 0)
    replicas.set(max_replicated_mutations_in_queue="1")
    one = replicas["r1"]
    for partition in (1, 2):
        replicas.insert("r1", 10 * partition, 10 * partition + 1)
    old = delete(one, 2, "n % 10 = 0")
    for number in range(5):
        delete(one, 1, f"n = {100 + number}")
        assign_mutations(one)
        replicas.step("r1")
    assert done(one)[old]
    assert rows(replicas, "r1") == [10, 11, 21]


def test_as_many_parts_are_mutated_at_once_as_the_queue_takes(replicas, monkeypatch):
    monkeypatch.setattr(limits, "SMALL_MUTATION_BYTES", 0)
    one = replicas["r1"]
    for number in range(4):
        replicas.insert("r1", 10 + number)
    delete(one, 1, "n = 10")
    replicas.step("r1", "fetch")
    for most in (1, 2):
        replicas.set(max_replicated_mutations_in_queue=str(most))
        assigned = assign_mutations(one)
        assert not isinstance(assigned, Nothing)
        assert len(assigned) == 1
    assert "max_replicated_mutations_in_queue is 2" in str(assign_mutations(one))


@pytest.mark.parametrize(
    ("unfinished", "slept"), [(0, []), (1, [0.01]), (2, [0.505]), (3, [1.0])]
)
def test_more_mutations_wait_the_longer_the_more_there_are(replicas, unfinished, slept):
    replicas.set(
        number_of_mutations_to_delay="1",
        number_of_mutations_to_throw="3" if unfinished < 3 else "0",
        min_delay_to_mutate_ms="10",
        max_delay_to_mutate_ms="1000",
    )
    for number in range(unfinished):
        delete(replicas["r1"], number)
    throttle_mutation(replicas["r1"])
    assert replicas.clock.slept == pytest.approx(slept)
