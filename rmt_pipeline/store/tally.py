"""Small things that the processes of one host note together about a table: how often what happened,
which errors there were, how often an entry had to wait. Nobody acts on them: they are for people.

One file each, of JSON, changed in place by one process at a time, so that the names in the table's
directory stay as they are. Nothing of it is synced, and text that a crash has torn counts as none.
On a disk that only this process sees nothing is noted.
"""

import fcntl
import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from rmt_pipeline.protocol.events import ProfileEvent
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk

BYTES_MAX = 4 << 20  # some 50,000 entries that wait
LOCK_TRIES_MAX = 100  # each gives way to who holds it, for some microseconds
LATER_MAX = 1000
MESSAGE_CHARS_MAX = 500

Noted = dict[str, Any]


class Tally:
    """Thread-safe. What can't be noted now, because somebody else is at it for long (it may be
    frozen), is noted with the next.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._lock = threading.Lock()
        self._later: list[Callable[[Noted], None]] = []

    def change(self, change: Callable[[Noted], None]) -> None:
        with self._lock:
            self._later = [*self._later[-LATER_MAX:], change]
            try:
                with self._opened(os.O_RDWR | os.O_CREAT) as descriptor:
                    if _is_locked(descriptor):
                        self._write(descriptor)
            except OSError:  # no such disk, or a full one
                self._later = []

    def read(self) -> Noted:
        """As it was just now; what is being changed at this moment may be torn, so it is read under
        the lock, if that is to be had.
        """
        with suppress(OSError), self._opened(os.O_RDWR) as descriptor:
            _is_locked(descriptor)
            return _parsed(os.pread(descriptor, BYTES_MAX, 0))
        return {}

    def _write(self, descriptor: int) -> None:
        noted = _parsed(os.pread(descriptor, BYTES_MAX, 0))
        for one in self._later:
            one(noted)
        text = json.dumps(noted).encode()
        os.pwrite(descriptor, text, 0)
        os.ftruncate(descriptor, len(text))
        self._later = []

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        descriptor = os.open(self._disk.local_path(self._path), flags, 0o666)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Whether we have the lock; until the file is closed."""
    for _ in range(LOCK_TRIES_MAX):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.sched_yield()
        else:
            return True
    return False


def _parsed(text: bytes) -> Noted:
    try:
        found = json.loads(text or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class EventCounts:
    """How often what happened, since the table's directory was made."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._tally = Tally(disk, layout.join(root, layout.EVENTS))

    def add(self, counts: Mapping[ProfileEvent, int]) -> None:
        if not any(counts.values()):
            return

        def change(noted: Noted) -> None:
            for event, count in counts.items():
                noted[event.event] = _number(noted.get(event.event)) + count

        self._tally.change(change)

    def read(self) -> dict[ProfileEvent, int]:
        noted = self._tally.read()
        return {event: _number(noted.get(event.event)) for event in ProfileEvent}


class ErrorCount(NamedTuple):
    """How often an error was seen on this host, and what the last one said."""

    times: int
    last_s: int
    """Seconds since the epoch."""
    last_message: str


class ErrorCounts:
    """Errors by the original's name for them."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._tally = Tally(disk, layout.join(root, layout.ERRORS))

    def add(self, code: str, message: str, now_s: float) -> None:
        def change(noted: Noted) -> None:
            times = _error(noted.get(code)).times + 1
            noted[code] = [times, int(now_s), message[:MESSAGE_CHARS_MAX]]

        self._tally.change(change)

    def read(self) -> dict[str, ErrorCount]:
        return {code: _error(found) for code, found in self._tally.read().items()}


class Postponed(NamedTuple):
    """How often an entry of the queue was looked at and left, and when last."""

    times: int
    last_s: int
    """Seconds since the epoch."""


NEVER_POSTPONED = Postponed(0, 0)


class PostponedEntries:
    """How often a worker of this host has looked at each entry of the queue, and left it."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._tally = Tally(disk, layout.join(root, layout.POSTPONED))

    def add(self, counts: Mapping[str, int], queued: Collection[str], now_s: float) -> None:
        """`counts` by queue node. What is not among those that are `queued` is forgotten."""

        def change(noted: Noted) -> None:
            for node in [node for node in noted if node not in queued]:
                del noted[node]
            for node, count in counts.items():
                noted[node] = [_postponed(noted.get(node)).times + count, int(now_s)]

        self._tally.change(change)

    def read(self) -> dict[str, Postponed]:
        return {node: _postponed(found) for node, found in self._tally.read().items()}


def total(counts: Iterable[Mapping[ProfileEvent, int]]) -> dict[ProfileEvent, int]:
    """Of several tables."""
    found = dict.fromkeys(ProfileEvent, 0)
    for one in counts:
        for event, count in one.items():
            found[event] += count
    return found


def _number(found: object) -> int:
    return found if isinstance(found, int) else 0


def _error(found: object) -> ErrorCount:
    match found:
        case [int(times), int(last_s), str(message)]:
            return ErrorCount(times, last_s, message)
        case _:
            return ErrorCount(0, 0, "")


def _postponed(found: object) -> Postponed:
    match found:
        case [int(times), int(last_s)]:
            return Postponed(times, last_s)
        case _:
            return NEVER_POSTPONED
