"""Events in one transaction of Dagster's storage."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import cast

import dagster as dg
import pytest
from dagster._core.storage.event_log import SqliteEventLogStorage

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster.record import ledger, storage
from rmt_pipeline.dagster.record.storage import one_transaction
from rmt_pipeline.dagster.spark import SparkResource
from rmt_pipeline.dagster.work import workers
from rmt_pipeline.dagster.work.workers import Team, WorkConfig
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.system import SystemClock

KEY = dg.AssetKey("a")


def in_a_run(
    instance: dg.DagsterInstance, body: Callable[[dg.OpExecutionContext], None]
) -> str:
    @dg.op
    def op(context: dg.OpExecutionContext) -> None:
        body(context)

    @dg.job(executor_def=dg.in_process_executor)
    def job() -> None:
        op()

    return job.execute_in_process(instance=instance, raise_on_error=False).run_id


def log(context: dg.OpExecutionContext, *numbers: int) -> None:
    for number in numbers:
        context.log_event(dg.AssetMaterialization(KEY, metadata={"number": number}))


def of_the_asset(instance: dg.DagsterInstance) -> list[object]:
    records = instance.fetch_materializations(KEY, limit=100, ascending=True).records
    return [
        record.asset_materialization.metadata["number"].value
        for record in records
        if record.asset_materialization
    ]


def of_the_run(instance: dg.DagsterInstance, run_id: str) -> int:
    kind = dg.DagsterEventType.ASSET_MATERIALIZATION
    return len(instance.all_logs(run_id, of_type=kind))


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each transaction, how many events it stores."""
    found: list[int] = []
    store_together = storage._store_together

    def counted(directory: Path, events: Sequence[dg.EventLogEntry]) -> None:
        found.append(len(events))
        store_together(directory, events)

    monkeypatch.setattr(storage, "_store_together", counted)
    return found


def test_events_are_there_when_the_block_ends(instance: dg.DagsterInstance) -> None:
    def body(context: dg.OpExecutionContext) -> None:
        log(context, 1)
        with one_transaction(instance):
            log(context, 2, 3)
            with dg.DagsterInstance.from_ref(instance.get_ref()) as other:
                assert of_the_asset(other) == [1]
        assert of_the_asset(instance) == [1, 2, 3]
        log(context, 4)
        with one_transaction(instance):
            log(context, 5)

    run_id = in_a_run(instance, body)
    assert instance.get_run_by_id(run_id).is_success  # type: ignore[union-attr]
    assert of_the_asset(instance) == [1, 2, 3, 4, 5]
    assert of_the_run(instance, run_id) == 5
    newest = instance.get_latest_materialization_event(KEY)
    assert newest is not None
    assert newest.asset_materialization is not None
    assert newest.asset_materialization.metadata["number"].value == 5


def test_each_is_stored_as_dagster_stores_one(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does for that are its own methods, which patch releases rename."""
    store_one, stored = SqliteEventLogStorage.store_event, []

    def store_event(self: SqliteEventLogStorage, event: dg.EventLogEntry) -> None:
        stored.append(event.dagster_event_type)
        store_one(self, event)

    def body(context: dg.OpExecutionContext) -> None:
        with monkeypatch.context() as patch, one_transaction(instance):
            log(context, 1, 2)
            patch.setattr(SqliteEventLogStorage, "store_event", store_event)

    in_a_run(instance, body)
    assert of_the_asset(instance) == [1, 2]
    assert stored == [dg.DagsterEventType.ASSET_MATERIALIZATION] * 2


def test_of_a_block_that_raises_nothing_is_stored(instance: dg.DagsterInstance) -> None:
    def body(context: dg.OpExecutionContext) -> None:
        with suppress(KeyError), one_transaction(instance):
            log(context, 1, 2)
            raise KeyError
        with one_transaction(instance):
            log(context, 3)

    run_id = in_a_run(instance, body)
    assert of_the_asset(instance) == [3]
    assert of_the_run(instance, run_id) == 1


def test_a_block_within_a_block_belongs_to_it(
    instance: dg.DagsterInstance, transactions: list[int]
) -> None:
    def body(context: dg.OpExecutionContext) -> None:
        with one_transaction(instance):
            for number in (1, 2):
                with one_transaction(instance):
                    log(context, number)
        with one_transaction(instance):
            log(context, 3)

    in_a_run(instance, body)
    assert of_the_asset(instance) == [1, 2, 3]
    assert transactions == [2, 1]


def test_very_many_events_are_several_transactions(
    instance: dg.DagsterInstance, transactions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "EVENTS_AT_ONCE", 2)

    def body(context: dg.OpExecutionContext) -> None:
        with one_transaction(instance):
            log(context, 1, 2, 3, 4, 5)

    in_a_run(instance, body)
    assert of_the_asset(instance) == [1, 2, 3, 4, 5]
    assert transactions == [2, 2, 1]


def test_the_file_of_assets_stays_open_and_that_of_the_run_does_not(
    instance: dg.DagsterInstance,
) -> None:
    """When the last connection to a file closes, SQLite removes the log of it. That takes time and
    is what the UI sees of a run's new events.
    """
    open_files: list[tuple[bool, bool]] = []

    def body(context: dg.OpExecutionContext) -> None:
        run = Path(storage_of(context.instance).path_for_shard(context.run_id))
        for number in range(3):
            before = run.stat().st_mtime_ns
            with one_transaction(context.instance):
                log(context, number)
            assert run.stat().st_mtime_ns != before
            logs = (Path(f"{run.parent / name}-wal") for name in ("index.db", run.name))
            open_files.append((next(logs).exists(), next(logs).exists()))

    in_a_run(instance, body)
    assert of_the_asset(instance) == [0, 1, 2]
    assert open_files == [(True, False)] * 3


def storage_of(instance: dg.DagsterInstance) -> SqliteEventLogStorage:
    found = instance.event_log_storage
    assert isinstance(found, SqliteEventLogStorage)
    return found


def test_a_worker_s_tables_are_recorded_in_one_transaction(
    instance: dg.DagsterInstance, transactions: list[int]
) -> None:
    class Recorder:
        def __init__(self, context: dg.OpExecutionContext, number: int) -> None:
            self.log = partial(log, context, number)

        def parts(self, done: Sequence[PartDone]) -> None:
            with one_transaction(instance):
                self.log()

    def body(context: dg.OpExecutionContext) -> None:
        server = cast("ServerContext", SimpleNamespace(clock=SystemClock()))
        team = Team(context, WorkConfig(), server, "fetch", cast("SparkResource", None))
        for number in range(16):
            recorder = cast("ledger.Recorder", Recorder(context, number))
            team._members[str(number)] = workers._Member(Future(), recorder, SimpleQueue())
        team._record()

    in_a_run(instance, body)
    assert of_the_asset(instance) == list(range(16))
    assert transactions == [16]


def test_other_threads_write_meanwhile(instance: dg.DagsterInstance) -> None:
    def body(context: dg.OpExecutionContext) -> None:
        other = threading.Thread(target=log, args=(context, 3))
        with one_transaction(instance):
            log(context, 1)
            other.start()
            other.join()
            log(context, 2)

    run_id = in_a_run(instance, body)
    assert of_the_asset(instance) == [3, 1, 2]
    assert of_the_run(instance, run_id) == 3


def test_what_a_thread_writes_during_the_block_of_one_that_waited_for_its_own_is_stored(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, is_in, may_end = threading.Event(), threading.Event(), threading.Event()
    right = storage._ONE

    class Lock:
        def __enter__(self) -> None:
            waits.set()
            right.acquire()

        def __exit__(self, *_: object) -> None:
            right.release()

    def waited(context: dg.OpExecutionContext) -> None:
        with one_transaction(instance):
            is_in.set()
            may_end.wait()
            log(context, 3)

    def body(context: dg.OpExecutionContext) -> None:
        other = threading.Thread(target=waited, args=(context,))
        with one_transaction(instance):
            log(context, 1)
            monkeypatch.setattr(storage, "_ONE", Lock())
            other.start()
            waits.wait()
        is_in.wait()
        log(context, 2)
        may_end.set()
        other.join()

    in_a_run(instance, body)
    assert of_the_asset(instance) == [1, 2, 3]


def test_of_a_process_that_is_killed_while_it_writes_nothing_is_stored_and_all_goes_on(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all events were written, before they were committed."""

    def body(context: dg.OpExecutionContext) -> None:
        with one_transaction(context.instance):
            log(context, 1, 2)
            monkeypatch.setattr(SqliteEventLogStorage, "store_event_batch", is_killed)

    def is_killed(storage: SqliteEventLogStorage, events: Sequence[dg.EventLogEntry]) -> None:
        for event in events:
            storage.store_event(event)
        os.kill(os.getpid(), signal.SIGKILL)

    def killed() -> None:
        with dg.DagsterInstance.from_ref(instance.get_ref()) as opened:
            in_a_run(opened, body)

    process = multiprocessing.get_context("fork").Process(target=killed)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert of_the_asset(instance) == []
    in_a_run(instance, lambda context: log(context, 3))
    assert of_the_asset(instance) == [3]
