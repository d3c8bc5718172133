"""What several threads want at once is done together, by one of them: group commit."""

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
WAIT_S = 60.0  # between two looks of who is woken anyhow

_leading = ContextVar("leading", default=False)
"""Whether this thread does something for others: who is called from there would wait for itself."""


@dataclass(slots=True, eq=False)
class _Asked(Generic[T, R]):
    """What one thread wants."""

    item: T
    waker: Waker
    outcome: Sequence[R] | Exception | None = None
    """One result; none when it has to be done alone. None until it is over."""


@dataclass(slots=True)
class Together(Generic[T, R]):
    """While something is under way, what others want waits; then all that waits is done together.

    The thread that came first does it for the others. Who comes when nothing is under way waits for
    nobody. Whoever is interrupted, wherever that is, holds nobody up. Thread-safe.
    """

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _waiting: list[_Asked[T, R]] = field(default_factory=list)
    _under_way: list[_Asked[T, R]] = field(default_factory=list)
    """The first one's thread does it for them all."""

    def __len__(self) -> int:
        """How many wait for what is under way."""
        return len(self._waiting)

    def do(
        self,
        item: T,
        waker: Waker,
        alone: Callable[[T], R],
        together: Callable[[Sequence[T]], Sequence[R] | None],
    ) -> R:
        """What came of `item`, alone or with others.

        `together` gives the results in order; None when nothing came of any of them, and each is to
        be done by itself, by whoever wants it: so none fails for another one. What it raises is
        raised in all of them. `waker` is the caller's own. When this raises, nobody does it any
        more: what the caller does then to take it back comes after it.
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
            self._leave(asked)  # perhaps it was interrupted in the middle of that
            raise
        if isinstance(asked.outcome, Exception):
            raise asked.outcome
        return asked.outcome[0] if asked.outcome else alone(item)

    def _leads(self, asked: _Asked[T, R]) -> bool:
        """Whether it is its turn: all that waits is under way from now on."""
        with self._lock:
            if self._under_way or self._waiting[:1] != [asked]:
                return False
            waiting = self._waiting
            self._under_way, self._waiting = waiting[:AT_ONCE_MAX], waiting[AT_ONCE_MAX:]
            return True

    def _lead(
        self, alone: Callable[[T], R], together: Callable[[Sequence[T]], Sequence[R] | None]
    ) -> None:
        """Do all that is under way, and note what came of it."""
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
        """Those that it leads are told, and the next one leads; what others do for it comes to its
        end. May be done twice.
        """
        with self._lock:
            if self._under_way[:1] == [asked]:
                for one in self._under_way:
                    if one.outcome is None:
                        one.outcome = OutcomeUnknown("who did it for others was interrupted")
                    if one is not asked:
                        one.waker.wake()
                self._under_way = []
            self._waiting = [one for one in self._waiting if one is not asked]
            for one in self._waiting[:1]:
                one.waker.wake()
        while asked.outcome is None and asked in self._under_way:
            asked.waker.wait_s(WAIT_S)
