"""What TTL does to rows and to parts, against the oracle."""

import datetime as dt
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.compute.merge.job import MergeDone, SourcePart
from rmt_pipeline.compute.mutate.job import MutateDone, MutateJob
from rmt_pipeline.compute.read import proof
from rmt_pipeline.compute.rows.computed import ttl_rules
from rmt_pipeline.compute.rows.ttl import RowTtl
from rmt_pipeline.compute.units import UnitSource
from rmt_pipeline.protocol.log.entry import MERGE_TTL_DELETE, MERGE_TTL_RECOMPRESS
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.protocol.ttl import PartTtl, TtlTimes
from rmt_pipeline.system import SystemClock
from tests.oracle.rows import ColumnTtl, apply_ttl, merge_rows
from tests.support.merging import (
    CREATED_S,
    Row,
    definition,
    job_of,
    read_result,
    rows_of,
    rules_of,
    sorted_table,
    write_part,
)

COLUMNS = [("k", "Int64"), ("t", "DateTime"), ("day", "Date"), ("n", "Int64"), ("s", "String")]
NEVER = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def moment(seconds: int) -> dt.datetime:
    """So many seconds after the merge is decided."""
    return NEVER + dt.timedelta(seconds=CREATED_S + seconds)


def table_with(ttl: str = "", kind: Any = "MergeTree", **columns: str) -> TableDefinition:
    plain = definition(COLUMNS, ("k",), kind)
    found = tuple(replace(each, ttl=columns.get(each.name, "")) for each in plain.columns)
    return replace(plain, ttl=ttl, columns=found)


def part(root: Path, name: str, rows: Sequence[Row], table: TableDefinition) -> SourcePart:
    """As an insert leaves it."""
    stored = sorted_table(rows, table)
    source = write_part(root, name, stored)
    times = RowTtl(ttl_rules(table), table.columns).measure(stored)
    return replace(source, manifest=replace(source.manifest, ttl=PartTtl(times)))


def merge(
    sources: Sequence[SourcePart], table: TableDefinition, root: Path, **more
) -> MergeDone:
    (root / "staging").mkdir()
    job = job_of(table, sources, root / "staging", **more)
    (done,) = LocalMerger(SystemClock()).merge([job])
    assert isinstance(done, MergeDone), done
    return done


def row(k: int, seconds: int | None, n: int = 1, s: str = "x") -> Row:
    """`seconds` until its time comes; None for never."""
    time = NEVER if seconds is None else moment(seconds)
    return {"k": k, "t": time, "day": time.date(), "n": n, "s": s}


ROW = st.builds(
    row,
    st.integers(0, 3),
    st.one_of(st.none(), st.integers(-2, 2), st.integers(-200_000, 200_000)),
    st.integers(0, 1),
    st.sampled_from(["x", "y"]),
)
TABLES = {
    "delete": table_with("t"),
    "where": table_with("t WHERE n = 1"),
    "both": table_with("day + INTERVAL 1 DAY, t WHERE s = 'x'"),
    "column": table_with(s="t", n="day + INTERVAL 1 DAY"),
    "all": table_with("t WHERE n = 0", s="t"),
    "replacing": table_with("t", "ReplacingMergeTree"),
    "summing": table_with("t WHERE n = 2", "SummingMergeTree"),
}


def seconds_of(time: dt.datetime | dt.date) -> int:
    day = time if isinstance(time, dt.datetime) else dt.datetime.combine(time, dt.time())
    return int(day.replace(tzinfo=dt.UTC).timestamp())


def expire(rows: Sequence[Row], name: str) -> list[Row]:
    """What the oracle leaves of them."""
    a_day = 86_400
    match name:
        case "where":
            return apply_ttl(rows, CREATED_S, lambda r: seconds_of(r["t"]) * (r["n"] == 1))
        case "summing":
            return apply_ttl(rows, CREATED_S, lambda r: seconds_of(r["t"]) * (r["n"] == 2))
        case "both":
            left = apply_ttl(rows, CREATED_S, lambda r: seconds_of(r["day"]) + a_day)
            return apply_ttl(left, CREATED_S, lambda r: seconds_of(r["t"]) * (r["s"] == "x"))
        case "column":
            s = ColumnTtl("s", lambda r: seconds_of(r["t"]), default="")
            n = ColumnTtl("n", lambda r: seconds_of(r["day"]) + a_day, default=0)
            return apply_ttl(rows, CREATED_S, None, [s, n])
        case "all":
            s = ColumnTtl("s", lambda r: seconds_of(r["t"]), default="")
            return apply_ttl(rows, CREATED_S, lambda r: seconds_of(r["t"]) * (r["n"] == 0), [s])
        case _:
            return apply_ttl(rows, CREATED_S, lambda r: seconds_of(r["t"]))


@pytest.mark.parametrize("name", TABLES)
@settings(deadline=None, max_examples=20)
@given(st.lists(st.lists(ROW, max_size=6), min_size=1, max_size=3))
def test_a_merge_leaves_what_has_not_expired(name: str, parts: list[list[Row]]) -> None:
    """P20."""
    table = TABLES[name]
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        sources = [part(root, f"all_{at}_{at}_0", rows, table) for at, rows in enumerate(parts)]
        done = merge(sources, table, root)
        found = read_result(done)
    merged = merge_rows(
        [rows_of(sorted_table(rows, table), table) for rows in parts], rules_of(table)
    )
    assert rows_of(found, table) == expire(merged, name)
    assert done.manifest.rows == found.num_rows
    if found.num_rows:
        assert done.manifest.ttl.times == waiting(found, table)


def waiting(found: Any, table: TableDefinition) -> tuple[TtlTimes, ...]:
    """When rows expire that are left after the merge."""
    return RowTtl(ttl_rules(table), table.columns, CREATED_S).measure(found)


def test_times_are_of_the_rows_that_wait() -> None:
    table = table_with("t, day + INTERVAL 1 DAY WHERE n = 1, t RECOMPRESS CODEC(LZ4)", s="t")
    rows = sorted_table([row(1, 5), row(2, None), row(3, 9, n=0)], table)
    at = CREATED_S
    day = at // 86_400 * 86_400 + 86_400
    assert RowTtl(ttl_rules(table), table.columns).measure(rows) == (
        TtlTimes("t", at + 5, at + 9, every=False),
        TtlTimes("day + toIntervalDay(1) WHERE n = 1", 86_400, day, every=False),
        TtlTimes("t RECOMPRESS CODEC(LZ4)", at + 5, at + 9, every=False),
        TtlTimes("s: t", at + 5, at + 9, every=False),
    )


def test_of_parts_that_are_expired_as_a_whole_just_the_times_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P20: that they are is proven, by the columns of the rules alone."""
    table = table_with("t, day WHERE n = 7")
    sources = [part(tmp_path, f"all_{at}_{at}_0", [row(at, -at)], table) for at in range(3)]
    read: list[set[str]] = []
    rows_of_source = proof.converted_rows

    def noting(source: UnitSource, columns: Sequence[Column]) -> Iterator[pa.Table]:
        read.append({column.name for column in columns})
        return rows_of_source(source, columns)

    monkeypatch.setattr(proof, "converted_rows", noting)
    done = merge(sources, table, tmp_path, merge_type=MERGE_TTL_DELETE)
    assert (done.manifest.rows, done.manifest.files, done.rows_in) == (0, (), 0)
    assert done.manifest.sources == ("all_0_0_0", "all_1_1_0", "all_2_2_0")
    assert done.manifest.ttl.deleted_s == CREATED_S
    assert read == [{"t", "day", "n"}] * 3


def test_a_row_without_a_time_keeps_its_part(tmp_path: Path) -> None:
    table = table_with("t")
    source = part(tmp_path, "all_0_0_0", [row(1, -1), row(2, None)], table)
    done = merge([source], table, tmp_path, merge_type=MERGE_TTL_DELETE)
    assert [found["k"] for found in rows_of(read_result(done), table)] == [2]


def test_nothing_expires_before_its_time_and_rows_are_conserved(tmp_path: Path) -> None:
    table = table_with("t", s="t")
    source = part(tmp_path, "all_0_0_0", [row(1, 1), row(2, None)], table)
    done = merge([source], table, tmp_path)
    assert done.manifest.row_hash == source.manifest.row_hash
    assert done.manifest.ttl.times == source.manifest.ttl.times


def test_a_part_from_before_the_ttl_is_looked_at_with_the_next_merge(tmp_path: Path) -> None:
    old = part(tmp_path, "all_0_0_0", [row(1, -5), row(2, 5)], table_with())
    table = table_with("t")
    done = merge([old], table, tmp_path)
    assert done.manifest.rows == 1
    assert done.manifest.ttl.times == (TtlTimes("t", CREATED_S + 5, CREATED_S + 5, every=True),)


def test_expired_values_become_the_default_of_their_column(tmp_path: Path) -> None:
    plain = table_with(s="t")
    columns = tuple(
        replace(each, default_kind="DEFAULT", default="concat('d', toString(k))")
        if each.name == "s"
        else each
        for each in plain.columns
    )
    table = replace(plain, columns=columns)
    source = part(tmp_path, "all_0_0_0", [row(1, -1), row(2, 1)], table)
    done = merge([source], table, tmp_path)
    assert [found["s"] for found in rows_of(read_result(done), table)] == ["d1", "x"]


def test_a_default_is_computed_from_what_the_row_has_become(tmp_path: Path) -> None:
    """`s` stands behind `n` in the table, and `n` is computed from it."""
    plain = table_with(n="t", s="t")
    columns = tuple(
        replace(each, default_kind="DEFAULT", default="length(s) + 5")
        if each.name == "n"
        else each
        for each in plain.columns
    )
    table = replace(plain, columns=columns)
    source = part(tmp_path, "all_0_0_0", [row(1, -1, n=7, s="xyz"), row(2, 1, n=8)], table)
    done = merge([source], table, tmp_path)
    found = rows_of(read_result(done), table)
    assert [(one["n"], one["s"]) for one in found] == [(5, ""), (8, "x")]


@pytest.mark.parametrize(
    ("ttl", "codec", "compression"),
    [
        ("t RECOMPRESS CODEC(NONE)", "NONE", "UNCOMPRESSED"),
        (
            "t RECOMPRESS CODEC(LZ4HC(9)), t + INTERVAL 1 DAY RECOMPRESS CODEC(NONE)",
            "LZ4HC(9)",
            "LZ4",
        ),
        ("t + INTERVAL 1 DAY RECOMPRESS CODEC(NONE)", "", "ZSTD"),
    ],
)
def test_a_part_is_written_with_the_codec_of_its_age(tmp_path, ttl, codec, compression) -> None:
    """P20."""
    table = table_with(ttl)
    source = part(tmp_path, "all_0_0_0", [row(1, -1), row(2, -5)], table)
    done = merge([source], table, tmp_path, merge_type=MERGE_TTL_RECOMPRESS)
    (file,) = done.manifest.files
    metadata = pq.ParquetFile(tmp_path / "staging" / file.name).metadata
    assert metadata.row_group(0).column(0).compression == compression
    assert done.manifest.ttl.codec == codec
    assert done.manifest.ttl.recompressed_s == CREATED_S
    assert done.manifest.row_hash == source.manifest.row_hash


def test_a_mutation_tells_the_times_of_its_rows_and_drops_none(tmp_path: Path) -> None:
    table = table_with("t WHERE n = 1", s="t")
    source = part(tmp_path, "all_0_0_0", [row(1, -5), row(2, 5, n=0)], table)
    (tmp_path / "staging").mkdir()
    job = MutateJob(
        result="all_0_0_0_1",
        source=source,
        staging=str(tmp_path / "staging"),
        definition=table,
        create_time_s=CREATED_S,
        commands=("UPDATE n = 1 WHERE k = 2",),
        mutations=("0000000001",),
    )
    (done,) = LocalMutator(SystemClock()).mutate([job])
    assert isinstance(done, MutateDone), done
    assert done.manifest.rows == 2
    assert done.manifest.ttl.times == (
        TtlTimes("t WHERE n = 1", CREATED_S - 5, CREATED_S + 5, every=True),
        TtlTimes("s: t", CREATED_S - 5, CREATED_S + 5, every=True),
    )
