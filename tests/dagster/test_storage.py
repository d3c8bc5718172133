"""Events in one transaction of Dagster's storage."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import dagster as dg
import pytest
from dagster._core.storage.event_log import SqliteEventLogStorage

from rmt_pipeline.dagster.record.storage import one_transaction

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

    def store_event(storage: SqliteEventLogStorage, event: dg.EventLogEntry) -> None:
        stored.append(event.dagster_event_type)
        store_one(storage, event)

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
