"""Small merges in a process of their own and of lower priority, beside a busy worker.

Every replica makes the same merge at the same moment. One of a hundred small parts keeps a core
busy for a tenth of a second, and inserts that are on their way to a replica wait for the core, and
for the interpreter of the worker's process. So while merges come close after each other, a process
of its own computes them. It ends when there was nothing to do for a while.

Nothing depends on that process: what it does not do is done in the caller's.
"""

import os
import pickle
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from rmt_pipeline.compute.jobs.task import try_unit
from rmt_pipeline.compute.units import Unit, UnitResult
from rmt_pipeline.processes.child import Child
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.system import Clock, SystemClock

BUSY_S = 10.0  # between two merges, at most, for a process to be worth its start
IDLE_S = 60.0  # then it ends
PATIENCE_S = 5.0  # for one unit, of a tenth of a second; then the process counts as dead
REST_S = 60.0  # then there is none for so long: the host may be too busy for it
NICENESS = 10


class Aside:
    """Computes units in that process, if there is one. Thread-safe: callers wait for each other."""

    def __init__(self, clock: Clock, idle_s: float = IDLE_S) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._last_s = -BUSY_S
        self._rests_until_s = 0.0
        self._child: Child | None = None
        self._connection: Any = None
        self._is_ready = False

    def run(self, units: Sequence[Unit]) -> list[UnitResult]:
        """Compute the units, there or here."""
        with self._lock:
            done = self._there(units)
        left = units[len(done) :]
        for unit in left:
            with suppress(OSError):  # the process may have died while it wrote the file
                Path(unit.output).unlink(missing_ok=True)
        return done + [try_unit(unit, self._clock) for unit in left]

    def close(self) -> None:
        """End the process. Does not wait for callers: they do themselves what is left."""
        child = self._child
        if child is not None:
            child.kill()

    def _there(self, units: Sequence[Unit]) -> list[UnitResult]:
        """The results of the first units, as many as the process has computed: none while it does
        not run or is starting. Starts it when the last call is not long ago.
        """
        now_s = self._clock.monotonic_s()
        last_s, self._last_s = self._last_s, now_s
        if self._connection is None:
            if now_s - last_s < BUSY_S and now_s >= self._rests_until_s:
                self._start()
            return []
        if not self._is_ready and not self._connection.poll():
            return []
        done: list[UnitResult] = []
        try:
            if not self._is_ready:
                self._connection.recv_bytes()
                self._is_ready = True
            self._connection.send_bytes(pickle.dumps(tuple(units)))
            while len(done) < len(units):
                done.append(self._received())
        except BlockingIOError:  # it is frozen, and must not go on later
            self._rests_until_s = now_s + REST_S
        except (OSError, EOFError):  # it has ended
            pass
        finally:
            if len(done) < len(units):  # what it may still answer is not for the next caller
                self._end()
        return done

    def _received(self) -> UnitResult:
        if not self._connection.poll(PATIENCE_S):
            raise BlockingIOError
        result: UnitResult = pickle.loads(self._connection.recv_bytes())  # noqa: S301  ours
        return result

    def _start(self) -> None:
        ours, theirs = Pipe()
        with socket.socket(fileno=os.dup(ours.fileno())) as pipe:
            for way in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # else half a message may wait
                pipe.setsockopt(socket.SOL_SOCKET, way, _timeval(PATIENCE_S))
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), str(self._idle_s)]
        with theirs, suppress(Unavailable):
            self._child = Child(command, pass_fds=[theirs.fileno()])
            self._connection = ours

    def _end(self) -> None:
        if self._child is not None:
            self._connection.close()
            self._child.kill()
            self._child, self._connection, self._is_ready = None, None, False


def _timeval(seconds: float) -> bytes:
    """The time as the C library takes it."""
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))


def main(descriptor: int, idle_s: float) -> None:
    """Compute what comes until there was nothing for `idle_s`, or the other end is closed."""
    os.nice(NICENESS)
    clock = SystemClock()
    with Connection(descriptor) as connection, suppress(EOFError, OSError):
        connection.send_bytes(b"ready")
        while connection.poll(idle_s):
            for unit in pickle.loads(connection.recv_bytes()):  # noqa: S301  our own parent's
                connection.send_bytes(pickle.dumps(try_unit(unit, clock)))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
