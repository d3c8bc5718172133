"""The loop of a pool: how often it asks when there is nothing to be had, and when it ends."""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import (
    OutcomeUnknown,
    ReplicaDropped,
    ReplicaRetired,
    RmtError,
    TableIsReadOnly,
    Unavailable,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.mutations.mutations import create_mutation
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.work import loop as loops
from rmt_pipeline.replica.work import worker
from rmt_pipeline.replica.work.loop import Flush, WorkSummary, work
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import SetData
from tests.support.local_replicas import ClockWaker, Meanwhile, Replicas
from tests.support.waiting import LIMIT_S

A_MINUTE_S = 60.0


def worked(
    replicas: Replicas, pool: Any = "fetch", *, until: Callable[[], bool] | None = None
) -> WorkSummary:
    clock = replicas.clock
    tools = replicas.tools()
    flushed: list[Flush] = []
    return work(
        lambda: replicas["r1"],
        tools,
        pool,
        waker=ClockWaker(clock),
        linger_s=None,
        on_flush=flushed.append,
        should_stop=until or (lambda: clock.passed_s > A_MINUTE_S),
    )


def fetches(replicas: Replicas, tools: loops.Tools, waker: Any) -> None:
    """Until something breaks."""
    work(
        lambda: replicas["r1"],
        tools,
        "fetch",
        waker=waker,
        linger_s=None,
        on_flush=lambda _: None,
        should_stop=lambda: False,
    )


@pytest.mark.parametrize("pool", ["fetch", "merge"])
def test_a_replica_that_was_dropped_ends_it(replicas, pool):
    replica = replicas["r1"]
    drop_replica(replica.session, replica.table, replica.name)
    with pytest.raises(ReplicaDropped, match="DROP TABLE here too, or create it again"):
        worked(replicas, pool)
    assert replicas.clock.passed_s < 1


def test_so_does_a_table_that_was_dropped_with_its_last_replica(replicas):
    for name in ("r2", "r1"):
        drop_replica(replicas["r1"].session, replicas["r1"].table, name)
    with pytest.raises(ReplicaDropped):
        worked(replicas)


def test_a_replica_that_is_only_not_seen_yet_is_not_dropped(replicas, monkeypatch):
    """A new session may see the tree as it was before."""
    replica, asked = replicas["r1"], []

    def look(*_: object) -> bool:
        asked.append(replicas.clock.passed_s)
        if len(asked) == 1:
            raise ReplicaDropped("there was nothing yet")
        return False

    monkeypatch.setattr(loops.Executor, "glance", look)
    worked(replicas, until=lambda: len(asked) > 2)
    assert replica.keeper.exists(replica.paths.queue) is not None


@pytest.mark.parametrize("kind", [ReplicaRetired, OutcomeUnknown, TableIsReadOnly])
def test_while_there_is_trouble_the_pauses_grow(replicas, monkeypatch, kind: type[RmtError]):
    asked: list[float] = []

    def look(*_: object) -> bool:
        asked.append(replicas.clock.passed_s)
        raise kind("trouble")

    monkeypatch.setattr(loops.Executor, "glance", look)
    worked(replicas)
    assert 5 < len(asked) < 20
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses == sorted(pauses)
    assert max(pauses) == loops.TROUBLE_WAIT_MAX_S


def test_after_a_session_that_ended_the_next_one_is_asked_at_once(replicas, monkeypatch):
    asked: list[float] = []

    def look(*_: object) -> bool:
        asked.append(replicas.clock.passed_s)
        if len(asked) == 1:
            raise ReplicaRetired("over")
        return False

    monkeypatch.setattr(loops.Executor, "glance", look)
    worked(replicas, until=lambda: len(asked) == 2)
    assert asked == [0.0, 0.0]


def test_an_unknown_answer_does_not_end_the_session_of_all_tables(replicas, monkeypatch):
    replica = replicas["r1"]
    replicas.insert("r2", 1)
    multi, lost = replica.keeper.multi, []

    def without_answer(ops: Any) -> Any:
        if not lost:
            lost.append(ops)
            raise OutcomeUnknown("no answer")
        return multi(ops)

    monkeypatch.setattr(replica.keeper, "multi", without_answer)
    worked(replicas, until=lambda: "all_0_0_0" in replicas.parts("r1"))
    assert lost
    assert not replica.session.is_retired


def test_hands_that_can_not_begin_give_back_what_was_claimed(replicas):
    replica = replicas["r1"]
    replicas.insert("r2", 1)

    def no_more_threads(_: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    tools = loops.Tools(
        replicas.tools().peers,
        replicas.tools().merger,
        replicas.tools().mutator,
        spawn=no_more_threads,
    )
    with pytest.raises(RuntimeError, match="can't start"):
        fetches(replicas, tools, EventWaker())
    assert replica.keeper.children(replica.paths.executing) == []


def test_what_breaks_beside_the_loop_is_raised_when_all_else_is_done(replicas, monkeypatch):
    replicas.insert("r2", 1)
    tools = replicas.tools()

    def breaks(*_: object) -> None:
        raise AssertionError("nobody expects this")
        yield

    monkeypatch.setattr(loops.Executor, "carry_out", breaks)
    with pytest.raises(AssertionError, match="nobody expects this"):
        fetches(replicas, tools, EventWaker())


def test_what_was_begun_is_done_before_an_error_of_the_loop_is_raised(replicas, monkeypatch):
    """Else somebody would close what it works with."""
    replicas.insert("r2", 1)
    right, goes_on, done = loops.Executor.carry_out, threading.Event(), []

    def slowly(executor: Any, batch: Any) -> Any:
        assert goes_on.wait(LIMIT_S)
        yield from right(executor, batch)
        done.append(batch)

    class Waker(EventWaker):
        """Who has to wait for hands that it has begun with lets them go on."""

        def wait_s(self, seconds: float) -> bool:
            goes_on.set()
            return super().wait_s(seconds)

    def breaks(*_: object) -> None:
        raise AssertionError("nobody expects this")

    monkeypatch.setattr(loops.Executor, "carry_out", slowly)
    monkeypatch.setattr(loops.WorkSummary, "looked", breaks)
    with pytest.raises(AssertionError, match="nobody expects this"):
        fetches(replicas, replicas.tools(), Waker())
    assert len(done) == 1


def test_what_was_done_before_something_breaks_is_told(replicas, monkeypatch):
    replicas.insert("r2", 1)
    right, tools = loops.Executor.carry_out, replicas.tools()
    flushed: list[Flush] = []

    def breaks(executor: Any, batch: Any) -> Any:
        yield from right(executor, batch)
        raise AssertionError("nobody expects this")

    monkeypatch.setattr(loops.Executor, "carry_out", breaks)
    with pytest.raises(AssertionError, match="nobody expects this"):
        work(
            lambda: replicas["r1"],
            loops.Tools(tools.peers, tools.merger, tools.mutator, spawn=lambda run: run()),
            "fetch",
            waker=ClockWaker(replicas.clock),
            linger_s=None,
            on_flush=flushed.append,
            should_stop=lambda: False,
        )
    assert [str(done.part) for flush in flushed for done in flush.parts] == ["all_0_0_0"]


def test_what_breaks_behind_what_was_done_is_raised_at_once(replicas, monkeypatch):
    """Both woke the loop before it waited, once. Nobody wakes it again, for minutes."""
    replicas.insert("r2", 1)
    right, tools, begun = loops.Executor.carry_out, replicas.tools(), []
    waits: list[float] = []

    class Waker(EventWaker):
        def wait_s(self, seconds: float) -> bool:
            waits.append(seconds)
            if begun:
                begun.pop()()
            return True

    def breaks(executor: Any, batch: Any) -> Any:
        yield from right(executor, batch)
        raise AssertionError("nobody expects this")

    monkeypatch.setattr(loops.Executor, "carry_out", breaks)
    with pytest.raises(AssertionError, match="nobody expects this"):
        work(
            lambda: replicas["r1"],
            loops.Tools(tools.peers, tools.merger, tools.mutator, spawn=begun.append),
            "fetch",
            waker=Waker(),
            linger_s=None,
            on_flush=lambda _: None,
            should_stop=lambda: len(waits) > 3,
        )
    assert len(waits) == 1


@pytest.mark.parametrize("is_over", [True, False])
def test_an_error_of_a_look_holds_nothing_up_while_something_is_carried_out(
    replicas, monkeypatch, is_over
):
    """A merge may take hours, and the disk have been full for a moment. It is raised if it is there
    still when that is done.
    """
    replicas.insert("r2", 1)
    clock, tools, glance = replicas.clock, replicas.tools(), loops.Executor.glance
    begun: list[Callable[[], None]] = []
    asked: list[float] = []

    class Waker(ClockWaker):
        """After an hour it is done."""

        def wait_s(self, seconds: float) -> bool:
            if begun and clock.passed_s > 3600:
                begun.pop()()
            return super().wait_s(seconds)

    def fails(executor: Any, watch: Any) -> Any:
        asked.append(clock.passed_s)
        if len(asked) == 2 or (len(asked) > 2 and not is_over):
            raise OSError(28, "No space left on device")
        return glance(executor, watch)

    def until_done() -> WorkSummary:
        return work(
            lambda: replicas["r1"],
            loops.Tools(tools.peers, tools.merger, tools.mutator, spawn=begun.append),
            "fetch",
            waker=Waker(clock),
            linger_s=None,
            on_flush=lambda _: None,
            should_stop=lambda: clock.passed_s > 7200,
        )

    monkeypatch.setattr(loops.Executor, "glance", fails)
    if is_over:
        assert until_done().parts == 1
    else:
        with pytest.raises(OSError, match="No space left"):
            until_done()
    assert asked[2] < asked[1] + 60, "it looks again soon"
    assert clock.passed_s > 3600
    assert replicas.parts("r1") == ["all_0_0_0"]
    told = replicas.stores["r1"].errors.read().values()
    assert any("No space left" in one.last_message for one in told)


def test_the_summary_counts_what_differed_from_what_another_replica_has():
    summary = WorkSummary()
    part = PartName("all", 0, 1, 1)
    failed = PartDone(part, "MERGE_PARTS", error="it differs")
    summary.add([failed, replace(failed, differs=True)])
    assert (summary.failures, summary.differed, summary.parts) == (2, 1, 0)


def test_a_look_that_failed_is_made_again_at_the_next_turn(replicas, monkeypatch):
    """What its watches told it has been taken: no other one fires for that."""
    pool = worker.Worker(replicas["r2"], replicas.tools(), "fetch", EventWaker(), select=False)
    while pool.turn()[0].batches:
        replicas.work_off("r2")
    part = replicas.insert("r1", 7)
    pull_log(replicas["r2"])
    glance = pool.executor.glance

    def failing(*_: object) -> object:
        monkeypatch.setattr(pool.executor, "glance", glance)
        raise Unavailable("no answer")

    monkeypatch.setattr(pool.executor, "glance", failing)
    with pytest.raises(Unavailable):
        pool.turn()
    [batch] = pool.turn()[0].batches
    assert batch.tasks[0].entry.part == part


def test_no_more_batches_are_begun_than_there_may_be_at_once(replicas, monkeypatch):
    monkeypatch.setattr(loops, "BATCHES_MAX", 0)
    replicas.insert("r2", 1)
    worked(replicas)
    assert "all_0_0_0" not in replicas.parts("r1")


def test_a_slow_look_is_not_followed_by_a_long_rest(replicas, monkeypatch):
    """Else an insert that comes during the look waits twice as long as the look takes."""
    replicas.insert("r2", 1)
    right, begun = loops.Executor.look, []

    def slowly(*asked: Any) -> Any:
        replicas.clock.passed_s += 0.5
        return right(*asked)

    tools = replicas.tools()
    busy = loops.Tools(tools.peers, tools.merger, tools.mutator, spawn=begun.append)
    monkeypatch.setattr(loops.Executor, "look", slowly)
    monkeypatch.setattr(loops._Loop, "finish", lambda _: None)
    work(
        lambda: replicas["r1"],
        busy,
        "fetch",
        waker=ClockWaker(replicas.clock),
        linger_s=None,
        on_flush=lambda _: None,
        should_stop=lambda: bool(begun),
    )
    assert len(begun) == 1
    assert 0 < sum(replicas.clock.slept) <= 0.02


def test_what_it_assigns_is_queued_before_it_is_idle(replicas):
    """However short it is told to wait for more: who ends when nothing is left to do has not left
    what he has just thought of to others.
    """
    replicas.insert("r1", 1, 2)
    replicas.step("r1", "fetch")
    mutate = lambda: create_mutation(replicas["r1"], "DELETE WHERE n = 1")  # noqa: E731
    done = work(
        lambda: replicas["r1"],
        replicas.tools(),
        "fetch",
        waker=Meanwhile(replicas.clock, [mutate]),
        linger_s=0.01,
        select=True,
        on_flush=lambda flush: None,
        should_stop=lambda: False,
    )
    assert (done.stopped, done.assigned) == ("idle", 1)
    assert len(replicas["r1"].keeper.children(replicas["r1"].paths.queue)) == 1


def merges(
    replicas: Replicas, steps: list[Callable[[], object]], until: Callable[[], bool]
) -> None:
    """The merge pool of r2, while the next of `steps` happens each time that it waits."""
    tools = replicas.tools()
    work(
        lambda: replicas["r2"],
        loops.Tools(tools.peers, tools.merger, tools.mutator, spawn=lambda run: run()),
        "merge",
        waker=Meanwhile(replicas.clock, steps),
        linger_s=None,
        on_flush=lambda _: None,
        should_stop=until,
    )


def test_a_merge_that_was_pulled_is_made_at_once(replicas):
    """The merge pool does not rest first, as it does after what wakes it for nothing."""
    replicas.insert("r1", 1)
    replicas.insert("r1", 2)
    replicas.work_off()

    def assigned() -> None:
        optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
        pull_log(replicas["r2"])

    began_s = replicas.clock.passed_s
    merges(replicas, [assigned], lambda: "all_0_1_1" in replicas.parts("r2"))
    assert replicas.clock.passed_s - began_s < 0.05


def test_a_merge_whose_source_is_on_its_way_is_made_soon_after_it_has_come(replicas):
    """A follower usually has the newest source a moment after the merge."""
    replicas.insert("r1", 1)
    replicas.work_off()

    def assigned() -> None:
        replicas.insert("r1", 2)
        optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
        pull_log(replicas["r2"])

    def came() -> None:
        replicas.step("r2", "fetch")

    began_s = replicas.clock.passed_s
    merges(replicas, [assigned, came], lambda: "all_0_1_1" in replicas.parts("r2"))
    assert replicas.clock.passed_s - began_s < 0.05


def test_a_merge_is_begun_before_the_next_one_is_looked_for(replicas, monkeypatch):
    """To look for one takes a dozen requests."""
    looked: list[object] = []
    monkeypatch.setattr(worker.MergeDuty, "turn", lambda duty: looked.append(duty) or [])
    replicas.insert("r1", 1)
    replicas.insert("r1", 2)
    optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    pull_log(replicas["r1"])
    tools = replicas.tools()
    pool = worker.Worker(replicas["r1"], tools, "merge", EventWaker(), select=True)
    look, _ = pool.turn()
    assert len(look.batches) == 1
    assert not looked
    pool.turn()
    assert looked


def test_inserts_wake_the_merge_pool_now_and_then_only(replicas, monkeypatch):
    glances, right = [], loops.Executor.glance
    monkeypatch.setattr(
        loops.Executor, "glance", lambda *asked: glances.append(1) or right(*asked)
    )

    def inserted(number: int) -> None:
        replicas.insert("r1", number)
        replicas.work_off("r2")

    def steps() -> list[Callable[[], object]]:
        return [partial(inserted, number) for number in range(20)]

    left = steps()
    merges(replicas, left, lambda: not left)
    assert 1 <= len(glances) <= 3


def test_a_log_pointer_that_a_clone_has_moved_back_is_read_again(replicas):
    """By the server, while another process works its queue: nothing comes that would show it."""
    replica, clock = replicas["r1"], replicas.clock
    pointer = replica.paths.log_pointer
    replicas.insert("r2", 1)
    loop = worker.Worker(replica, replicas.tools(), "fetch", ClockWaker(clock), select=False)
    loop.turn()
    assert replica.keeper.get(pointer)[0] == b"1"
    is_lost = replica.paths.is_lost
    replica.session.multi(
        [SetData(is_lost, b"1"), SetData(pointer, b"0"), SetData(is_lost, b"0")]
    )
    clock.passed_s += worker.SAFETY_NET_S
    loop.turn()
    assert replica.keeper.get(pointer)[0] == b"1"
