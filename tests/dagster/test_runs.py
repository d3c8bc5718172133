"""Assets, sensors and workers, one daemon tick at a time, against real servers."""

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from functools import partialmethod
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.events import ASSET_EVENTS
from dagster._core.storage.event_log import SqliteEventLogStorage

from examples.flights import source
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.dagster.engine import STANDING
from rmt_pipeline.dagster.record import ledger, storage
from rmt_pipeline.dagster.work import runs, watching, workers
from rmt_pipeline.dagster.work.presence import Presence, nodes_present
from rmt_pipeline.dagster.work.watching import MergeWatch, MutationWatch, QueueWatch
from rmt_pipeline.dagster.work.workers import Team
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.system import SystemClock
from tests.support.site import Site
from tests.support.waiting import LIMIT_S, until

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.zookeeper,
    pytest.mark.usefixtures("nothing_to_do"),
]

TABLE = source.TABLE.full_name


@pytest.fixture(autouse=True)
def ticks_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for watch in (QueueWatch, MutationWatch, MergeWatch):
        monkeypatch.setattr(watch, "wait", partialmethod(watch.wait, wait_s=0))
    monkeypatch.setattr(workers, "RECORD_EVERY_S", 0.1)
    yield
    STANDING.close()


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


def tick(site: Site, instance: dg.DagsterInstance, name: str) -> dg.SensorResult:
    """What the daemon does with a log sensor, without its waiting."""
    context = dg.build_sensor_context(instance=instance, resources={"engine": site.engine})
    result = site.definitions.resolve_sensor_def(name)(context)
    assert isinstance(result, dg.SensorResult)
    return result


def work(site: Site, instance: dg.DagsterInstance, request: dg.RunRequest) -> str:
    """Carry out a run request, without lingering; what its log says."""
    op, config = f"work_{request.job_name}", {"linger_s": 0.5}
    result = site.definitions.resolve_job_def(str(request.job_name)).execute_in_process(
        instance=instance,
        run_config={"ops": {op: {"config": config}}},
        tags=request.tags,
    )
    assert result.success
    return "\n".join(entry.message for entry in instance.all_logs(result.run_id))


def requested(result: dg.SensorResult) -> list[str]:
    return sorted(str(request.job_name) for request in result.run_requests or [])


def test_an_insert_on_one_server_becomes_a_fetch_run_on_the_other(
    site: Site, instance: dg.DagsterInstance
) -> None:
    before = site.rows(site.r2)
    metadata = ingest(site, instance, "2013-03-05")
    assert metadata["outcome"] == "inserted"

    result = tick(site, instance, "log_r2")
    assert requested(result) == ["fetch_parts_r2"]
    [request] = result.run_requests or []
    work(site, instance, request)

    assert site.rows(site.r2) == before + metadata["dagster/row_count"]
    [event] = instance.fetch_materializations(names.parts_key(TABLE, "r2"), limit=10).records
    assert event.asset_materialization is not None
    table = event.asset_materialization.metadata["parts"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data["kind"] for record in table.records] == ["FETCH"]
    assert "201303" in instance.get_dynamic_partitions(names.partitions_name(TABLE))


def test_a_tick_without_work_says_so(site: Site, instance: dg.DagsterInstance) -> None:
    result = tick(site, instance, "log_r1")
    assert requested(result) == []
    assert "its queue is empty" in str(result.skip_reason)


def test_a_server_s_own_inserts_need_no_worker(
    site: Site, instance: dg.DagsterInstance
) -> None:
    ingest(site, instance, "2013-03-08")
    result = tick(site, instance, "log_r1")
    assert requested(result) == []
    replica = site.r1.table(source.TABLE.name).replica
    assert replica.keeper.children(replica.paths.queue) == []


def as_dagster_has_it(
    site: Site,
    instance: dg.DagsterInstance,
    job: str,
    status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED,
) -> dg.DagsterRun:
    """A worker's run in Dagster's storage, without any process."""
    definition = site.definitions.resolve_job_def(job)
    return instance.create_run_for_job(definition, tags=definition.run_tags, status=status)


def test_no_second_worker_is_asked_for_while_one_is_active(
    site: Site, instance: dg.DagsterInstance
) -> None:
    ingest(site, instance, "2013-03-06")
    run = as_dagster_has_it(site, instance, "fetch_parts_r2")
    presence = Presence(site.r2, run.run_id)
    presence.renew()
    result = tick(site, instance, "log_r2")
    assert requested(result) == []
    assert f"the fetch worker is active, run {run.run_id[:8]}" in str(result.skip_reason)
    presence.close()


def test_a_run_whose_worker_is_gone_is_ended_and_another_is_asked_for(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after SIGKILL or Ctrl-C: the run stays STARTED, and nobody works."""
    ingest(site, instance, "2013-03-09")
    run = as_dagster_has_it(site, instance, "fetch_parts_r2")
    assert requested(tick(site, instance, "log_r2")) == [], "it may be about to come back"

    monkeypatch.setattr(runs, "ABSENT_MAX_S", 0.0)
    assert requested(tick(site, instance, "log_r2")) == ["fetch_parts_r2"]
    ended = instance.get_run_by_id(run.run_id)
    assert ended is not None
    assert ended.status == dg.DagsterRunStatus.CANCELED
    assert any("Its worker is gone" in entry.message for entry in instance.all_logs(run.run_id))


@pytest.mark.parametrize("written", [0, 1])
def test_what_a_worker_did_and_did_not_tell_before_it_died_the_next_one_tells_once(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """It has written so many of its events, each by itself as other storages than SQLite do."""
    for day in (f"2013-11-2{written}", f"2013-12-2{written}"):
        ingest(site, instance, day)
    by_hand = dg.RunRequest(job_name="fetch_parts_r2")
    store_one, wrote = SqliteEventLogStorage.store_event, []

    def dies_in_time(self: SqliteEventLogStorage, event: dg.EventLogEntry) -> None:
        if event.dagster_event_type in ASSET_EVENTS:
            if len(wrote) == written:
                raise SystemExit("as if it were killed")
            wrote.append(1)
        store_one(self, event)

    def fails() -> None:
        site.definitions.resolve_job_def("fetch_parts_r2").execute_in_process(
            instance=instance,
            run_config={"ops": {"work_fetch_parts_r2": {"config": {"linger_s": 0.5}}}},
            raise_on_error=False,
        )

    with monkeypatch.context() as patch:
        patch.setattr(storage, "one_transaction", nullcontext)
        patch.setattr(SqliteEventLogStorage, "store_event", dies_in_time)
        with suppress(SystemExit):
            fails()
    assert not parts_told(instance)
    work(site, instance, by_hand)
    parts = parts_told(instance)
    assert len(parts) == len(set(parts)) == 2
    table = site.r2.table(source.TABLE.name)
    for partition in ("201311", "201312"):
        key = names.partitions_key(TABLE, "r2")
        found = dg.AssetRecordsFilter(key, asset_partitions=[partition])
        [newest] = instance.fetch_materializations(found, limit=1).records
        assert newest.asset_materialization is not None
        rows = newest.asset_materialization.metadata["dagster/row_count"].value
        here = [one.manifest for one in table.parts() if one.name.partition == partition]
        assert rows == sum(one.rows for one in here)
    work(site, instance, by_hand)
    assert parts_told(instance) == parts, "once"


def parts_told(instance: dg.DagsterInstance) -> list[str]:
    """By the workers of r2, newest event first."""
    found = instance.fetch_materializations(names.parts_key(TABLE, "r2"), limit=100).records
    tables = [
        record.asset_materialization.metadata["parts"]
        for record in found
        if record.asset_materialization
    ]
    return [
        str(row.data["part"])
        for table in tables
        if isinstance(table, dg.TableMetadataValue)
        for row in table.records
    ]


@pytest.mark.parametrize(
    "status",
    [
        dg.DagsterRunStatus.NOT_STARTED,
        dg.DagsterRunStatus.STARTING,
        dg.DagsterRunStatus.CANCELING,
    ],
)
def test_a_run_that_does_not_begin_is_over_after_its_time(
    site: Site,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    status: dg.DagsterRunStatus,
) -> None:
    run = as_dagster_has_it(site, instance, "merge_parts_r1", status)
    judge = runs.WorkerRuns(site.r1)
    assert judge.active(instance) == {"merge": run.run_id}
    monkeypatch.setattr(runs, "START_MAX_S", 0.0)
    monkeypatch.setattr(runs, "ABSENT_MAX_S", 0.0)
    assert judge.active(instance) == {}
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    assert found.status == status, "only the log sensor ends runs"


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED])
def test_a_clock_that_is_set_back_keeps_no_dead_worker_alive(
    site: Site,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    status: dg.DagsterRunStatus,
) -> None:
    """Nor is the next one put off for as long as the clock was set back."""
    run = as_dagster_has_it(site, instance, "merge_parts_r1", status)
    judge, now = runs.WorkerRuns(site.r1), SystemClock.now_s
    assert judge.active(instance) == {"merge": run.run_id}
    monkeypatch.setattr(SystemClock, "now_s", lambda clock: now(clock) - 86_400)
    monkeypatch.setattr(runs, "ABSENT_MAX_S", 0.0)
    assert judge.active(instance) == {}
    instance.report_run_failed(run)
    assert judge.pause(instance, "merge") == ""


def test_a_worker_that_fails_is_asked_for_again_after_a_growing_pause(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PAUSE_S", 1e4)  # so that none is over when the tick comes
    monkeypatch.setattr(runs, "PAUSE_MAX_S", 1e6)
    ingest(site, instance, "2013-03-10")
    lefts = []
    for _ in range(3):
        failed = site.definitions.resolve_job_def("fetch_parts_r2").execute_in_process(
            instance=instance,
            run_config={"ops": {"work_fetch_parts_r2": {"config": {"tables": ["nowhere.t"]}}}},
            raise_on_error=False,
        )
        assert not failed.success
        result = tick(site, instance, "log_r2")
        assert requested(result) == []
        said = str(result.skip_reason)
        assert "nowhere" in said, "the last error is in the tick"
        lefts.append(int(re.findall(r"may start in (\d+) s", said)[0]))
    assert lefts[0] <= runs.PAUSE_S
    assert runs.PAUSE_S < lefts[1] <= 2 * runs.PAUSE_S < lefts[2] <= 4 * runs.PAUSE_S


def test_a_worker_is_present_as_long_as_its_session(site: Site) -> None:
    with ServerContext.open(site.config, "r1") as server:
        presence = Presence(server, "a run")
        presence.renew()
        first = server.keeper()
        assert "a run" in nodes_present(site.r1.keeper(), "r1")
        first.close()
        assert "a run" not in nodes_present(site.r1.keeper(), "r1")
        server.close()
        presence.renew()
        assert "a run" in nodes_present(site.r1.keeper(), "r1"), "in the next session"
        presence.close()
        assert "a run" not in nodes_present(site.r1.keeper(), "r1")


def test_tables_at_rest_cost_no_request(site: Site) -> None:
    """The second look finds every table as it was: no watch has fired."""
    watch = QueueWatch(site.r2)
    watch.look({})
    keeper = site.r2.keeper()
    asked: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        single = ("get", "exists", "children", "children_stat", "multi")
        for name in (*single, "get_many", "exists_many", "children_many"):
            patch.setattr(keeper, name, lambda *_, name=name, **__: asked.append(name))
        seen = watch.look({})
    assert asked == []
    assert "its queue is empty" in seen.words()


def test_a_waiting_tick_ends_as_soon_as_there_is_work(
    site: Site,
) -> None:
    clock = SystemClock()
    started_s = clock.monotonic_s()
    rows = source.flights_of("2013-03-07")
    inserting = threading.Timer(1.0, site.r1.table(source.TABLE.name).insert, (rows,))
    inserting.start()
    watched = QueueWatch(site.r2).wait(dict, wait_s=LIMIT_S)
    inserting.join()
    assert watched.needed == ("fetch",)
    assert clock.monotonic_s() - started_s < LIMIT_S, "it waited to its end"


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


def test_a_run_by_hand_for_a_stopped_replica_says_so_and_does_nothing(
    site: Site, instance: dg.DagsterInstance
) -> None:
    before = site.rows(site.r2)
    stopped = Session(site.r2)
    stopped.execute(f"SYSTEM STOP FETCHES {TABLE}")
    try:
        inserted = ingest(site, instance, "2013-10-21")["dagster/row_count"]
        by_hand = dg.RunRequest(job_name="fetch_parts_r2")
        said = work(site, instance, by_hand)
        assert "FETCHES are stopped by hand on this server (SYSTEM START FETCHES)" in said
        assert site.rows(site.r2) == before
    finally:
        stopped.execute(f"SYSTEM START FETCHES {TABLE}")
    for _ in range(2):
        work(site, instance, by_hand)
        assert site.rows(site.r2) == before + inserted


def test_two_dagsters_for_one_server_say_so_and_nothing_is_done_twice(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ask for a worker, and the second one works while the threads of the first one do."""
    before, begin = site.rows(site.r2), Team._begin
    with dg.instance_for_test() as other:
        inserted = sum(
            ingest(site, instance, f"2013-12-{day}")["dagster/row_count"] for day in (27, 28)
        )
        [request] = tick(site, instance, "log_r2").run_requests or []
        assert requested(tick(site, other, "log_r2")) == ["fetch_parts_r2"]

        def begin_beside(team: Team, *arguments: Any) -> None:
            begin(team, *arguments)
            monkeypatch.setattr(Team, "_begin", begin)
            work(site, other, request)

        monkeypatch.setattr(Team, "_begin", begin_beside)
        began_s = site.r2.clock.now_s()
        work(site, instance, request)
        assert Team._begin is begin, "the other one has worked"
        assert site.rows(site.r2) == before + inserted
        noted = site.r2.table(source.TABLE.name).store.part_log.events()
        fetched = Counter(
            event.part
            for event in noted
            if event.event_type == "DownloadPart" and event.time_s > began_s
        )
        assert set(fetched.values()) == {1}
        for one in (instance, other):
            result = tick(site, one, "log_r2")
            assert "watches r2 too: nothing is done twice" in str(result.skip_reason)
    STANDING.close()  # as when the other one has ended; a busy ZooKeeper hears of it later
    until(
        lambda: "watches" not in str(tick(site, instance, "log_r2").skip_reason),
        lambda: "ticks tell of another one for good",
    )


def test_the_merge_sensor_proposes_merges_and_says_which(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "REASONS_SHOWN_MAX", 1000)  # beside other tests' parts
    for day in range(10, 18):
        ingest(site, instance, f"2013-06-{day}")
    context = dg.build_sensor_context(instance=instance, resources={"engine": site.engine})
    reason = site.definitions.resolve_sensor_def("merges_r1")(context)
    assert isinstance(reason, dg.SkipReason)
    assert re.search(r"assigned .*\b201306_0_", str(reason.skip_message))
    assert "merge_parts_r1" in requested(tick(site, instance, "log_r1"))


def test_the_mutation_sensor_proposes_pieces_and_says_what_waits(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "REASONS_SHOWN_MAX", 1000)  # beside other tests' parts
    ingest(site, instance, "2013-08-08")
    table = site.r1.table(source.TABLE.name)
    flown = table.dataset().to_table(columns=["carrier"])["carrier"].to_pylist()
    table.mutate("DELETE WHERE carrier = 'UA'", settings={"mutations_sync": 0})

    context = dg.build_sensor_context(instance=instance, resources={"engine": site.engine})
    sensor = site.definitions.resolve_sensor_def("mutations_r1")
    proposed = sensor(context)
    assert isinstance(proposed, dg.SkipReason)
    assert "parts are to be mutated, into " in str(proposed.skip_message)
    assert "201308_0_0_0_1" in str(proposed.skip_message)
    assert "merge_parts_r1" in requested(tick(site, instance, "log_r1"))

    site.work_off()
    assert site.rows(site.r2) == len(flown) - flown.count("UA")
    done = sensor(context)
    assert isinstance(done, dg.SkipReason)
    assert "no mutation is unfinished" in str(done.skip_message)


@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "Dagster ends"])
def test_a_worker_that_is_asked_to_end_stops_and_its_run_is_over(
    site: Site, instance: dg.DagsterInstance, is_cancelled: bool
) -> None:
    """Dagster interrupts a run in its main thread; the worker is in another one. When it was not
    cancelled by anybody, it has not failed.
    """
    ingest(site, instance, "2013-11-11" if is_cancelled else "2013-11-13", server="r2")

    def works() -> bool:
        return any(one.name.startswith("worker") for one in threading.enumerate())

    def end() -> None:
        until(works)
        if is_cancelled:
            [run] = instance.get_runs(dg.RunsFilter(job_name="fetch_parts_r1"))
            instance.report_run_canceling(run)
        os.kill(os.getpid(), signal.SIGINT)

    config = {"tables": [TABLE], "linger_s": 2 * LIMIT_S}
    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(DagsterExecutionInterruptedError) if is_cancelled else nullcontext():
        site.definitions.resolve_job_def("fetch_parts_r1").execute_in_process(
            instance=instance,
            run_config={"ops": {"work_fetch_parts_r1": {"config": config}}},
        )
    ending.join()
    assert not works()
    [run] = instance.get_runs(dg.RunsFilter(job_name="fetch_parts_r1"))
    ended = dg.DagsterRunStatus.CANCELED if is_cancelled else dg.DagsterRunStatus.SUCCESS
    assert run.status is ended


def test_more_parts_than_one_event_should_hold_are_several_events(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "PARTS_PER_EVENT_MAX", 2)
    for day in range(1, 6):
        ingest(site, instance, f"2013-10-{day:02d}")
    [request] = tick(site, instance, "log_r2").run_requests or []
    work(site, instance, request)
    found = instance.fetch_materializations(names.parts_key(TABLE, "r2"), limit=10).records
    counts = [
        record.asset_materialization.metadata["parts FETCH"].value
        for record in found
        if record.asset_materialization is not None
    ]
    assert sum(counts) == 5
    assert max(counts) == 2
