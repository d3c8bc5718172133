"""The code locations: what is in one is a promise to whoever has dashboards on it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets import definitions as location
from examples.flights.definitions import build_definitions
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.location import servers_of_location

ROOT = Path(__file__).parents[2]
SNAPSHOT = Path(__file__).parent / "graph.json"


def graph(definitions: dg.Definitions) -> dict[str, Any]:
    """Everything of the location that has a name, and what hangs together."""
    specs = {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
    return {
        "assets": {
            key: {
                "deps": sorted(dep.asset_key.to_user_string() for dep in spec.deps),
                "group": spec.group_name,
                "partitions": _partitions(spec.partitions_def),
            }
            for key, spec in sorted(specs.items())
        },
        "checks": sorted(
            f"{key.asset_key.to_user_string()}: {key.name}"
            for check in definitions.asset_checks or []
            for key in check.check_keys
        ),
        "jobs": sorted(
            job.name for job in definitions.resolve_all_job_defs() if job.name[0] != "_"
        ),
        "schedules": {
            schedule.name: schedule.cron_schedule for schedule in definitions.schedules or []
        },
        "sensors": {
            sensor.name: sorted(target.job_name for target in sensor.targets)
            for sensor in definitions.sensors or []
        },
    }


def _partitions(definition: dg.PartitionsDefinition | None) -> str:
    if isinstance(definition, dg.DynamicPartitionsDefinition):
        return f"dynamic {definition.name}"
    if definition is None:
        return "none"
    keys = definition.get_partition_keys()
    return f"{len(keys)} from {keys[0]} to {keys[-1]}"


def test_the_graph_is_the_recorded_one() -> None:
    """A renamed asset loses its history. If it is meant: UPDATE_SNAPSHOTS=1 make test-dagster."""
    found = graph(build_definitions())
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert found == json.loads(SNAPSHOT.read_text(encoding="utf-8"))


def test_definitions_are_valid() -> None:
    dg.Definitions.validate_loadable(build_definitions(["a-b.c"]))


def test_a_replica_s_host_has_its_own_replica_only() -> None:
    one = graph(build_definitions(["r2"]))
    assert {key for key in one["assets"] if "r1" in key} == set()
    assert one["sensors"].keys() == {"log_r2", "merges_r2", "mutations_r2"}


def test_the_servers_of_a_location_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RMT_REPLICA", raising=False)
    assert servers_of_location() == ("r1", "r2")
    monkeypatch.setenv("RMT_REPLICA", "a, b")
    assert servers_of_location() == ("a", "b")
    monkeypatch.setenv("RMT_REPLICA", "")
    with pytest.raises(ValueError, match="RMT_REPLICA names no server"):
        build_definitions(servers_of_location())


def test_further_tables_have_assets_and_checks_of_their_own() -> None:
    found = graph(location.build_definitions(["r1"], ["sales.orders"]))
    assert found["assets"]["sales/orders/r1_parts"]["deps"] == []
    assert found["assets"]["sales/orders/r1_partitions"]["partitions"] == (
        "dynamic sales.orders_partition"
    )
    assert "sales/orders/r1_health: checksums" in found["checks"]


def test_a_location_without_tables_of_its_own_works_the_queues_of_its_servers() -> None:
    found = graph(location.build_definitions(["r1"], []))
    assert found["assets"] == {}
    assert found["sensors"].keys() == {"log_r1", "merges_r1", "mutations_r1"}
    assert found["schedules"].keys() == {"checks_r1", "clean_up_r1"}
    dg.Definitions.validate_loadable(location.build_definitions(["r1"], []))


def test_a_project_s_first_location_is_a_copy_of_ours(tmp_path: Path) -> None:
    """Another project has packages `assets` and `resources` of its own beside rmt_pipeline."""
    for package in ("assets", "resources"):
        shutil.copytree(ROOT / package, tmp_path / package)
    probe = (
        "import assets, assets.definitions, rmt_pipeline.dagster, pathlib;"
        "assert pathlib.Path(assets.__file__).parent == pathlib.Path.cwd() / 'assets';"
        "print(*sorted(str(spec.key.to_user_string()) "
        "for spec in assets.definitions.defs.resolve_all_asset_specs()))"
    )
    environment = {**os.environ, "RMT_REPLICA": "r1", "RMT_TABLES": "sales.orders"}
    environment["PYTHONPATH"] = str(ROOT)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", probe],
        check=True,
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert set(ran.stdout.split()) == {
        f"sales/orders/r1_{kind}" for kind in ("parts", "partitions", "health")
    }


@pytest.mark.parametrize("module", ["assets.definitions", "examples.flights.definitions"])
def test_loading_opens_no_file_and_no_connection(module: str, tmp_path: Path) -> None:
    """Not even a configuration that cannot be read is noticed: nobody looks at it."""
    probe = f"import socket; socket.socket.connect = None; import {module}"
    environment = {**os.environ, "RMT_CONFIG": str(tmp_path / "missing.toml")}
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", probe],
        check=True,
        env=environment,
        cwd=ROOT,
    )
    assert list(tmp_path.iterdir()) == []


def test_runs_are_told_apart_by_what_their_jobs_are_for() -> None:
    jobs = location.build_definitions(["r1"], ["sales.orders"]).resolve_all_job_defs()
    kinds = {job.name: job.tags.get(names.KIND_TAG) for job in jobs if job.name[0] != "_"}
    start_by_themselves = {
        "check_r1": "check",
        "clean_up_r1": "clean-up",
        "fetch_parts_r1": "worker",
        "merge_parts_r1": "worker",
    }
    assert start_by_themselves.items() <= kinds.items()
    assert {kinds[name] for name in kinds.keys() - start_by_themselves} == {"maintenance"}


def test_names_of_tables_outside_the_default_database_keep_their_database() -> None:
    assert names.parts_key("default.flights", "r1").path == ["flights", "r1_parts"]
    assert names.parts_key("sales.orders", "r1").path == ["sales", "orders", "r1_parts"]
    assert names.partitions_name("sales.orders") == "sales.orders_partition"
    assert names.partitions_name("default.sales_orders") == "sales_orders_partition"
    assert names.parts_key("default.sales.orders", "r1") != names.parts_key(
        "sales.orders", "r1"
    )


def test_a_location_imports_no_pandas_and_its_objects_are_set_aside() -> None:
    """Each costs a part of a second, at every load; the collector at every tick too."""
    code = (
        "import gc, sys, assets.definitions\n"
        "assert 'pandas' not in sys.modules\n"
        "assert gc.get_freeze_count() > 100_000, gc.get_freeze_count()"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, check=True)
