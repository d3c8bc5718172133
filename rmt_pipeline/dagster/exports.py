"""A table's exports as assets: a Delta and an Iceberg table over the files of its parts, for
readers outside, brought up to date after each flush.
"""

from collections.abc import Iterator, Sequence

import dagster as dg

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import EngineResource, table_named
from rmt_pipeline.dagster.record.ledger import first_of
from rmt_pipeline.export.refresh import FORMATS, LEASE_S, Exported, Format, refresh

INTERVAL_S = 30
SHOWN_MAX = 20

_READ_WITH = {
    "delta": 'deltalake.DeltaTable("{place}").to_pyarrow_table()',
    "iceberg": 'pyiceberg.table.StaticTable.from_metadata("{place}").scan().to_arrow()',
}


def rmt_export(
    table: str,
    *,
    server: str,
    formats: Sequence[Format] = FORMATS,
    columns: Sequence[str] = (),
    lease_s: float = LEASE_S,
) -> dg.Definitions:
    """Exports of `table` (`orders`, `sales.orders`) from `server`: an asset for each format, a job
    that materializes all of them, and a sensor that runs the job when the table's parts have
    changed there.

    `columns`: those to export; empty means all. `lease_s`: for so many seconds the files of a
    version stay after the next version took its place, and no reader may take longer. Needs
    rmt-pipeline[export].
    """
    full_name = table if "." in table else f"default.{table}"
    assets = [_export(full_name, server, form, columns, lease_s) for form in formats]
    name = f"export_{names.group_name(full_name)}_{names.dagster_name(server)}"
    job = dg.define_asset_job(
        name,
        selection=dg.AssetSelection.assets(*assets),
        executor_def=dg.in_process_executor,
        tags={names.SERVER_TAG: server},
        description=f"Brings the exports of {full_name} on server {server} up to date.",
    )

    @dg.asset_sensor(
        asset_key=names.parts_key(full_name, server),
        job=job,
        name=name,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Exports {full_name} on server {server} when its parts have changed.",
    )
    def export_after_flush(
        _: dg.SensorEvaluationContext, event: dg.EventLogEntry
    ) -> Iterator[dg.RunRequest]:
        yield dg.RunRequest(run_key=f"{event.run_id}/{event.timestamp}")

    return dg.Definitions(assets=assets, jobs=[job], sensors=[export_after_flush])


def _export(
    table: str, server: str, form: Format, columns: Sequence[str], lease_s: float
) -> dg.AssetsDefinition:
    @dg.asset(
        key=names.export_key(table, server, form),
        deps=[names.parts_key(table, server)],
        group_name=names.group_name(table),
        tags={names.SERVER_TAG: server},
        kinds={form},
        description=(
            f"{table} on server {server} as a table of {form.capitalize()}: the rows that it had "
            "when this was materialized, in the same files as its parts. A version's files are "
            f"kept for {lease_s:.0f} s after the next version replaced it."
        ),
    )
    def export(engine: EngineResource) -> dg.MaterializeResult[None]:
        with engine.server(server, purpose="export") as opened:
            found = table_named(opened, table)
            exported = refresh(opened, found, form, columns=columns, lease_s=lease_s)
        return dg.MaterializeResult(metadata=_metadata(exported))

    return export


def _metadata(exported: Exported) -> dict[str, dg.MetadataValue | int | str]:
    read_with = _READ_WITH[exported.format].format(place=exported.place)
    return {
        "dagster/row_count": exported.rows,
        "dagster/uri": exported.place,
        "read with": dg.MetadataValue.md(f"`{read_with}`"),
        "version": exported.version or "as before: nothing has changed",
        "parts": exported.parts,
        "bytes": exported.size_bytes,
        "files added": exported.files_added,
        "files removed": exported.files_removed,
        "parts written anew": first_of(exported.converted, SHOWN_MAX, between=" ") or "none",
        "parts whose lease is over": len(exported.let_go),
    }
