"""Backfills that go wrong, are cancelled, retried and overlap: on both replicas every row once."""

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import ReaderConfig
from rmt_pipeline.dagster.reader import ReadFile
from rmt_pipeline.dagster.record.ledger import Recorder
from rmt_pipeline.sql.run.session import Session
from tests.support.local_work import working
from tests.support.site import Site

pytestmark = [pytest.mark.dagster, pytest.mark.zookeeper]

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")
CREATE = (
    "CREATE TABLE visits (day Date, id UInt64, city String, amount Decimal(9, 2)) "
    "ENGINE = ReplicatedMergeTree('/t/visits', '{replica}') PARTITION BY toYYYYMM(day) "
    "ORDER BY id"
)
PER_DAY = 3


@pytest.fixture
def visits(site: Site) -> Iterator[None]:
    """A table on both servers, whose queues are worked."""
    servers = (site.r1, site.r2)
    for server in servers:
        Session(server).execute(CREATE)
    one, other = (server.table("visits").definition for server in servers)
    try:
        with working(site.r1, one), working(site.r2, other):
            yield
    finally:
        for server in servers:
            server.drop_table("default", "visits")


def on(server: ServerContext) -> list[tuple[str, int]]:
    """The rows of one replica that has all there is."""
    table = server.table("visits")
    table.sync()
    found = table.dataset().to_table(["day", "id"]).to_pylist()
    return sorted((str(row["day"]), row["id"]) for row in found)


def once(*days: str) -> list[tuple[str, int]]:
    return [(day, number) for day in sorted(days) for number in range(PER_DAY)]


def rows_of(day: str) -> pa.Table:
    rows = [
        {"day": day, "id": number, "city": "Rome", "amount": "1.50"}
        for number in range(PER_DAY)
    ]
    return pa.Table.from_pylist(rows)


# Sources with bad files


HEADER = "day,id,city,amount\n"
GOOD = HEADER + "{day},0,Rome,1.50\n{day},1,Rome,1.50\n{day},2,Rome,1.50\n"
LAST = "{day},2,Rome,1.50\n"
BAD: dict[str, tuple[bytes, str, dict[str, Any], str]] = {
    "2026-01-02": (
        GOOD.replace("1,Rome", "1,Málaga").encode("latin-1"),
        r"line 3, column city: b'M\\xe1laga' is not UTF-8",
        {"input_format_encoding": "latin1"},
        "another encoding",
    ),
    "2026-01-03": (
        GOOD.replace(",", ";").encode(),
        "line 2: the table has no column 'day;id;city;amount'",
        {"format_csv_delimiter": ";"},
        "another delimiter",
    ),
    "2026-01-04": (
        GOOD.replace("amount\n", "amount,note\n").replace("1.50\n", "1.50,hm\n").encode(),
        "line 2: the table has no column 'note'",
        {"input_format_skip_unknown_fields": True},
        "a column more",
    ),
    "2026-01-05": (
        GOOD.replace(LAST, LAST.replace("\n", ",hm\n")).encode(),
        r"line 4: 5 values, but there are 4 columns \(day, id, city, amount\): 'hm'",
        {"input_format_csv_allow_variable_number_of_columns": True},
        "a value more in one line",
    ),
    "2026-01-06": (
        GOOD.replace("\n", ",\n").encode(),
        "line 2: the table has no column ''",
        {"input_format_skip_unknown_fields": True},
        "a trailing comma, in the header too",
    ),
}
FINE = {
    "2026-01-01": GOOD.encode(),
    "2026-01-07": GOOD.replace("1.50\n", "1.50,\n").encode(),  # a comma at the end is no value
}


def from_files(directory: Path) -> dg.AssetsDefinition:
    @dg.asset(name="visits", partitions_def=DAYS, metadata={"partition_expr": "day"})
    def asset(context: dg.AssetExecutionContext, config: ReaderConfig) -> dict[str, ReadFile]:
        return {day: config.file(directory / f"{day}.csv") for day in context.partition_keys}

    return asset


@pytest.mark.usefixtures("visits")
def test_a_bad_file_fails_its_day_only_and_an_option_of_the_reader_mends_it(
    site: Site, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    bad = {day: content for day, (content, *_) in BAD.items()}
    for day, content in {**FINE, **bad}.items():
        (tmp_path / f"{day}.csv").write_bytes(content.replace(b"{day}", day.encode()))
    asset = from_files(tmp_path)

    def run(day: str, options: dict[str, Any]) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            [asset],
            instance=instance,
            partition_key=day,
            resources={"io_manager": site.io_manager()},
            run_config={"ops": {"visits": {"config": options}}},
            raise_on_error=False,
        )

    failed = {}
    for day in sorted({*FINE, *BAD}):
        result = run(day, {})
        if not result.success:
            failed[day] = _error(result)
            tags = instance.get_run_by_id(result.run_id).tags
            assert tags["dagster/retry_on_asset_or_op_failure"] == "false", (
                "it would fail again"
            )
    assert failed.keys() == BAD.keys()
    for day, (_, words, option, what) in BAD.items():
        said = failed[day]
        assert re.search(rf"{day}\.csv {words}", said), what
        assert "Nothing was inserted" in said, what
        [name] = option
        assert name in said, f"{what}: the option that mends it is named"
    for server in (site.r1, site.r2):
        assert on(server) == once(*FINE)

    for day, (_, _, option, what) in BAD.items():
        for _ in range(2):  # the second time inserts nothing
            assert run(day, option).success, what
    for server in (site.r1, site.r2):
        assert on(server) == once(*FINE, *BAD)


def _error(result: dg.ExecuteInProcessResult) -> str:
    """The innermost cause of what failed."""
    [event] = result.filter_events(lambda event: event.is_step_failure)
    error = event.step_failure_data.error
    assert error is not None
    while error.cause is not None:
        error = error.cause
    return str(error.message)


# Cancelled, retried, overlapping


def stored(write: str) -> dg.AssetsDefinition:
    @dg.asset(
        name="visits",
        partitions_def=DAYS,
        metadata={"partition_expr": "day", "rmt/write": write},
    )
    def asset(context: dg.AssetExecutionContext) -> dict[str, pa.Table]:
        return {day: rows_of(day) for day in context.partition_keys}

    return asset


def backfill(
    site: Site,
    instance: dg.DagsterInstance,
    asset: dg.AssetsDefinition,
    days: tuple[str, str],
    *,
    server: str = "r1",
) -> dg.ExecuteInProcessResult:
    """One run for all days from the first to the last."""
    first, last = days
    return dg.materialize(
        [asset],
        instance=instance,
        tags={
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last,
        },
        resources={"io_manager": site.io_manager(server)},
    )


def interrupted(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> Callable[[], bool]:
    """The next run is ended when its rows are in the table, before Dagster knows that."""
    record, ended = Recorder.parts, threading.Event()

    def parts(recorder: Recorder, done: Any) -> Any:
        if not ended.is_set():
            ended.set()
            raise error("after the insert")
        return record(recorder, done)

    monkeypatch.setattr(Recorder, "parts", parts)
    return ended.is_set


WRITES = pytest.mark.parametrize("write", ["append", "replace"])


@WRITES
@pytest.mark.usefixtures("visits")
def test_a_cancelled_backfill_that_is_run_again_has_every_row_once(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    was_cancelled = interrupted(monkeypatch, KeyboardInterrupt)
    days = ("2026-01-05", "2026-01-07")
    with pytest.raises(KeyboardInterrupt):
        backfill(site, instance, stored(write), days)
    assert was_cancelled()
    assert on(site.r1) == once("2026-01-05", "2026-01-06", "2026-01-07"), "before it ended"
    assert instance.get_latest_materialization_event(dg.AssetKey("visits")) is None

    assert backfill(site, instance, stored(write), days).success
    for server in (site.r1, site.r2):
        assert on(server) == once("2026-01-05", "2026-01-06", "2026-01-07")


@WRITES
@pytest.mark.usefixtures("visits")
def test_a_backfill_that_is_retried_has_every_row_once(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    has_failed = interrupted(monkeypatch, OSError)
    retried = stored(write)
    with pytest.raises(OSError, match="after the insert"):
        backfill(site, instance, retried, ("2026-01-05", "2026-01-06"))
    assert has_failed()
    again = backfill(site, instance, retried, ("2026-01-05", "2026-01-06"), server="r2")
    assert again.success
    for server in (site.r1, site.r2):
        assert on(server) == once("2026-01-05", "2026-01-06")


@WRITES
@pytest.mark.usefixtures("visits")
def test_backfills_that_overlap_in_days_and_time_have_every_row_once(
    site: Site, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """A run on each server; the second one is carried out when the first has stored its rows, and
    has not ended.
    """
    record, begun = Recorder.parts, threading.Event()

    def parts(recorder: Recorder, done: Any) -> Any:
        if not begun.is_set():
            begun.set()
            second = ("2026-01-07", "2026-01-10")
            assert backfill(site, instance, stored(write), second, server="r2").success
        return record(recorder, done)

    monkeypatch.setattr(Recorder, "parts", parts)
    assert backfill(site, instance, stored(write), ("2026-01-05", "2026-01-08")).success
    assert begun.is_set()
    for server in (site.r1, site.r2):
        assert on(server) == once(*(f"2026-01-{day:02}" for day in range(5, 11)))
