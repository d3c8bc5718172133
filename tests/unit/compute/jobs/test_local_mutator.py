"""One part after a mutation, against a few obvious lines of Python."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.compute.merge.job import SourcePart
from rmt_pipeline.compute.mutate.job import (
    MutateDone,
    MutateFailure,
    MutateJob,
    MutateOutcome,
    Untouched,
)
from rmt_pipeline.compute.read.proof import difference_from_bounds
from rmt_pipeline.protocol.errors import BadValue, Corruption
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.store.hashes.rows import hash_table
from rmt_pipeline.store.manifest import KeyBound, PartFile
from rmt_pipeline.syntax.types import arrow_schema
from rmt_pipeline.system import SystemClock
from tests.support.merging import CREATED_S, definition, write_part

TABLE = definition([("id", "Int64"), ("v", "String"), ("n", "Int32")], ("id",))
ROWS = [{"id": number, "v": "abcde"[number % 5], "n": number * 10} for number in range(10)]


def rows_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=arrow_schema(TABLE.columns))


def mutate(
    root: Path, source: SourcePart, *commands: str, table: TableDefinition = TABLE
) -> MutateOutcome:
    staging = root / "staging"
    staging.mkdir()
    job = MutateJob(
        result="all_0_0_0_5",
        source=source,
        staging=str(staging),
        definition=table,
        commands=commands,
        mutations=tuple(f"{number:010}" for number in range(len(commands))),
        create_time_s=CREATED_S + 7,
    )
    [outcome] = LocalMutator(SystemClock()).mutate([job])
    return outcome


def rows_of(outcome: MutateOutcome) -> list[dict[str, Any]]:
    assert isinstance(outcome, MutateDone), outcome
    found: list[dict[str, Any]] = []
    for file in outcome.manifest.files:
        path = Path(outcome.job.staging) / file.name
        assert path.stat().st_size == file.size
        found += pq.ParquetFile(path).read().to_pylist()
    return found


def test_deleted_rows_are_gone_and_the_others_are_as_they_were(tmp_path):
    """P31."""
    source = write_part(tmp_path, "all_0_0_0", rows_table(ROWS))
    outcome = mutate(tmp_path, source, "DELETE WHERE id = 2 OR v = 'e'")
    expected = [row for row in ROWS if not (row["id"] == 2 or row["v"] == "e")]
    assert rows_of(outcome) == expected
    assert isinstance(outcome, MutateDone)
    assert outcome.manifest.row_hash == hash_table(rows_table(expected)).row_hash
    assert outcome.manifest.content_hash == hash_table(rows_table(expected)).content_hash
    assert outcome.manifest.sources == ("all_0_0_0",)
    assert outcome.manifest.mutations == ("0000000000",)
    assert outcome.manifest.created_s == CREATED_S + 7


def test_an_update_reads_the_row_as_it_was_and_changes_only_rows_of_its_condition(tmp_path):
    source = write_part(tmp_path, "all_0_0_0", rows_table(ROWS))
    outcome = mutate(tmp_path, source, "UPDATE n = id, v = concat(v, toString(n)) WHERE id > 6")
    expected = [
        {"id": row["id"], "v": f"{row['v']}{row['n']}", "n": row["id"]}
        if row["id"] > 6
        else row
        for row in ROWS
    ]
    assert rows_of(outcome) == expected
    assert isinstance(outcome, MutateDone)
    assert outcome.manifest.row_hash == hash_table(rows_table(expected)).row_hash
    assert outcome.manifest.column_hashes["id"] == source.manifest.column_hashes["id"]


def test_a_later_command_sees_what_the_earlier_ones_did(tmp_path):
    source = write_part(tmp_path, "all_0_0_0", rows_table(ROWS))
    commands = (
        "UPDATE n = 1000 WHERE id = 3, DELETE WHERE n = 1000",
        "UPDATE n = 3 WHERE id = 3",
    )
    outcome = mutate(tmp_path, source, *commands)
    assert rows_of(outcome) == [row for row in ROWS if row["id"] != 3]


@pytest.mark.parametrize(
    "command",
    [
        "DELETE WHERE id = 77",
        "UPDATE n = 5 WHERE v = 'z'",
        "DELETE WHERE 0",
        "DELETE WHERE NULL",
    ],
)
def test_a_part_without_rows_of_the_condition_is_not_written(tmp_path, command):
    source = write_part(tmp_path, "all_0_0_0", rows_table(ROWS))
    outcome = mutate(tmp_path, source, command)
    assert isinstance(outcome, Untouched)
    assert list(Path(outcome.job.staging).iterdir()) == []
    assert outcome.job.unchanged().row_hash == source.manifest.row_hash


def test_bounds_of_an_expression_are_none_of_a_column_that_is_called_as_it_is(tmp_path):
    """As columns of an aggregation are, which a table is made of."""
    table = definition([("n", "Int64"), ("negate(n)", "Int64")], ("negate(n)",))
    rows = [{"n": number, "negate(n)": number * 10} for number in (2, 1)]
    source = write_part(
        tmp_path, "all_0_0_0", pa.Table.from_pylist(rows, schema=arrow_schema(table.columns))
    )
    bounds = (KeyBound("negate(n)", -2, -1),)
    source = replace(source, manifest=replace(source.manifest, key_bounds=bounds))
    outcome = mutate(tmp_path, source, "DELETE WHERE `negate(n)` = 20", table=table)
    assert rows_of(outcome) == rows[1:]
    assert isinstance(outcome, MutateDone)
    assert outcome.manifest.key_bounds == (KeyBound("negate(n)", -1, -1),)
    path = str(tmp_path / "staging" / "data-00000.parquet")
    assert difference_from_bounds(outcome.manifest, [path]) is None


def test_nothing_is_left_to_do_when_every_mutation_was_killed(tmp_path):
    source = write_part(tmp_path, "all_0_0_0", rows_table(ROWS))
    assert isinstance(mutate(tmp_path, source), Untouched)


def test_a_command_for_another_partition_is_for_no_row(tmp_path):
    source = write_part(tmp_path, "all_0_0_0", rows_table(ROWS))
    outcome = mutate(tmp_path, source, "DELETE IN PARTITION ID 'other' WHERE 1")
    assert isinstance(outcome, Untouched)


def test_a_part_that_loses_all_its_rows_has_no_file(tmp_path):
    source = write_part(tmp_path, "all_0_0_0", rows_table(ROWS))
    outcome = mutate(tmp_path, source, "DELETE WHERE 1")
    assert rows_of(outcome) == []
    assert isinstance(outcome, MutateDone)
    assert outcome.manifest.files == ()
    assert outcome.manifest.row_hash == 0


def two_files(root: Path) -> SourcePart:
    """A part of two files, as a large merge leaves it."""
    one = write_part(root / "one", "all_0_0_0", rows_table(ROWS[:5]))
    two = write_part(root / "two", "all_0_0_0", rows_table(ROWS[5:]))
    target = Path(one.directory) / "data-00001.parquet"
    (Path(two.directory) / "data-00000.parquet").rename(target)
    [first], [second] = one.manifest.files, two.manifest.files
    files = (first, PartFile(target.name, second.size, second.hash))
    whole = hash_table(rows_table(ROWS))
    manifest = replace(
        one.manifest,
        rows=len(ROWS),
        files=files,
        bytes_on_disk=sum(file.size for file in files),
        row_hash=whole.row_hash,
        column_hashes=whole.column_hashes,
    )
    return SourcePart(one.name, one.directory, manifest)


def test_a_file_without_rows_of_the_condition_is_kept_beside_one_with_such_rows(tmp_path):
    outcome = mutate(tmp_path, two_files(tmp_path), "DELETE WHERE id = 7")
    expected = [row for row in ROWS if row["id"] != 7]
    assert rows_of(outcome) == expected
    assert isinstance(outcome, MutateDone)
    assert [file.name for file in outcome.manifest.files] == [
        "data-00000.parquet",
        "data-00001.parquet",
    ]
    assert outcome.manifest.row_hash == hash_table(rows_table(expected)).row_hash


def test_a_value_is_computed_only_for_the_rows_that_it_is_for(tmp_path):
    source = write_part(tmp_path, "all_0_0_0", rows_table(ROWS))
    outcome = mutate(tmp_path, source, "UPDATE n = intDiv(100, id) WHERE id > 0")
    assert rows_of(outcome)[0] == ROWS[0]
    assert rows_of(outcome)[3]["n"] == 33


def test_a_value_that_cannot_be_computed_says_why(tmp_path):
    source = write_part(tmp_path, "all_0_0_0", rows_table(ROWS))
    outcome = mutate(tmp_path, source, "UPDATE n = toInt32(v) WHERE id = 4")
    assert isinstance(outcome, MutateFailure)
    assert isinstance(outcome.error, BadValue)
    assert "toInt32(v)" in str(outcome.error)


def test_a_source_that_is_not_what_its_manifest_says_is_named(tmp_path):
    source = write_part(tmp_path, "all_0_0_0", rows_table(ROWS))
    path = Path(source.directory) / "data-00000.parquet"
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    outcome = mutate(tmp_path, source, "DELETE WHERE 1")
    assert isinstance(outcome, MutateFailure)
    assert isinstance(outcome.error, Corruption)
    assert outcome.part == "all_0_0_0"


def test_a_row_that_vanished_by_itself_is_noticed(tmp_path):
    source = write_part(tmp_path, "all_0_0_0", rows_table(ROWS))
    more = SourcePart(source.name, source.directory, replace(source.manifest, rows=11))
    outcome = mutate(tmp_path, more, "DELETE WHERE id = 1")
    assert isinstance(outcome, MutateFailure)
    assert "10 rows were read, the source has 11" in str(outcome.error)


def test_a_column_that_no_command_changes_is_compared_with_what_it_was(tmp_path):
    """P31."""
    source = write_part(tmp_path, "all_0_0_0", rows_table(ROWS))
    hashes = dict(source.manifest.column_hashes) | {"v": 1}
    other = replace(source.manifest, column_hashes=hashes)
    outcome = mutate(
        tmp_path, SourcePart(source.name, source.directory, other), "UPDATE n = 1 WHERE id = 1"
    )
    assert isinstance(outcome, MutateFailure)
    assert "column v, which no command changes" in str(outcome.error)


def test_materialized_columns_follow_what_they_are_computed_from(tmp_path):
    columns = (*TABLE.columns[:2], Column("n", "Int32", "MATERIALIZED", "length(v)"))
    table = replace(TABLE, columns=columns)
    source = write_part(
        tmp_path, "all_0_0_0", rows_table([row | {"n": len(row["v"])} for row in ROWS])
    )
    outcome = mutate(tmp_path, source, "UPDATE v = 'long' WHERE id = 3", table=table)
    assert [row["n"] for row in rows_of(outcome)] == [
        4 if row["id"] == 3 else 1 for row in ROWS
    ]
