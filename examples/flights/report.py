"""What the demo found: read from ZooKeeper and the part files, not from what any
process reports.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import dagster as dg

from examples.flights.source import FLIGHTS_COUNT
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.insert.result import Outcome
from rmt_pipeline.replica.upkeep.compare import Comparison
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.snapshot import active_parts

EVENTS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one replica is: its rows, its active parts, and the entries in its queue."""

    rows: int
    parts: int
    queue: int


@dataclass(frozen=True, slots=True)
class ReplicaContents:
    """The contents of one replica's files. `distinct` counts rows that differ in any column."""

    replica: str
    rows: int
    distinct: int
    parts_written: int
    parts_active: int
    parts_merged: int


@dataclass(frozen=True, slots=True)
class Delays:
    """The times from the commit of an insert until the peer has its part, in milliseconds, both by
    ZooKeeper's clock.
    """

    count: int
    p50_ms: int
    p99_ms: int
    max_ms: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One promise of the demo, and whether it was kept."""

    promise: str
    found: str
    kept: bool


def standing(table: Table) -> Standing:
    """How far a replica is: its rows and active parts, and how many entries its queue still has."""
    parts = table.parts()
    queue = table.replica.keeper.children(table.replica.paths.queue)
    return Standing(sum(part.manifest.rows for part in parts), len(parts), len(queue))


def held(table: Table) -> ReplicaContents:
    """The contents of a replica. Reads every row."""
    with table.snapshot() as snapshot:
        rows = table.dataset().to_table()
        distinct = rows.group_by(rows.column_names).aggregate([]).num_rows
        active = snapshot.parts
    written = active_parts(table.replica.keeper, table.replica.paths)
    return ReplicaContents(
        replica=table.definition.engine.replica,
        rows=rows.num_rows,
        distinct=distinct,
        parts_written=sum(part.level == 0 for part in written),
        parts_active=len(active),
        parts_merged=sum(part.name.level > 0 for part in active),
    )


def delays(source: Table, peer: Table) -> Delays:
    """The delays of all parts that were inserted at `source` and are still listed there.

    If the peer has fetched a merged part instead, the delay ends when that one came.
    """
    keeper = source.replica.keeper
    mine, theirs = source.replica.paths, peer.replica.paths
    inserted = [part for part in active_parts(keeper, mine) if part.level == 0]
    arrived = active_parts(keeper, theirs)
    seen = keeper.exists_many([theirs.part(part) for part in arrived])
    came_ms = {
        part: stat.created_ms
        for part, stat in zip(arrived, seen, strict=True)
        if stat is not None
    }
    waits_ms = []
    stats = keeper.exists_many([mine.part(part) for part in inserted])
    for part, stat in zip(inserted, stats, strict=True):
        covering = [came_ms[part]] if part in came_ms else _covering_ms(part, came_ms)
        if stat is not None and covering:
            waits_ms.append(max(0, min(covering) - stat.created_ms))
    waits_ms.sort()
    return Delays(len(waits_ms), _at(waits_ms, 0.5), _at(waits_ms, 0.99), _at(waits_ms, 1.0))


def findings(
    replicas: Sequence[ReplicaContents], comparison: Comparison, *, repeated: int, refused: int
) -> list[Finding]:
    """The promises of the demo, and what was found. `repeated` inserts were made again on another
    replica, and `refused` of them were answered as duplicates.
    """
    rows = ", ".join(f"{one.replica} {one.rows}" for one in replicas)
    distinct = ", ".join(f"{one.replica} {one.distinct}" for one in replicas)
    merged = ", ".join(
        f"{one.replica} {one.parts_written} → {one.parts_active}" for one in replicas
    )
    return [
        Finding(
            f"{FLIGHTS_COUNT} rows on each replica",
            rows,
            all(one.rows == FLIGHTS_COUNT for one in replicas),
        ),
        Finding(
            f"{FLIGHTS_COUNT} distinct rows on each replica",
            distinct,
            all(one.distinct == FLIGHTS_COUNT for one in replicas),
        ),
        Finding(
            "every repeated insert refused as a duplicate",
            f"{refused} of {repeated}",
            refused == repeated > 0,
        ),
        Finding(
            "merged on every replica",
            merged,
            all(
                0 < one.parts_merged <= one.parts_active < one.parts_written for one in replicas
            ),
        ),
        Finding(
            "row hashes of all partitions equal",
            f"{len(comparison.held)} partitions, {len(comparison.different)} differ",
            bool(comparison.held) and not comparison.different and not comparison.behind,
        ),
    ]


def refused_on(home: Path, server: str) -> int:
    """How many partitions of the asset `flights` had a duplicate as their insert
    through `server`.
    """
    with dg.DagsterInstance.from_config(str(home)) as instance:
        events = instance.fetch_materializations(dg.AssetKey("flights"), limit=EVENTS_MAX)
    refused = set()
    for record in events.records:
        materialization = record.asset_materialization
        assert materialization is not None
        values = {key: value.value for key, value in materialization.metadata.items()}
        if values.get("server") == server and values.get("outcome") == Outcome.DUPLICATE:
            refused.add(materialization.partition)
    return len(refused)


def _covering_ms(part: PartName, came_ms: Mapping[PartName, int]) -> list[int]:
    return [moment for other, moment in came_ms.items() if other.contains(part)]


def _at(ordered: Sequence[int], share: float) -> int:
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0
