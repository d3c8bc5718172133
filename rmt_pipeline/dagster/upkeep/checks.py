"""Asset checks of one table on one server: what an operator would look at, and why it is so.

Each check asks the engine a question and answers it in words. None changes anything, but for
`checksums`, which gives up broken parts, so that they are fetched again. The checks belong to an
asset of their own that is never materialized: Dagster forgets what a check has found as soon as its
asset is materialized again, which the parts' asset is with each flush.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import dagster as dg

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource, table_named
from rmt_pipeline.dagster.record.ledger import first_of
from rmt_pipeline.dagster.replicas import DELAY_MAX_S
from rmt_pipeline.dagster.upkeep.plots import (
    Line,
    PartShown,
    picture_of_parts,
    picture_over_time,
)
from rmt_pipeline.protocol.background import Background, first_stopped
from rmt_pipeline.protocol.nodes.records import LostPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.mutations.progress import MutationProgress, mutation_progress
from rmt_pipeline.replica.partitions.detached import DetachedDirectory, detached_directories
from rmt_pipeline.replica.reading import ActivePart
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from rmt_pipeline.replica.upkeep.lag import lag_of
from rmt_pipeline.replica.upkeep.lost import lost_parts
from rmt_pipeline.replica.work.queue_status import queue_status
from rmt_pipeline.table import Table

CHECKS_CRON = "17 * * * *"
"""Hourly, since reading every byte of a large table takes too long for every minute."""

QUEUE_AGE_MAX_S = 600
DAY_S = 24 * 3600
LOST_TOLD_S = 7 * DAY_S
"""How long a lost part makes the check fail. ZooKeeper keeps the record for ever, but people stop
looking at a check that always fails.
"""
ACKNOWLEDGED = "acknowledged"
"""A key in the metadata of an observation of a table's health: the losses that a
person has seen.
"""
REMEDY = "remedy"
"""A key in the metadata of each check: what to do."""
NOTHING_TO_DO = "none"
SHOWN_MAX = 20
MUTATIONS_SHOWN_MAX = 50
EVENTS_DRAWN_MAX = 1000

_MUTATIONS_SCHEMA = dg.TableSchema(
    columns=[
        dg.TableColumn("mutation", "string"),
        dg.TableColumn("command", "string"),
        dg.TableColumn("why", "string", description="What fails, or what it waits for"),
        dg.TableColumn("parts_to_do", "int"),
        dg.TableColumn("parts_done", "int"),
        dg.TableColumn("running", "int", description="Parts that are being mutated now"),
        dg.TableColumn("seconds_left", "float", description="-1: not known yet"),
    ]
)
_DETACHED_SCHEMA = dg.TableSchema(
    columns=[
        dg.TableColumn("directory", "string"),
        dg.TableColumn("rows", "int", description="-1: not known"),
        dg.TableColumn("bytes", "int"),
        dg.TableColumn("hours", "float", description="Since something in it came or went"),
        dg.TableColumn("verdict", "string"),
    ]
)


@dataclass(frozen=True, slots=True)
class CheckQuestion:
    """The table that a check is about, seen from one server."""

    name: str
    server: str
    opened: ServerContext
    table: Table
    instance: dg.DagsterInstance


class _Check(NamedTuple):
    """How a check finds its answer, and its description in Dagster."""

    look: Callable[[CheckQuestion], dg.AssetCheckResult]
    description: str


def checks_of(table: str, server: str) -> list[dg.AssetChecksDefinition]:
    """The asset checks of one table on one server."""
    return [check_of(name, table, server) for name in CHECKS]


def check_of(check_name: str, table: str, server: str) -> dg.AssetChecksDefinition:
    """One of `CHECKS`, for one table on one server."""
    look, description = CHECKS[check_name]

    @dg.asset_check(
        asset=names.health_key(table, server), name=check_name, description=description
    )
    def check(
        context: dg.AssetCheckExecutionContext, engine: EngineResource
    ) -> dg.AssetCheckResult:
        with engine.server(server, purpose="check") as opened:
            found = table_named(opened, table)
            return look(CheckQuestion(table, server, opened, found, context.instance))

    return check


def _answer(
    passed: bool, found: Mapping[str, Any], remedy: str, *, warns: bool = False
) -> dg.AssetCheckResult:
    """The result of a check. `found` is always shown. `remedy`, which says what to do, is shown
    when the check has not passed, as its message and in its metadata. With `warns`, a check that
    has not passed is a warning instead of an error.
    """
    return dg.AssetCheckResult(
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR,
        description=None if passed else remedy,
        metadata={**found, REMEDY: NOTHING_TO_DO if passed else remedy},
    )


def checks_schedule(server: str) -> dg.ScheduleDefinition:
    """A schedule that runs the checks of all tables of a server in one run. It selects them by the
    server's tag on their assets, which Dagster counts as sources because no run of ours
    materializes them.
    """
    with warnings.catch_warnings():  # the warning is about our code, not the user's
        warnings.simplefilter("ignore", dg.BetaWarning)
        of_server = dg.AssetSelection.tag(names.SERVER_TAG, server, include_sources=True)
    return dg.ScheduleDefinition(
        name=f"checks_{names.dagster_name(server)}",
        description=f"Runs every asset check of the tables on server {server}, hourly.",
        cron_schedule=CHECKS_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        job=dg.define_asset_job(
            f"check_{names.dagster_name(server)}",
            selection=dg.AssetSelection.all_asset_checks() & of_server,
            executor_def=dg.in_process_executor,
            tags={names.SERVER_TAG: server, names.KIND_TAG: "check"},
            description=f"Every asset check of the tables on server {server}.",
        ),
    )


def _replicas_equal(asked: CheckQuestion) -> dg.AssetCheckResult:
    comparison = compare_replicas(asked.table.replica)
    return _answer(
        not comparison.different,
        {
            "replicas": ", ".join(comparison.replicas),
            "behind": ", ".join(comparison.behind) or "none",
            "partitions": len(comparison.held),
            "different": ", ".join(comparison.different[:SHOWN_MAX]) or "none",
        },
        "Wait for the replicas that are behind; the check queue_age of each says what its queue "
        "waits for"
        if comparison.behind
        else f"Run `rmt check {asked.name}` on each replica: it reads every byte, and a part that "
        "is broken is fetched again from another replica",
        # A replica that is behind differs until it has caught up.
        warns=bool(comparison.behind),
    )


def _queue_age(asked: CheckQuestion) -> dg.AssetCheckResult:
    seen = queue_status(asked.table.replica)
    age_s = 0.0
    if seen.oldest_s is not None:
        age_s = max(0.0, asked.opened.clock.now_s() - seen.oldest_s)
    reasons = [f"{entry.entry}: {entry.reason}" for entry in seen.waiting[:SHOWN_MAX]]
    return _answer(
        age_s <= QUEUE_AGE_MAX_S,
        {
            "oldest entry, seconds": round(age_s, 1),
            "ready to run": sum(seen.ready.values()),
            "waiting": len(seen.waiting),
            "why they wait": "\n".join(reasons) or "none waits",
        },
        f"Look at the last tick of the sensor log_{names.dagster_name(asked.server)}: it says "
        "which run works the queue, or why none does. `why they wait` has the reason of each entry",
    )


def _parts_per_partition(asked: CheckQuestion) -> dg.AssetCheckResult:
    delay = asked.table.replica.settings.parts_to_delay_insert
    held: dict[str, list[ActivePart]] = {}
    for part in asked.table.parts():
        held.setdefault(part.name.partition, []).append(part)
    counts = {partition: len(parts) for partition, parts in held.items()}
    fullest = max(counts, key=lambda partition: counts[partition], default="")
    partitions = names.partitions_key(asked.name, asked.server)
    return _answer(
        counts.get(fullest, 0) < delay,
        {
            "fullest partition": fullest or "none",
            "parts of the fullest partition": counts.get(fullest, 0),
            "parts_to_delay_insert": delay,
            "parts": sum(counts.values()),
            "picture": dg.MetadataValue.md(_picture(fullest, held.get(fullest, []))),
            "parts over time": dg.MetadataValue.md(_history(asked.instance, partitions)),
        },
        "Insert more rows at a time, and less often. The last tick of the sensor "
        f"merges_{names.dagster_name(asked.server)} says why nothing is merged",
    )


def _history(instance: dg.DagsterInstance, key: dg.AssetKey) -> str:
    """A picture of how many parts each partition had, from the events of the partitions."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for record in instance.fetch_materializations(key, limit=EVENTS_DRAWN_MAX).records:
        event = record.asset_materialization
        if event is not None and event.partition and "parts" in event.metadata:
            parts = float(str(event.metadata["parts"].value))
            lines.setdefault(event.partition, []).append((record.timestamp, parts))
    if not lines:
        return "no event yet"
    drawn = [Line(partition, points[::-1]) for partition, points in sorted(lines.items())]
    return picture_over_time("Active parts over time", drawn)


def _picture(partition: str, parts: Sequence[ActivePart]) -> str:
    """A picture of the partition's active parts."""
    if not parts:
        return "no part"
    return picture_of_parts(
        f"Partition {partition}",
        [
            PartShown(part.manifest.rows, part.manifest.bytes_on_disk, part.name.level)
            for part in sorted(parts, key=lambda part: part.name)
        ],
    )


def _checksums(asked: CheckQuestion) -> dg.AssetCheckResult:
    checked = list(asked.table.check())
    broken = [f"{found.part}: {found.problem}" for found in checked if found.problem]
    return _answer(
        not broken,
        {
            "parts": len(checked),
            "bytes verified": sum(found.size_bytes for found in checked),
            "broken": "\n".join(broken[:SHOWN_MAX]) or "none",
        },
        "Broken parts are fetched again from another replica by themselves; "
        f"`rmt queue {asked.name}` shows how far that is. Check the disk: a healthy one "
        "breaks none",
    )


def _stopped_by_hand(asked: CheckQuestion) -> dg.AssetCheckResult:
    marks, now_s = asked.table.store.marks, asked.opened.clock.now_s()
    stopped = {
        what.value: round(now_s - (marks.stopped_s(what) or now_s))
        for what in sorted(marks.stopped(), key=lambda one: one.value)
    }
    ages = ", ".join(f"{what} for {age} s" for what, age in stopped.items())
    return _answer(
        not stopped,
        {"stopped": ages or "nothing"},
        "When it should run again: "
        + "; ".join(f"SYSTEM START {what} {asked.name}" for what in stopped),
        warns=True,
    )


def _delay(asked: CheckQuestion) -> dg.AssetCheckResult:
    lag = lag_of(asked.table.replica)
    return _answer(
        lag.seconds < DELAY_MAX_S,
        {"delay, seconds": round(lag.seconds, 1), "log entries behind": lag.entries},
        f"Look at the last tick of the sensor log_{names.dagster_name(asked.server)}: it says why "
        f"nothing is fetched. `rmt queue {asked.name}` shows what each entry waits for",
    )


def _detached(asked: CheckQuestion) -> dg.AssetCheckResult:
    found, now_s = detached_directories(asked.table.replica), asked.opened.clock.now_s()
    safe = [one.directory for one in found if one.is_safe]
    records = [_detached_record(one, now_s) for one in found[:SHOWN_MAX]]
    return _answer(
        not found,
        {
            "directories": len(found),
            "bytes": sum(one.size_bytes for one in found),
            "detached": dg.MetadataValue.table(records, schema=_DETACHED_SCHEMA),
        },
        f"{len(safe)} of {len(found)} directories are safe to delete: launch the job "
        f"drop_detached_{names.dagster_name(asked.server)}, or ALTER TABLE {asked.name} DROP "
        "DETACHED PART '…'. The column `verdict` says why each other one should be kept",
        warns=True,
    )


def _detached_record(one: DetachedDirectory, now_s: float) -> dg.TableRecord:
    return dg.TableRecord(
        {
            "directory": one.directory,
            "rows": -1 if one.rows is None else one.rows,
            "bytes": one.size_bytes,
            "hours": round((now_s - one.modified_s) / 3600, 1),
            "verdict": f"{'safe to delete' if one.is_safe else 'keep it'}: {one.why}",
        }
    )


def _lost(asked: CheckQuestion) -> dg.AssetCheckResult:
    ever, since_s = lost_parts(asked.table.replica), asked.opened.clock.now_s() - LOST_TOLD_S
    seen = _acknowledged(asked)
    lately = {
        part: one
        for part, one in ever.items()
        if one.replaced_s >= since_s and loss_name(part, one) not in seen
    }
    inserts = sorted({insert for one in lately.values() for insert in one.inserts})
    return _answer(
        not lately,
        {
            "lost parts": first_of(sorted(lately), SHOWN_MAX, between=", ") or "none",
            "lost parts ever": len(ever),
        },
        "Make these inserts, whose rows were lost, again: "
        + (first_of(inserts, SHOWN_MAX, between=" ") or "(it is not known which)")
        + f". Then launch the job acknowledge_lost_{names.dagster_name(asked.server)}, which makes "
        "this check green",
    )


def loss_name(part: PartName, lost: LostPart) -> str:
    """A name for the loss of a part. A part that is lost a second time gets another name."""
    return f"{part} {lost.replaced_s}"


def _acknowledged(asked: CheckQuestion) -> frozenset[str]:
    """The losses that were acknowledged. Only the newest observation counts, since each has all
    losses.
    """
    key = names.health_key(asked.name, asked.server)
    for record in asked.instance.fetch_observations(key, limit=1).records:
        event = record.asset_observation
        if event is not None and ACKNOWLEDGED in event.metadata:
            return frozenset(str(event.metadata[ACKNOWLEDGED].value).splitlines())
    return frozenset()


def _mutations(asked: CheckQuestion) -> dg.AssetCheckResult:
    progress = mutation_progress(asked.table.replica)
    unfinished = [one for one in progress if not one.is_done]
    records = [_mutation_record(one) for one in unfinished[:MUTATIONS_SHOWN_MAX]]
    stopped = first_stopped(asked.table.store.marks.stopped(), Background.MERGES)
    return _answer(
        not unfinished,
        {
            "unfinished": len(unfinished),
            "parts to do": sum(one.parts_to_do for one in unfinished),
            "mutations": dg.MetadataValue.table(records, schema=_MUTATIONS_SCHEMA),
        },
        stopped
        or f"Wait; `rmt mutations {asked.name}` shows how far each one is. One that fails is taken "
        "back with KILL MUTATION",
        warns=not any(one.report.failure or one.report.missing for one in unfinished),
    )


def _mutation_record(one: MutationProgress) -> dg.TableRecord:
    status = one.report.status
    return dg.TableRecord(
        {
            "mutation": status.mutation_id,
            "command": status.entry.commands,
            "why": one.failure_words() or one.report.waits_for,
            "parts_to_do": one.parts_to_do,
            "parts_done": one.parts_done,
            "running": one.running,
            "seconds_left": -1.0 if one.seconds_left is None else round(one.seconds_left, 1),
        }
    )


CHECKS: Mapping[str, _Check] = {
    "replicas_equal": _Check(
        _replicas_equal,
        "All replicas hold the same rows: the row hashes of each partition are equal.",
    ),
    "queue_age": _Check(
        _queue_age,
        f"No entry has been in this replica's queue for more than {QUEUE_AGE_MAX_S} s.",
    ),
    "parts_per_partition": _Check(
        _parts_per_partition,
        "No partition has so many parts that inserts are slowed down.",
    ),
    "checksums": _Check(
        _checksums,
        "Reads every active part: its bytes must match the checksums in its manifest. A part that "
        "is broken is fetched again from another replica.",
    ),
    "mutations": _Check(
        _mutations,
        "Every mutation is finished on this server. One that is still under way is a warning, one "
        "that fails on a part is an error.",
    ),
    "stopped_by_hand": _Check(
        _stopped_by_hand,
        "No background work (merges, fetches, …) was stopped on this server with SYSTEM STOP.",
    ),
    "delay": _Check(
        _delay,
        "This replica is up to date: the oldest insert of other replicas that it lacks is less "
        f"than {DELAY_MAX_S:.0f} s old.",
    ),
    "detached": _Check(
        _detached,
        "The directory detached/ is empty. What is set aside there takes disk space until it is "
        "removed, and may be the only copy of some rows.",
    ),
    "lost": _Check(
        _lost,
        f"In the last {LOST_TOLD_S // DAY_S} days no part was lost on every replica, except losses "
        "that were acknowledged with the job acknowledge_lost. An empty part takes the "
        "place of a lost one.",
    ),
}
