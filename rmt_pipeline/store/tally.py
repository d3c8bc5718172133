"""Counts that the processes of one host keep together for a table: how often each event happened,
which errors there were, how often an entry was postponed. They are shown to users; no decision
depends on them.

Each is a file of JSON, which one process at a time changes in place, so that the names in the
table's directory do not change. Nothing is synced, and a text that a crash has torn counts as
empty. On a disk that only this process sees nothing is noted.
"""

import fcntl
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from rmt_pipeline.protocol.events import ProfileEvent
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk

BYTES_MAX = 4 << 20  # some 50,000 entries that wait
LOCK_TRIES_MAX = 100  # after each the holder gets the processor, for some microseconds
LATER_MAX = 1000  # changes that wait for the lock; the oldest are dropped
MESSAGE_CHARS_MAX = 500

Noted = dict[str, Any]


class Tally:
    """One such file. Thread-safe.

    If another process holds the lock for long (it may be frozen), a change is kept in memory and
    made together with the next one.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._lock = threading.Lock()
        self._later: list[Callable[[Noted], None]] = []

    def change(self, change: Callable[[Noted], None]) -> None:
        """Call `change` with what is noted, now or with the next change, and write the result."""
        with self._lock:
            self._later = [*self._later[-LATER_MAX:], change]
            try:
                with self._opened(os.O_RDWR | os.O_CREAT) as descriptor:
                    if _is_locked(descriptor):
                        self._write(descriptor)
            except OSError:  # not a local disk, or a full one
                self._later = []

    def read(self) -> Noted:
        """What is noted. It is read under the lock, because a text that is being changed may be
        torn; without the lock if that can't be had. Empty if there is no whole text.
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
    """Try to lock the file, until it is closed. Return whether that succeeded."""
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
    """How often each event happened since the table's directory was made."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._tally = Tally(disk, layout.join(root, layout.EVENTS))

    def add(self, counts: Mapping[ProfileEvent, int]) -> None:
        """Add to the counts."""
        if not any(counts.values()):
            return

        def change(noted: Noted) -> None:
            for event, count in counts.items():
                noted[event.event] = _number(noted.get(event.event)) + count

        self._tally.change(change)

    def read(self) -> dict[ProfileEvent, int]:
        """The count of every event, 0 included."""
        noted = self._tally.read()
        return {event: _number(noted.get(event.event)) for event in ProfileEvent}


class ErrorCount(NamedTuple):
    """How often an error happened on this host, and the message of the last one."""

    times: int
    last_s: int
    """Seconds since the epoch."""
    last_message: str


class ErrorCounts:
    """Counts of errors, by the original's name of the error."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._tally = Tally(disk, layout.join(root, layout.ERRORS))

    def add(self, code: str, message: str, now_s: float) -> None:
        """Count one error."""

        def change(noted: Noted) -> None:
            times = _error(noted.get(code)).times + 1
            noted[code] = [times, int(now_s), message[:MESSAGE_CHARS_MAX]]

        self._tally.change(change)

    def read(self) -> dict[str, ErrorCount]:
        """The counts by the error's name."""
        return {code: _error(found) for code, found in self._tally.read().items()}


class Postponed(NamedTuple):
    """How often a queue entry was looked at and left for later, and when last."""

    times: int
    last_s: int
    """Seconds since the epoch."""


NEVER_POSTPONED = Postponed(0, 0)


class PostponedEntries:
    """How often workers of this host have postponed each queue entry."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._tally = Tally(disk, layout.join(root, layout.POSTPONED))

    def add(self, counts: Mapping[str, int], queued: Collection[str], now_s: float) -> None:
        """Add `counts`, by queue node, and forget nodes that are no longer `queued`."""

        def change(noted: Noted) -> None:
            for node in [node for node in noted if node not in queued]:
                del noted[node]
            for node, count in counts.items():
                noted[node] = [_postponed(noted.get(node)).times + count, int(now_s)]

        self._tally.change(change)

    def read(self) -> dict[str, Postponed]:
        """What is noted, by queue node."""
        return {node: _postponed(found) for node, found in self._tally.read().items()}


def total(counts: Iterable[Mapping[ProfileEvent, int]]) -> Counter[ProfileEvent]:
    """The sums of the counts of several tables or events."""
    found = Counter[ProfileEvent]()
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
