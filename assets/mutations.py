"""Mutations in Dagster: a check of the unfinished ones, an event for each mutated part."""

from collections.abc import Iterator, Sequence

import dagster as dg

from assets import names
from resources.engine import EngineResource, table_named
from rmt_pipeline.protocol.errors import MissingPart
from rmt_pipeline.replica.execute import PartDone
from rmt_pipeline.replica.mutation_progress import MutationProgress, mutation_progress
from rmt_pipeline.table import Table

EVENTS_PER_FLUSH_MAX = 20
"""An event costs Dagster 7 ms or more; the flush's own event has a table of all parts."""

SHOWN_MAX = 50

_SCHEMA = dg.TableSchema(
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
        failing = [one for one in unfinished if one.report.failure is not None]
        return dg.AssetCheckResult(
            passed=not unfinished,
            severity=dg.AssetCheckSeverity.ERROR if failing else dg.AssetCheckSeverity.WARN,
            metadata={
                "unfinished": len(unfinished),
                "parts to do": sum(one.parts_to_do for one in unfinished),
                "mutations": dg.MetadataValue.table(
                    [_record(one) for one in unfinished[:SHOWN_MAX]], schema=_SCHEMA
                ),
            },
        )

    return check


def _record(one: MutationProgress) -> dg.TableRecord:
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
            "waits_for": status.waits_for,
        }
    )


def mutated_parts(
    table: Table, server: str, made: Sequence[PartDone]
) -> Iterator[dg.AssetMaterialization]:
    """What became of each part that a mutation was for: the first `EVENTS_PER_FLUSH_MAX`."""
    key = names.parts_key(table.definition.full_name, server)
    mutated = [part for part in made if part.kind == "MUTATE_PART" and len(part.sources) == 1]
    for part in mutated[:EVENTS_PER_FLUSH_MAX]:
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
                "dagster/row_count": after.rows,
                "rows deleted": before.rows - after.rows,
                "bytes": after.bytes_on_disk,
                "bytes rewritten": 0 if after.files == before.files else after.bytes_on_disk,
                "seconds": round(part.seconds, 3),
            },
        )
