"""Finds what workers did but could not record in Dagster because their process ended, so that the
next worker records it.

A worker writes its events some seconds after its work (`workers.Team`). By then the table's part
log has what the worker did, with the id of its run; the parts tables in Dagster's events say what
was recorded.
"""

from collections.abc import Iterator, Sequence

import dagster as dg

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.record.ledger import SWEEPING
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.store.part_log import PartEventType
from rmt_pipeline.table import Table

_EVENTS_AT_ONCE = 100
_KINDS: dict[PartEventType, str] = {
    "DownloadPart": "FETCH",
    "MergeParts": "MERGE_PARTS",
    "MutatePart": "MUTATE_PART",
    "RemovePart": "REMOVE",
}
"""The ledger's kind of each event of the part log. Of a removed part only the name is
still known.
"""
_REMOVALS = SWEEPING | {"REMOVE"}


def untold(
    table: Table, server: str, instance: dg.DagsterInstance, runs: Sequence[dg.RunRecord]
) -> list[PartDone]:
    """The work of these runs on parts of the table that no event in Dagster records, oldest first.
    Failures are left out, since the work is tried again anyway.
    """
    ids = {record.dagster_run.run_id for record in runs}
    noted = [
        event
        for event in table.store.part_log.events()
        if event.run_id in ids and event.event_type in _KINDS and not event.error
    ]
    if not noted:
        return []
    began_s = min(record.create_timestamp.timestamp() for record in runs)
    key = names.parts_key(table.definition.full_name, server)
    told = list(_told(instance, dg.AssetRecordsFilter(key, after_timestamp=began_s)))
    came = {part for part, kind in told if kind not in _REMOVALS}
    went = [part for part, kind in told if kind in _REMOVALS]
    done = []
    for event in noted:
        part = PartName.parse(event.part)
        if event.event_type == "RemovePart":
            was_told = any(one.contains(part) for one in went)
        else:
            was_told = part in came
        if was_told:
            continue
        done.append(
            PartDone(
                part=part,
                kind=_KINDS[event.event_type],
                rows=event.rows,
                size_bytes=event.size_bytes,
                sources=tuple(map(PartName.parse, event.sources)),
                source_replica=event.source_replica,
                seconds=event.seconds,
            )
        )
    return done


def _told(
    instance: dg.DagsterInstance, events: dg.AssetRecordsFilter
) -> Iterator[tuple[PartName, str]]:
    """The parts in the tables of these events, each with what was done to it. The events may be
    those of any run, since a later worker may have recorded parts for one that ended.
    """
    cursor, has_more = None, True
    while has_more:
        page = instance.fetch_materializations(events, _EVENTS_AT_ONCE, cursor)
        cursor, has_more = page.cursor, page.has_more
        for record in page.records:
            told = record.asset_materialization
            table = told.metadata.get("parts") if told else None
            if isinstance(table, dg.TableMetadataValue):
                for one in table.records:
                    yield PartName.parse(str(one.data["part"])), str(one.data["kind"])
