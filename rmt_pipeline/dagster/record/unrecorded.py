"""What happened to parts outside Dagster's runs: the tick of a server's log sensor records it.

That is inserts and commands on partitions that came from `rmt sql` or Python, and parts that any
process found broken or lost. The sensor writes the same events that a worker writes for a flush,
and one for each partition that a command was for. Only what a command did at once, on the server
that was asked, is recorded here. What it left to be done is in the queue, and recorded by the
worker that does it.

The source are the part logs of the tables, which are local files (`store.part_log`). The sensor's
cursor says how far each log was recorded. Dagster stores a tick's events before its cursor. So the
last event of each flush has a tag with the positions where the flush began and ended. When a
process dies between the two, the next tick begins at the same position, finds the tag, and goes on
behind it.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.record.ledger import AssetEvent, Recorder
from rmt_pipeline.protocol.errors import TABLE_FAILS, ZooKeeperUnreachable
from rmt_pipeline.protocol.log.entry import account_in
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.insert.report import Origin
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.store.part_log import PartEvent, PartEventType
from rmt_pipeline.table import Table

PARTS_MAX = 1000
"""How many parts of one table a tick records."""
PARTITIONS_MAX = 100
"""How many partitions, of all tables together, a tick records: each is an event of 7 ms or more.
The next tick records the others.
"""
FLUSHES_LOOKED_AT = 100
"""How many of a table's newest events are searched for a flush whose cursor was not stored."""
FIRST_TOLD_S = 3600.0
"""How far back the first tick looks: a Dagster that is new to a server, or was upgraded, does not
record the whole past at once. A table that comes later is recorded from its beginning.
"""
BEGIN_TAG = "rmt/part_log_begin"
END_TAG = "rmt/part_log_end"

DAMAGED: Mapping[PartEventType, str] = {"BrokenPart": "BROKEN", "LostPart": "LOST"}
"""The ledger's kind of each event about a damaged part."""

_TOLD = frozenset({"NewPart", *DAMAGED})
_MARK = re.compile(r"[0-9a-f]{16}\.[0-9]+")


class Unrecorded:
    """What the part logs of a server's tables have after a cursor. Used for one tick."""

    def __init__(
        self, server: ServerContext, instance: dg.DagsterInstance, cursor: str | None
    ) -> None:
        self.words: list[str] = []
        """What was recorded, and what could not be."""
        self._server = server
        self._instance = instance
        marks = _marks(cursor or "")
        self._is_first = marks is None
        self._marks = marks or {}
        """The position in each table's log; tables that were recorded last stand at the end."""
        self._found: dict[str, _Found] = {}

    def there(self) -> bool:
        """Whether there is something to record. As long as nothing happens to parts on this host,
        this costs a look at the size of one file for each table.
        """
        if not self._found:
            left = PARTITIONS_MAX
            for table in self._tables():
                try:
                    found = self._look(table, left)
                except OSError as error:  # the disk of one table
                    self._say_not_yet(table, error)
                    continue
                if found is not None:
                    self._found[_key(table.definition)] = found
                    left -= len(found.partitions)
        return bool(self._found)

    def told(self) -> list[AssetEvent]:
        """Make the events for what was found, and move the cursor behind it. A table whose events
        can't be made is left to the next tick. Raises ZooKeeperUnreachable.
        """
        events: list[AssetEvent] = []
        if not self.there():
            return events
        for key, found in self._found.items():
            log = _Flush(self._instance)
            recorder = Recorder(log, found.table, self._server.server.name, _Noted(found.parts))
            try:
                recorder.asked(_commands(found, self._server.clock.now_s()))
                recorder.parts([*_inserted(found), *_damaged(found)])
            except ZooKeeperUnreachable:
                raise
            except TABLE_FAILS as error:
                self._say_not_yet(found.table, error)
                continue
            events += log.tagged({BEGIN_TAG: found.begin, END_TAG: found.end})
            self._marks.pop(key, None)
            self._marks[key] = found.end
            self.words.append(f"{found.table.definition.full_name}: recorded {found.words()}")
        return events

    def _say_not_yet(self, table: Table, error: Exception) -> None:
        words = f"{table.definition.full_name}: what was done can't be recorded yet: {error}"
        if words not in self.words:
            self.words.append(words)

    def cursor(self) -> str:
        """The cursor to store with the tick, without tables that are gone for good."""
        catalog = self._server.catalog
        kept = {_key(table.definition_then) for table in self._server.tables()}
        if not self._marks.keys() <= kept:
            kept |= {_key(one.definition) for one in catalog.detached()}
            kept |= {_key(one.definition) for one in catalog.dropped()}
        return json.dumps({key: mark for key, mark in self._marks.items() if key in kept})

    def _tables(self) -> list[Table]:
        """The tables, first those that have gone unrecorded for longest, so that a busy table does
        not hold up the others.
        """
        order = {key: number for number, key in enumerate(self._marks)}
        return sorted(
            self._server.tables(), key=lambda table: order.get(_key(table.definition_then), -1)
        )

    def _look(self, table: Table, partitions_max: int) -> "_Found | None":
        key = _key(table.definition_then)
        begin = self._marks.get(key, "")
        since_s = self._server.clock.now_s() - FIRST_TOLD_S if self._is_first else 0.0
        found = _found(table, begin, partitions_max, since_s)
        known = self._known_runs(found.parts)
        found.parts = [one for one in found.parts if one.run_id not in known]
        if not found.parts:
            if found.end:
                self._marks[key] = found.end
            return None
        told = self._told_before(table)
        if begin in told:
            self._marks[key] = told[begin]
            return self._look(table, partitions_max)
        return found

    def _known_runs(self, parts: Iterable[PartEvent]) -> frozenset[str]:
        """Those ids of runs that are Dagster's: these runs have recorded their inserts
        themselves.
        """
        ids = sorted({part.run_id for part in parts if part.run_id})
        if not ids:
            return frozenset()
        runs = self._instance.get_runs(dg.RunsFilter(run_ids=ids))
        return frozenset(run.run_id for run in runs)

    def _told_before(self, table: Table) -> dict[str, str]:
        """Where the last recorded flushes of the table ended, by where each began."""
        name, server = table.definition.full_name, self._server.server.name
        made = self._instance.fetch_materializations(
            names.parts_key(name, server), limit=FLUSHES_LOOKED_AT
        )
        noted = [
            self._instance.fetch_observations(key(name, server), limit=FLUSHES_LOOKED_AT)
            for key in (names.parts_key, names.partitions_key)
        ]
        newest = [
            *(one.asset_materialization for one in made.records),
            *(one.asset_observation for page in noted for one in page.records),
        ]
        tags = [one.tags or {} for one in newest if one is not None]
        return {one[BEGIN_TAG]: one[END_TAG] for one in tags if BEGIN_TAG in one}


def _marks(cursor: str) -> dict[str, str] | None:
    """The positions in a cursor. None when it is not ours: a person may set any cursor in the UI,
    which must not stop replication.
    """
    try:
        marks = json.loads(cursor)
    except ValueError:
        return None
    if not isinstance(marks, dict):
        return None
    return {key: mark for key, mark in marks.items() if _MARK.fullmatch(str(mark))}


@dataclass(slots=True)
class _Found:
    """What is to be recorded of a table: the events of its part log between two positions."""

    table: Table
    begin: str
    end: str
    parts: list[PartEvent] = field(default_factory=list)
    partitions: set[str] = field(default_factory=set)

    def words(self) -> str:
        new = sum(one.event_type == "NewPart" for one in self.parts)
        commands = len({one.entry_id for one in self.parts if one.command})
        of_commands = f" and {commands} command{'s' * (commands != 1)}" if commands else ""
        damaged = len(_damaged(self))
        of_damaged = f", {damaged} that are broken or lost" if damaged else ""
        return f"{new} new parts{of_commands}{of_damaged}"


def _found(table: Table, begin: str, partitions_max: int, since_s: float) -> _Found:
    """As many events as one tick may record, in at most `partitions_max` partitions, none from
    before `since_s`. A command is never split, since its events were noted together.
    """
    found = _Found(table, begin, begin)
    for event, after in table.store.part_log.since(begin):
        part = PartName.try_parse(event.part)
        is_told = event.command or event.event_type in _TOLD
        if part is not None and is_told and event.time_s >= since_s:
            partitions = found.partitions | {part.partition}
            before = found.parts[-1].entry_id if found.parts else ""
            if (not event.command or event.entry_id != before) and (
                len(found.parts) >= PARTS_MAX or len(partitions) > partitions_max
            ):
                break
            found.parts.append(event)
            found.partitions = partitions
        found.end = after
    return found


def _inserted(found: _Found) -> list[PartDone]:
    """The new parts, as the part log describes them: the parts themselves may be
    merged away since.
    """
    return [
        PartDone(
            part=PartName.parse(event.part),
            kind=event.command or "insert",
            rows=event.rows,
            size_bytes=event.size_bytes,
            source_replica=found.table.definition.engine.replica,
            seconds=event.seconds,
        )
        for event in found.parts
        if event.event_type == "NewPart"
    ]


def _damaged(found: _Found) -> list[PartDone]:
    """The parts that were found broken or lost, with what is wrong."""
    return [
        PartDone(PartName.parse(event.part), DAMAGED[event.event_type], error=event.error)
        for event in found.parts
        if event.event_type in DAMAGED
    ]


def _commands(found: _Found, now_s: float) -> list[PartDone]:
    """The commands, one item for each partition that a command was for."""
    events: dict[tuple[str, str], list[tuple[PartName, PartEvent]]] = {}
    for event in found.parts:
        if event.command:
            part = PartName.parse(event.part)
            events.setdefault((event.entry_id, part.partition), []).append((part, event))
    done = []
    for some in events.values():
        went = [(part, one) for part, one in some if one.event_type == "RemovePart"]
        came = [(part, one) for part, one in some if one.event_type == "NewPart"]
        first, event = some[0]
        done.append(
            PartDone(
                part=first,
                kind=event.command,
                rows=sum(one.rows for _, one in came),
                rows_in=sum(one.rows for _, one in went),
                bytes_in=sum(one.size_bytes for _, one in went),
                sources=tuple(part for part, _ in went),
                came=tuple(part for part, _ in came),
                about=tuple(
                    part
                    for part, one in some
                    if one.event_type not in ("NewPart", "RemovePart")
                ),
                source_replica=found.table.definition.engine.replica,
                entry_id=event.entry_id,
                asked_by=account_in(event.entry_id),
                lag_s=now_s - event.time_s,
            )
        )
    return done


def _key(table: TableDefinition) -> str:
    """A key for the table that stays the same when it is renamed."""
    return table.uuid or table.full_name


class _Noted:
    """The origins of new parts, as the part log has them: ZooKeeper is not asked."""

    def __init__(self, noted: Iterable[PartEvent]) -> None:
        self._known = {one.part: Origin(one.insert_id, one.run_id) for one in noted}

    def of(
        self, replica: Replica, parts: Iterable[PartName]
    ) -> Mapping[PartName, Sequence[Origin]]:
        del replica
        return {part: [self._known[str(part)]] for part in parts}


class _Flush:
    """Collects the events of one flush. The daemon stores them in this order, with the tick."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self._events: list[AssetEvent] = []

    def log_event(self, event: AssetEvent) -> None:
        self._events.append(event)

    def tagged(self, tags: Mapping[str, str]) -> list[AssetEvent]:
        *before, last = self._events
        return [
            *before,
            type(last)(
                last.asset_key,
                description=last.description,
                metadata=last.metadata,
                partition=last.partition,
                tags=tags,
            ),
        ]
