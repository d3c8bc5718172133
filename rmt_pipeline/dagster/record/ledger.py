"""Records in Dagster's events what was done to parts: the ledger that the UI shows.

An event costs Dagster 7 ms or more, a part costs us a fraction of a millisecond. So there is one
event for a flush of many parts, with a table of them, and one for each partition of the table that
the flush touched.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType
from typing import Protocol

import dagster as dg

from rmt_pipeline.dagster import names
from rmt_pipeline.protocol.errors import Corruption, MissingPart, RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.insert.report import Origin, Origins
from rmt_pipeline.replica.reading import ActivePart
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.system import account
from rmt_pipeline.table import Table

AssetEvent = dg.AssetMaterialization | dg.AssetObservation
EventMetadata = dict[
    str,
    int | float | str | dg.TableMetadataValue | dg.TableSchema | dg.DagsterRunMetadataValue,
]

PARTS_PER_EVENT_MAX = 25
"""The UI's page of an asset's events reads a hundred events with all their metadata, so 2,500 rows,
and draws the table of the newest one.
"""

SOURCES_SHOWN_MAX = 3
RUNS_LINKED_MAX = 3
"""How many of the runs that inserted a flush's rows its event has links to."""

ORIGINS_SHOWN_MAX = 2
"""How many ids of inserts, and of their runs, a part shows. The UI gives each its own line."""

LEVELS_TOLD = 3
"""How many levels have a figure of their own; parts of this level and above share one more."""

SWEEPING = frozenset({"DROP_RANGE", "DROP_PART", "REPLACE_RANGE"})
"""The kinds of entries that remove whole parts; the ledger has an event for each
partition of them.
"""

MUTATED_EVENTS_MAX = 20
"""How many mutated parts of a flush have an event of their own; the flush's own event has a table
of all parts.
"""

COLUMNS_KEPT = frozenset({"part", "kind", "rows", "bytes"})

_SCHEMA = dg.TableSchema(
    columns=[
        dg.TableColumn(
            "part", "string", description="Name: partition, first and last block, level"
        ),
        dg.TableColumn("kind", "string"),
        dg.TableColumn("rows", "int"),
        dg.TableColumn("bytes", "int"),
        dg.TableColumn("rows_in", "int", description="Of the parts that it was made of here"),
        dg.TableColumn("bytes_in", "int"),
        dg.TableColumn("level", "int", description="How often its rows have been merged"),
        dg.TableColumn("lag_ms", "float", description="From its log entry until it was here"),
        dg.TableColumn("seconds", "float", description="Time of the work itself"),
        dg.TableColumn("sources", "string", description="The parts it was made of"),
        dg.TableColumn("source_replica", "string", description="Who first had it"),
        dg.TableColumn(
            "insert_ids", "string", description="The inserts that it has rows of, oldest first"
        ),
        dg.TableColumn("run_ids", "string", description="The runs that made these inserts"),
        dg.TableColumn("error", "string"),
    ]
)


class EventLog(Protocol):
    """Takes a run's events: the context of an op or asset, or of an output that the IO manager
    stores.
    """

    @property
    def instance(self) -> dg.DagsterInstance: ...

    def log_event(self, event: AssetEvent) -> None: ...


class PartOrigins(Protocol):
    """Knows which inserts the rows of parts come from."""

    def of(
        self, replica: Replica, parts: Iterable[PartName]
    ) -> Mapping[PartName, Sequence[Origin]]: ...


@dataclass(frozen=True, slots=True)
class Recorder:
    """Writes the events of one table on one server into a Dagster run."""

    context: EventLog
    table: Table
    server: str
    origins: PartOrigins = field(default_factory=Origins)
    _known: dict[str, PartName] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Partitions that Dagster has, so that it is not asked at each flush, which costs more than an
    event; and one of the parts that each had at its last flush. Parts that are gone don't come
    back: as long as that one is there, the partition was never empty, so no other process has had
    Dagster forget it.
    """

    @property
    def name(self) -> str:
        return self.table.definition.full_name

    def parts(self, done: Sequence[PartDone]) -> None:
        """Write a materialization for the parts that were made, and an observation for those that
        failed.

        When there are more parts than one event should hold, there are several of each. The parts
        tables of what was made are written last: when one of them is stored, so is all else about
        its parts, on which `untold` relies.
        """
        made = [part for part in done if not part.error]
        failed = [part for part in done if part.error]
        key = names.parts_key(self.name, self.server)
        events: list[AssetEvent] = [
            dg.AssetObservation(
                key, description=_failures_in_words(some), metadata=failures_metadata(some)
            )
            for some in _split(failed)
        ]
        if not made:
            self._write(events)
            return
        active, origins = self.table.parts(), self._origins_of(made)
        held = self._held({part.part.partition for part in made}, active)
        events += mutated_parts(self.table, self.server, made)
        events += self._swept(made)
        events += self._partitions(held)
        has_now = table_metadata(active)
        for some in _split(made):  # the asset's page shows the last of these events
            metadata = {**parts_metadata(some, origins), **has_now}
            words = _flush_in_words(some)
            events.append(dg.AssetMaterialization(key, description=words, metadata=metadata))
        self._write(events)
        self._forget_empty(held)

    @contextmanager
    def recording(self) -> Iterator[list[PartDone]]:
        """A list, whose parts are recorded when the block ends; also when the block fails, since
        the parts are there all the same.
        """
        done: list[PartDone] = []
        try:
            yield done
        except BaseException:
            with suppress(RmtError, OSError):  # that the block has failed is told
                self.parts(done)
            raise
        self.parts(done)

    def _write(self, events: Sequence[AssetEvent]) -> None:
        """Store the events in this order."""
        # For start-up time: it loads SQLAlchemy, a quarter of what a code location would load.
        from rmt_pipeline.dagster.record.storage import one_transaction  # noqa: PLC0415

        with one_transaction(self.context.instance):
            for event in events:
                self.context.log_event(event)

    def _origins_of(self, made: Sequence[PartDone]) -> Mapping[PartName, Sequence[Origin]]:
        """The inserts that the parts have rows of; empty when ZooKeeper can't tell. The work itself
        is done, and its event only says less.
        """
        with_rows = [part.part for part in made if not part.part.is_drop_range]
        if not with_rows:
            return {}
        try:
            return self.origins.of(self.table.replica, with_rows)
        except RmtError:
            return {}

    def asked(self, commands: Sequence[PartDone]) -> None:
        """Record commands that this server was asked for and has carried out at once, one item for
        each partition of a command. Its `came` are new parts, which `parts` records as well; its
        `sources` are the parts that were removed.
        """
        emptied = {one.part.partition for one in commands if one.sources and not one.came}
        held = self._held(emptied, self.table.parts()) if emptied else {}
        self._write([*self._partitions(held), *map(self._command_event, commands)])
        self._forget_empty(held)

    def _swept(self, made: Sequence[PartDone]) -> Iterator[dg.AssetObservation]:
        """Observations of what commands on partitions and parts did here, one for each command's
        partition, whichever user and server the command came from. Commands that this server was
        asked for and has carried out at once are left out: the log sensor records them
        (`unrecorded`).
        """
        swept = [part for part in made if part.kind in SWEEPING]
        mine = self.table.definition.engine.replica
        noted: set[str] = set()
        if any(part.source_replica == mine for part in swept):
            events = self.table.store.part_log.events()
            noted = {event.entry_id for event in events if event.command}
        for part in swept:
            if part.entry_id not in noted:
                yield self._command_event(part)

    def _command_event(self, part: PartDone) -> dg.AssetObservation:
        partition, command = part.part.partition, part.kind
        if part.detaches:
            command = "DETACH PARTITION" if part.part.is_drop_range else "DETACH PART"
        return dg.AssetObservation(
            names.partitions_key(self.name, self.server),
            partition=partition,
            description=(
                f"{command}, partition {partition}, asked for through {part.source_replica}"
            ),
            metadata={
                "command": command,
                "user": part.asked_by or "not known",
                "asked for through": part.source_replica,
                "seconds since": round(part.lag_s, 3),
                "parts that went": len(part.sources),
                "rows that went": part.rows_in,
                "bytes that went": part.bytes_in,
                "rows that came": part.rows or self._rows_of(part.came),
                "which went": _some(map(str, part.sources)) or "none",
                "which came": _some(map(str, part.came)) or "none",
                "which it was about": _some(map(str, part.about)) or "none",
            },
        )

    def _rows_of(self, parts: Iterable[PartName]) -> int:
        """The rows of those parts that are still here."""
        rows = 0
        for part in parts:
            with suppress(Corruption, MissingPart):
                rows += self.table.store.counts(part)[0]
        return rows

    def command(self, command: str, rows: Mapping[str, int]) -> None:
        """Record what was done to whole partitions, with an event for each. `rows` gives by how
        many rows each partition grew; it is negative when rows were removed.
        """
        key = names.partitions_key(self.name, self.server)
        held = self._held(rows, self.table.parts())
        self._write(
            [
                dg.AssetObservation(
                    key,
                    partition=partition,
                    description=f"{command}, partition {partition}",
                    metadata={
                        **partition_metadata(holds),
                        "command": command,
                        "user": account(),
                        "rows more or fewer": rows[partition],
                    },
                )
                for partition, holds in held.items()
            ]
        )
        self._forget_empty(held)

    def forget_empty(self, partitions: Iterable[str]) -> None:
        """Remove those of `partitions` that have no rows here any more from the table's partitions
        in Dagster.
        """
        self._forget_empty(self._held(partitions, self.table.parts()))

    def _partitions(
        self, held: Mapping[str, Sequence[Manifest]]
    ) -> Iterator[dg.AssetMaterialization]:
        """A materialization for each touched partition, with what it holds now."""
        key = names.partitions_key(self.name, self.server)
        for partition, holds in held.items():
            metadata = partition_metadata(holds)
            yield dg.AssetMaterialization(key, partition=partition, metadata=metadata)

    def _held(
        self, touched: Iterable[str], active: Sequence[ActivePart]
    ) -> dict[str, list[Manifest]]:
        """What each touched partition holds now, in order of their ids. Partitions that Dagster
        does not know yet are added to it.
        """
        held: dict[str, list[Manifest]] = {partition: [] for partition in sorted(touched)}
        known, one_of, stayed = self._known, dict[str, PartName](), set[str]()
        for part in active:
            partition = part.name.partition
            if partition in held:
                held[partition].append(part.manifest)
                one_of.setdefault(partition, part.name)
                if part.name == known.get(partition):
                    stayed.add(partition)
        if not held.keys() <= stayed:
            instance, name = self.context.instance, names.partitions_name(self.name)
            there = set(instance.get_dynamic_partitions(name))
            new = held.keys() - there
            earlier = names.earlier_partitions_name(self.name)
            if not there and earlier != name:
                here = {part.name.partition for part in active}
                new |= here.intersection(instance.get_dynamic_partitions(earlier))
            if new:
                instance.add_dynamic_partitions(name, sorted(new))
        known.update(one_of)
        return held

    def _forget_empty(self, held: Mapping[str, Sequence[Manifest]]) -> None:
        """Remove partitions without rows from the table's partitions in Dagster. Their
        events stay.
        """
        gone = {partition for partition, holds in held.items() if not holds}
        if not gone:
            return
        instance, of_table = self.context.instance, names.partitions_name(self.name)
        for partition in gone:
            self._known.pop(partition, None)
            instance.delete_dynamic_partition(of_table, partition)
        # Another process may have stored rows since we looked, and found the partition there.
        back = gone & {part.name.partition for part in self.table.parts()}
        if back:
            instance.add_dynamic_partitions(of_table, sorted(back))


def parts_table(
    done: Sequence[PartDone],
    origins: Mapping[PartName, Sequence[Origin]] = MappingProxyType({}),
) -> dg.TableMetadataValue:
    """A table with a row for each part. `origins`: the inserts that a part has rows of, as far as
    they are known. A column without any value is left out, since pages load a hundred such tables
    in full.
    """
    rows: list[dict[str, str | int | float]] = [
        {
            "part": str(part.part),
            "kind": part.kind,
            "rows": part.rows,
            "bytes": part.size_bytes,
            "rows_in": part.rows_in,
            "bytes_in": part.bytes_in,
            "level": part.part.level,
            "lag_ms": round(part.lag_s * 1000, 1),
            "seconds": round(part.seconds, 3),
            "sources": _sources(part.sources),
            "source_replica": part.source_replica,
            "insert_ids": _some([one.insert_id for one in origins.get(part.part, ())]),
            "run_ids": _some([one.run_id for one in origins.get(part.part, ())]),
            "error": part.error,
        }
        for part in done
    ]
    columns = [
        column
        for column in _SCHEMA.columns
        if column.name in COLUMNS_KEPT or any(row[column.name] for row in rows)
    ]
    records = [dg.TableRecord({one.name: row[one.name] for one in columns}) for row in rows]
    return dg.MetadataValue.table(records, schema=dg.TableSchema(columns=columns))


def _some(ids: Iterable[str]) -> str:
    """The first few different ids, and how many more there are."""
    return first_of(list(dict.fromkeys(filter(None, ids))), ORIGINS_SHOWN_MAX, between=" ")


def first_of(found: Sequence[object], shown_max: int, *, between: str) -> str:
    """The first `shown_max` of them, separated by `between`, and how many more there are."""
    more = len(found) - shown_max
    shown = between.join(map(str, found[:shown_max]))
    return f"{shown} and {more} more" if more > 0 else shown


def parts_metadata(
    made: Sequence[PartDone],
    origins: Mapping[PartName, Sequence[Origin]] = MappingProxyType({}),
) -> EventMetadata:
    """What a flush did, as metadata. The UI plots the numbers over time; the table lists every
    part. When a worker died before it recorded its merge, what went into the
    merge is not known; such merges are left out of the merge figures rather than counted as zero.
    """
    lags_ms = [part.lag_s * 1000 for part in made if part.kind == "FETCH" and part.lag_s]
    metadata: EventMetadata = {
        "rows": sum(part.rows for part in made),
        "bytes": sum(part.size_bytes for part in made),
        **{f"parts {kind}": count for kind, count in sorted(_by_kind(made).items())},
    }
    merges = [part for part in made if part.kind == "MERGE_PARTS" and part.bytes_in]
    if merges:
        metadata |= {
            "merge rows in": sum(part.rows_in for part in merges),
            "merge rows out": sum(part.rows for part in merges),
            "merge bytes in": sum(part.bytes_in for part in merges),
            "merge bytes out": sum(part.size_bytes for part in merges),
            "merge seconds max": round(max(part.seconds for part in merges), 3),
        }
        if seconds := sum(part.seconds for part in merges):
            metadata["merge bytes per second"] = round(
                sum(part.bytes_in for part in merges) / seconds
            )
    if lags_ms:
        metadata["fetch lag p50 ms"] = round(median(lags_ms), 1)
        metadata["fetch lag max ms"] = round(max(lags_ms), 1)
    return {**metadata, **_links(made, origins), "parts": parts_table(made, origins)}


def _links(
    made: Sequence[PartDone], origins: Mapping[PartName, Sequence[Origin]]
) -> EventMetadata:
    """Links to the runs that inserted the rows: cells of a table can't have any."""
    found = dict.fromkeys(one.run_id for part in made for one in origins.get(part.part, ()))
    runs = [run for run in found if run][:RUNS_LINKED_MAX]
    return {
        f"inserted by run{f' {number}' if number > 1 else ''}": dg.MetadataValue.dagster_run(
            run
        )
        for number, run in enumerate(runs, 1)
    }


def _flush_in_words(made: Sequence[PartDone]) -> str:
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(_by_kind(made).items()))
    return f"{counts}: {sum(part.rows for part in made)} rows"


def _failures_in_words(failed: Sequence[PartDone]) -> str:
    """How many parts failed, and the error of the first one; the table has the error of each."""
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(_by_kind(failed).items()))
    return f"{counts}: {failed[0].error}"


def _by_kind(made: Sequence[PartDone]) -> Counter[str]:
    return Counter(part.kind for part in made)


def table_metadata(active: Sequence[ActivePart]) -> EventMetadata:
    """What the table has on this server after a flush; the UI plots these numbers over time."""
    of_level = [0] * (LEVELS_TOLD + 1)
    for part in active:
        of_level[min(part.name.level, LEVELS_TOLD)] += part.manifest.bytes_on_disk
    in_partition = Counter(part.name.partition for part in active)
    told: EventMetadata = {
        "dagster/row_count": sum(part.manifest.rows for part in active),
        "active parts": len(active),
        "parts of the fullest partition": max(in_partition.values(), default=0),
        "active bytes": sum(of_level),
    }
    for level, size_bytes in enumerate(of_level):
        more = " and more" if level == LEVELS_TOLD else ""
        told[f"active bytes of level {level}{more}"] = size_bytes
    return told


def _sources(sources: Sequence[PartName]) -> str:
    """A part's sources for the table, shortened when there are many; the part's manifest has all of
    them.
    """
    if len(sources) <= SOURCES_SHOWN_MAX:
        return " ".join(str(source) for source in sources)
    return f"{len(sources)} parts, {sources[0]} … {sources[-1]}"


def failures_metadata(failed: Sequence[PartDone]) -> EventMetadata:
    """What a run says of the parts that it could not make or fetch: how many, which ones and why;
    and how many of them it made but found different from another replica's.
    """
    metadata: EventMetadata = {"failures": len(failed), "parts": parts_table(failed)}
    differing = sum(part.differs for part in failed)
    if differing:  # these were discarded, and the other replica's parts fetched
        metadata["results that differ from another replica's"] = differing
    return metadata


def _split(done: Sequence[PartDone]) -> Iterator[Sequence[PartDone]]:
    for start in range(0, len(done), PARTS_PER_EVENT_MAX):
        yield done[start : start + PARTS_PER_EVENT_MAX]


def partition_metadata(manifests: Sequence[Manifest]) -> EventMetadata:
    """What a partition holds. Its row hash is the sum of its parts': equal wherever the rows are
    the same.
    """
    return {
        "dagster/row_count": sum(manifest.rows for manifest in manifests),
        "bytes": sum(manifest.bytes_on_disk for manifest in manifests),
        "parts": len(manifests),
        "row hash": f"{sum(manifest.row_hash for manifest in manifests) % 2**128:032x}",
    }


def inserted(table: Table, parts: Sequence[PartName], kind: str = "insert") -> list[PartDone]:
    """The parts that an insert or a replacement made, in the ledger's form."""
    done = []
    for part in parts:
        try:
            manifest = table.store.manifest(part)
        except MissingPart:
            continue  # replaced or dropped since
        done.append(
            PartDone(
                part=part,
                kind=kind,
                rows=manifest.rows,
                size_bytes=manifest.bytes_on_disk,
                source_replica=table.definition.engine.replica,
            )
        )
    return done


def mutated_parts(
    table: Table, server: str, made: Sequence[PartDone]
) -> Iterator[dg.AssetMaterialization]:
    """A materialization for each part that a mutation made, of the first `MUTATED_EVENTS_MAX`."""
    key = names.parts_key(table.definition.full_name, server)
    mutated = [part for part in made if part.kind == "MUTATE_PART" and len(part.sources) == 1]
    for part in mutated[:MUTATED_EVENTS_MAX]:
        [source] = part.sources
        try:
            after, before = table.store.manifest(part.part), table.store.manifest(source)
        except MissingPart:
            continue  # merged away and removed since
        new = [one for one in after.mutations if one not in before.mutations]
        yield dg.AssetMaterialization(
            key,
            description=f"{source} became {part.part}",
            metadata={
                "part": str(part.part),
                "source": str(source),
                "mutations": ", ".join(new) or "none: it was killed",
                "rows": after.rows,
                "rows deleted": before.rows - after.rows,
                "bytes": after.bytes_on_disk,
                "bytes rewritten": 0 if after.files == before.files else after.bytes_on_disk,
                "seconds": round(part.seconds, 3),
            },
        )
