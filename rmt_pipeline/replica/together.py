"""Group commit: what several threads want at the same time is done together, by one of them."""

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.system import Waker

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE_MAX = 64
WAIT_S = 60.0  # between two looks; normally a waiting thread is woken

_leading = ContextVar("leading", default=False)
"""Whether this thread is acting for others. A call from within that would wait for itself."""


@dataclass(slots=True, eq=False)
class _Asked(Generic[T, R]):
    """What one thread has asked for."""

    item: T
    waker: Waker
    outcome: Sequence[R] | Exception | None = None
    """None until it is over. Then a sequence with the result, an empty sequence if it must be done
    alone, or the error to raise.
    """


@dataclass(slots=True)
class Together(Generic[T, R]):
    """Does items in groups: while one group is under way, further items wait, and are then done
    together.

    The thread that came first does the work for its group. An item that comes when nothing is under
    way does not wait. A thread that is interrupted, at whatever point, does not block the others.
    Thread-safe.
    """

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _waiting: list[_Asked[T, R]] = field(default_factory=list)
    _under_way: list[_Asked[T, R]] = field(default_factory=list)
    """The group that is being done, by the thread of its first item."""

    def __len__(self) -> int:
        """How many items wait for the group that is under way."""
        return len(self._waiting)

    def do(
        self,
        item: T,
        waker: Waker,
        alone: Callable[[T], R],
        together: Callable[[Sequence[T]], Sequence[R] | None],
    ) -> R:
        """Do `item`, alone or with others; returns its result.

        `together` returns the results in order; or None if none of the items was done and each is
        to be done alone, by its own thread, so that none fails because of another one. An error
        that it raises is raised for all of them. `waker` is the caller's own. Once this raises, no
        thread works on the item any more: what the caller then does to undo it comes after.
        """
        if _leading.get():
            return alone(item)
        asked = _Asked[T, R](item, waker)
        try:
            try:
                with self._lock:
                    self._waiting = [*self._waiting, asked]
                while asked.outcome is None and not self._leads(asked):
                    waker.wait_s(WAIT_S)
                if asked.outcome is None:
                    self._lead(alone, together)
            finally:
                self._leave(asked)
        except BaseException:
            self._leave(asked)  # the first one may have been interrupted
            raise
        if isinstance(asked.outcome, Exception):
            raise asked.outcome
        return asked.outcome[0] if asked.outcome else alone(item)

    def _leads(self, asked: _Asked[T, R]) -> bool:
        """Whether it is this item's turn to lead. If so, it is under way now with all that wait, up
        to AT_ONCE_MAX.
        """
        with self._lock:
            if self._under_way or self._waiting[:1] != [asked]:
                return False
            waiting = self._waiting
            self._under_way, self._waiting = waiting[:AT_ONCE_MAX], waiting[AT_ONCE_MAX:]
            return True

    def _lead(
        self, alone: Callable[[T], R], together: Callable[[Sequence[T]], Sequence[R] | None]
    ) -> None:
        """Do the group that is under way, and set the outcome of each item."""
        group = self._under_way
        items = [one.item for one in group]
        leading = _leading.set(True)
        try:
            results = together(items) if len(group) > 1 else [alone(items[0])]
        except Exception as raised:  # noqa: BLE001  each raises it in its own thread
            for one in group:
                one.outcome = raised
        else:
            for number, one in enumerate(group):
                one.outcome = () if results is None else results[number : number + 1]
        finally:
            _leading.reset(leading)

    def _leave(self, asked: _Asked[T, R]) -> None:
        """Leave: if this item led a group, wake the group's other threads and the next leader. If
        another thread is still working on it, wait until that has ended. May be done twice.
        """
        with self._lock:
            if self._under_way[:1] == [asked]:
                for one in self._under_way:
                    if one.outcome is None:
                        one.outcome = OutcomeUnknown("the thread that did it was interrupted")
                    if one is not asked:
                        one.waker.wake()
                self._under_way = []
            self._waiting = [one for one in self._waiting if one is not asked]
            for one in self._waiting[:1]:
                one.waker.wake()
        while asked.outcome is None and asked in self._under_way:
            asked.waker.wait_s(WAIT_S)
