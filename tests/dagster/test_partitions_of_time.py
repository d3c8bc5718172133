"""Which rows of a table are of a partition of time, with real servers."""

from dataclasses import dataclass

import dagster as dg
import pyarrow as pa
import pytest

from rmt_pipeline.dagster import RmtIOManager
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
BEFORE_1970 = Case(
    MONTHS,
    "1950-03-01",
    "Nullable(Date32)",
    ["1950-03-01", "1950-03-31"],
    ["1950-02-28", "1950-04-01"],
)


@pytest.mark.parametrize("case", [MOMENTS, DAYS, BEFORE_1970], ids=lambda case: case.kind)
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
        return pa.table({"at": case.of_it[-1:], "id": [7]})

    @dg.asset(partitions_def=case.partitions)
    def downstream(timed: list) -> None:  # type: ignore[type-arg]
        seen.append(sorted(row["id"] for row in timed))

    try:
        session.execute(f"INSERT INTO timed VALUES {values}")
        io_manager = RmtIOManager(server="r1", config_path=str(site.config.path))
        with dg.instance_for_test() as instance:
            for selection in ([downstream], [timed, downstream]):
                dg.materialize(
                    [timed, downstream],
                    resources={"io_manager": io_manager},
                    instance=instance,
                    selection=selection,
                    partition_key=case.key,
                )
        assert seen == [list(range(len(case.of_it))), [7]]
        assert site.r1.table("timed").dataset().count_rows() == len(case.others) + 1
    finally:
        site.r1.drop_table("default", "timed")
