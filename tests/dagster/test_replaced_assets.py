"""Assets that take the place of what is in their table: whole partitions, or the rows of a key."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from rmt_pipeline.dagster import RmtIOManager
from rmt_pipeline.dagster.record.ledger import Recorder
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.replica.partitions.overwrite import RowsOutside
from rmt_pipeline.sql.run.session import Session
from tests.support.site import Site
from tests.support.stored_assets import (
    CREATE,
    DAYS,
    materialize,
    metadata,
    replacing,
    rows_of,
    stored_rows,
    versions,
)

pytestmark = [pytest.mark.dagster, pytest.mark.zookeeper]


def test_a_day_that_was_corrected_takes_the_place_of_what_it_was(
    site: Site, io_manager: RmtIOManager
) -> None:
    span = {
        "dagster/asset_partition_range_start": "2026-01-05",
        "dagster/asset_partition_range_end": "2026-01-06",
    }
    with dg.instance_for_test() as instance:
        both = replacing(lambda days: {day: rows_of(day) for day in days})
        materialize(io_manager, [both], instance, tags=span)
        assert len(stored_rows(site)) == 6
        fewer = replacing(lambda days: rows_of(days[0], 1))
        first, again = (
            metadata(materialize(io_manager, [fewer], instance, partition_key="2026-01-05"))
            for _ in range(2)
        )
        assert stored_rows(site) == [("2026-01-05", 0), *(("2026-01-06", n) for n in range(3))]
        once = replacing(lambda days: pa.concat_tables(rows_of(day, 2) for day in days))
        materialize(io_manager, [once], instance, tags=span)
    assert (first["rows replaced"], first["dagster/row_count"]) == (3, 1)
    assert (again["rows replaced"], again["rows duplicate"]) == (0, 1)
    assert stored_rows(site) == [
        (day, number) for day in ("2026-01-05", "2026-01-06") for number in range(2)
    ]


def test_rows_of_another_day_replace_nothing(site: Site, io_manager: RmtIOManager) -> None:
    with dg.instance_for_test() as instance:
        day = replacing(lambda days: rows_of(days[0]))
        materialize(io_manager, [day], instance, partition_key="2026-01-05")
        strange = replacing(lambda _: rows_of("2026-01-07"))
        with pytest.raises(RowsOutside, match="2026-01-05"):
            materialize(io_manager, [strange], instance, partition_key="2026-01-05")
    assert stored_rows(site) == [("2026-01-05", number) for number in range(3)]


def test_an_asset_without_partitions_replaces_the_table(
    site: Site, io_manager: RmtIOManager
) -> None:
    days = iter(("2026-01-05", "2026-02-06"))

    @dg.asset(name="stored", metadata={"rmt/write": "replace"})
    def asset() -> pa.Table:
        return rows_of(next(days), 2)

    with dg.instance_for_test() as instance:
        for _ in range(2):
            materialize(io_manager, [asset], instance)
    assert stored_rows(site) == [("2026-02-06", 0), ("2026-02-06", 1)]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rmt/write": "merge"}, "one of append, replace, upsert, not merge"),
        ({"rmt/write": "upsert"}, "is a MergeTree, which keeps every row"),
        ({"partition_expr": None}, "metadata needs partition_expr"),
        ({"rmt/quorum": 2}, "knows no quorum"),
    ],
)
def test_what_an_asset_says_of_replacing_is_looked_at_first(
    site: Site, io_manager: RmtIOManager, wrong: dict[str, Any], words: str
) -> None:
    asset = replacing(lambda days: rows_of(days[0]), **wrong)
    with dg.instance_for_test() as instance, pytest.raises(UserError, match=words):
        materialize(io_manager, [asset], instance, partition_key="2026-01-05")
    assert stored_rows(site) == []


@pytest.fixture
def replacing_table(site: Site) -> Iterator[None]:
    """`upserted`, which keeps of the rows with one id the one that was inserted last."""
    create = CREATE.replace("stored", "upserted").replace("{uuid}", "upserted")
    with site.having("upserted", create.replace("MergeTree", "ReplacingMergeTree")):
        yield


@pytest.mark.usefixtures("replacing_table")
def test_an_upsert_takes_the_place_of_what_has_its_key_also_when_it_was_there_before(
    site: Site, io_manager: RmtIOManager
) -> None:
    amounts = iter(["1.00", "2.00", "1.00"])
    seen: list[list[dict[str, Any]]] = []

    @dg.asset(partitions_def=DAYS, metadata={"rmt/write": "upsert", "partition_expr": "day"})
    def upserted(context: dg.AssetExecutionContext) -> pa.Table:
        rows = rows_of(context.partition_key, 1)
        return rows.set_column(2, "amount", pa.array([next(amounts)]))

    @dg.asset(partitions_def=DAYS)
    def downstream(upserted: list) -> None:  # type: ignore[type-arg]
        seen.append(upserted)

    with dg.instance_for_test() as instance:
        for _ in range(3):
            materialize(
                io_manager, [upserted, downstream], instance, partition_key="2026-01-05"
            )
        first, second, third = versions(instance, "upserted")
    assert first == third != second, "of the rows that are read"
    assert [[str(row["amount"]) for row in rows] for rows in seen] == [
        ["1.00"],
        ["2.00"],
        ["1.00"],
    ]


@pytest.mark.usefixtures("replacing_table")
@pytest.mark.parametrize("second", ["1.25", "2.25"])
def test_an_upsert_that_is_executed_again_stores_what_it_computes_then(
    site: Site, io_manager: RmtIOManager, second: str
) -> None:
    """The same rows take their own place."""
    amounts = iter(["1.25", second])

    @dg.asset(metadata={"rmt/write": "upsert"})
    def upserted() -> pa.Table:
        return rows_of("2026-01-05", 1).set_column(2, "amount", pa.array([next(amounts)]))

    definitions = dg.Definitions(
        assets=[upserted],
        resources={"io_manager": io_manager},
        executor=dg.in_process_executor,
    )
    job = definitions.resolve_implicit_global_asset_job_def()
    with dg.instance_for_test() as instance:
        first = job.execute_in_process(instance=instance)
        again = instance.create_run_for_job(
            job, parent_run_id=first.run_id, root_run_id=first.run_id
        )
        assert execute_run(InMemoryJob(job), again, instance).success
    found = Session(site.r1).execute("SELECT toString(amount) FROM upserted FINAL")
    assert [row for batch in found.batches for row in batch[0].to_pylist()] == [second]


@pytest.mark.usefixtures("replacing_table")
def test_each_attempt_of_an_upsert_stores_its_own_rows(
    site: Site, io_manager: RmtIOManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has stored its rows, and fails afterwards."""
    amounts = iter(["1.25", "2.25"])
    parts = Recorder.parts
    fails = [True]

    def record(recorder: Recorder, done: Any) -> Any:
        if fails.pop() if fails else False:
            raise OSError("no answer")
        return parts(recorder, done)

    monkeypatch.setattr(Recorder, "parts", record)

    @dg.asset(metadata={"rmt/write": "upsert"}, retry_policy=dg.RetryPolicy(max_retries=1))
    def upserted() -> pa.Table:
        return rows_of("2026-01-05", 1).set_column(2, "amount", pa.array([next(amounts)]))

    with dg.instance_for_test() as instance:
        materialize(io_manager, [upserted], instance)
    found = Session(site.r1).execute("SELECT toString(amount) FROM upserted FINAL")
    assert [row for batch in found.batches for row in batch[0].to_pylist()] == ["2.25"]
