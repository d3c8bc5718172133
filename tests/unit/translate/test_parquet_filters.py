"""Conditions on Parquet files: what DuckDB hands to its reader gives the rows that it should."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from rmt_pipeline.protocol.table import Column
from rmt_pipeline.store import parquet
from rmt_pipeline.translate.expression import compile_expression
from rmt_pipeline.translate.select.query import translate_query
from rmt_pipeline.translate.select.sources import Relation
from tests.support.queries import parse_query

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


@pytest.mark.parametrize("direction", ["", "DESC"])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_first_rows_are_those_of_all_rows_in_order(
    tmp_path: Path, direction: str, limit: int
) -> None:
    """By the first of them DuckDB lets its reader choose rows of the next files."""
    parts = [["b", "b"], ["a"], ["a", "a"], ["c", None], [None, "c"]]
    files = []
    for at, texts in enumerate(parts):
        table = pa.table(
            {"i": [2 * at + n for n in range(len(texts))], "s": pa.array(texts, pa.string())}
        )
        files.append(tmp_path / f"part{at}.parquet")
        files[-1].write_bytes(parquet.to_parquet(table))
    names = ", ".join(f"'{file}'" for file in files)
    relation = Relation(f"read_parquet([{names}])", COLUMNS)
    connection = duckdb.connect()
    for these in ("s", "s, i", "i % 2, s"):
        text = f"SELECT s, i FROM t ORDER BY {these} {direction} NULLS FIRST, i"
        every, first = (
            connection.execute(
                translate_query(parse_query(query), lambda _: relation).sql
            ).fetchall()
            for query in (text, f"{text} LIMIT {limit}")
        )
        assert first == every[:limit], text
