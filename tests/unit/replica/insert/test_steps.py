"""Small inserts of one process that are under way at once are committed in step."""

import errno
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import MissingPart, OutcomeUnknown
from rmt_pipeline.replica.insert import insert
from rmt_pipeline.replica.insert.result import InsertCancelled, InsertResult, Outcome
from rmt_pipeline.replica.insert.steps import Note, Send, Steps, Walk, _walk_together, in_step
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.together import _leading
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op
from rmt_pipeline.zookeeper.through import ThroughKeeper
from tests.support.local_replicas import Replicas
from tests.support.lost_answers import allocates, faulty, unlocks
from tests.support.waiting import LIMIT_S, until


class Together:
    """Inserts into r1 that are committed in step. They stop before they publish."""

    def __init__(self, replicas: Replicas, patch: pytest.MonkeyPatch) -> None:
        self.replica = replicas["r1"]
        self._table = replicas.table("r1")
        patch.setattr(self._table, "new_waker", EventWaker)
        self._publish, self._may_publish = self.replica.store.publish_all, threading.Event()
        patch.setattr(self.replica.store, "publish_all", self._published)
        self.published: list[int] = []
        """How many parts were published at once."""
        self._pool = ThreadPoolExecutor(8)
        self.sent: list[int] = []
        """How many commits and allocations each multi had."""
        multi = self.replica.keeper.multi

        def counted(ops: Sequence[Op]) -> list[str]:
            self.sent.append(sum(allocates(op) or unlocks(op) for op in ops))
            return multi(ops)

        patch.setattr(self.replica.keeper, "multi", counted)

    def _published(self, pairs: Any) -> None:
        self.published.append(len(pairs))
        assert self._may_publish.wait(LIMIT_S)
        self._publish(pairs)

    @contextmanager
    def _held(self, waiting: int) -> Iterator[None]:
        """Something is under way until so many wait."""
        has_begun, may_end = threading.Event(), threading.Event()

        def hold(_: object) -> None:
            has_begun.set()
            assert may_end.wait(LIMIT_S)

        inserts = self.replica.memory.inserts
        held = self._pool.submit(inserts.do, [], EventWaker(), hold, lambda _: None)
        assert has_begun.wait(LIMIT_S)
        yield
        until(lambda: len(inserts) == waiting)
        may_end.set()
        held.result(LIMIT_S)

    def insert(self, *rows: Sequence[int], publishing: int) -> list[Future[InsertResult]]:
        """So many of them come as far as the disk."""
        with self._held(len(rows)):
            futures = [self.begin([{"n": value} for value in values]) for values in rows]
        until(lambda: sum(self.published) == publishing)
        return futures

    def begin(self, rows: Any) -> Future[InsertResult]:
        return self._pool.submit(self._table.insert, rows)

    def commit(self) -> None:
        self._may_publish.set()


@pytest.fixture
def replicas(tmp_path):
    with Replicas(tmp_path, ["r1"]) as opened:
        opened.insert("r1", 1)
        yield opened


@pytest.fixture
def together(replicas, monkeypatch):
    return Together(replicas, monkeypatch)


def rows(replicas: Replicas) -> list[int]:
    return sorted(replicas.table("r1").dataset().to_table()["n"].to_pylist())


def test_several_take_two_multis(together, replicas) -> None:
    inserts = together.insert([2], [3, 4], [5], publishing=3)
    together.commit()
    found = [one.result(LIMIT_S) for one in inserts]
    assert [(one.outcome, one.rows) for one in found] == [
        (Outcome.INSERTED, 1),
        (Outcome.INSERTED, 2),
        (Outcome.INSERTED, 1),
    ]
    assert (together.sent, together.published) == ([3, 3], [3])
    assert len({part for one in found for part in one.parts}) == 3
    assert rows(replicas) == [1, 2, 3, 4, 5]


def test_one_that_is_there_already_takes_nobody_along(together, replicas) -> None:
    new, old, other = together.insert([2], [1], [3], publishing=2)
    together.commit()
    assert new.result(LIMIT_S).outcome is Outcome.INSERTED
    assert old.result(LIMIT_S).outcome is Outcome.DUPLICATE
    assert other.result(LIMIT_S).outcome is Outcome.INSERTED
    assert rows(replicas) == [1, 2, 3]


def test_the_same_rows_twice_in_one_multi_are_there_once(together, replicas) -> None:
    inserts = together.insert([2], [2], [3], publishing=3)
    together.commit()
    outcomes = sorted(one.result(LIMIT_S).outcome for one in inserts)
    assert outcomes == [Outcome.DUPLICATE, Outcome.INSERTED, Outcome.INSERTED]
    assert rows(replicas) == [1, 2, 3]


def test_one_that_a_drop_cancels_takes_nobody_along(together, replicas) -> None:
    """Its number is taken away between the two multis."""
    cancelled, other = together.insert([2], [3], publishing=2)
    keeper, table = together.replica.session, together.replica.table
    first = min(keeper.children(table.partition("all")))
    keeper.multi([Delete(f"{table.partition('all')}/{first}")])
    together.commit()
    found = [one.exception(LIMIT_S) for one in (cancelled, other)]
    assert [type(one) for one in found if one] == [InsertCancelled]
    assert len(rows(replicas)) == 2


@pytest.mark.parametrize("landed", [True, False])
def test_without_an_answer_each_settles_its_own(together, replicas, landed) -> None:
    """And finds what became of it: all were committed, or none, and then all are once more."""
    inserts = together.insert([2], [3], publishing=2)
    with faulty(together.replica.keeper, unlocks, landed=landed):
        together.commit()
        found = [one.result(LIMIT_S) for one in inserts]
    assert [one.outcome for one in found] == [Outcome.INSERTED] * 2
    assert rows(replicas) == [1, 2, 3]
    assert sorted(replicas.parts("r1")) == sorted(map(str, together.replica.store.parts()))
    assert together.replica.session.children(together.replica.table.partition("all")) == []


def test_an_error_of_the_disk_is_that_of_all_and_no_sync_is_tried_again(
    together, replicas, monkeypatch
) -> None:
    """A second sync would not tell it again, and lose rows."""
    inserts = together.insert([2], [3], publishing=2)
    syncs = []

    def broken(*_: object) -> None:
        syncs.append(1)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(together.replica.store, "_make_safe", broken)
    together.commit()
    assert [type(one.exception(LIMIT_S)) for one in inserts] == [OSError, OSError]
    assert syncs == [1]
    assert rows(replicas) == [1]
    assert together.replica.session.children(together.replica.table.partition("all")) == []


def test_one_whose_files_are_gone_takes_nobody_along(together, replicas) -> None:
    gone, other = together.insert([2], [3], publishing=2)
    store = together.replica.store
    [first, _] = sorted(store.staged())
    store.disk.remove_tree(first)
    together.commit()
    found = [one.exception(LIMIT_S) for one in (gone, other)]
    assert [type(one) for one in found if one] == [MissingPart]
    assert len(rows(replicas)) == 2
    assert together.replica.session.children(together.replica.table.partition("all")) == []


def test_who_is_interrupted_leaves_the_others_to_themselves(
    together, replicas, monkeypatch
) -> None:
    """Ctrl-C in the thread that does the steps of all of them."""
    inserts = together.insert([2], [3], [4], publishing=3)
    publish = together.replica.store._make_safe

    def interrupted(*_: object) -> None:
        monkeypatch.setattr(together.replica.store, "_make_safe", publish)
        raise KeyboardInterrupt

    monkeypatch.setattr(together.replica.store, "_make_safe", interrupted)
    together.commit()
    found = [one.exception(LIMIT_S) for one in inserts]
    assert [type(one) for one in found if one] == [KeyboardInterrupt]
    assert len(rows(replicas)) == 3
    assert together.replica.session.children(together.replica.table.partition("all")) == []


def test_who_is_interrupted_between_two_steps_of_another_one_leaves_no_lock(
    together, replicas, monkeypatch
) -> None:
    """It has the numbers, and publishes nothing. Its locks would be there as long as the session,
    and no merge goes across them.
    """
    right, calls = insert.progress, []

    def interrupted(*args: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return right(*args, **more)

    monkeypatch.setattr(insert, "progress", interrupted)
    together.commit()
    with together._held(3):
        inserts = [together.begin([{"n": value}]) for value in (2, 3, 4)]
    found = [one.exception(LIMIT_S) for one in inserts]
    assert [type(one) for one in found if one] == [KeyboardInterrupt]
    assert len(rows(replicas)) == 3
    assert together.replica.session.children(together.replica.table.partition("all")) == []


def test_a_large_one_waits_for_nobody_and_nobody_for_it(
    together, replicas, monkeypatch
) -> None:
    monkeypatch.setattr("rmt_pipeline.replica.insert.insert._IN_STEP_BYTES_MAX", 1000)
    small = together.insert([2], publishing=1)
    large = together.begin([{"n": value} for value in range(10, 1000)])
    until(lambda: together.published == [1, 1])
    together.commit()
    assert [one.result(LIMIT_S).rows for one in (*small, large)] == [1, 990]


@pytest.mark.parametrize(("values", "new"), [([[2], [1]], 1), ([[2], [2], [3]], 2)])
def test_what_a_refused_one_reads_keeps_nobody_waiting(
    together, replicas, monkeypatch, values, new
) -> None:
    """Refused when it allocates, or when it commits: it reads why in its own thread."""
    read, may_read = insert.read_record, threading.Event()

    def slow(*args: Any) -> Any:
        assert not _leading.get(), "who does the steps of all of them reads for one"
        assert may_read.wait(LIMIT_S)
        return read(*args)

    monkeypatch.setattr(insert, "read_record", slow)
    together.commit()
    inserts = together.insert(*values, publishing=len(values) - (new == 1))
    until(lambda: sum(one.done() for one in inserts) == new)
    may_read.set()
    outcomes = sorted(one.result(LIMIT_S).outcome for one in inserts)
    assert outcomes == [Outcome.DUPLICATE, *[Outcome.INSERTED] * new]


def test_what_one_prepares_keeps_nobody_waiting(together, replicas, monkeypatch) -> None:
    """It creates the node of its partition before its first step."""
    create, is_slow, may_create = insert.ensure_partitions, [True], threading.Event()
    has_begun = threading.Event()

    def slow(*args: Any) -> None:
        assert not _leading.get(), "as above"
        if is_slow and is_slow.pop():
            has_begun.set()
            assert may_create.wait(LIMIT_S)
        create(*args)

    monkeypatch.setattr(insert, "ensure_partitions", slow)
    together.commit()
    late = together.begin([{"n": 2}])
    assert has_begun.wait(LIMIT_S)
    assert [one.result(LIMIT_S).rows for one in together.insert([3], publishing=1)] == [1]
    may_create.set()
    assert late.result(LIMIT_S).rows == 1


def test_each_multi_is_sent_in_the_session_of_its_insert(replicas) -> None:
    """One that began with the session of before must learn that this session is over."""
    now = replicas["r1"]
    before = replace(now, keeper=ThroughKeeper(now.session))
    sent: list[tuple[Replica, list[str]]] = []

    def steps(replica: Replica, path: str) -> Steps:
        sent.append((replica, (yield Send([Create(path, b"")]))))
        return None

    walks = [Walk(one, steps(one, f"/{number}")) for number, one in enumerate((now, before))]
    asked = []
    for one in (now, before):
        multi = one.keeper.multi
        one.keeper.multi = lambda ops, multi=multi: asked.append(len(ops)) or multi(ops)
    _walk_together(walks)
    assert (asked, sent) == ([1, 1], [(now, ["/0"]), (before, ["/1"])])


@pytest.mark.parametrize("several", [1, 2])
def test_what_goes_wrong_with_a_request_is_thrown_into_the_steps_of_each(
    replicas: Replicas, several: int
) -> None:
    """They know what to do about it, and go on."""
    told: list[str] = []

    def steps() -> Steps:
        try:
            yield Send([Create("/a", b"")])
        except OutcomeUnknown as error:
            told.append(str(error))
        yield Note(())
        told.append("went on")

    walks = [Walk(replicas["r1"], steps()) for _ in range(several)]
    with faulty(replicas["r1"].keeper, lambda op: op.path == "/a", landed=False):
        _walk_together(walks)
    assert sorted(told) == [*["no answer"] * several, *["went on"] * several]
    assert [walk.error for walk in walks] == [None] * several


def test_the_error_with_which_steps_end_is_theirs_alone(replicas: Replicas) -> None:
    ended: list[str] = []

    def steps(error: Exception | None) -> Steps:
        yield Note(())
        if error is not None:
            raise error
        yield Note(())
        ended.append("the other")

    wrong = ValueError("wrong")
    walks = [Walk(replicas["r1"], steps(one)) for one in (wrong, None)]
    _walk_together(walks)
    assert [walk.error for walk in walks] == [wrong, None]
    assert [walk.step for walk in walks] == [None, None]
    assert ended == ["the other"]


def test_who_is_interrupted_again_leaves_steps_alone_that_another_thread_works_on(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other thread ends them: nothing can be thrown into a generator that runs."""
    ended: list[str] = []

    def steps() -> Steps:
        with pytest.raises(KeyboardInterrupt, match="again"):
            in_step(replicas["r1"], running, EventWaker())
        yield Note(())
        ended.append("by the thread that works on them")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt("again")

    running = steps()
    monkeypatch.setattr(type(replicas["r1"].memory.inserts), "do", interrupted)
    assert next(running) == Note(())
    assert next(running, None) is None
    assert ended
