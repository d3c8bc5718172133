"""What Dagster is told about mutations: a check while they are unfinished, an event per part."""

from typing import Any

import dagster as dg
import pytest

from examples.flights import source
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.record import ledger
from rmt_pipeline.dagster.upkeep import checks
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import finalize_mutations, load_mutations
from rmt_pipeline.replica.work.loop import Flush
from rmt_pipeline.table import Table
from tests.support.site import Site

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.zookeeper,
    pytest.mark.usefixtures("nothing_to_do"),
]

TABLE = source.TABLE.full_name


@pytest.fixture
def table(site: Site) -> Table:
    return site.r1.table(source.TABLE.name)


def checked(site: Site) -> dg.AssetCheckResult:
    check = checks.check_of("mutations", TABLE, "r1")
    result = check(dg.build_asset_check_context(), engine=site.engine)
    assert isinstance(result, dg.AssetCheckResult)
    return result


def records(result: dg.AssetCheckResult) -> list[dict[str, Any]]:
    shown = (result.metadata or {})["mutations"]
    assert isinstance(shown, dg.TableMetadataValue)
    return [dict(record.data) for record in shown.records]


def insert(site: Site, table: Table, day: str) -> None:
    job = site.definitions.resolve_implicit_global_asset_job_def()
    with dg.instance_for_test() as instance:
        job.execute_in_process(
            instance=instance, partition_key=day, asset_selection=[dg.AssetKey("flights")]
        )


def test_an_unfinished_mutation_is_a_warning_until_it_is_done(site: Site, table: Table) -> None:
    insert(site, table, "2013-09-09")
    finalize_mutations(table.replica, load_mutations(table.replica))
    mutation = table.mutate("DELETE WHERE carrier = 'DL'", settings={"mutations_sync": 0})

    before = checked(site)
    assert not before.passed
    assert before.severity is dg.AssetCheckSeverity.WARN
    [record] = records(before)
    assert record["mutation"] == mutation
    assert record["command"] == "DELETE WHERE carrier = 'DL'"
    assert (record["parts_done"], record["seconds_left"]) == (0, -1.0)
    assert record["parts_to_do"] == len(table.parts())

    while isinstance(assign_mutations(table.replica), list):
        site.work_off()
    finalize_mutations(table.replica, load_mutations(table.replica))
    after = checked(site)
    assert after.passed
    assert records(after) == []


def test_a_mutated_part_is_an_event_with_its_story(
    site: Site, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MUTATED_EVENTS_MAX", 1000)  # beside other tests' parts
    insert(site, table, "2013-09-10")
    with_it = sum(
        carrier == "B6"
        for carrier in table.dataset().to_table(columns=["carrier"])["carrier"].to_pylist()
    )
    events: list[dg.AssetMaterialization] = []

    def tell(flush: Flush) -> None:
        """As a worker does: at once, since what was mutated may be merged next."""
        if flush.replica == "r1":
            events.extend(ledger.mutated_parts(table, "r1", flush.parts))

    mutation = table.mutate("DELETE WHERE carrier = 'B6'", settings={"mutations_sync": 0})
    while isinstance(assign_mutations(table.replica), list):
        site.work_off(tell)
    assert events
    assert {event.asset_key for event in events} == {names.parts_key(TABLE, "r1")}
    told = [{key: value.value for key, value in event.metadata.items()} for event in events]
    assert {one["mutations"] for one in told} == {mutation}
    assert sum(one["rows deleted"] for one in told) == with_it
    untouched = [one for one in told if one["rows deleted"] == 0]
    assert all(one["bytes rewritten"] == 0 for one in untouched)
    assert all(one["bytes rewritten"] > 0 for one in told if one not in untouched)
