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
    """What one thread wants. It leads when it is told to; else it is told what came of it."""

    item: T
    waker: Waker
    leads: bool = False
    is_taken: bool = False
    """Somebody does it, or has done it."""
    is_over: bool = False
    others: "list[_Asked[T, R]]" = field(default_factory=list)
    """Those that it leads."""
    results: Sequence[R] = ()
    """One; none when it has to be done alone."""
    error: Exception | None = None


@dataclass(slots=True)
class Together(Generic[T, R]):
    """While something is under way, what others want waits; then all that waits is done together.

    The thread that came first does it for the others. Who comes when nothing is under way waits for
    nobody. Whoever is interrupted, wherever that is, holds nobody up. Thread-safe.
    """

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _waiting: "list[_Asked[T, R]]" = field(default_factory=list)
    _is_busy: bool = False

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
                self._enter(asked)
                while not asked.leads and not asked.is_over:
                    waker.wait_s(WAIT_S)
                if asked.leads:
                    self._lead(asked, alone, together)
            finally:
                self._leave(asked)
        except BaseException:
            self._leave(asked)  # perhaps it was interrupted in the middle of that
            raise
        if asked.error is not None:
            raise asked.error
        return asked.results[0] if asked.results else alone(item)

    def _enter(self, asked: "_Asked[T, R]") -> None:
        with self._lock:
            self._waiting.append(asked)
            asked.leads = not self._is_busy
            self._is_busy = True

    def _lead(
        self,
        asked: "_Asked[T, R]",
        alone: Callable[[T], R],
        together: Callable[[Sequence[T]], Sequence[R] | None],
    ) -> None:
        """Do all that waits, ours first, and note what came of it."""
        with self._lock:
            group = self._waiting[:AT_ONCE_MAX]
            for one in group:
                one.error = OutcomeUnknown("who did it for others, too, was interrupted")
            asked.others = group[1:]
            for one in group:
                one.is_taken = True
            self._waiting = [one for one in self._waiting if not one.is_taken]
        leading = _leading.set(True)
        try:
            results = together([one.item for one in group]) if asked.others else None
            if not asked.others:
                results = [alone(asked.item)]
        except Exception as raised:
            for one in asked.others:
                one.error = raised
            raise
        finally:
            _leading.reset(leading)
        for number, one in enumerate(group):
            one.results = () if results is None else results[number : number + 1]
            one.error = None

    def _leave(self, asked: "_Asked[T, R]") -> None:
        """Of those that it leads each is told, and the next one leads; what others do for it comes
        to its end. May be done twice.
        """
        for one in asked.others:
            one.is_over = True
            one.waker.wake()
        gone = {id(one) for one in (asked, *asked.others)}
        with self._lock:
            self._waiting = [one for one in self._waiting if id(one) not in gone]
            if asked.leads and not asked.is_over:
                self._is_busy = bool(self._waiting)
                for one in self._waiting[:1]:
                    one.leads = True
                    one.waker.wake()
                asked.is_over = True
        while asked.is_taken and not asked.is_over:
            asked.waker.wait_s(WAIT_S)
