"""Which rows of a table are of a partition of time, with real servers."""

import datetime as dt
from dataclasses import dataclass

import dagster as dg
import pyarrow as pa
import pytest

from rmt_pipeline.dagster.rows.partitions import windows_of
from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.sql.run.session import Session
from tests.support.site import Site

pytestmark = [pytest.mark.dagster, pytest.mark.zookeeper]

NEW_YORK = dg.DailyPartitionsDefinition("2026-01-01", timezone="America/New_York")
MONTHS = dg.MonthlyPartitionsDefinition("1950-01-01")


@dataclass(frozen=True)
class Case:
    partitions: dg.PartitionsDefinition[str]
    key: str
    kind: str
    of_it: list[str]
    others: list[str]


MOMENTS = Case(
    NEW_YORK,
    "2026-01-05",
    "DateTime",
    ["2026-01-05 05:00:00", "2026-01-06 04:59:59"],
    ["2026-01-05 04:59:59", "2026-01-06 05:00:00"],
)
DAYS = Case(NEW_YORK, "2026-01-05", "Date", ["2026-01-05"], ["2026-01-04", "2026-01-06"])
SECONDS = Case(
    NEW_YORK,
    "2026-01-05",
    "UInt32",
    ["1767589200", "1767675599"],
    ["1767589199", "1767675600"],
)
BEFORE_1970 = Case(
    MONTHS,
    "1950-03-01",
    "Nullable(Date32)",
    ["1950-03-01", "1950-03-31"],
    ["1950-02-28", "1950-04-01"],
)


@pytest.mark.parametrize(
    "case", [MOMENTS, SECONDS, DAYS, BEFORE_1970], ids=lambda case: case.kind
)
def test_a_partition_is_read_and_replaced_whatever_its_zone_and_century(
    site: Site, case: Case
) -> None:
    session, seen = Session(site.r1), []
    session.execute(
        f"CREATE TABLE timed (at {case.kind}, id Int32) "
        "ENGINE = ReplicatedMergeTree('/t/timed', '{replica}') ORDER BY id"
    )
    values = ", ".join(f"('{row}', {at})" for at, row in enumerate([*case.of_it, *case.others]))

    @dg.asset(
        partitions_def=case.partitions,
        metadata={"partition_expr": "at", "rmt/write": "replace"},
    )
    def timed() -> pa.Table:
        last = case.of_it[-1]
        return pa.table({"at": [int(last) if last.isdigit() else last], "id": [7]})

    @dg.asset(partitions_def=case.partitions)
    def downstream(timed: list) -> None:  # type: ignore[type-arg]
        seen.append(sorted(row["id"] for row in timed))

    try:
        session.execute(f"INSERT INTO timed VALUES {values}")
        manager = site.io_manager()
        with dg.instance_for_test() as instance:
            for selection in ([downstream], [timed, downstream]):
                dg.materialize(
                    [timed, downstream],
                    resources={"io_manager": manager},
                    instance=instance,
                    selection=selection,
                    partition_key=case.key,
                )
        assert seen == [list(range(len(case.of_it))), [7]]
        assert site.r1.table("timed").dataset().count_rows() == len(case.others) + 1
    finally:
        site.r1.drop_table("default", "timed")


OF_BOTH = dg.MultiPartitionsDefinition(
    {
        "day": dg.DailyPartitionsDefinition("2026-01-01"),
        "place": dg.StaticPartitionsDefinition(["a", "b'"]),
    }
)


def test_a_partition_of_two_dimensions_is_read_and_replaced(site: Site) -> None:
    session, seen = Session(site.r1), []
    session.execute(
        "CREATE TABLE placed (day Date, place String, id Int32) "
        "ENGINE = ReplicatedMergeTree('/t/placed', '{replica}') ORDER BY id"
    )
    metadata = {
        "partition_expr": {"day": "day", "place": "lower(place)"},
        "rmt/write": "replace",
    }

    @dg.asset(partitions_def=OF_BOTH, metadata=metadata)
    def placed() -> pa.Table:
        return pa.table({"day": ["2026-01-05"], "place": ["A"], "id": [7]})

    @dg.asset(partitions_def=OF_BOTH)
    def downstream(placed: list) -> None:  # type: ignore[type-arg]
        seen.append(sorted(row["id"] for row in placed))

    try:
        session.execute(
            "INSERT INTO placed VALUES ('2026-01-05', 'a', 1), ('2026-01-05', 'b''', 2), "
            "('2026-01-06', 'a', 3), ('2026-01-06', 'b''', 4)"
        )
        manager = site.io_manager()
        with dg.instance_for_test() as instance:
            for selection in ([downstream], [placed, downstream]):
                dg.materialize(
                    [placed, downstream],
                    resources={"io_manager": manager},
                    instance=instance,
                    selection=selection,
                    partition_key=dg.MultiPartitionKey({"day": "2026-01-05", "place": "a"}),
                )
        assert seen == [[1], [7]]
        assert sorted(site.r1.table("placed").dataset().to_table()["id"].to_pylist()) == [
            *(2, 3, 4, 7),
        ]
    finally:
        site.r1.drop_table("default", "placed")


def test_a_dimension_without_an_expression_is_asked_for(site: Site) -> None:
    """Else no row would be of such a partition, and nothing would be read."""
    session = Session(site.r1)
    session.execute(
        "CREATE TABLE undimensioned (day Date) "
        "ENGINE = ReplicatedMergeTree('/t/undimensioned', '{replica}') ORDER BY day"
    )
    source = dg.AssetSpec(
        "undimensioned", partitions_def=OF_BOTH, metadata={"partition_expr": "day"}
    )

    @dg.asset(partitions_def=OF_BOTH)
    def downstream(undimensioned: list) -> None:  # type: ignore[type-arg]
        raise AssertionError("it has nothing to read")

    try:
        manager = site.io_manager()
        with (
            dg.instance_for_test() as instance,
            pytest.raises(UserError, match="day and place"),
        ):
            dg.materialize(
                [source, downstream],
                resources={"io_manager": manager},
                instance=instance,
                partition_key=dg.MultiPartitionKey({"day": "2026-01-05", "place": "a"}),
            )
    finally:
        site.r1.drop_table("default", "undimensioned")


def test_hours_round_one_that_a_clock_shows_twice_are_not_joined_across_it() -> None:
    """Else a run that replaces the two would delete the hour between them."""
    hours = dg.HourlyPartitionsDefinition("2026-01-01-00:00", timezone="America/New_York")
    before, twice, again = (
        hours.time_window_for_partition_key(f"2026-11-01-{key}")
        for key in ("00:00", "01:00", "01:00-0500")
    )
    assert _moments([again, before]) == [(4, 5), (6, 7)]
    assert _moments([again, twice, before]) == [(4, 7)]
    assert _moments([again, twice]) == [(5, 7)]


def _moments(windows: list[dg.TimeWindow]) -> list[tuple[int, int]]:
    """The hours of UTC in which the joined windows begin and end."""
    return [
        (window.start.astimezone(dt.UTC).hour, window.end.astimezone(dt.UTC).hour)
        for window in windows_of(windows)
    ]
