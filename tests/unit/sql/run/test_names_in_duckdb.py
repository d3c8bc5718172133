"""What columns and directories are called confuses DuckDB, which reads the files, with nothing."""

from pathlib import Path

import pyarrow as pa
import pytest

from rmt_pipeline.protocol.errors import BadValue
from rmt_pipeline.protocol.table import Column, ColumnChange, Engine, TableDefinition
from rmt_pipeline.sql.run.table_relation import TableFiles, relation_over
from rmt_pipeline.store.manifest import PartColumn
from rmt_pipeline.store.parquet import to_parquet
from rmt_pipeline.translate.connection import open_connection
from rmt_pipeline.translate.evaluate import evaluate
from rmt_pipeline.translate.expression import compile_expression
from rmt_pipeline.translate.select.query import translate_query
from tests.support.queries import parse_query


def table_of(*names: str, history: tuple[ColumnChange, ...] = ()) -> TableDefinition:
    return TableDefinition(
        database="default",
        name="t",
        columns=tuple(Column(name, "Int64") for name in names),
        engine=Engine("MergeTree", "/t", "r1"),
        order_by=(names[0],),
        history=history,
    )


def part(directory: Path, **columns: int) -> TableFiles:
    """A part of one row, with its columns in this order."""
    file = directory / "all_0_0_0" / f"{'-'.join(columns)}-{len(list(directory.rglob('*')))}"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = pa.table({name: pa.array([value], pa.int64()) for name, value in columns.items()})
    file.write_bytes(to_parquet(rows))
    return TableFiles(tuple(PartColumn(name, "Int64") for name in columns), [str(file)], 0)


def answer(
    directory: Path, query: str, table: TableDefinition, *parts: TableFiles
) -> list[tuple[object, ...]]:
    virtual = [name for name in ("_part",) if name in query]
    relation = relation_over(parts, table, virtual=virtual)
    sql = translate_query(parse_query(query), lambda *_: relation).sql
    with open_connection(directories=[directory]) as duck:
        return sorted(duck.sql(sql).fetchall())


def test_columns_whose_names_differ_in_capital_letters_alone_are_told_apart(
    tmp_path: Path,
) -> None:
    """DuckDB takes `a` and `A` for one name."""
    table = table_of("k", "a", "A", "K", "aB")
    parts = [part(tmp_path, k=1, a=2, A=3, K=4, aB=5), part(tmp_path, K=9, A=8, a=7, aB=6, k=5)]
    parts.append(part(tmp_path, k=1, a=2, A=3, K=44, aB=5))
    rows = answer(tmp_path, "SELECT k, a, A, K, aB FROM t", table, *parts)
    assert rows == [(1, 2, 3, 4, 5), (1, 2, 3, 44, 5), (5, 7, 8, 9, 6)]
    assert answer(tmp_path, "SELECT a FROM t WHERE A = 8 AND K > k", table, *parts) == [(7,)]
    assert answer(tmp_path, "SELECT sum(a), sum(A) FROM t", table, *parts) == [(11, 14)]


def test_a_part_without_the_one_of_two_such_columns_lacks_it(tmp_path: Path) -> None:
    table = table_of("k", "a", "A")
    rows = answer(tmp_path, "SELECT k, a, A FROM t", table, part(tmp_path, k=1, A=3))
    assert rows == [(1, 0, 3)]
    dropped = table_of("k", "A", history=(ColumnChange(1, "a"),))
    left = part(tmp_path, k=1, a=2, A=3)
    assert answer(tmp_path, "SELECT k, A FROM t", dropped, left) == [(1, 3)]
    renamed = table_of(
        "k", "b", "B", history=(ColumnChange(1, "A", "b"), ColumnChange(1, "a", "B"))
    )
    assert answer(tmp_path, "SELECT k, b, B FROM t", renamed, left) == [(1, 3, 2)]


def test_an_expression_tells_them_apart() -> None:
    """As a mutation, a default, a key or a TTL computes it."""
    columns = [Column(name, "Int64") for name in ("a", "A", "aB", "Ab")]
    rows = pa.table({"a": [1], "A": [10], "aB": [100], "Ab": [1000]})
    [found] = evaluate([compile_expression("a + A * 2 + aB * 3 + Ab * 4", columns)], rows)
    assert found.to_pylist() == [1 + 20 + 300 + 4000]


def test_an_error_does_not_tell_what_a_column_is_called_in_duckdb() -> None:
    """It is `Name` with a sign and a number, or the name of a step in between."""
    rows = pa.table({"Name": ["abc"]})
    for text in ("toFloat64(Name)", "toUUID(Name)", "toDate(Name)"):
        expression = compile_expression(text, [Column("Name", "String")])
        with pytest.raises(BadValue) as caught:
            evaluate([expression], rows)
        assert "abc" in str(caught.value)
        assert "source column" not in str(caught.value)


def test_a_name_that_looks_like_one_of_ours_is_a_column(tmp_path: Path) -> None:
    table = table_of("a\u00b71", "A", "\u00b7element", "filename")
    one = part(tmp_path, **{"a\u00b71": 1, "A": 2, "\u00b7element": 3, "filename": 4})
    query = "SELECT `a\u00b71`, A, `\u00b7element`, filename, _part FROM t"
    assert answer(tmp_path, query, table, one) == [(1, 2, 3, 4, "all_0_0_0")]


def test_directories_named_like_columns_say_nothing_about_their_values(tmp_path: Path) -> None:
    """DuckDB reads `/site=7/` as a column of partitions, in the place of the file's own."""
    directory = tmp_path / "site=7" / "day=3"
    table = table_of("site", "day")
    parts = [part(directory, site=1, day=2), part(directory, site=2)]
    assert answer(tmp_path, "SELECT * FROM t", table, *parts) == [(1, 2), (2, 0)]
    assert answer(tmp_path, "SELECT * FROM t WHERE site = 7", table, *parts) == []
