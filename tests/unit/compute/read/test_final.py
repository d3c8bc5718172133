"""What FINAL reads, against the oracle."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.compute.merge.job import SourcePart
from rmt_pipeline.compute.read.final import columns_for_final, final_files, final_rows
from rmt_pipeline.protocol.table import Column, ColumnChange, TableDefinition
from rmt_pipeline.syntax.types import arrow_schema
from rmt_pipeline.system import SystemClock
from tests.oracle.rows import merge_rows
from tests.support.merging import Row, definition, rows_of, rules_of, sorted_table, write_part

COLUMNS = [("k", "UInt8"), ("v", "UInt8"), ("flag", "UInt8"), ("sign", "Int8"), ("n", "Int64")]
TABLES = {
    "plain": definition(COLUMNS, ("k",)),
    "replacing": definition(
        COLUMNS, ("k",), "ReplacingMergeTree", version_column="v", is_deleted_column="flag"
    ),
    "aggregating": definition(
        [*COLUMNS[:-1], ("n", "SimpleAggregateFunction(max, Int64)")],
        ("k",),
        "AggregatingMergeTree",
    ),
    "summing": definition(COLUMNS, ("k",), "SummingMergeTree", columns_to_sum=("n",)),
    "collapsing": definition(COLUMNS, ("k",), "CollapsingMergeTree", sign_column="sign"),
    "versioned": definition(
        COLUMNS, ("k",), "VersionedCollapsingMergeTree", sign_column="sign", version_column="v"
    ),
}
ROW = st.fixed_dictionaries(
    {
        "k": st.integers(0, 3),
        "v": st.integers(0, 2),
        "flag": st.integers(0, 1),
        "sign": st.sampled_from([-1, 1]),
        "n": st.integers(-1, 1),
    }
)


@contextmanager
def parts_on_disk(
    tables: list[pa.Table], names: list[str] | None = None
) -> Iterator[tuple[list[SourcePart], str]]:
    """Parts with these rows, and an empty directory."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        names = names or [f"all_{number}_{number}_0" for number in range(len(tables))]
        pairs = zip(names, tables, strict=True)
        sources = [write_part(root, part, each) for part, each in pairs]
        (root / "final").mkdir()
        yield sources, str(root / "final")


def read(files: Sequence[str], table: TableDefinition) -> list[Row]:
    found = [pq.ParquetFile(file).read() for file in files]
    return rows_of(pa.concat_tables([arrow_schema(table.columns).empty_table(), *found]), table)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(ROW, max_size=6), max_size=3))
def test_final_shows_what_a_merge_of_everything_would_leave(table, parts) -> None:
    tables = [sorted_table(rows, table) for rows in parts]
    with parts_on_disk(tables) as (sources, directory):
        found = read(final_files(sources, table, directory, SystemClock()), table)
    wanted = merge_rows(
        [rows_of(each, table) for each in tables], replace(rules_of(table), final=True)
    )
    assert found == wanted


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(ROW, max_size=6), min_size=4, max_size=4), st.booleans())
def test_partitions_are_merged_together_or_apart_as_asked(table, parts, apart) -> None:
    """A partition of one part that was merged before is not merged again, and shows the same."""
    rules = rules_of(table)
    tables = [sorted_table(rows, table) for rows in parts[:3]]
    once = merge_rows([rows_of(sorted_table(parts[3], table), table)], rules)
    tables.append(sorted_table(once, table))
    names = ["1_0_0_0", "1_1_1_0", "2_0_0_0", "3_0_1_1"]
    groups = [tables[:2], [tables[2]], [tables[3]]] if apart else [tables]
    wanted = [
        row
        for group in groups
        for row in merge_rows(
            [rows_of(each, table) for each in group], replace(rules, final=True)
        )
    ]
    with parts_on_disk(tables, names) as (sources, directory):
        found = final_rows(sources, table, directory, SystemClock(), by_partition=apart)
        untouched = [
            f"{s.directory}/{f.name}" for s in found.untouched for f in s.manifest.files
        ]
        rows = read([*found.files, *untouched], table)
    assert rows == wanted


SUMS = TABLES["summing"].columns


@pytest.mark.parametrize(
    ("columns", "history", "is_final"),
    [
        (SUMS, (), True),
        ((*SUMS, Column("x", "Int64", default="5", default_kind="DEFAULT")), (), True),
        ((*SUMS[:-1], replace(SUMS[-1], name="m")), (ColumnChange(1, "n", "m"),), True),
        ((*SUMS[:2], *SUMS[3:]), (ColumnChange(1, "flag"),), False),
        (SUMS, (ColumnChange(1, "n"),), False),
        ((*SUMS[:-1], replace(SUMS[-1], type="Int8")), (), False),
    ],
)
def test_sums_of_a_merged_part_are_added_up_again_only_if_one_may_be_gone(
    columns, history, is_final
) -> None:
    """An ALTER of something else would make each SELECT … FINAL merge a large part."""
    altered = replace(TABLES["summing"], columns=columns, history=history, metadata_version=1)
    rows = [{"k": 1, "v": 0, "flag": 0, "sign": 0, "n": 7}]
    with parts_on_disk([sorted_table(rows, TABLES["summing"])], ["all_0_1_1"]) as found:
        sources, directory = found
        untouched = final_rows(sources, altered, directory, SystemClock()).untouched
    assert bool(untouched) == is_final


def test_only_columns_that_decide_are_merged_besides_those_that_are_wanted() -> None:
    def needed(table: TableDefinition, *wanted: str) -> list[str]:
        return [column.name for column in columns_for_final(table, wanted)]

    assert needed(TABLES["replacing"], "n") == ["k", "v", "flag", "n"]
    assert needed(TABLES["collapsing"]) == ["k", "sign"]
    assert needed(TABLES["summing"]) == [name for name, _ in COLUMNS]
    with_default = TABLES["replacing"].with_columns(
        tuple(
            replace(column, default="n + 1") if column.name == "sign" else column
            for column in TABLES["replacing"].columns
        )
    )
    assert needed(with_default, "sign") == [name for name, _ in COLUMNS]
    assert needed(replace(TABLES["plain"], order_by=())) == ["k"]
