"""The ambient world as parameters: clock, ids and account. The only module that may ask the real
ones.
"""

import getpass
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol


class Clock(Protocol):
    """Time. The only source of it: a simulation has its own."""

    def now_s(self) -> float:
        """Seconds since the epoch, UTC: for create_time and lifetimes, never for correctness."""
        ...

    def monotonic_s(self) -> float:
        """Seconds of a clock that never jumps; for timeouts."""
        ...

    def sleep_s(self, seconds: float) -> None: ...


class IdSource(Protocol):
    """Chance. The only source of it: a simulation has its own."""

    def new_id(self) -> str:
        """A name nobody else will ever make: 32 lower-hex characters."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep_s(self, seconds: float) -> None:
        time.sleep(seconds)


class RandomIds:
    """Random UUIDs."""

    def new_id(self) -> str:
        return uuid.uuid4().hex


def account() -> str:
    """The name of the account that runs this, or its number where it has none, as in a container
    under a user of its own. What of it is no UTF-8 is a question mark.
    """
    try:
        return getpass.getuser().encode(errors="replace").decode()
    except (KeyError, OSError):
        return str(os.getuid())


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C comes when the block is over: for what can't be interrupted without harm."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # it is the main thread that Python interrupts
        return
    asked = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        asked.set()

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if asked.is_set():
        signal.raise_signal(signal.SIGINT)


class Waker(Protocol):
    """Something a watch can wake and a loop can wait for."""

    def wake(self) -> None: ...

    def wait_s(self, timeout_s: float) -> bool:
        """True when woken; clears the signal. False after `timeout_s` seconds."""
        ...


class EventWaker:
    """A Waker between threads of this process."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wake(self) -> None:
        self._event.set()

    def wait_s(self, timeout_s: float) -> bool:
        woken = self._event.wait(timeout_s)
        self._event.clear()
        return woken


class Signal:
    """Whether something may have changed since it was taken last. It begins as changed.

    A watch fires it, from any thread. Whoever looks takes it *before* he reads: what changes after
    that fires it again. One and the same is given to each read, so that a watch keeps it once.
    """

    def __init__(self, waker: Waker | None = None) -> None:
        """With a waker, whoever waits for it is woken too."""
        self._waker = waker
        self._is_fired = True

    def fire(self) -> None:
        self._is_fired = True
        if self._waker is not None:
            self._waker.wake()

    @property
    def is_fired(self) -> bool:
        return self._is_fired

    def renew(self) -> None:
        """As if it had never been taken; nobody is woken."""
        self._is_fired = True

    def take(self) -> bool:
        """Whether it was fired; from now on it was not. For one thread."""
        if not self._is_fired:
            return False  # and nothing is written: it may be fired at this very moment
        self._is_fired = False
        return True


def in_a_thread(run: Callable[[], None]) -> None:
    """Begin `run` beside the caller. It does not keep the process from ending."""
    threading.Thread(target=run, name="rmt-work", daemon=True).start()
