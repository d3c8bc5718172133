"""What FINAL reads, against the oracle."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.compute.merge_final import final_files
from rmt_pipeline.expressions.types import arrow_schema
from rmt_pipeline.protocol.rows import merge_rows
from rmt_pipeline.system import SystemClock
from tests.support.merging import definition, rows_of, rules_of, sorted_table, write_part

COLUMNS = [("k", "UInt8"), ("v", "UInt8"), ("flag", "UInt8"), ("sign", "Int8"), ("n", "Int64")]
TABLES = {
    "plain": definition(COLUMNS, ("k",)),
    "replacing": definition(
        COLUMNS, ("k",), "ReplacingMergeTree", version_column="v", is_deleted_column="flag"
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


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(ROW, max_size=6), max_size=3))
def test_final_shows_what_a_merge_of_everything_would_leave(table, parts) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        tables = [sorted_table(rows, table) for rows in parts]
        sources = [
            write_part(root, f"all_{number}_{number}_0", each)
            for number, each in enumerate(tables)
        ]
        (root / "final").mkdir()
        files = final_files(sources, table, str(root / "final"), SystemClock())
        found = pa.concat_tables(
            [
                arrow_schema(table.columns).empty_table(),
                *(pq.ParquetFile(file).read() for file in files),
            ]
        )
    wanted = merge_rows(
        [rows_of(each, table) for each in tables], replace(rules_of(table), final=True)
    )
    assert rows_of(found, table) == wanted
