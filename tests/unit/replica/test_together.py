"""What several threads want at once is done together, and none is worse off for it."""

import linecache
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import OutcomeUnknown, Unavailable
from rmt_pipeline.replica import together
from rmt_pipeline.replica.together import AT_ONCE_MAX, Together
from rmt_pipeline.system import EventWaker

PATIENCE_S = 300.0


class Work:
    """What is done alone and together; the first one waits until it may go on."""

    def __init__(self) -> None:
        self.together = Together[int, int]()
        self.groups: list[list[int]] = []
        self.may_go_on = threading.Event()
        self.has_begun = threading.Event()
        self.answer: Callable[[Sequence[int]], Sequence[int] | None] = lambda items: [
            item * 10 for item in items
        ]

    def alone(self, item: int) -> int:
        self.groups.append([item])
        if len(self.groups) == 1:
            self.has_begun.set()
            assert self.may_go_on.wait(PATIENCE_S)
        return item * 10

    def many(self, items: Sequence[int]) -> Sequence[int] | None:
        self.groups.append([*items])
        return self.answer(items)

    def do(self, item: int, waker: EventWaker | None = None) -> int:
        return self.together.do(item, waker or EventWaker(), self.alone, self.many)

    def waiting(self, count: int) -> None:
        """Until so many wait for the one that is under way."""
        while len(self.together) < count:
            assert not self.may_go_on.wait(0.001)


@pytest.fixture
def work():
    return Work()


def begun(work: Work, pool: ThreadPoolExecutor, *items: int) -> list[Future[int]]:
    """The first one is under way, the others wait for it in this order."""
    futures = [pool.submit(work.do, items[0])]
    assert work.has_begun.wait(PATIENCE_S)
    for number, item in enumerate(items[1:], 1):
        futures.append(pool.submit(work.do, item))
        work.waiting(number)
    return futures


def test_who_comes_alone_waits_for_nobody(work) -> None:
    work.may_go_on.set()
    assert [work.do(1), work.do(2)] == [10, 20]
    assert work.groups == [[1], [2]]


def test_what_waits_is_done_together_and_each_is_told_its_own(work) -> None:
    with ThreadPoolExecutor(8) as pool:
        futures = begun(work, pool, 1, 2, 3, 4)
        work.may_go_on.set()
        assert [one.result(PATIENCE_S) for one in futures] == [10, 20, 30, 40]
    assert work.groups == [[1], [2, 3, 4]]
    assert work.do(5) == 50


def test_what_cannot_be_done_together_is_done_by_each_alone(work) -> None:
    work.answer = lambda _: None
    with ThreadPoolExecutor(8) as pool:
        futures = begun(work, pool, 1, 2, 3)
        work.may_go_on.set()
        assert [one.result(PATIENCE_S) for one in futures] == [10, 20, 30]
    assert sorted(map(len, work.groups)) == [1, 1, 1, 2]


def test_without_an_answer_none_of_them_has_one(work) -> None:
    def lost(_: Sequence[int]) -> Sequence[int]:
        raise OutcomeUnknown("no answer")

    work.answer = lost
    with ThreadPoolExecutor(8) as pool:
        first, *others = begun(work, pool, 1, 2, 3)
        work.may_go_on.set()
        assert first.result(PATIENCE_S) == 10
        for one in others:
            with pytest.raises(OutcomeUnknown, match="no answer"):
                one.result(PATIENCE_S)
    assert work.do(4) == 40


def test_what_one_raises_alone_is_its_own(work) -> None:
    """And those who waited for it go on."""

    def refused(item: int) -> int:
        work.alone(item)
        raise Unavailable("not today")

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(work.together.do, 1, EventWaker(), refused, work.many)
        assert work.has_begun.wait(PATIENCE_S)
        others = [pool.submit(work.do, item) for item in (2, 3)]
        work.waiting(2)
        work.may_go_on.set()
        with pytest.raises(Unavailable):
            first.result(PATIENCE_S)
        assert [one.result(PATIENCE_S) for one in others] == [20, 30]


class Interrupted(BaseException):
    """As Ctrl-C raises it."""


def test_of_what_was_interrupted_while_it_was_done_for_others_they_know_nothing(work) -> None:
    def interrupted(_: Sequence[int]) -> Sequence[int]:
        raise Interrupted

    work.answer = interrupted
    with ThreadPoolExecutor(8) as pool:
        first, leader, other = begun(work, pool, 1, 2, 3)
        work.may_go_on.set()
        assert first.result(PATIENCE_S) == 10
        with pytest.raises(Interrupted):
            leader.result(PATIENCE_S)
        with pytest.raises(OutcomeUnknown):
            other.result(PATIENCE_S)


class StopsWaiting(EventWaker):
    """Whoever waits with it is interrupted, once told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = threading.Event()

    def wait_s(self, timeout_s: float) -> bool:
        assert self.is_over.wait(PATIENCE_S)
        raise Interrupted


@pytest.mark.parametrize("leads", [True, False])
def test_who_is_interrupted_while_it_waits_holds_nobody_up(work, leads) -> None:
    """Also when it was to do it for the others by then."""
    waker = StopsWaiting()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(work.do, 1)
        assert work.has_begun.wait(PATIENCE_S)
        gone = pool.submit(work.do, 2, waker)
        work.waiting(1)
        others = [pool.submit(work.do, item) for item in (3, 4)]
        work.waiting(3)
        if leads:
            work.may_go_on.set()
            assert first.result(PATIENCE_S) == 10
        waker.is_over.set()
        with pytest.raises(Interrupted):
            gone.result(PATIENCE_S)
        work.may_go_on.set()
        assert first.result(PATIENCE_S) == 10
        assert [one.result(PATIENCE_S) for one in others] == [30, 40]
    assert [2] not in work.groups
    assert all(2 not in group for group in work.groups)


class StopsWaitingOnce(EventWaker):
    """Whoever waits with it is interrupted once, when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over, self.waits_again = threading.Event(), threading.Event()

    def wait_s(self, timeout_s: float) -> bool:
        if self.is_over.is_set():
            self.waits_again.set()
            return super().wait_s(timeout_s)
        assert self.is_over.wait(PATIENCE_S)
        raise Interrupted


def test_who_is_interrupted_while_it_is_done_for_him_learns_it_when_it_is_over(work) -> None:
    """What he does next, to take it back, must not come before it."""
    waker, ended = StopsWaitingOnce(), threading.Event()
    seen: list[bool] = []

    def slowly(items: Sequence[int]) -> Sequence[int]:
        waker.is_over.set()
        while not waker.waits_again.wait(0.001) and not ended.is_set():
            pass
        seen.append(ended.is_set())
        return items

    def interrupted() -> None:
        try:
            work.do(3, waker)
        finally:
            ended.set()

    work.answer = slowly
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(work.do, 1)
        assert work.has_begun.wait(PATIENCE_S)
        leader = pool.submit(work.do, 2)
        work.waiting(1)
        gone = pool.submit(interrupted)
        work.waiting(2)
        work.may_go_on.set()
        assert [first.result(PATIENCE_S), leader.result(PATIENCE_S)] == [10, 2]
        with pytest.raises(Interrupted):
            gone.result(PATIENCE_S)
    assert seen == [False]


@contextmanager
def interrupted_at(step: int) -> Iterator[list[int]]:
    """This thread is interrupted once, before this line of the module is run. (Not at a `with`,
    which Python tells of once more when it has left the block: no Ctrl-C comes there.)
    """
    lines: list[int] = []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != together.__file__:
            return None
        here = linecache.getline(together.__file__, frame.f_lineno).split()
        if event == "line" and "with" not in here:
            lines.append(frame.f_lineno)
            if len(lines) == step:
                raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("leads", [True, False])
def test_wherever_somebody_is_interrupted_the_others_go_on(leads) -> None:
    """Ctrl-C comes between any two lines, and the session of a client lives on."""
    step, is_done = 0, False
    while not is_done:
        step += 1
        work = Work()

        def one(work: Work = work, step: int = step) -> bool:
            with interrupted_at(step) as lines:
                try:
                    work.do(2)
                except Interrupted:
                    pass
                else:
                    assert len(lines) < step
                return len(lines) < step

        with ThreadPoolExecutor(8) as pool:
            if leads:
                work.may_go_on.set()
                is_done = pool.submit(one).result(PATIENCE_S)
            else:
                first = pool.submit(work.do, 1)
                assert work.has_begun.wait(PATIENCE_S)
                hit = pool.submit(one)
                while not hit.done() and len(work.together) < 1:
                    assert not work.may_go_on.wait(0.001)
                others = [pool.submit(work.do, item) for item in (3, 4)]
                while len(work.together) + hit.done() < 3:
                    assert not work.may_go_on.wait(0.001)
                work.may_go_on.set()
                is_done = hit.result(PATIENCE_S)
                assert first.result(PATIENCE_S) == 10
                for other, item in zip(others, (3, 4), strict=True):
                    error = other.exception(PATIENCE_S)
                    assert isinstance(error, OutcomeUnknown) or other.result() == item * 10
            assert pool.submit(work.do, 5).result(PATIENCE_S) == 50
            assert len(work.together) == 0
    assert step > 10


def test_no_more_are_done_together_than_fit(work) -> None:
    many = [*range(1, AT_ONCE_MAX + 5)]
    with ThreadPoolExecutor(len(many)) as pool:
        futures = begun(work, pool, *many)
        work.may_go_on.set()
        assert [one.result(PATIENCE_S) for one in futures] == [one * 10 for one in many]
    assert max(map(len, work.groups)) == AT_ONCE_MAX


def test_who_is_called_while_it_does_it_for_others_does_not_wait_for_itself(work) -> None:
    def calls(item: int) -> int:
        return work.do(item + 1)

    work.may_go_on.set()
    assert work.together.do(1, EventWaker(), calls, work.many) == 20
