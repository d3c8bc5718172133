"""Assets that are stored in a table and loaded from it, against a real server."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from rmt_pipeline.compute.inputs.conform import conform
from rmt_pipeline.dagster import ReaderConfig, RmtIOManager, names
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.replica.insert.quorum import TooFewLiveReplicas
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.sql.run.session import Session
from tests.support.local_work import working
from tests.support.site import Site
from tests.support.stored_assets import (
    CREATE,
    DAYS,
    materialize,
    metadata,
    rows_of,
    stored,
    stored_rows,
    versions,
)

pytestmark = [pytest.mark.dagster, pytest.mark.zookeeper]


def as_kind(kind: str, rows: pa.Table) -> Any:
    return {
        "pyarrow": lambda: rows,
        "reader": rows.to_reader,
        "pandas": rows.to_pandas,
        "polars": lambda: pl.from_arrow(rows),
        "duckdb": lambda: duckdb.from_arrow(rows),
        "list": rows.to_pylist,
    }[kind]()


@pytest.mark.parametrize("kind", ["pyarrow", "reader", "pandas", "polars", "duckdb", "list"])
def test_whatever_holds_rows_is_stored_once(
    site: Site, io_manager: RmtIOManager, kind: str
) -> None:
    asset = stored(lambda days: as_kind(kind, rows_of(days[0])))
    with dg.instance_for_test() as instance:
        first, again = (
            metadata(materialize(io_manager, [asset], instance, partition_key="2026-01-05"))
            for _ in range(2)
        )
        events = instance.fetch_materializations(
            names.parts_key("default.stored", "r1"), limit=9
        )
        assert len(events.records) == 1, "the ledger has the insert once"
    figures = ("dagster/row_count", "rows inserted", "rows duplicate")
    assert [first[name] for name in figures] == [3, 3, 0]
    assert [again[name] for name in figures] == [3, 0, 3]
    assert first["dagster/relation_identifier"] == "default.stored"
    columns = [column.name for column in first["dagster/column_schema"].columns]
    assert columns == ["day", "id", "amount"]
    assert site.r1.table("stored").dataset().count_rows() == 3


def store_one_after_another(
    io_manager: RmtIOManager, file: Path, contents: Sequence[str]
) -> None:
    """Materialize the day from the file with each of these contents."""
    with dg.instance_for_test() as instance:
        for text in contents:
            file.write_text(text, encoding="utf-8")
            asset = stored(lambda _: ReaderConfig().file(file))
            assert materialize(
                io_manager, [asset], instance, partition_key="2026-01-05"
            ).success


def test_a_file_is_the_same_insert_also_when_defaults_of_its_columns_change(
    site: Site, io_manager: RmtIOManager, tmp_path: Path
) -> None:
    """Neither `now()` nor how the text is written makes a retry another insert."""
    site.r1.drop_table("default", "stored")
    create = CREATE.replace("{uuid}", "stored_at").replace(
        "amount ", "at DateTime64(9) DEFAULT now64(9), amount "
    )
    Session(site.r1).execute(create)
    text = "day,id,amount\n2026-01-05,1,1.50\n2026-01-05,2,2.50\n"
    each = (text, text, text.replace("\n", "\r\n"), "day,id,amount\n")
    store_one_after_another(io_manager, tmp_path / "day.csv", each)
    assert site.r1.table("stored").dataset().count_rows() == 2


def test_a_file_without_a_column_is_another_insert_than_one_with_zeros(
    site: Site, io_manager: RmtIOManager, tmp_path: Path
) -> None:
    """What the default makes of the first is not in the second."""
    site.r1.drop_table("default", "stored")
    create = CREATE.replace("{uuid}", "stored_zero").replace(
        "amount ", "n UInt8 DEFAULT 7, amount "
    )
    Session(site.r1).execute(create)
    each = (
        "day,id,amount\n2026-01-05,1,1.50\n",
        "day,id,n,amount\n2026-01-05,1,0,1.50\n",
    )
    store_one_after_another(io_manager, tmp_path / "day.csv", each)
    rows = site.r1.table("stored").dataset().to_table(columns=["n"])
    assert sorted(rows["n"].to_pylist()) == [0, 7]


KINDS = (
    "CREATE TABLE stored (day Date, id UInt64, n UInt8 DEFAULT seed + 1, seed UInt8 EPHEMERAL 5, "
    "twice UInt8 MATERIALIZED seed * 2, next UInt64 ALIAS id + 1) ENGINE = "
    "ReplicatedMergeTree('/t/stored_kinds', '{replica}') PARTITION BY toYYYYMM(day) ORDER BY id"
)


def file_stored(
    write: str, file: Path, format_name: str = "CSVWithNames"
) -> dg.AssetsDefinition:
    @dg.asset(
        name="stored",
        partitions_def=DAYS,
        metadata={"partition_expr": "day", "rmt/write": write},
    )
    def asset() -> Any:
        return ReaderConfig().file(file, format_name)

    return asset


@pytest.mark.parametrize("write", ["append", "replace"])
def test_a_file_fills_a_table_with_columns_of_each_kind(
    site: Site, io_manager: RmtIOManager, tmp_path: Path, write: str
) -> None:
    """MATERIALIZED columns are computed, also from EPHEMERAL values that only the file has. Rows
    that differ in these values alone are another insert.
    """
    site.r1.drop_table("default", "stored")
    session = Session(site.r1)
    session.execute(KINDS)
    file = tmp_path / "day.csv"
    figures = []

    def store(text: str, format_name: str) -> list[tuple[Any, ...]]:
        file.write_text(text, encoding="utf-8")
        asset = file_stored(write, file, format_name)
        for _ in range(2):  # the second time changes nothing
            told = metadata(
                materialize(io_manager, [asset], instance, partition_key="2026-01-05")
            )
            figures.append((told["rows inserted"], told["rows duplicate"]))
        found = session.execute("SELECT id, n, twice, next FROM stored ORDER BY n")
        return [tuple(row.values()) for batch in found.batches for row in batch.to_pylist()]

    with dg.instance_for_test() as instance:
        plain = store("2026-01-05,1,7\n", "CSV")
        seeded = store("day,id,seed\n2026-01-05,1,20\n", "CSVWithNames")
        corrected = store("day,id,seed\n2026-01-05,1,30\n", "CSVWithNames")
    each = [(1, 7, 10, 2), (1, 21, 40, 2), (1, 31, 60, 2)]
    if write == "append":
        assert [plain, seeded, corrected] == [each[:1], each[:2], each]
    else:
        assert [plain, seeded, corrected] == [[row] for row in each]
    assert figures == [(1, 0), (0, 1)] * 3


@pytest.mark.parametrize("write", ["append", "replace"])
def test_all_rows_of_files_have_one_now(
    site: Site, io_manager: RmtIOManager, tmp_path: Path, write: str
) -> None:
    site.r1.drop_table("default", "stored")
    create = CREATE.replace("{uuid}", "stored_now").replace(
        "amount ", "at DateTime64(9) DEFAULT now64(9), amount "
    )
    Session(site.r1).execute(create)
    for number in range(3):  # each file is a batch
        text = f"day,id,amount\n2026-01-05,{number},1\n"
        (tmp_path / f"{number}.csv").write_text(text, encoding="utf-8")
    asset = file_stored(write, tmp_path / "*.csv")
    with dg.instance_for_test() as instance:
        materialize(io_manager, [asset], instance, partition_key="2026-01-05")
    times = site.r1.table("stored").dataset().to_table(columns=["at"]).column("at")
    assert (len(times), len(times.unique())) == (3, 1)


def test_a_file_that_grows_while_it_is_stored_is_another_insert_afterwards(
    site: Site, io_manager: RmtIOManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is that of the rows that were stored, so the new rows are no duplicate."""
    text = "day,id,amount\n2026-01-05,1,1.50\n"
    file = tmp_path / "day.csv"
    file.write_text(text, encoding="utf-8")

    def growing(*given: Any, **options: Any) -> Iterator[pa.Table]:
        yield from conform(*given, **options)
        file.write_text(text + "2026-01-05,2,2.50\n", encoding="utf-8")

    monkeypatch.setattr("rmt_pipeline.dagster.reader.conform", growing)
    asset = file_stored("append", file)
    counts = []
    with dg.instance_for_test() as instance:
        for _ in range(2):
            materialize(io_manager, [asset], instance, partition_key="2026-01-05")
            counts.append(site.r1.table("stored").dataset().count_rows())
    assert counts == [1, 3]


@pytest.mark.parametrize("format_name", ["CSVWithNames", "Parquet", "Arrow"])
@pytest.mark.usefixtures("site")
def test_a_disk_error_is_tried_again_but_not_a_broken_file(
    io_manager: RmtIOManager, tmp_path: Path, format_name: str
) -> None:
    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"not compressed, nor a file of the other formats")
    unreadable = Path("/proc/self/mem")  # to read its first bytes is an input/output error
    tags = []
    with dg.instance_for_test() as instance:
        for file in (unreadable, broken):
            asset = file_stored("append", file, format_name)
            result = materialize(
                io_manager, [asset], instance, partition_key="2026-01-05", raise_on_error=False
            )
            [failure] = [each for each in result.all_events if each.is_step_failure]
            said = failure.step_failure_data.error.to_string()
            assert f"{file} can't be read" in said
            run = instance.get_run_by_id(result.run_id)
            assert run is not None
            tags.append(run.tags.get("dagster/retry_on_asset_or_op_failure"))
    assert tags == [None, "false"]


def test_rows_that_were_corrected_are_another_insert(
    site: Site, io_manager: RmtIOManager
) -> None:
    with dg.instance_for_test() as instance:
        for count in (2, 3):
            asset = stored(lambda days, count=count: rows_of(days[0], count))
            materialize(io_manager, [asset], instance, partition_key="2026-01-05")
    assert site.r1.table("stored").dataset().count_rows() == 5


def test_a_run_that_is_slowed_down_says_so(site: Site, io_manager: RmtIOManager) -> None:
    Session(site.r1).execute(
        "ALTER TABLE stored MODIFY SETTING parts_to_delay_insert = 1, min_delay_to_insert_ms = 30"
    )
    asset = stored(lambda days: rows_of(days[0]))
    with dg.instance_for_test() as instance:
        one, other = (
            metadata(materialize(io_manager, [asset], instance, partition_key=day))["in words"]
            for day in ("2026-01-05", "2026-01-06")
        )
    assert (one, other.partition(" s first")[0]) == (
        "inserted 3 rows as 1 part",
        "inserted 3 rows as 1 part; it waited 0.03",
    )


def test_a_data_version_is_of_the_rows_and_not_of_the_run(io_manager: RmtIOManager) -> None:
    """What is downstream is stale when the rows of its partition are others, and only then."""

    @dg.asset(partitions_def=DAYS)
    def downstream(stored: pa.Table) -> None: ...

    def status(asset: dg.AssetsDefinition, day: str) -> str:
        graph = dg.Definitions([asset, downstream]).resolve_asset_graph()
        loading = LoadingContextForTest(instance)
        resolver = CachingStaleStatusResolver(instance, graph, loading)
        return resolver.get_status(downstream.key, day).value

    first = stored(lambda days: rows_of(days[0]))
    corrected = stored(lambda days: rows_of(days[0], 4))
    with dg.instance_for_test() as instance:
        for day in ("2026-01-05", "2026-01-06"):
            materialize(io_manager, [first, downstream], instance, partition_key=day)
        materialize(io_manager, [first], instance, partition_key="2026-01-05")
        assert status(first, "2026-01-05") == "FRESH", "the same rows again"
        materialize(io_manager, [corrected], instance, partition_key="2026-01-05")
        assert status(corrected, "2026-01-05") == "STALE"
        assert status(corrected, "2026-01-06") == "FRESH", "a day whose rows are the same"
        one, same, other = versions(instance)
    assert one == same != other


def test_a_data_version_that_an_asset_says_itself_stays(io_manager: RmtIOManager) -> None:
    @dg.asset(name="stored", partitions_def=DAYS)
    def asset(context: dg.AssetExecutionContext) -> pa.Table:
        context.set_data_version(context.asset_key, dg.DataVersion("mine"))
        return rows_of(context.partition_key)

    with dg.instance_for_test() as instance:
        materialize(io_manager, [asset], instance, partition_key="2026-01-05")
        assert versions(instance) == ["mine"]


def test_each_partition_of_a_run_has_its_own_figures(
    site: Site, io_manager: RmtIOManager
) -> None:
    """In Dagster's page of a day, its rows and the insert to undo are that day's."""
    asset = stored(lambda days: {day: rows_of(day, int(day[-1])) for day in days})
    span = {
        "dagster/asset_partition_range_start": "2026-01-05",
        "dagster/asset_partition_range_end": "2026-01-07",
    }
    with dg.instance_for_test() as instance:
        result = materialize(io_manager, [asset], instance, tags=span)
    told = {
        str(event.partition): {name: value.value for name, value in event.metadata.items()}
        for event in (
            each.materialization for each in result.get_asset_materialization_events()
        )
        if event.asset_key == dg.AssetKey("stored")
    }
    counts = {day: found["dagster/row_count"] for day, found in told.items()}
    assert counts == {"2026-01-05": 5, "2026-01-06": 6, "2026-01-07": 7}
    assert {found["parts"] for found in told.values()} == {1}
    plan = site.r1.table("stored").plan_undo(str(told["2026-01-06"]["insert id"]))
    assert (plan.refusal, plan.rows) == ("", 6)


def test_days_that_do_not_follow_one_another_are_read_without_those_between(
    io_manager: RmtIOManager,
) -> None:
    wanted = ["2026-01-05", "2026-01-07", "2026-01-08", "2026-01-20"]
    seen: list[set[str]] = []

    @dg.asset(
        ins={
            "stored": dg.AssetIn(
                partition_mapping=dg.SpecificPartitionsPartitionMapping(wanted)
            )
        }
    )
    def downstream(stored: list) -> None:  # type: ignore[type-arg]
        seen.append({str(row["day"]) for row in stored})

    span = {
        "dagster/asset_partition_range_start": "2026-01-04",
        "dagster/asset_partition_range_end": "2026-01-21",
    }
    with dg.instance_for_test() as instance:
        upstream = stored(lambda days: pa.concat_tables(rows_of(day, 1) for day in days))
        materialize(io_manager, [upstream], instance, tags=span)
        materialize(io_manager, [upstream, downstream], instance, selection=[downstream])
    assert seen == [set(wanted)]


def test_a_run_of_several_days_inserts_each_or_all_at_once(
    site: Site, io_manager: RmtIOManager
) -> None:
    span = {
        "dagster/asset_partition_range_start": "2026-01-05",
        "dagster/asset_partition_range_end": "2026-01-07",
    }
    each = stored(lambda days: {day: rows_of(day) for day in days})
    once = stored(lambda days: pa.concat_tables(rows_of(day, 4) for day in days))
    with dg.instance_for_test() as instance:
        materialize(io_manager, [each], instance, tags=span)
        assert site.r1.table("stored").dataset().count_rows() == 9
        # One of them again, by itself: it is the same insert.
        one = materialize(
            io_manager,
            [stored(lambda days: rows_of(days[0]))],
            instance,
            partition_key="2026-01-06",
        )
        assert metadata(one)["rows duplicate"] == 3
        materialize(io_manager, [once], instance, tags=span)
    assert site.r1.table("stored").dataset().count_rows() == 9 + 12


@pytest.mark.parametrize(
    "wanted",
    [pa.Table, pa.RecordBatchReader, pd.DataFrame, pl.DataFrame, duckdb.DuckDBPyRelation, list],
)
def test_a_downstream_asset_reads_its_partition_as_what_it_asks_for(
    io_manager: RmtIOManager, wanted: type
) -> None:
    seen: list[Any] = []

    @dg.asset(partitions_def=DAYS)
    def downstream(stored: wanted) -> None:  # type: ignore[valid-type]
        assert isinstance(stored, wanted)
        seen.append(stored if wanted is not duckdb.DuckDBPyRelation else stored.fetchall())  # type: ignore[attr-defined]

    with dg.instance_for_test() as instance:
        for day in ("2026-01-05", "2026-01-06"):
            materialize(
                io_manager,
                [stored(lambda days: rows_of(days[0])), downstream],
                instance,
                partition_key=day,
            )
    second = seen[1]
    count = second.read_all().num_rows if wanted is pa.RecordBatchReader else len(second)
    assert count == 3, "the rows of one day, not of both"


def test_a_month_is_a_partition_like_a_day(site: Site, io_manager: RmtIOManager) -> None:
    """Stored, replaced and read; of a table that knows no months but its own."""
    seen: list[set[str]] = []
    months = dg.MonthlyPartitionsDefinition("2026-01-01", end_date="2026-04-01")

    def monthly(days: tuple[str, ...]) -> dg.AssetsDefinition:
        @dg.asset(
            name="stored",
            partitions_def=months,
            metadata={"partition_expr": "day", "rmt/write": "replace"},
        )
        def asset(context: dg.AssetExecutionContext) -> dict[str, pa.Table]:
            return {
                key: pa.concat_tables(rows_of(key.removesuffix("01") + day, 1) for day in days)
                for key in context.partition_keys
            }

        return asset

    @dg.asset(partitions_def=months)
    def downstream(stored: list) -> None:  # type: ignore[type-arg]
        seen.append({str(row["day"]) for row in stored})

    span = {
        "dagster/asset_partition_range_start": "2026-01-01",
        "dagster/asset_partition_range_end": "2026-02-01",
    }
    with dg.instance_for_test() as instance:
        materialize(io_manager, [monthly(("01", "28"))], instance, tags=span)
        corrected = [monthly(("14",)), downstream]
        materialize(io_manager, corrected, instance, partition_key="2026-02-01")
    assert seen == [{"2026-02-14"}]
    days = [day for day, _ in stored_rows(site)]
    assert days == ["2026-01-01", "2026-01-28", "2026-02-14"]


def test_what_can_t_be_stored_is_named_with_what_can(io_manager: RmtIOManager) -> None:
    with (
        dg.instance_for_test() as instance,
        pytest.raises(UserError, match="returned int; what"),
    ):
        materialize(io_manager, [stored(lambda _: 7)], instance, partition_key="2026-01-05")


def test_rows_of_a_partition_that_the_run_is_not_for_are_refused(
    site: Site, io_manager: RmtIOManager
) -> None:
    asset = stored(lambda _: {"2026-01-09": rows_of("2026-01-09")})
    with dg.instance_for_test() as instance, pytest.raises(UserError, match="2026-01-09"):
        materialize(io_manager, [asset], instance, partition_key="2026-01-05")
    assert site.r1.table("stored").dataset().count_rows() == 0


def test_an_input_without_an_annotation_is_an_arrow_table(io_manager: RmtIOManager) -> None:
    """Since Python 3.11 `typing.Any`, which Dagster says of it, is a class."""
    seen = []

    @dg.asset
    def bare(stored):  # type: ignore[no-untyped-def]
        seen.append(stored)

    @dg.asset
    def whatever(stored: Any) -> None:
        seen.append(stored)

    @dg.asset(name="stored")
    def unpartitioned() -> pa.Table:
        return rows_of("2026-01-05")

    with dg.instance_for_test() as instance:
        materialize(io_manager, [unpartitioned, bare, whatever], instance)
    assert [type(one) for one in seen] == [pa.Table, pa.Table]


def test_a_type_that_is_not_loaded_is_named(io_manager: RmtIOManager) -> None:
    @dg.asset
    def downstream(stored: dict) -> None:  # type: ignore[type-arg]
        raise AssertionError(stored)

    @dg.asset(name="stored")
    def unpartitioned() -> pa.Table:
        return rows_of("2026-01-05")

    with dg.instance_for_test() as instance, pytest.raises(UserError, match="annotated as"):
        materialize(io_manager, [unpartitioned, downstream], instance)


def test_a_materialization_can_mean_that_the_rows_are_on_two_hosts(
    site: Site, io_manager: RmtIOManager
) -> None:
    """Here the table is on one: so it is refused, and nothing is stored."""

    @dg.asset(name="stored", metadata={"rmt/quorum": 2})
    def on_two_hosts() -> pa.Table:
        return rows_of("2026-01-01")

    with dg.instance_for_test() as instance, pytest.raises(TooFewLiveReplicas, match="wants 2"):
        materialize(io_manager, [on_two_hosts], instance)
    assert site.r1.table("stored").parts() == []


def test_all_that_a_run_reads_of_a_table_is_of_one_moment_and_stays_until_it_ends(
    site: Site, io_manager: RmtIOManager
) -> None:
    """Between two of its inputs rows come, parts are merged, and clean-up wants the old ones."""
    session, table = Session(site.r1), site.r1.table("stored")
    session.execute("ALTER TABLE stored MODIFY SETTING old_parts_lifetime = 0")
    for number in range(2):
        session.execute(f"INSERT INTO stored VALUES ('2026-01-05', {number}, 1.50)")
    before = [part.name for part in table.parts()]
    seen: list[list[int]] = []

    def clean_up() -> None:
        carry_out(table.replica, plan_clean_up(table.replica))

    def meanwhile() -> None:
        session.execute("INSERT INTO stored VALUES ('2026-01-05', 7, 1.50)")
        session.execute("OPTIMIZE TABLE stored FINAL")
        clean_up()
        assert not set(before) & {part.name for part in table.parts()}, "they were merged"
        assert all(table.store.has(part) for part in before), "and are there"

    day = dg.DailyPartitionsDefinition("2026-01-05", end_date="2026-01-06")
    source = dg.AssetSpec("stored", partitions_def=day, metadata={"partition_expr": "day"})

    @dg.asset(partitions_def=day)
    def first(stored: pa.Table) -> None:
        seen.append(sorted(stored["id"].to_pylist()))
        meanwhile()

    @dg.asset(partitions_def=day, deps=[first])
    def second(stored: list) -> None:  # type: ignore[type-arg]
        seen.append(sorted(row["id"] for row in stored))

    def run(*assets: Any) -> None:
        materialize(io_manager, [source, *assets], instance, partition_key="2026-01-05")

    with dg.instance_for_test() as instance, working(site.r1, table.definition):
        run(first, second)
        assert seen == [[0, 1], [0, 1]]
        clean_up()
        assert not any(table.store.has(part) for part in before), "nobody holds them any more"
        run(second)
        assert seen[-1] == [0, 1, 7], "the next run reads what is there then"
