"""Assets, sensors and workers, one daemon tick at a time, against real servers."""

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError

from examples.flights import source
from rmt_pipeline.dagster import ledger, names, sensors
from rmt_pipeline.dagster.watching import follow_mutations, wait_for_work
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.system import SystemClock
from tests.support.site import Site

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.zookeeper,
    pytest.mark.usefixtures("nothing_to_do"),
]

TABLE = source.TABLE.full_name


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as opened:
        yield opened


def ingest(site: Site, instance: dg.DagsterInstance, day: str, **config: Any) -> dict[str, Any]:
    """Materialize one day; the metadata of its materialization."""
    job = site.definitions.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(
        instance=instance,
        partition_key=day,
        asset_selection=[dg.AssetKey("flights")],
        run_config={"ops": {"flights": {"config": config}}},
    )
    [event] = [
        event for event in result.get_asset_materialization_events() if event.partition == day
    ]
    return {key: value.value for key, value in event.materialization.metadata.items()}


def tick(
    site: Site, instance: dg.DagsterInstance, name: str, monkeypatch: pytest.MonkeyPatch
) -> dg.SensorResult:
    """What the daemon does with a log sensor, without its waiting."""
    monkeypatch.setattr(sensors, "wait_for_work", partial(wait_for_work, wait_s=0))
    context = dg.build_sensor_context(instance=instance, resources={"engine": site.engine})
    result = site.definitions.resolve_sensor_def(name)(context)
    assert isinstance(result, dg.SensorResult)
    return result


def work(site: Site, instance: dg.DagsterInstance, request: dg.RunRequest) -> None:
    """Carry out a run request, without lingering."""
    [op] = request.run_config["ops"]
    config = {**request.run_config["ops"][op]["config"], "linger_s": 0.5}
    result = site.definitions.resolve_job_def(str(request.job_name)).execute_in_process(
        instance=instance,
        run_config={"ops": {op: {"config": config}}},
        tags=request.tags,
    )
    assert result.success


def requested(result: dg.SensorResult) -> list[str]:
    return sorted(str(request.job_name) for request in result.run_requests or [])


def test_an_insert_on_one_server_becomes_a_fetch_run_on_the_other(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = site.rows(site.r2)
    metadata = ingest(site, instance, "2013-03-05")
    assert metadata["outcome"] == "inserted"

    result = tick(site, instance, "log_r2", monkeypatch)
    assert requested(result) == ["fetch_parts_r2"]
    [request] = result.run_requests or []
    assert request.tags[names.WORKER_TAG] == "r2:flights:fetch"
    work(site, instance, request)

    assert site.rows(site.r2) == before + metadata["dagster/row_count"]
    [event] = instance.fetch_materializations(names.parts_key(TABLE, "r2"), limit=10).records
    assert event.asset_materialization is not None
    table = event.asset_materialization.metadata["parts"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data["kind"] for record in table.records] == ["FETCH"]
    assert instance.get_dynamic_partitions(names.partitions_name(TABLE)) == ["201303"]


def test_a_tick_without_work_says_so(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = tick(site, instance, "log_r1", monkeypatch)
    assert requested(result) == []
    assert "the queue is empty" in str(result.skip_reason)


def test_a_server_s_own_inserts_need_no_worker(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(site, instance, "2013-03-08")
    result = tick(site, instance, "log_r1", monkeypatch)
    assert requested(result) == []
    replica = site.r1.table(source.TABLE.name).replica
    assert replica.keeper.children(replica.paths.queue) == []


def test_no_second_worker_is_asked_for_while_one_is_active(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(site, instance, "2013-03-06")
    instance.create_run_for_job(
        site.definitions.resolve_job_def("fetch_parts_r2"),
        run_config={"ops": {"work_fetch_parts_r2": {"config": {"table": TABLE}}}},
        tags={names.SERVER_TAG: "r2", names.WORKER_TAG: "r2:flights:fetch"},
        status=dg.DagsterRunStatus.STARTED,
    )
    result = tick(site, instance, "log_r2", monkeypatch)
    assert requested(result) == []
    assert "the fetch worker is active" in str(result.skip_reason)


def test_a_waiting_tick_ends_as_soon_as_there_is_work(
    site: Site, instance: dg.DagsterInstance
) -> None:
    clock = SystemClock()
    started_s = clock.monotonic_s()
    inserting = threading.Timer(1.0, ingest, (site, instance, "2013-03-07"))
    inserting.start()
    watched = wait_for_work(site.r2, set, wait_s=40)
    inserting.join()
    assert [(need.table, need.pool) for need in watched.needed] == [(TABLE, "fetch")]
    assert clock.monotonic_s() - started_s < 20


def test_a_day_that_was_inserted_is_a_duplicate_wherever_and_however_it_comes_again(
    site: Site, instance: dg.DagsterInstance
) -> None:
    first = ingest(site, instance, "2013-04-30")
    again = ingest(site, instance, "2013-04-30", server="r2", max_insert_block_size=100)
    assert (first["outcome"], again["outcome"]) == ("inserted", "duplicate")
    assert again["dagster/row_count"] == 0
    assert "inserted on r1" in again["in words"]
    assert {PartName.parse(name).partition for name in first["part names"].split()} == {
        "201304",
        "201305",
    }, "New York's last evening of April is May in UTC: one insert, two partitions"


def test_the_merge_sensor_proposes_merges_and_says_which(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(10, 18):
        ingest(site, instance, f"2013-06-{day}")
    context = dg.build_sensor_context(instance=instance, resources={"engine": site.engine})
    reason = site.definitions.resolve_sensor_def("merges_r1")(context)
    assert isinstance(reason, dg.SkipReason)
    assert "assigned 201306_0_" in str(reason.skip_message)
    assert "merge_parts_r1" in requested(tick(site, instance, "log_r1", monkeypatch))


def test_the_mutation_sensor_proposes_pieces_and_says_what_waits(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(site, instance, "2013-08-08")
    table = site.r1.table(source.TABLE.name)
    flown = table.dataset().to_table(columns=["carrier"])["carrier"].to_pylist()
    table.mutate("DELETE WHERE carrier = 'UA'", settings={"mutations_sync": 0})

    monkeypatch.setattr(sensors, "follow_mutations", partial(follow_mutations, wait_s=0))
    context = dg.build_sensor_context(instance=instance, resources={"engine": site.engine})
    sensor = site.definitions.resolve_sensor_def("mutations_r1")
    proposed = sensor(context)
    assert isinstance(proposed, dg.SkipReason)
    assert "parts are to be mutated, into " in str(proposed.skip_message)
    assert "201308_0_0_0_1" in str(proposed.skip_message)
    assert "merge_parts_r1" in requested(tick(site, instance, "log_r1", monkeypatch))

    site.work_off()
    assert site.rows(site.r2) == len(flown) - flown.count("UA")
    done = sensor(context)
    assert isinstance(done, dg.SkipReason)
    assert "no mutation is unfinished" in str(done.skip_message)


def test_a_cancelled_worker_stops_and_its_run_is_over(
    site: Site, instance: dg.DagsterInstance
) -> None:
    """Dagster interrupts a run in its main thread; the worker is in another one."""
    clock = SystemClock()
    started_s = clock.monotonic_s()
    config = {"table": TABLE, "linger_s": 60.0}
    cancel = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))
    cancel.start()
    with pytest.raises(DagsterExecutionInterruptedError):
        site.definitions.resolve_job_def("fetch_parts_r1").execute_in_process(
            instance=instance,
            run_config={"ops": {"work_fetch_parts_r1": {"config": config}}},
        )
    assert clock.monotonic_s() - started_s < 30
    assert not [one for one in threading.enumerate() if one.name.startswith("worker")]
    [run] = instance.get_runs(dg.RunsFilter(job_name="fetch_parts_r1"))
    assert run.is_finished


def test_more_parts_than_one_event_should_hold_are_several_events(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "PARTS_PER_EVENT_MAX", 2)
    for day in range(1, 6):
        ingest(site, instance, f"2013-10-{day:02d}")
    [request] = tick(site, instance, "log_r2", monkeypatch).run_requests or []
    work(site, instance, request)
    found = instance.fetch_materializations(names.parts_key(TABLE, "r2"), limit=10).records
    counts = [
        record.asset_materialization.metadata["parts FETCH"].value
        for record in found
        if record.asset_materialization is not None
    ]
    assert sum(counts) == 5
    assert max(counts) == 2
