"""Asset checks of one table on one server: what an operator would look at, and why it is so.

Each is a question to the engine and its answer in words; none of them changes anything.
"""

import dagster as dg

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource, table_named
from rmt_pipeline.replica.mutations.progress import MutationProgress, mutation_progress
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from rmt_pipeline.replica.work.outlook import queue_status

CHECKS_CRON = "17 * * * *"
"""Hourly: reading every byte of a large table is not for every minute."""

QUEUE_AGE_MAX_S = 600
SHOWN_MAX = 20
MUTATIONS_SHOWN_MAX = 50

_MUTATIONS_SCHEMA = dg.TableSchema(
    columns=[
        dg.TableColumn("mutation", "string"),
        dg.TableColumn("command", "string"),
        dg.TableColumn("parts_to_do", "int"),
        dg.TableColumn("parts_done", "int"),
        dg.TableColumn("running", "int", description="Parts that somebody mutates just now"),
        dg.TableColumn("rows_per_s", "float", description="Since the mutation was created"),
        dg.TableColumn("seconds_left", "float", description="At that pace; -1: not known yet"),
        dg.TableColumn("failing_part", "string"),
        dg.TableColumn("reason", "string"),
        dg.TableColumn("waits_for", "string"),
    ]
)


def checks_of(table: str, server: str) -> list[dg.AssetChecksDefinition]:
    return [
        _replicas_equal(table, server),
        _queue_age(table, server),
        _parts_per_partition(table, server),
        _checksums(table, server),
        mutations_check(table, server),
        _stopped_by_hand(table, server),
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
        asset=names.partitions_key(name, server),
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
            },
        )

    return check


def _queue_age(name: str, server: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=names.parts_key(name, server),
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
            },
        )

    return check


def _parts_per_partition(name: str, server: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=names.partitions_key(name, server),
        name="parts_per_partition",
        description="No partition has so many parts that inserts are slowed down.",
    )
    def check(engine: EngineResource) -> dg.AssetCheckResult:
        with engine.server(server, purpose="check") as opened:
            table = table_named(opened, name)
            delay = table.replica.settings.parts_to_delay_insert
            counts: dict[str, int] = {}
            for part in table.parts():
                counts[part.name.partition] = counts.get(part.name.partition, 0) + 1
        fullest = max(counts, key=lambda partition: counts[partition], default="")
        return dg.AssetCheckResult(
            passed=counts.get(fullest, 0) < delay,
            metadata={
                "fullest partition": fullest or "none",
                "its parts": counts.get(fullest, 0),
                "parts_to_delay_insert": delay,
                "parts": sum(counts.values()),
            },
        )

    return check


def _checksums(name: str, server: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=names.parts_key(name, server),
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
            },
        )

    return check


def _stopped_by_hand(name: str, server: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=names.parts_key(name, server),
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
                "remedy": "; ".join(f"SYSTEM START {what} {name}" for what in stopped)
                or "none",
            },
        )

    return check


def mutations_check(name: str, server: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=names.parts_key(name, server),
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
                "mutations": dg.MetadataValue.table(
                    [_mutation_record(one) for one in unfinished[:MUTATIONS_SHOWN_MAX]],
                    schema=_MUTATIONS_SCHEMA,
                ),
            },
        )

    return check


def _mutation_record(one: MutationProgress) -> dg.TableRecord:
    status, failure = one.report.status, one.report.failure
    return dg.TableRecord(
        {
            "mutation": status.mutation_id,
            "command": status.entry.commands,
            "parts_to_do": one.parts_to_do,
            "parts_done": one.parts_done,
            "running": one.running,
            "rows_per_s": round(one.rows_per_s, 1),
            "seconds_left": -1.0 if one.seconds_left is None else round(one.seconds_left, 1),
            "failing_part": "" if failure is None else str(failure.part),
            "reason": one.failure_words(),
            "waits_for": one.report.waits_for,
        }
    )
