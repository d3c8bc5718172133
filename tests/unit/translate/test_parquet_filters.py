"""Conditions on Parquet files: what DuckDB hands to its reader gives the rows that it should."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from rmt_pipeline.protocol.table import Column
from rmt_pipeline.store import parquet
from rmt_pipeline.translate.expression import compile_expression

COLUMNS = (Column("i", "Int64"), Column("s", "Nullable(String)"))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s IS NULL", [0, 2]),
        ("isNull(s)", [0, 2]),
        ("NOT (s IS NOT NULL)", [0, 2]),
        ("NOT isNotNull(s)", [0, 2]),
        ("s IS NULL AND i >= 0", [0, 2]),
        ("s IS NOT DISTINCT FROM NULL", [0, 2]),
        ("s IS NOT NULL", [1]),
        ("NOT (s IS NULL)", [1]),
        ("s = ''", [1]),
        ("s != 'x'", [1]),
        ("s <= ''", [1]),
        ("s IN ('', 'y')", [1]),
    ],
)
def test_rows_without_a_value_are_not_those_with_the_only_one(
    tmp_path: Path, condition: str, expected: list[int]
) -> None:
    """DuckDB 2.0.0 took all three rows for NULL."""
    table = pa.table({"i": [0, 1, 2], "s": pa.array([None, "", None])})
    file = tmp_path / "part.parquet"
    file.write_bytes(parquet.to_parquet(table))
    sql = compile_expression(condition, COLUMNS).condition_sql
    found = duckdb.connect().execute(f"SELECT i FROM read_parquet('{file}') WHERE {sql}")
    assert sorted(row[0] for row in found.fetchall()) == expected
