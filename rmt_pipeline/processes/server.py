"""A server that is a child of this process: how it is started, waited for until it answers, and
ended.
"""

import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from rmt_pipeline.processes.child import Child
from rmt_pipeline.protocol.errors import AddressInUse, BadConfiguration, RmtError
from rmt_pipeline.system import Clock, SystemClock, told_signals

PROBE_EVERY_S = 0.03
PROBE_TIMEOUT_S = 1.0
LOOK_EVERY_S = 0.2  # whether a server in the foreground still runs


class ChildServer(ABC):
    """What the embedded ZooKeeper and the JVMs of Spark have in common."""

    start_timeout_s: float
    stop_timeout_s: float
    """How long the server has to end by itself; then it is killed."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    @property
    def has_ended(self) -> bool:
        """Whether the server was started and ended by itself."""
        return self._child is not None and self._child.status() is not None

    def start(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Start the server; returns when it answers, or when `cancelled` returns True. Raises an
        error that says why it does not, and then nothing is left running.
        """
        assert self._child is None, "started already"
        self._child = self._launch()
        try:
            self._await_answer(cancelled)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server; kill it after `stop_timeout_s`. May be called twice."""
        child, self._child = self._child, None
        if child is not None:
            child.stop(self.stop_timeout_s)

    def kill(self) -> None:
        """Kill the server, even while another thread waits for it to answer."""
        child = self._child
        if child is not None:
            child.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run_foreground(self, announce: Callable[[str], None]) -> None:
        """Serve until SIGTERM or SIGINT, then end within 5 s. Only for the main thread.

        `announce` is called with the server's address once it answers. Raises what `start` raises,
        also when the server ends by itself later.
        """
        asked_to_stop = threading.Event()
        with told_signals(lambda _: asked_to_stop.set()):
            try:
                self.start(cancelled=asked_to_stop.is_set)
                if not asked_to_stop.is_set():
                    announce(self._announcement())
                while not asked_to_stop.wait(LOOK_EVERY_S):
                    self._raise_if_ended()
            finally:
                self.stop()

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
        """The error when the server did not answer within `start_timeout_s`."""

    @abstractmethod
    def _ended(self, status: int) -> RmtError:
        """The error when the server ended by itself."""


def refuse_used_port(
    address: str, port: int, *, section: str, in_use: Callable[[OSError], str]
) -> None:
    """Raises AddressInUse, with the message from `in_use`, if the port is taken; BadConfiguration,
    with the `section` of rmt.toml that names it, if this user may not open it.
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
    """Whether something listens on this port."""
    try:
        socket.create_connection((address, port), PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def family_of(address: str) -> socket.AddressFamily:
    """IPv4 or IPv6, by the form of the address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET
