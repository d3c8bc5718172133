"""Inserts of one process that are under way at once share their multis, and nothing else."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from rmt_pipeline.replica.insert.result import InsertCancelled, InsertResult, Outcome
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import Delete, Op
from tests.support.local_replicas import Replicas
from tests.support.lost_answers import allocates, faulty, unlocks
from tests.support.waiting import LIMIT_S


class Together:
    """Inserts into r1 whose multis go together: those that allocate, then those that commit."""

    def __init__(self, replicas: Replicas, patch: pytest.MonkeyPatch) -> None:
        self.replica = replicas["r1"]
        self._table = replicas.table("r1")
        patch.setattr(self._table, "new_waker", EventWaker)
        self._publish, self._may_publish = self.replica.store.publish_all, threading.Event()
        patch.setattr(self.replica.store, "publish_all", self._published)
        self._publishing: list[int] = []
        self._pool = ThreadPoolExecutor(8)
        self.sent: list[int] = []
        """How many commits and allocations each multi had."""
        multi = self.replica.keeper.multi

        def counted(ops: Sequence[Op]) -> list[str]:
            self.sent.append(sum(allocates(op) or unlocks(op) for op in ops))
            return multi(ops)

        patch.setattr(self.replica.keeper, "multi", counted)

    def _published(self, pairs: Any) -> None:
        self._publishing.append(1)
        assert self._may_publish.wait(LIMIT_S)
        self._publish(pairs)

    @contextmanager
    def _held(self, waiting: int) -> Iterator[None]:
        """Something is under way until so many wait."""
        has_begun, may_end = threading.Event(), threading.Event()

        def hold(_: Sequence[Op]) -> list[str]:
            has_begun.set()
            assert may_end.wait(LIMIT_S)
            return []

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
            futures = [
                self._pool.submit(self._table.insert, [{"n": value} for value in values])
                for values in rows
            ]
        until(lambda: len(self._publishing) == publishing)
        return futures

    def commit(self, waiting: int) -> None:
        with self._held(waiting):
            self._may_publish.set()


def until(condition: Any) -> None:
    pause = threading.Event()
    while not condition():
        pause.wait(0.001)


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
    together.commit(3)
    found = [one.result(LIMIT_S) for one in inserts]
    assert [(one.outcome, one.rows) for one in found] == [
        (Outcome.INSERTED, 1),
        (Outcome.INSERTED, 2),
        (Outcome.INSERTED, 1),
    ]
    assert together.sent == [3, 3]
    assert len({part for one in found for part in one.parts}) == 3
    assert rows(replicas) == [1, 2, 3, 4, 5]


def test_one_that_is_there_already_takes_nobody_along(together, replicas) -> None:
    new, old, other = together.insert([2], [1], [3], publishing=2)
    together.commit(2)
    assert new.result(LIMIT_S).outcome is Outcome.INSERTED
    assert old.result(LIMIT_S).outcome is Outcome.DUPLICATE
    assert other.result(LIMIT_S).outcome is Outcome.INSERTED
    assert rows(replicas) == [1, 2, 3]


def test_the_same_rows_twice_in_one_multi_are_there_once(together, replicas) -> None:
    inserts = together.insert([2], [2], [3], publishing=3)
    together.commit(3)
    outcomes = sorted(one.result(LIMIT_S).outcome for one in inserts)
    assert outcomes == [Outcome.DUPLICATE, Outcome.INSERTED, Outcome.INSERTED]
    assert rows(replicas) == [1, 2, 3]


def test_one_that_a_drop_cancels_takes_nobody_along(together, replicas) -> None:
    """Its number is taken away between the two multis."""
    cancelled, other = together.insert([2], [3], publishing=2)
    keeper, table = together.replica.session, together.replica.table
    first = min(keeper.children(table.partition("all")))
    keeper.multi([Delete(f"{table.partition('all')}/{first}")])
    together.commit(2)
    found = [one.exception(LIMIT_S) for one in (cancelled, other)]
    assert [type(one) for one in found if one] == [InsertCancelled]
    assert len(rows(replicas)) == 2


@pytest.mark.parametrize("landed", [True, False])
def test_without_an_answer_each_settles_its_own(together, replicas, landed) -> None:
    """And finds what became of it: all were committed, or none, and then all are once more."""
    inserts = together.insert([2], [3], publishing=2)
    with faulty(together.replica.keeper, unlocks, landed=landed):
        together.commit(2)
        found = [one.result(LIMIT_S) for one in inserts]
    assert [one.outcome for one in found] == [Outcome.INSERTED] * 2
    assert rows(replicas) == [1, 2, 3]
    assert sorted(replicas.parts("r1")) == sorted(map(str, together.replica.store.parts()))
    assert together.replica.session.children(together.replica.table.partition("all")) == []
