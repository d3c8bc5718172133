"""`rmt_table`: one statement beside a project's own assets; the same as a component."""

import asyncio
import re
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord
from dagster.components.core.package_entry import (
    DG_PLUGIN_ENTRY_POINT_GROUP,
    discover_package_objects,
)
from dagster.components.testing import create_defs_folder_sandbox

from rmt_pipeline import dagster as rmt
from rmt_pipeline.dagster.names import dagster_name
from rmt_pipeline.dagster.replicas import replica_specs
from rmt_pipeline.dagster.upkeep.checks import checks_of
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.types.escapes import in_backticks

ROOT = Path(__file__).parents[2]
experimental = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:Class .* is currently in (beta|preview)"
)
ORDERS = (
    "CREATE TABLE orders (day Date, id UInt64) ENGINE = "
    "ReplicatedMergeTree('/t/{shard}/orders', '{replica}') ORDER BY id"
)
VISITS = ORDERS.replace("orders", "sales.visits")
SERVERS = ["r1", "r2", "r3"]


@dg.asset
def orders() -> None: ...


def test_two_tables_on_three_servers_are_two_statements() -> None:
    definitions = dg.Definitions.merge(
        rmt.rmt_table(ORDERS, servers=SERVERS, ingest=[orders]),
        rmt.rmt_table(VISITS, servers=SERVERS, ingest=["orders"]),
        dg.Definitions(assets=[orders], resources=rmt.rmt_resources()),
    )
    dg.Definitions.validate_loadable(definitions)
    specs = {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
    assert specs.keys() == {
        "orders",
        *(
            f"{table}/{server}_{kind}"
            for table in ("orders", "sales/visits")
            for server in SERVERS
            for kind in ("replica", "parts", "partitions", "health")
        ),
    }
    assert [dep.asset_key for dep in specs["sales/visits/r3_parts"].deps] == [orders.key]
    jobs = {job.name for job in definitions.resolve_all_job_defs()}
    assert {f"{job}_parts_{server}" for job in ("fetch", "merge") for server in SERVERS} <= jobs
    for server in SERVERS:
        checks = [node.name for node in definitions.resolve_job_def(f"check_{server}").nodes]
        assert len(checks) == 2 * 9, "one run checks all tables of a server"
        assert all(server in name for name in checks)


@pytest.mark.parametrize("name", ["über", "a b", "a'b\"c", "a/b", "a.b", "page-views", "\n"])
def test_a_table_may_have_any_name(name: str) -> None:
    """Dagster's ops may not, and take their names from the keys of assets."""
    quoted = in_backticks(name)
    tables = [ORDERS.replace("TABLE orders", f"TABLE {one}") for one in (quoted, f"s.{quoted}")]
    plain = ORDERS.replace("TABLE orders", f"TABLE {dagster_name(name)}_")
    definitions = dg.Definitions.merge(
        *(rmt.rmt_table(table, servers=["r1"]) for table in [*tables, plain]),
        dg.Definitions(resources=rmt.rmt_resources()),
    )
    dg.Definitions.validate_loadable(definitions)
    keys = {spec.key for spec in definitions.resolve_all_asset_specs()}
    assert {len(key.path) for key in keys} == {2, 3}
    assert len(keys) == 3 * 4


def test_a_second_location_has_a_table_on_servers_whose_jobs_another_one_has() -> None:
    """Its own checks run there. In one location both kinds can be merged, in any order."""
    second = rmt.rmt_table(VISITS, servers=SERVERS, jobs=False)
    alone = dg.Definitions.merge(second, dg.Definitions(resources=rmt.rmt_resources()))
    dg.Definitions.validate_loadable(alone)
    assert not alone.sensors
    assert {job.name for job in alone.resolve_all_job_defs()} == {
        *(f"check_{server}" for server in SERVERS),
        "__ASSET_JOB",
    }
    assert len(alone.resolve_job_def("check_r1").nodes) == 9
    first = rmt.rmt_table(ORDERS, servers=SERVERS)
    for both in ([first, second], [second, first]):
        merged = dg.Definitions.merge(*both, dg.Definitions(resources=rmt.rmt_resources()))
        assert len(merged.resolve_job_def("check_r1").nodes) == 2 * 9
        assert merged.resolve_job_def("fetch_parts_r1")


def test_the_resources_are_of_the_rmt_toml_that_is_named() -> None:
    with dg.build_resources(dict(rmt.rmt_resources("/etc/rmt/rmt.toml"))) as resources:
        assert resources.engine.config_path == "/etc/rmt/rmt.toml"
        assert resources.spark.config_path == "/etc/rmt/rmt.toml"


def test_what_a_check_has_found_stays_when_parts_are_flushed() -> None:
    """In the UI a check counts as "not evaluated" once its asset is materialized again."""
    table, server = "default.orders", "r1"
    specs = replica_specs(table, server, [])
    keys = {check.key for each in checks_of(table, server) for check in each.check_specs}
    with dg.instance_for_test() as instance:
        for key in keys:
            evaluated = dg.AssetCheckEvaluation(key.asset_key, key.name, passed=True)
            instance.report_runless_asset_event(evaluated)
        for spec in specs:
            if spec.key not in {key.asset_key for key in keys}:
                instance.report_runless_asset_event(dg.AssetMaterialization(spec.key))
        shown = asyncio.run(counting(instance, keys))
    assert len(keys) == len(shown) == 9
    assert all(shown)


async def counting(
    instance: dg.DagsterInstance, keys: Collection[dg.AssetCheckKey]
) -> list[bool]:
    """As the UI asks."""
    loading = LoadingContextForTest(instance)
    records = [await AssetCheckExecutionRecord.gen(loading, key) for key in keys]
    return [
        await record.targets_latest_materialization(loading) for record in records if record
    ]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT 1", "rmt_table takes a CREATE TABLE statement, not SelectStatement"),
        (ORDERS.replace("UInt64", "UInt6"), "UInt6"),
        ("CREATE TABLE orders", "expected"),
    ],
)
def test_what_is_wrong_with_the_statement_is_said(sql: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        rmt.rmt_table(sql, servers=["r1"])


def test_a_table_without_servers_is_refused() -> None:
    with pytest.raises(ValueError, match="no server"):
        rmt.rmt_table(ORDERS, servers=[])


def test_dg_finds_the_component_where_the_wheel_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    modules = project["entry-points"][DG_PLUGIN_ENTRY_POINT_GROUP].values()
    found = {f"{key.namespace}.{key.name}" for key in discover_package_objects([*modules])}
    assert {
        f"rmt_pipeline.dagster.{name}" for name in ("ReplicatedTable", "TableExport")
    } <= found


def yaml_of_the_page() -> dict[str, Any]:
    page = (ROOT / "docs" / "dagster.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(block)
    return found


@experimental
def test_a_component_is_the_same_in_yaml() -> None:
    """The page's, beside a table as it is scaffolded, and an asset that inserts into it."""
    with create_defs_folder_sandbox() as sandbox:
        sandbox.scaffold_component(
            component_cls=rmt.ReplicatedTable,
            defs_path="orders",
            defs_yaml_contents=yaml_of_the_page(),
        )
        scaffolded = sandbox.scaffold_component(
            component_cls=rmt.ReplicatedTable, defs_path="visits"
        )
        assert "rmt_pipeline.dagster" in (scaffolded / "defs.yaml").read_text()
        with sandbox.build_all_defs() as definitions:
            keys = {spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()}
            jobs = [job.name for job in definitions.resolve_all_job_defs()]
    assert keys == {
        "orders",
        *(
            f"{table}/{server}_{kind}"
            for table in ("orders", "visits")
            for server in ("r1", "r2")
            for kind in ("replica", "parts", "partitions", "health")
        ),
    }
    assert jobs.count("fetch_parts_r1") == 1, "both tables have one worker on a server"


@experimental
def test_a_project_beside_another_says_in_yaml_that_the_jobs_are_there() -> None:
    """Also when only one of its tables says so."""
    for jobs in ([False, False], [False, True]):
        with create_defs_folder_sandbox() as sandbox:
            for name, has in zip(("orders", "visits"), jobs, strict=True):
                attributes = {
                    "create": ORDERS.replace("orders", name),
                    "servers": ["r1"],
                    "jobs": has,
                }
                given = {
                    "type": "rmt_pipeline.dagster.ReplicatedTable",
                    "attributes": attributes,
                }
                sandbox.scaffold_component(
                    rmt.ReplicatedTable, defs_path=name, defs_yaml_contents=given
                )
            with sandbox.build_all_defs() as definitions:
                sensors = [sensor.name for sensor in definitions.sensors or ()]
                assert len(definitions.resolve_job_def("check_r1").nodes) == 2 * 9
        assert sensors.count("log_r1") == any(jobs)


@experimental
def test_what_is_scaffolded_explains_its_fields() -> None:
    """Above each field is what `dg` shows of it; a folder may have a name that SQL quotes."""
    with create_defs_folder_sandbox() as sandbox:
        table = sandbox.scaffold_component(rmt.ReplicatedTable, defs_path="web-visits")
        export = sandbox.scaffold_component(rmt.TableExport, defs_path="web-visits_export")
        texts = {
            rmt.ReplicatedTable: (table / "defs.yaml").read_text(encoding="utf-8"),
            rmt.TableExport: (export / "defs.yaml").read_text(encoding="utf-8"),
        }
        with sandbox.build_all_defs() as definitions:
            keys = {spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()}
    assert {"web-visits/r1_replica", "web-visits/r1_delta"} <= keys
    for component, text in texts.items():
        schema = component.model().model_json_schema()["properties"]
        for field in yaml.safe_load(text)["attributes"]:
            assert f"  # {schema[field]['description']}\n  {field}:" in text
    assert max(map(len, "".join(texts.values()).splitlines())) <= 100


@pytest.mark.parametrize("component", [rmt.ReplicatedTable, rmt.TableExport])
def test_every_field_of_a_component_has_a_description(component: type[dg.Resolvable]) -> None:
    for name, field in component.model().model_json_schema()["properties"].items():
        assert field.get("description"), name


@experimental
def test_an_export_is_a_component_too() -> None:
    attributes = {"table": "sales.orders", "server": "r2", "formats": ["delta"]}
    given = {"type": "rmt_pipeline.dagster.TableExport", "attributes": attributes}
    with create_defs_folder_sandbox() as sandbox:
        sandbox.scaffold_component(
            component_cls=rmt.TableExport, defs_path="given", defs_yaml_contents=given
        )
        sandbox.scaffold_component(component_cls=rmt.TableExport, defs_path="visits_export")
        with sandbox.build_all_defs() as definitions:
            keys = {spec.key.to_user_string() for spec in definitions.resolve_all_asset_specs()}
            sensors = {sensor.name for sensor in definitions.sensors or ()}
    assert {key for key in keys if not key.endswith("_parts")} == {
        *("sales/orders/r2_delta", "visits/r1_delta", "visits/r1_iceberg"),
    }
    assert sensors == {"export_sales_orders_r2", "export_visits_r1"}


@experimental
@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"create": ORDERS, "servers": []}, "servers"),
        ({"create": ORDERS, "servers": ["r1"], "server": "r1"}, "server"),
        ({"create": "SELECT 1", "servers": ["r1"]}, "takes a CREATE TABLE"),
    ],
)
def test_what_is_wrong_in_yaml_is_said(attributes: dict[str, Any], words: str) -> None:
    wrong = {"type": "rmt_pipeline.dagster.ReplicatedTable", "attributes": attributes}
    with create_defs_folder_sandbox() as sandbox:
        sandbox.scaffold_component(component_cls=rmt.ReplicatedTable, defs_yaml_contents=wrong)
        with (
            pytest.raises(Exception) as raised,
            sandbox.build_all_defs(),
        ):
            pass
    said: BaseException | None = raised.value
    told = []
    while said is not None:
        told.append(str(said))
        said = said.__cause__ or said.__context__
    assert any(words in one for one in told), told
