"""What merges, FINAL, inserts and TTL leave of rows, against ClickHouse itself."""

import datetime as dt
import itertools
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.compute.insert.blocks import blocks_of
from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.merge.job import MergeDone, SourcePart
from rmt_pipeline.compute.read.final import final_files
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.syntax.ttl import parse_ttl
from rmt_pipeline.system import SystemClock
from rmt_pipeline.translate.ttl import table_ttl, ttl_text
from tests.support.clickhouse_oracle import ask, connection
from tests.support.merging import (
    Row,
    definition,
    job_of,
    read_result,
    rows_of,
    sorted_table,
    write_part,
)

COLUMNS = [
    *(("k", "UInt8"), ("v", "UInt8"), ("flag", "UInt8"), ("sign", "Int8"), ("n", "Int64")),
    *(("e", "Enum8('z' = 1, 'y' = 2, 'x' = 3)"), ("s", "String")),
]
FUNCTIONS = {"v": "any", "flag": "anyLast", "sign": "min", "n": "sum", "e": "max", "s": "max"}
FOLDED = [
    (name, f"SimpleAggregateFunction({FUNCTIONS[name]}, {kind})" if name in FUNCTIONS else kind)
    for name, kind in COLUMNS
]
ENGINES: dict[str, TableDefinition] = {
    "MergeTree": definition(COLUMNS, ("k",)),
    "ReplacingMergeTree": definition(COLUMNS, ("e", "k"), "ReplacingMergeTree"),
    "ReplacingMergeTree(v, flag)": definition(
        COLUMNS, ("k",), "ReplacingMergeTree", version_column="v", is_deleted_column="flag"
    ),
    "SummingMergeTree(n)": definition(
        COLUMNS, ("e",), "SummingMergeTree", columns_to_sum=("n",)
    ),
    "SummingMergeTree": definition(COLUMNS, ("k", "e"), "SummingMergeTree"),
    "AggregatingMergeTree": definition(FOLDED, ("k",), "AggregatingMergeTree"),
    "CollapsingMergeTree(sign)": definition(
        COLUMNS, ("k",), "CollapsingMergeTree", sign_column="sign"
    ),
    "VersionedCollapsingMergeTree(sign, v)": definition(
        COLUMNS,
        ("k",),
        "VersionedCollapsingMergeTree",
        sign_column="sign",
        version_column="v",
    ),
}
CASES = list(itertools.product(ENGINES, range(3)))


def parts(seed: int) -> list[list[Row]]:
    drawn = random.Random(seed)
    return [
        [
            {
                "k": drawn.randrange(4),
                "v": drawn.randrange(3),
                "flag": drawn.randrange(2),
                "sign": drawn.choice((-1, 1)),
                "n": drawn.randrange(-2, 3),
                "e": drawn.choice("xyz"),
                "s": drawn.choice("ab"),
            }
            for _ in range(drawn.randrange(1, 9))
        ]
        for _ in range(3)
    ]


@pytest.fixture
def table(engine: str) -> Iterator[TableDefinition]:
    """The table, in ClickHouse too, where it is called `merged` and merges nothing by itself."""
    found = ENGINES[engine]
    columns = ", ".join(f"{column.name} {column.type}" for column in found.columns)
    key = ", ".join(found.order_by)
    run(f"CREATE TABLE merged ({columns}) ENGINE = {engine} ORDER BY ({key})")
    run("SYSTEM STOP MERGES merged")
    yield found
    run("DROP TABLE merged SYNC")


def run(statement: str) -> None:
    connection().query(statement)


def insert(rows: Iterable[Row], *, optimize: bool) -> None:
    values = ", ".join(
        "(" + ", ".join(repr(value) for value in row.values()) + ")" for row in rows
    )
    run(f"INSERT INTO merged SETTINGS optimize_on_insert = {int(optimize)} VALUES {values}")


def theirs(query: str) -> list[Any]:
    lines = ask(query, "JSONCompactEachRow").splitlines()
    return sorted([str(value) for value in json.loads(line)] for line in lines)


def ours(found: pa.Table, table: TableDefinition) -> list[Any]:
    rows = [[str(_plain(value)) for value in row.values()] for row in rows_of(found, table)]
    return sorted(rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return value.isoformat() if isinstance(value, dt.date) else value


def on_disk(
    root: Path, blocks: Sequence[Sequence[Row]], table: TableDefinition
) -> list[SourcePart]:
    (root / "result").mkdir()
    return [
        write_part(root, f"all_{at}_{at}_0", sorted_table(rows, table))
        for at, rows in enumerate(blocks)
    ]


@pytest.mark.parametrize(("engine", "seed"), CASES)
def test_final_shows_the_same_rows(table, seed, tmp_path) -> None:
    """P25."""
    given = parts(seed)
    for rows in given:
        insert(rows, optimize=False)
    files = final_files(
        on_disk(tmp_path, given, table), table, str(tmp_path / "result"), SystemClock()
    )
    found = pa.concat_tables(
        [sorted_table([], table), *(pq.ParquetFile(file).read() for file in files)]
    )
    final = "" if table.engine.kind == "MergeTree" else "FINAL"
    assert ours(found, table) == theirs(f"SELECT * FROM merged {final}")


@pytest.mark.parametrize(("engine", "seed"), CASES)
def test_a_merge_leaves_the_same_rows(table, seed, tmp_path) -> None:
    """P25."""
    given = parts(seed)
    for rows in given:
        insert(rows, optimize=False)
    job = job_of(table, on_disk(tmp_path, given, table), tmp_path / "result")
    (done,) = LocalMerger(SystemClock()).merge([job])
    assert isinstance(done, MergeDone)
    run("SYSTEM START MERGES merged")
    run("OPTIMIZE TABLE merged FINAL")
    assert ours(read_result(done), table) == theirs("SELECT * FROM merged")


@pytest.mark.parametrize(("engine", "seed"), CASES)
def test_an_insert_stores_the_same_rows(table, seed) -> None:
    """P25. With optimize_on_insert, as both have it by default."""
    rows = [row for part in parts(seed) for row in part]
    insert(rows, optimize=True)
    given = pa.concat_tables([sorted_table([row], table) for row in rows])
    found = [block.table for block in blocks_of([given], table, QuerySettings())]
    assert ours(pa.concat_tables([sorted_table([], table), *found]), table) == theirs(
        "SELECT * FROM merged"
    )


TTL_COLUMNS = [("k", "Int64"), ("d", "DateTime"), ("day", "Date"), ("s", "String")]
OLD, NEW = (
    dt.datetime(2001, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
    dt.datetime(2090, 1, 1, tzinfo=dt.UTC),
)
NEVER = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("ttl", "column_ttl"),
    [
        ("d + INTERVAL 1 DAY", ""),
        ("day + INTERVAL 1 MONTH DELETE WHERE k > 1", ""),
        ("d WHERE s = 'a', day + INTERVAL 50 YEAR", ""),
        ("day + INTERVAL 60 YEAR", ""),
        ("d + INTERVAL 20 YEAR", ""),
        ("toStartOfMonth(day) + toIntervalDay(k)", ""),
        ("d + INTERVAL 1 WEEK RECOMPRESS CODEC(ZSTD(3))", ""),
        ("", "d + INTERVAL 1 YEAR"),
        ("day WHERE s = 'a'", "toDateTime(day) + INTERVAL 1 HOUR"),
    ],
)
def test_a_ttl_takes_the_same_rows_and_values(ttl, column_ttl, tmp_path) -> None:
    """P20. And its text is the original's."""
    plain = definition(TTL_COLUMNS, ("k",))
    *others, last = plain.columns
    rules = table_ttl(parse_ttl(ttl), plain.columns) if ttl else ()
    table = replace(
        plain, columns=(*others, replace(last, ttl=column_ttl)), ttl=ttl_text(rules)
    )
    columns = ", ".join(f"{column.name} {column.type}" for column in plain.columns)
    clauses = f"TTL {ttl}" if ttl else ""
    column = f" TTL {column_ttl}" if column_ttl else ""
    run(f"CREATE TABLE merged ({columns}{column}) ENGINE = MergeTree ORDER BY k {clauses}")
    try:
        rows = [
            {"k": k, "d": time, "day": time.date(), "s": s}
            for (k, s), time in itertools.product(
                ((1, "a"), (2, "b"), (3, "a")), (OLD, NEW, NEVER)
            )
        ]
        values = ", ".join(str(tuple(map(_plain, row.values()))) for row in rows)
        run(f"INSERT INTO merged SETTINGS session_timezone = 'UTC' VALUES {values}")
        run("OPTIMIZE TABLE merged FINAL")
        job = job_of(table, on_disk(tmp_path, [rows], table), tmp_path / "result")
        job = replace(job, create_time_s=int(SystemClock().now_s()))
        (done,) = LocalMerger(SystemClock()).merge([job])
        assert isinstance(done, MergeDone)
        assert ours(read_result(done), table) == theirs("SELECT * FROM merged")
        if ttl:
            shown = ask("SHOW CREATE TABLE merged", "TSVRaw")
            assert f"TTL {table.ttl}" in " ".join(shown.split())
    finally:
        run("DROP TABLE merged SYNC")
