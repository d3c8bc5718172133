"""Clock, random ids and account, as objects that are passed in. No other module may ask the real
ones, so that a simulation can replace them.
"""

import getpass
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol


class Clock(Protocol):
    """The only source of time."""

    def now_s(self) -> float:
        """Seconds since the epoch, UTC: for create_time and lifetimes, never for correctness."""
        ...

    def monotonic_s(self) -> float:
        """Seconds of a clock that never jumps; for timeouts."""
        ...

    def sleep_s(self, seconds: float) -> None: ...


class IdSource(Protocol):
    """The only source of chance."""

    def new_id(self) -> str:
        """A unique name: 32 lower-case hexadecimal digits."""
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
    """The name of the account that runs this process, or its number if it has none, as in some
    containers. Bytes that are not UTF-8 become question marks.
    """
    try:
        return getpass.getuser().encode(errors="replace").decode()
    except (KeyError, OSError):
        return str(os.getuid())


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the block ends, for what can't be interrupted without harm."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # Python interrupts the main thread only
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


@contextmanager
def told_signals(tell: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call `tell`, in a thread of its own, at each SIGTERM and SIGINT until the block ends. For the
    main thread.

    Python runs a handler in the main thread, between any two of its steps, also when that has just
    begun to wait for an event and holds the event's lock. A handler that sets the event would wait
    for that lock for ever. So this one only writes into a pipe. The handlers are set explicitly,
    since a process that a shell script starts in the background would ignore SIGINT.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)

    def listen() -> None:
        while number := os.read(readable, 1):
            tell(signal.Signals(number[0]))

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        with suppress(BlockingIOError):  # it is full of signals
            os.write(writable, bytes([number]))

    listener = threading.Thread(target=listen, name="rmt-signals", daemon=True)
    try:
        listener.start()
        signals = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, on_signal) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    finally:
        os.close(writable)
        if listener.ident is not None:
            listener.join()
        os.close(readable)


class Waker(Protocol):
    """Something that a loop waits for and a watch wakes."""

    def wake(self) -> None: ...

    def wait_s(self, timeout_s: float) -> bool:
        """Wait. True when woken, which is forgotten then; False after `timeout_s` seconds."""
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
    """Whether something may have changed since the signal was last taken. It begins as changed.

    Watches fire it from any thread. A loop takes it *before* it reads, so that a change after the
    read fires it again. The same signal is passed to every read, and a watch keeps it only once.
    """

    def __init__(self, waker: Waker | None = None) -> None:
        """Firing also wakes `waker`, if there is one."""
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
        """Count as changed again, as at the beginning, without waking anything."""
        self._is_fired = True

    def take(self) -> bool:
        """Whether it was fired; resets it. Only one thread may call this."""
        if not self._is_fired:
            return False  # without writing: a watch may be firing it at this moment
        self._is_fired = False
        return True


def in_a_thread(run: Callable[[], None]) -> None:
    """Start `run` in a thread that does not keep the process from ending."""
    threading.Thread(target=run, name="rmt-work", daemon=True).start()
