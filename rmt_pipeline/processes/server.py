"""A server on this machine that is a child of ours: its start, until it answers, and its end."""

import signal
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import FrameType
from typing import Self

from rmt_pipeline.processes.child import Child
from rmt_pipeline.protocol.errors import AddressInUse, BadConfiguration, RmtError
from rmt_pipeline.system import Clock, SystemClock

PROBE_EVERY_S = 0.03
PROBE_TIMEOUT_S = 1.0
LOOK_EVERY_S = 0.2  # in the foreground: whether it still runs


class ChildServer(ABC):
    """What is the same for ZooKeeper and the JVMs of Spark; each says how it differs."""

    start_timeout_s: float
    stop_timeout_s: float
    """Then by force."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    @property
    def has_ended(self) -> bool:
        """It was started, and ended by itself."""
        return self._child is not None and self._child.status() is not None

    def start(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Returns when the server answers, or when `cancelled` says so. Raises what says why it
        cannot, and nothing is left running then.
        """
        assert self._child is None, "started already"
        self._child = self._launch()
        try:
            self._await_answer(cancelled)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server, by force if it does not end by itself. Idempotent."""
        child, self._child = self._child, None
        if child is not None:
            child.stop(self.stop_timeout_s)

    def kill(self) -> None:
        """End the server by force, while another thread waits for it. From any thread."""
        child = self._child
        if child is not None:
            child.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run_foreground(self, announce: Callable[[str], None]) -> None:
        """Serve until SIGTERM or SIGINT; then end within 5 s. For the main thread.

        `announce` is told where the server answers. Raises what `start` raises, and the same as
        there when the server ends by itself.
        """
        asked_to_stop = threading.Event()

        def on_signal(number: int, frame: FrameType | None) -> None:
            del number, frame
            asked_to_stop.set()

        before = {
            number: signal.signal(number, on_signal)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            self.start(cancelled=asked_to_stop.is_set)
            if not asked_to_stop.is_set():
                announce(self._announcement())
            while not asked_to_stop.wait(LOOK_EVERY_S):
                self._raise_if_ended()
        finally:
            self.stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _await_answer(self, cancelled: Callable[[], bool]) -> None:
        deadline_s = self._clock.monotonic_s() + self.start_timeout_s
        while not cancelled() and not self._answers():
            self._raise_if_ended()
            if self._clock.monotonic_s() > deadline_s:
                raise self._late()
            self._clock.sleep_s(PROBE_EVERY_S)

    def _raise_if_ended(self) -> None:
        status = self._child.status() if self._child else None
        if status is not None:
            raise self._ended(status)

    @abstractmethod
    def _launch(self) -> Child: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    @abstractmethod
    def _announcement(self) -> str: ...

    @abstractmethod
    def _late(self) -> RmtError:
        """It did not answer within `start_timeout_s`."""

    @abstractmethod
    def _ended(self, status: int) -> RmtError:
        """It ended by itself."""


def refuse_used_port(
    address: str, port: int, *, section: str, in_use: Callable[[OSError], str]
) -> None:
    """Raises AddressInUse with the words of `in_use`; BadConfiguration for a port that this user
    may not open, naming the `section` of rmt.toml that has it.
    """
    with socket.socket(family_of(address), socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except PermissionError as problem:
            raise BadConfiguration(
                f"this user may not listen on port {port}; "
                f"set [{section}] port in rmt.toml to one above 1023"
            ) from problem
        except OSError as problem:
            raise AddressInUse(in_use(problem)) from problem


def accepts(address: str, port: int) -> bool:
    """Whether a program listens on this port: it takes a connection."""
    try:
        socket.create_connection((address, port), PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def family_of(address: str) -> socket.AddressFamily:
    """IPv4 or IPv6, by how the address is written."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET
