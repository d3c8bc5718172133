"""What Dagster is told about parts."""

import dagster as dg

from assets import ledger
from rmt_pipeline.protocol.parts import PartName
from rmt_pipeline.replica.execute import PartDone


def part(number: int, *, kind: str = "FETCH", rows: int = 10, lag_s: float = 0.02) -> PartDone:
    return PartDone(
        part=PartName("201301", number, number, 0),
        kind=kind,
        rows=rows,
        size_bytes=100,
        source_replica="r1",
        lag_s=lag_s,
    )


def test_a_flush_is_counted_by_kind_and_lists_every_part() -> None:
    metadata = ledger.parts_metadata([part(1), part(2, rows=5), part(3, kind="MERGE_PARTS")])
    assert metadata["dagster/row_count"] == 25
    assert metadata["parts FETCH"] == 2
    assert metadata["parts MERGE_PARTS"] == 1
    assert metadata["fetch lag p50 ms"] == 20.0
    table = metadata["parts"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [record.data["part"] for record in table.records] == [
        "201301_1_1_0",
        "201301_2_2_0",
        "201301_3_3_0",
    ]


def test_the_columns_of_the_table_are_those_of_its_rows() -> None:
    table = ledger.parts_table([part(1)])
    assert list(table.records[0].data) == [column.name for column in table.schema.columns]


def test_a_merge_says_what_went_in_and_what_came_out() -> None:
    merges = [
        PartDone(
            part=PartName("201301", number, number + 1, 1),
            kind="MERGE_PARTS",
            rows=7,
            size_bytes=50,
            rows_in=10,
            bytes_in=80,
            seconds=number,
        )
        for number in (1, 3)
    ]
    metadata = ledger.parts_metadata([*merges, part(8)])
    assert {name: value for name, value in metadata.items() if name.startswith("merge ")} == {
        "merge rows in": 20,
        "merge rows out": 14,
        "merge bytes in": 160,
        "merge bytes out": 100,
        "merge seconds max": 3,
    }
    assert not any(name.startswith("merge ") for name in ledger.parts_metadata([part(8)]))


def test_results_that_differ_are_counted() -> None:
    name = "results that differ from another replica's"
    failed = [
        PartDone(part(1).part, "MERGE_PARTS", error="ours is 1, theirs 2", differs=True),
        PartDone(part(2).part, "FETCH", error="nobody has it"),
    ]
    assert ledger.failures_metadata(failed)[name] == 1
    assert name not in ledger.failures_metadata(failed[1:])


def test_the_sources_of_a_large_merge_are_a_range() -> None:
    sources = tuple(PartName("201301", number, number, 0) for number in range(31))
    merged = PartDone(part=PartName("201301", 0, 30, 1), kind="MERGE_PARTS", sources=sources)
    [row] = ledger.parts_table([merged]).records
    assert row.data["sources"] == "31 parts, 201301_0_0_0 … 201301_30_30_0"
