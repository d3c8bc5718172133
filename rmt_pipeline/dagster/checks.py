"""Asset checks of one table on one server: what an operator would look at, and why it is so.

Each is a question to the engine and its answer in words; none of them changes anything. They belong
to an asset of their own that nothing materializes: Dagster forgets what a check has found as soon
as its asset is materialized again, which parts are with each flush.
"""

from collections.abc import Sequence

import dagster as dg

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource, table_named
from rmt_pipeline.dagster.ledger import first_of
from rmt_pipeline.dagster.plots import Line, PartShown, picture_of_parts, picture_over_time
from rmt_pipeline.dagster.replicas import DELAY_MAX_S
from rmt_pipeline.replica.mutations.progress import MutationProgress, mutation_progress
from rmt_pipeline.replica.partitions.detached import DetachedDirectory, detached_directories
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from rmt_pipeline.replica.upkeep.lag import lag_of
from rmt_pipeline.replica.upkeep.lost import lost_parts
from rmt_pipeline.replica.work.queue_status import queue_status
from rmt_pipeline.table import ActivePart

CHECKS_CRON = "17 * * * *"
"""Hourly: reading every byte of a large table is not for every minute."""

QUEUE_AGE_MAX_S = 600
DAY_S = 24 * 3600
LOST_TOLD_S = 7 * DAY_S
"""What was lost stays in ZooKeeper; a check that is red for ever is looked at by nobody."""
REMEDY = "remedy"
"""What to do, in the metadata of each check."""
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
        dg.TableColumn("running", "int", description="Parts that somebody mutates just now"),
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


def checks_of(table: str, server: str) -> list[dg.AssetChecksDefinition]:
    """The asset checks of one table on one server."""
    return [
        _replicas_equal(table, server),
        _queue_age(table, server),
        _parts_per_partition(table, server),
        _checksums(table, server),
        mutations_check(table, server),
        _stopped_by_hand(table, server),
        _delay(table, server),
        _detached(table, server),
        _lost(table, server),
    ]


def checks_schedule(server: str) -> dg.ScheduleDefinition:
    """Run the checks of all tables of a server in one run: those of assets with its tag, which no
    run of ours makes ("sources").
    """
    of_server = dg.AssetSelection.tag(names.SERVER_TAG, server, include_sources=True)
    return dg.ScheduleDefinition(
        name=f"checks_{names.dagster_name(server)}",
        cron_schedule=CHECKS_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        job=dg.define_asset_job(
            f"check_{names.dagster_name(server)}",
            selection=dg.AssetSelection.all_asset_checks() & of_server,
            executor_def=dg.in_process_executor,
            tags={names.SERVER_TAG: server},
            description=f"Every asset check of the tables on server {server}.",
        ),
    )


def _replicas_equal(name: str, server: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=names.health_key(name, server),
        name="replicas_equal",
        description="Every replica holds the same rows of every partition, by row hashes.",
    )
    def check(engine: EngineResource) -> dg.AssetCheckResult:
        with engine.server(server, purpose="check") as opened:
            comparison = compare_replicas(table_named(opened, name).replica)
        return dg.AssetCheckResult(
            passed=not comparison.different,
            # Those that are behind differ until they caught up: worth a look, not an alarm.
            severity=dg.AssetCheckSeverity.WARN
            if comparison.behind
            else dg.AssetCheckSeverity.ERROR,
            metadata={
                "replicas": ", ".join(comparison.replicas),
                "behind": ", ".join(comparison.behind) or "none",
                "partitions": len(comparison.held),
                "different": ", ".join(comparison.different[:SHOWN_MAX]) or "none",
                REMEDY: NOTHING_TO_DO
                if not comparison.different
                else "wait for those that are behind: their queue says what for"
                if comparison.behind
                else f"`rmt check {name}` on each of them: what is broken is fetched again",
            },
        )

    return check


def _queue_age(name: str, server: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=names.health_key(name, server),
        name="queue_age",
        description=f"No entry of the queue is older than {QUEUE_AGE_MAX_S} s.",
    )
    def check(engine: EngineResource) -> dg.AssetCheckResult:
        with engine.server(server, purpose="check") as opened:
            seen = queue_status(table_named(opened, name).replica)
            age_s = 0.0
            if seen.oldest_s is not None:
                age_s = max(0.0, opened.clock.now_s() - seen.oldest_s)
        reasons = [f"{entry.entry}: {entry.reason}" for entry in seen.waiting[:SHOWN_MAX]]
        return dg.AssetCheckResult(
            passed=age_s <= QUEUE_AGE_MAX_S,
            metadata={
                "oldest entry, seconds": round(age_s, 1),
                "ready to run": sum(seen.ready.values()),
                "waiting": len(seen.waiting),
                "why they wait": "\n".join(reasons) or "none waits",
                REMEDY: NOTHING_TO_DO
                if age_s <= QUEUE_AGE_MAX_S
                else f"the last tick of log_{names.dagster_name(server)} says who works the queue; "
                "of an entry that waits or fails, what is above",
            },
        )

    return check


def _parts_per_partition(name: str, server: str) -> dg.AssetChecksDefinition:
    partitions = names.partitions_key(name, server)

    @dg.asset_check(
        asset=names.health_key(name, server),
        name="parts_per_partition",
        description="No partition has so many parts that inserts are slowed down.",
    )
    def check(
        context: dg.AssetCheckExecutionContext, engine: EngineResource
    ) -> dg.AssetCheckResult:
        with engine.server(server, purpose="check") as opened:
            table = table_named(opened, name)
            delay = table.replica.settings.parts_to_delay_insert
            held: dict[str, list[ActivePart]] = {}
            for part in table.parts():
                held.setdefault(part.name.partition, []).append(part)
        counts = {partition: len(parts) for partition, parts in held.items()}
        fullest = max(counts, key=lambda partition: counts[partition], default="")
        return dg.AssetCheckResult(
            passed=counts.get(fullest, 0) < delay,
            metadata={
                "fullest partition": fullest or "none",
                "its parts": counts.get(fullest, 0),
                "parts_to_delay_insert": delay,
                "parts": sum(counts.values()),
                REMEDY: NOTHING_TO_DO
                if counts.get(fullest, 0) < delay
                else "larger inserts, fewer of them; the last tick of "
                f"merges_{names.dagster_name(server)} says why no merge is worth it",
                "picture": dg.MetadataValue.md(_picture(fullest, held.get(fullest, []))),
                "parts over time": dg.MetadataValue.md(_history(context.instance, partitions)),
            },
        )

    return check


def _history(instance: dg.DagsterInstance, key: dg.AssetKey) -> str:
    """What the events of the partitions say they had."""
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
    """Of the parts as merges have left them."""
    if not parts:
        return "no part"
    return picture_of_parts(
        f"Partition {partition}",
        [
            PartShown(part.manifest.rows, part.manifest.bytes_on_disk, part.name.level)
            for part in sorted(parts, key=lambda part: part.name)
        ],
    )


def _checksums(name: str, server: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=names.health_key(name, server),
        name="checksums",
        description="The bytes of every active part are those that its manifest has hashes of. "
        "What is broken is fetched again.",
    )
    def check(engine: EngineResource) -> dg.AssetCheckResult:
        with engine.server(server, purpose="check") as opened:
            table = table_named(opened, name)
            checked = list(table.check())
        broken = [f"{found.part}: {found.problem}" for found in checked if found.problem]
        return dg.AssetCheckResult(
            passed=not broken,
            metadata={
                "parts": len(checked),
                "bytes verified": sum(found.size_bytes for found in checked),
                "broken": "\n".join(broken[:SHOWN_MAX]) or "none",
                REMEDY: f"they are fetched again: `rmt queue {name}` shows it. More than one in "
                "years is a disk to replace"
                if broken
                else NOTHING_TO_DO,
            },
        )

    return check


def _stopped_by_hand(name: str, server: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=names.health_key(name, server),
        name="stopped_by_hand",
        description="Nothing that the server does by itself is stopped with SYSTEM STOP.",
    )
    def check(engine: EngineResource) -> dg.AssetCheckResult:
        with engine.server(server, purpose="check") as opened:
            marks, now_s = table_named(opened, name).store.marks, opened.clock.now_s()
            stopped = {
                what.value: round(now_s - (marks.stopped_s(what) or now_s))
                for what in sorted(marks.stopped(), key=lambda one: one.value)
            }
        return dg.AssetCheckResult(
            passed=not stopped,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={
                "stopped": ", ".join(f"{what} for {age} s" for what, age in stopped.items())
                or "nothing",
                REMEDY: "; ".join(f"SYSTEM START {what} {name}" for what in stopped)
                or NOTHING_TO_DO,
            },
        )

    return check


def _delay(name: str, server: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=names.health_key(name, server),
        name="delay",
        description="What others have inserted is here: the oldest of what is missing is less than "
        f"{DELAY_MAX_S:.0f} s old.",
    )
    def check(engine: EngineResource) -> dg.AssetCheckResult:
        with engine.server(server, purpose="check") as opened:
            lag = lag_of(table_named(opened, name).replica)
        passed = lag.seconds < DELAY_MAX_S
        return dg.AssetCheckResult(
            passed=passed,
            metadata={
                "delay, seconds": round(lag.seconds, 1),
                "log entries behind": lag.entries,
                REMEDY: NOTHING_TO_DO
                if passed
                else f"the last tick of log_{names.dagster_name(server)} says why nothing is "
                f"fetched, `rmt queue {name}` what each entry waits for",
            },
        )

    return check


def _detached(name: str, server: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=names.health_key(name, server),
        name="detached",
        description="Nothing is set aside in detached/: disk space that nobody reads and nobody "
        "removes by itself, and rows that may be nowhere else.",
    )
    def check(engine: EngineResource) -> dg.AssetCheckResult:
        with engine.server(server, purpose="check") as opened:
            found = detached_directories(table_named(opened, name).replica)
            now_s = opened.clock.now_s()
        safe = [one.directory for one in found if one.is_safe]
        return dg.AssetCheckResult(
            passed=not found,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={
                "directories": len(found),
                "bytes": sum(one.size_bytes for one in found),
                "detached": dg.MetadataValue.table(
                    [_detached_record(one, now_s) for one in found[:SHOWN_MAX]],
                    schema=_DETACHED_SCHEMA,
                ),
                REMEDY: f"those that are safe to delete, {len(safe)} of {len(found)}: ALTER TABLE "
                f"{name} DROP DETACHED PART '…'; of each other one the table says why it is kept"
                if found
                else NOTHING_TO_DO,
            },
        )

    return check


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


def _lost(name: str, server: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=names.health_key(name, server),
        name="lost",
        description="No rows were lost on all replicas in the last "
        f"{LOST_TOLD_S // DAY_S} days. An empty part stands for a part that was.",
    )
    def check(engine: EngineResource) -> dg.AssetCheckResult:
        with engine.server(server, purpose="check") as opened:
            ever = lost_parts(table_named(opened, name).replica)
            since_s = opened.clock.now_s() - LOST_TOLD_S
        lately = {part: one for part, one in ever.items() if one.replaced_s >= since_s}
        inserts = sorted({insert for one in lately.values() for insert in one.inserts})
        return dg.AssetCheckResult(
            passed=not lately,
            metadata={
                "lost parts": first_of(sorted(lately), SHOWN_MAX, between=", ") or "none",
                "lost parts ever": len(ever),
                REMEDY: "insert again what had rows in them, as far as it is known: "
                + (first_of(inserts, SHOWN_MAX, between=" ") or "it is not")
                if lately
                else NOTHING_TO_DO,
            },
        )

    return check


def mutations_check(name: str, server: str) -> dg.AssetChecksDefinition:
    """The check that every mutation of the table is finished on this server."""

    @dg.asset_check(
        asset=names.health_key(name, server),
        name="mutations",
        description="Every mutation is finished on this server. One that only takes its time "
        "is a warning, one with a part that fails is an error.",
    )
    def check(engine: EngineResource) -> dg.AssetCheckResult:
        with engine.server(server, purpose="check") as opened:
            unfinished = [
                one
                for one in mutation_progress(table_named(opened, name).replica)
                if not one.is_done
            ]
        failing = [one for one in unfinished if one.report.failure or one.report.missing]
        return dg.AssetCheckResult(
            passed=not unfinished,
            severity=dg.AssetCheckSeverity.ERROR if failing else dg.AssetCheckSeverity.WARN,
            metadata={
                "unfinished": len(unfinished),
                "parts to do": sum(one.parts_to_do for one in unfinished),
                REMEDY: f"wait (`rmt mutations {name}` shows the pace); KILL MUTATION for one that "
                "fails"
                if unfinished
                else NOTHING_TO_DO,
                "mutations": dg.MetadataValue.table(
                    [_mutation_record(one) for one in unfinished[:MUTATIONS_SHOWN_MAX]],
                    schema=_MUTATIONS_SCHEMA,
                ),
            },
        )

    return check


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
