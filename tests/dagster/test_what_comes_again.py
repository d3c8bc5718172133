"""What a run fails with that would come again: it says what to do, and is not tried again."""

from typing import Any

import dagster as dg
import pytest

from rmt_pipeline.dagster import RmtIOManager
from rmt_pipeline.dagster.location import definition_of
from rmt_pipeline.dagster.replicas import DIFFERENCE, replica_asset
from rmt_pipeline.sql.run.session import Session
from tests.support.site import Site

pytestmark = [pytest.mark.dagster, pytest.mark.zookeeper]

CREATE = (
    "CREATE TABLE {} (day Date, id UInt64) "
    "ENGINE = ReplicatedMergeTree('/t/{}', '{{replica}}') PARTITION BY toYYYYMM(day) ORDER BY id"
)
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")


def ended(assets: list[Any], **options: Any) -> tuple[str, str | None]:
    """The failure of the run's last step, and the tag that keeps Dagster from another try."""
    with dg.instance_for_test() as instance:
        result = dg.materialize(assets, instance=instance, raise_on_error=False, **options)
        failures = [each for each in result.all_events if each.is_step_failure]
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        said = failures[-1].step_failure_data.error.to_string()
        logged = [
            entry.user_message
            for entry in instance.all_logs(result.run_id)
            if not entry.is_dagster_event
        ]
        [line, *_] = logged[-1].partition(": ")[2].splitlines()
        assert line in said, "a line of the log says it, too"
        return said, run.tags.get("dagster/retry_on_asset_or_op_failure")


def io_manager(site: Site) -> dict[str, Any]:
    return {"io_manager": RmtIOManager(server="r1", config_path=str(site.config.path))}


@pytest.mark.parametrize("key", [["total"], ["nowhere", "total"]])
def test_a_value_without_a_table_is_told_where_it_may_belong(
    site: Site, key: list[str]
) -> None:
    @dg.asset(key=key)
    def total() -> int:
        return 5

    said, again = ended([total], resources=io_manager(site))
    for words in (f"materialize {'/'.join(key)}/r1_replica", "CREATE TABLE", "io_manager_key"):
        assert words in said
    assert again == "false"


def test_an_input_without_a_table_is_told_so(site: Site) -> None:
    @dg.asset
    def reader(absent: Any) -> None: ...

    said, again = ended(
        [reader, dg.AssetSpec("absent")], selection=[reader], resources=io_manager(site)
    )
    assert "materialize absent/r1_replica" in said
    assert again == "false"


@pytest.mark.parametrize(
    ("returned", "metadata", "words"),
    [
        (5, {}, "an asset returned int"),
        ([{"id": 1}], {"rmt/write": "push"}, "rmt/write of kept is one of"),
        ([{"id": 1}], {"rmt/write": "replace"}, "its metadata needs partition_expr"),
    ],
)
def test_an_asset_that_can_t_be_stored_is_not_tried_again(
    site: Site, returned: object, metadata: dict[str, str], words: str
) -> None:
    Session(site.r1).execute(CREATE.format("kept", "kept"))

    @dg.asset(partitions_def=DAYS, metadata=metadata)
    def kept() -> Any:
        return returned

    try:
        said, again = ended([kept], partition_key="2026-01-05", resources=io_manager(site))
    finally:
        site.r1.drop_table("default", "kept")
    assert words in said
    assert again == "false"


def test_a_database_that_is_not_there_is_made_by_a_statement_that_the_run_names(
    site: Site,
) -> None:
    table = definition_of(CREATE.format("plant.readings", "readings"))
    said, again = ended([replica_asset(table, "r1")], resources={"engine": site.engine})
    assert "rmt sql --server r1 'CREATE DATABASE plant'" in said
    assert again == "false"


def test_a_declaration_that_was_changed_since_is_told_from_what_is_there(site: Site) -> None:
    """Its columns are added by ALTER TABLE: to create what is there changes nothing."""
    declared = [CREATE.format("kept", "kept")]
    declared.append(declared[0].replace("id UInt64", "id UInt64, note String"))
    found = []
    try:
        with dg.instance_for_test() as instance:
            for one in (declared[0], declared[0], declared[1]):
                result = dg.materialize(
                    [replica_asset(definition_of(one), "r1")],
                    instance=instance,
                    resources={"engine": site.engine},
                )
                [event] = result.asset_materializations_for_node("kept__r1_replica")
                found.append(event.metadata.get(DIFFERENCE))
            warned = [entry.user_message for entry in instance.all_logs(result.run_id)]
    finally:
        site.r1.drop_table("default", "kept")
    assert found[:2] == [None, None]
    assert found[2] is not None
    assert found[2].value == "columns: note is String in the first, none in the second"
    assert any("ALTER TABLE changes the table" in line for line in warned)
