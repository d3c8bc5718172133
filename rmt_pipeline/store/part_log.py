"""The events of the parts of one table on this host, oldest first: `system.part_log` (spec §14).

Each event is a line of JSON, appended by the process that caused it. There are two files: when the
current one is full it replaces the older one, whose events are forgotten. No decision depends on
the log, so it is not synced, and a line that a crash has torn is left out.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any, Literal

from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.protocol.events import ProfileEvent
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk
from rmt_pipeline.store.tally import EventCounts, total

FILE_BYTES_MAX = 8 << 20  # of each of the two files

PartEventType = Literal[
    "NewPart",
    "MergeParts",
    "DownloadPart",
    "RemovePart",
    "MutatePart",
    "FreezePart",
    "UnfreezePart",
    "RemoveDetachedPart",
    "ClearColumn",
    "BrokenPart",
    "LostPart",
]
"""The event types of the original, and six of ours, the last ones. BrokenPart: a part was broken or
missing on the disk, and is fetched again. LostPart: no replica has the part any more, and an empty
one takes its place.
"""


@dataclass(frozen=True, slots=True)
class PartEvent:
    """One event of a part. `time_s` is in seconds since the epoch; `error` is "" if it
    succeeded.
    """

    event_type: PartEventType
    part: str
    time_s: float
    seconds: float = 0.0
    rows: int = 0
    size_bytes: int = 0
    sources: tuple[str, ...] = ()
    source_replica: str = ""
    insert_id: str = ""
    run_id: str = ""
    error: str = ""
    differs: bool = False
    """The part that was made here differs from what another replica has published."""
    command: str = ""
    """The command, such as REPLACE PARTITION, that changed the part at once on this server; "" if a
    log entry did.
    """
    entry_id: str = ""
    """The id of that command, or of its log entry, with the account behind it
    (`LogEntry.entry_id`).
    """


class PartLog:
    """The part log of the table in the directory `root`. Several processes of a host may use it at
    once. Events are also counted (`counts`), and the counts stay when the log forgets events.
    """

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._now = layout.join(root, layout.PART_LOG)
        self._before = layout.join(root, layout.PART_LOG_BEFORE)
        self.counts = EventCounts(disk, root)

    def note(self, events: Iterable[PartEvent]) -> None:
        """Add events to the log. If the disk can't take them that is no error: the parts are not
        affected.
        """
        events = tuple(events)
        lines = "".join(f"{json.dumps(_fields(event))}\n" for event in events).encode()
        if not lines:
            return
        self.counts.add(total(map(_counted, events)))
        with suppress(OSError, DiskFull):
            self._make_room()
            self._disk.append(self._now, lines)

    def events(self) -> Iterator[PartEvent]:
        """All events, oldest first."""
        return (event for event, _ in self.since(""))

    def since(self, mark: str) -> Iterator[tuple[PartEvent, str]]:
        """The events after `mark`, oldest first, each with the mark after it. "" is the mark before
        all events. If the file of the mark was forgotten: all events that there are.

        While nothing new is noted this only reads the size of a file.
        """
        marked, _, end_of_mark = mark.partition(".")
        marked_at = int(end_of_mark or 0)
        if marked_at and self._disk.size(self._now) == marked_at:
            return
        files: dict[str, bytes] = {}
        for path in (self._now, self._before):  # one renamed in between is read twice
            data = self._disk.read(path) or b""
            first, end, _ = data.partition(b"\n")
            if end:
                files.setdefault(blake2b(first, digest_size=8).hexdigest(), data)
        oldest_first = list(reversed(files.items()))
        if marked in files:
            oldest_first = oldest_first[list(reversed(files)).index(marked) :]
        for name, data in oldest_first:
            at = marked_at if name == marked else 0
            while end_at := data.find(b"\n", at) + 1:
                event = _parsed(data[at:end_at])
                at = end_at
                if event is not None:
                    yield event, f"{name}.{at}"

    def _make_room(self) -> None:
        """Make the current file the older one if it is full.

        If two processes find it full, one of them does that; the other gets no lock, or gets it
        later and finds that the file is not full.
        """
        if (self._disk.size(self._now) or 0) < FILE_BYTES_MAX:
            return
        lock = self._disk.lock(self._now, shared=False)
        if lock is None:
            return
        try:
            if (self._disk.size(self._now) or 0) >= FILE_BYTES_MAX:
                self._disk.remove_file(self._before)
                self._disk.rename(self._now, self._before)
        finally:
            lock.release()


_NAMES = tuple(field.name for field in fields(PartEvent))
_BEGINNING = f'{{"{_NAMES[0]}": '.encode()
"""Of each line; within a text its quotation marks have backslashes."""


def _fields(event: PartEvent) -> dict[str, Any]:
    """The fields by name, without copying the values, as `asdict` would."""
    return {name: getattr(event, name) for name in _NAMES}


def _counted(event: PartEvent) -> dict[ProfileEvent, int]:
    """What an event adds to the counts: nothing for a part that a command takes from elsewhere,
    since no row is inserted.
    """
    failed, differs = bool(event.error), int(event.differs)
    match event.event_type:
        case _ if event.command:
            return {}
        case "NewPart":
            return {
                ProfileEvent.INSERTED_PARTS: 1,
                ProfileEvent.INSERTED_ROWS: event.rows,
                ProfileEvent.INSERTED_BYTES: event.size_bytes,
            }
        case "DownloadPart":
            done, fails = ProfileEvent.FETCHES, ProfileEvent.FETCHES_FAILED
            of_merged = int(bool(event.sources) and not failed)
            return {(fails if failed else done): 1, ProfileEvent.FETCHES_OF_MERGED: of_merged}
        case "MergeParts":
            done, fails = ProfileEvent.MERGES, ProfileEvent.MERGES_FAILED
            return {(fails if failed else done): 1, ProfileEvent.MERGES_DIFFER: differs}
        case "MutatePart":
            done, fails = ProfileEvent.MUTATIONS, ProfileEvent.MUTATIONS_FAILED
            return {(fails if failed else done): 1, ProfileEvent.MUTATIONS_DIFFER: differs}
        case (
            "RemovePart"
            | "FreezePart"
            | "UnfreezePart"
            | "RemoveDetachedPart"
            | "ClearColumn"
            | "BrokenPart"
            | "LostPart"
        ):
            return {}


def _parsed(line: bytes) -> PartEvent | None:
    """The event of a line, also if it stands behind the beginning of one that was torn."""
    try:
        fields = json.loads(line[max(0, line.rfind(_BEGINNING)) :])
        return PartEvent(**{**fields, "sources": tuple(fields["sources"])})
    except (ValueError, TypeError, KeyError):
        return None
