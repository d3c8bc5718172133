"""What a run fails with that would come again: it says what to do, and is not tried again."""

import errno
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest
from dagster._core.storage.tags import TAGS_TO_MAYBE_OMIT_ON_RETRY

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.dagster.failures import NOT_AGAIN_TAG, RETRY_TAG
from rmt_pipeline.dagster.location import definition_of
from rmt_pipeline.dagster.replicas import DIFFERENCE, declared_otherwise, replica_asset
from rmt_pipeline.protocol.errors import DiskFull, UnknownTable
from tests.support.site import Site

pytestmark = [pytest.mark.dagster, pytest.mark.zookeeper]

CREATE = (
    "CREATE TABLE {} (day Date, id UInt64) "
    "ENGINE = ReplicatedMergeTree('/t/{}', '{{replica}}') PARTITION BY toYYYYMM(day) ORDER BY id"
)
CLAUSES = "TTL day + INTERVAL 1 DAY SETTINGS index_granularity = 4096"
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")


class Passing(dg.Config):
    """Whether a fault may pass."""

    passes: bool


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


def executed(
    site: Site,
    instance: dg.DagsterInstance,
    asset: dg.AssetsDefinition,
    tags: dict[str, str],
    **options: Any,
) -> dict[str, str]:
    """The tags that Dagster's UI gives to the next run when a person executes this one again."""
    result = dg.materialize(
        [asset],
        instance=instance,
        resources=io_manager(site),
        raise_on_error=False,
        tags=tags,
        **options,
    )
    run = instance.get_run_by_id(result.run_id)
    assert run is not None
    return {
        name: value
        for name, value in run.tags.items()
        if name not in TAGS_TO_MAYBE_OMIT_ON_RETRY
    }


def io_manager(site: Site) -> dict[str, Any]:
    return {"io_manager": site.io_manager()}


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
        ([{"id": 1}, 2], {}, "row 2 is a int"),
        (pd.Series([1], name="id"), {}, "an asset returned Series"),
        (pd.DataFrame([[1, 2]], columns=["id", "id"]), {}, "no name of its own"),
        (pa.table([[1], [2]], names=["id", "id"]), {}, "two columns 'id'"),
        ([{"id": 1}], {"rmt/quorum": "many"}, "insert_quorum"),
        ([{"id": 1}], {"partition_expr": "day +"}, "expected an expression"),
        ([{"id": 1}], {"partition_expr": "toDayy(day)"}, "toDayy"),
        ([{"id": 1}], {"rmt/write": "push"}, "rmt/write of kept is one of"),
        ([{"id": 1}], {"rmt/write": "replace"}, "its metadata needs partition_expr"),
    ],
)
def test_an_asset_that_can_t_be_stored_is_not_tried_again(
    site: Site, returned: object, metadata: dict[str, str], words: str
) -> None:

    @dg.asset(partitions_def=DAYS, metadata=metadata)
    def kept() -> Any:
        return returned

    with site.having("kept", CREATE.format("kept", "kept")):
        said, again = ended([kept], partition_key="2026-01-05", resources=io_manager(site))
    assert words in said
    assert again == "false"


def test_an_asset_that_is_loaded_by_no_run_says_what_is_wrong(site: Site) -> None:
    @dg.asset
    def total() -> int:
        return 5

    definitions = dg.Definitions(assets=[total], resources=io_manager(site))
    with (
        dg.instance_for_test() as instance,
        pytest.raises(UnknownTable, match="materialize total/r1_replica"),
    ):
        definitions.load_asset_value("total", instance=instance)


def test_a_table_that_the_run_creates_itself_may_be_there_at_the_next_try(site: Site) -> None:
    """The asset depends on none of its replicas, so it may come first."""

    @dg.asset
    def total() -> Any:
        return [{"id": 1}]

    replica = replica_asset(definition_of(CREATE.format("total", "total")), "r1")
    resources = {**io_manager(site), "engine": site.engine}
    with site.having("total"):
        said, again = ended([total, replica], resources=resources)
        there = site.r1.table("total").definition.full_name
    assert "materialize total/r1_replica" in said
    assert (there, again) == ("default.total", None)


def test_a_run_that_a_person_executes_again_is_tried_again_for_what_may_pass(
    site: Site,
) -> None:
    @dg.asset
    def total(config: Passing) -> int:
        if config.passes:
            raise OSError(errno.EIO, "a disk error")
        return 5

    found = []
    tags: dict[str, str] = {}
    with dg.instance_for_test() as instance:
        for passes in (False, True, False, True):
            config = {"ops": {"total": {"config": {"passes": passes}}}}
            tags = executed(site, instance, total, tags, run_config=config)
            found.append(tags.get(RETRY_TAG))
    assert found == ["false", "true", "false", "true"]


def test_a_person_s_own_tag_stays(site: Site) -> None:
    @dg.asset
    def total() -> int:
        return 5

    found = []
    tags = {RETRY_TAG: "false"}
    with dg.instance_for_test() as instance:
        for _ in range(2):
            tags = executed(site, instance, total, tags)
            found.append({one: tags[one] for one in (RETRY_TAG, NOT_AGAIN_TAG) if one in tags})
    assert found == 2 * [{RETRY_TAG: "false"}]


def test_a_full_disk_may_have_room_at_the_next_try(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> None:
        raise DiskFull("no space is left")

    monkeypatch.setattr(Catalog, "require_room", is_full)
    table = definition_of(CREATE.format("full", "full"))
    said, again = ended([replica_asset(table, "r1")], resources={"engine": site.engine})
    assert "no space is left" in said
    assert again is None


def test_a_database_that_is_not_there_is_made_by_a_statement_that_the_run_names(
    site: Site,
) -> None:
    table = definition_of(CREATE.format("plant.readings", "readings"))
    said, again = ended([replica_asset(table, "r1")], resources={"engine": site.engine})
    assert "rmt sql --server r1 'CREATE DATABASE plant'" in said
    assert again == "false"


def test_a_declaration_that_was_changed_since_is_told_from_what_is_there(site: Site) -> None:
    """Its columns are added by ALTER TABLE: to create what is there changes nothing."""
    declared = [f"{CREATE.format('kept', 'kept')} {CLAUSES}"]
    declared.append(declared[0].replace("id UInt64", "id UInt64, note String"))
    found = []
    with site.having("kept"), dg.instance_for_test() as instance:
        for one in (declared[0], declared[0], declared[1]):
            result = dg.materialize(
                [replica_asset(definition_of(one), "r1")],
                instance=instance,
                resources={"engine": site.engine},
            )
            [event] = result.asset_materializations_for_node("kept__r1_replica")
            found.append(event.metadata.get(DIFFERENCE))
        warned = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert found[:2] == [None, None]
    assert found[2] is not None
    assert found[2].value == "columns: note is String in the first, none in the second"
    assert any("ALTER TABLE changes the table" in line for line in warned)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (
            ("id UInt64", "id UInt64 DEFAULT 7"),
            "`id` UInt64 in the first, `id` UInt64 DEFAULT 7",
        ),
        (
            ("TTL day + INTERVAL 1 DAY", ""),
            "TTL day + toIntervalDay(1) in the first, nothing in",
        ),
        (
            ("MergeTree", "ReplacingMergeTree"),
            "ENGINE = ReplicatedMergeTree('/t/a', '{replica}')",
        ),
        (
            ("= 4096", "= 8192"),
            "SETTINGS index_granularity = 4096 in the first, SETTINGS index_",
        ),
        (("'/t/a'", "'/t/{shard}'"), ""),
    ],
)
def test_each_clause_of_a_declaration_is_compared(
    change: tuple[str, str], difference: str
) -> None:
    declared = f"{CREATE.format('kept', 'a')} {CLAUSES}"
    changed = definition_of(declared.replace(*change))
    found = declared_otherwise(definition_of(declared), changed)
    assert found.startswith(difference)
    assert bool(found) == bool(difference)
