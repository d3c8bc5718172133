"""Exports as assets: materialized after a flush, with what a reader opens in their metadata."""

from pathlib import Path

import dagster as dg
import pytest

from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.exports import rmt_export
from tests.support.local_engine import SERVERS, LocalEngine
from tests.support.local_session import NUMBERS, create, local_session

deltalake = pytest.importorskip("deltalake", reason="rmt-pipeline[export] is not installed")


def test_a_flush_asks_for_the_exports_that_a_reader_opens(tmp_path: Path) -> None:
    exports = rmt_export("t", server="r1")
    resources = {"engine": LocalEngine()}
    defs = dg.Definitions.merge(exports, dg.Definitions(resources=resources))
    [sensor] = defs.sensors
    with local_session(tmp_path) as session, dg.instance_for_test() as instance:
        SERVERS.append(session.context.server)
        create(session, NUMBERS)
        session.execute("INSERT INTO t VALUES (3), (4)")
        instance.report_runless_asset_event(
            dg.AssetMaterialization(names.parts_key("default.t", "r1"))
        )
        context = dg.build_sensor_context(instance=instance, definitions=defs)
        [request] = sensor(context)
        assert request.run_key
        result = dg.materialize(list(exports.assets), resources=resources, instance=instance)
        assert result.success
        found = {
            event.asset_key.path[-1]: event.materialization.metadata
            for event in result.get_asset_materialization_events()
        }
    assert set(found) == {"r1_delta", "r1_iceberg"}
    for metadata in found.values():
        assert metadata["dagster/row_count"].value == 2
        assert metadata["dagster/uri"].value in str(metadata["read with"].value)
    table = deltalake.DeltaTable(str(found["r1_delta"]["dagster/uri"].value))
    assert table.to_pyarrow_table()["n"].to_pylist() == [3, 4]
