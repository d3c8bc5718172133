"""`rmt_table`: one statement beside a project's own assets; the same as a component."""

import dagster as dg
import pytest

from rmt_pipeline import dagster as rmt
from rmt_pipeline.protocol.errors import UserError

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
            for kind in ("replica", "parts", "partitions")
        ),
    }
    assert [dep.asset_key for dep in specs["sales/visits/r3_parts"].deps] == [orders.key]
    jobs = {job.name for job in definitions.resolve_all_job_defs()}
    assert {f"{job}_parts_{server}" for job in ("fetch", "merge") for server in SERVERS} <= jobs
    for server in SERVERS:
        checks = [node.name for node in definitions.resolve_job_def(f"check_{server}").nodes]
        assert len(checks) == 2 * 6, "one run checks all tables of a server"
        assert all(server in name for name in checks)


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


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:Class .* is currently in beta"
)
def test_a_component_is_the_same_in_yaml() -> None:
    from dagster.components.testing import create_defs_folder_sandbox  # noqa: PLC0415

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=rmt.ReplicatedTable,
            defs_yaml_contents={
                "type": "rmt_pipeline.dagster.component.ReplicatedTable",
                "attributes": {"create": ORDERS, "servers": ["r1"], "ingest": ["orders"]},
            },
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, definitions):
            assert isinstance(component, rmt.ReplicatedTable)
            keys = {spec.key.path[-1] for spec in definitions.resolve_all_asset_specs()}
    assert {"r1_replica", "r1_parts", "r1_partitions"} <= keys
