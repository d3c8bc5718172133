"""Parts that were written before an ALTER: read, merged and mutated as the table is now."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.compute.convert import try_conversions
from rmt_pipeline.compute.merge import LocalMerger
from rmt_pipeline.compute.merge_job import MergeDone, MergeJob, SourcePart
from rmt_pipeline.compute.mutate import LocalMutator
from rmt_pipeline.compute.mutate_job import MutateDone, MutateJob, MutateOutcome, Untouched
from rmt_pipeline.compute.read_parts import dataset_of, part_files
from rmt_pipeline.expressions.connection import open_connection
from rmt_pipeline.expressions.translate import translate_query
from rmt_pipeline.protocol.alter_change import ColumnChange
from rmt_pipeline.protocol.errors import BadValue
from rmt_pipeline.protocol.parts import PartName
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.sql.table_relation import PartFiles, relation_over
from rmt_pipeline.store.manifest import Manifest, PartColumn
from rmt_pipeline.system import SystemClock
from tests.support.merging import CREATED_S, definition, sorted_table, write_part

BEFORE = definition([("id", "Int64"), ("a", "String"), ("b", "Nullable(Int32)")], ("id",))
ROWS = [
    {"id": 1, "a": "10", "b": 7},
    {"id": 2, "a": "-20", "b": None},
    {"id": 3, "a": "30", "b": 9},
]


def altered(*columns: Column, changes: tuple[ColumnChange, ...] = ()) -> TableDefinition:
    """The table with these columns behind its key, at version 5."""
    return replace(
        BEFORE,
        columns=(BEFORE.columns[0], *columns),
        metadata_version=5,
        history=changes,
    )


NOW = {
    "a column more": altered(*BEFORE.columns[1:], Column("c", "UInt16")),
    "a column less": altered(BEFORE.columns[1], changes=(ColumnChange(2, "b"),)),
    "other types": altered(Column("a", "Int16"), Column("b", "Nullable(String)")),
    "defaults in a chain": altered(
        BEFORE.columns[1],
        Column("y", "Int64", "DEFAULT", "x * 10"),
        Column("x", "Int64", "DEFAULT", "id + length(a)"),
        changes=(ColumnChange(2, "b"),),
    ),
    "another name and type": altered(
        Column("z", "Nullable(Int64)"),
        Column("a", "String"),
        Column("d", "Int64", "DEFAULT", "ifNull(z, -1)"),
        changes=(ColumnChange(3, "b", "z"),),
    ),
    "dropped and added again": altered(
        Column("a", "String"),
        BEFORE.columns[2],
        changes=(ColumnChange(2, "a"),),
    ),
    "swapped": altered(
        Column("a", "Nullable(Int32)"),
        Column("b", "String"),
        changes=tuple(ColumnChange(4, *pair) for pair in (("a", "t"), ("b", "a"), ("t", "b"))),
    ),
}
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "a column more": [(1, "10", 7, 0), (2, "-20", None, 0), (3, "30", 9, 0)],
    "a column less": [(1, "10"), (2, "-20"), (3, "30")],
    "other types": [(1, 10, "7"), (2, -20, None), (3, 30, "9")],
    "defaults in a chain": [(1, "10", 30, 3), (2, "-20", 50, 5), (3, "30", 50, 5)],
    "another name and type": [(1, 7, "10", 7), (2, None, "-20", -1), (3, 9, "30", 9)],
    "dropped and added again": [(1, "", 7), (2, "", None), (3, "", 9)],
    "swapped": [(1, 7, "10"), (2, None, "-20"), (3, 9, "30")],
}


@pytest.fixture
def old(tmp_path: Path) -> SourcePart:
    """A part that was written with the metadata of version 1."""
    return part_of(tmp_path, "all_0_0_0", ROWS)


def part_of(root: Path, name: str, rows: list[dict[str, Any]]) -> SourcePart:
    part = write_part(root, name, sorted_table(rows, BEFORE))
    columns = tuple(PartColumn(column.name, column.type) for column in BEFORE.columns)
    manifest = replace(part.manifest, columns=columns, metadata_version=1)
    return replace(part, manifest=manifest)


class OnePart:
    """A store, and a snapshot of it, with one part."""

    def __init__(self, source: SourcePart) -> None:
        self._source = source
        self.name = PartName.parse(source.name)
        self.manifest: Manifest = source.manifest

    def directory(self, _: PartName) -> str:
        return self._source.directory


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def mutate(
    source: SourcePart, table: TableDefinition, staging: Path, *texts: str
) -> MutateOutcome:
    staging.mkdir()
    job = MutateJob("all_0_0_0_5", source, str(staging), table, texts, ("0",), CREATED_S)
    [outcome] = LocalMutator(SystemClock()).mutate([job])
    return outcome


def written(outcome: MergeDone | MutateDone) -> list[tuple[Any, ...]]:
    directory = Path(outcome.job.staging)
    files = [pq.ParquetFile(directory / file.name).read() for file in outcome.manifest.files]
    return tuples(pa.concat_tables(files))


@pytest.mark.parametrize("case", NOW)
def test_a_dataset_has_the_columns_of_now(case: str, old: SourcePart) -> None:
    """P33."""
    part = OnePart(old)
    files = part_files(part, [part], NOW[case])  # type: ignore[arg-type]
    assert tuples(dataset_of(files, NOW[case]).to_table()) == EXPECTED[case]


@pytest.mark.parametrize("case", NOW)
def test_a_query_sees_the_columns_of_now(case: str, old: SourcePart) -> None:
    """P33."""
    files = [f"{old.directory}/{file.name}" for file in old.manifest.files]
    relation = relation_over([PartFiles(old.manifest.columns, files, 1)], NOW[case])
    translated = translate_query("SELECT * FROM t ORDER BY id", lambda *_: relation)
    with open_connection(directories=[Path(old.directory)]) as connection:
        found = connection.sql(translated.sql).to_arrow_table()
    assert tuples(found) == EXPECTED[case]


@pytest.mark.parametrize("case", NOW)
def test_a_mutation_rewrites_the_part_with_the_columns_of_now(
    case: str, old: SourcePart, tmp_path: Path
) -> None:
    """P31."""
    outcome = mutate(old, NOW[case], tmp_path / "staging", "DROP COLUMN zz")
    assert isinstance(outcome, MutateDone)
    assert written(outcome) == EXPECTED[case]
    names = [(column.name, column.type) for column in NOW[case].columns]
    assert list(map(tuple, outcome.manifest.columns)) == names
    assert outcome.manifest.metadata_version == 5


@pytest.mark.parametrize("case", NOW)
def test_parts_of_several_versions_merge(case: str, old: SourcePart, tmp_path: Path) -> None:
    """P33."""
    outcome = mutate(old, NOW[case], tmp_path / "new", "DROP COLUMN zz")
    assert isinstance(outcome, MutateDone)
    new = SourcePart("all_1_1_0", outcome.job.staging, outcome.manifest)
    staging = tmp_path / "merged"
    staging.mkdir()
    job = MergeJob("all_0_1_1", (old, new), str(staging), NOW[case], CREATED_S)
    [merged] = LocalMerger(SystemClock()).merge([job])
    assert isinstance(merged, MergeDone), merged
    assert written(merged) == [row for row in EXPECTED[case] for _ in range(2)]


def test_a_part_that_is_as_the_table_is_now_is_not_rewritten(
    old: SourcePart, tmp_path: Path
) -> None:
    now = replace(BEFORE, metadata_version=5)
    assert isinstance(mutate(old, now, tmp_path / "s", "MODIFY COLUMN a String"), Untouched)


def test_a_mutation_names_columns_as_they_are_now(old: SourcePart, tmp_path: Path) -> None:
    outcome = mutate(
        old,
        NOW["another name and type"],
        tmp_path / "staging",
        "RENAME COLUMN b TO z",
        "UPDATE a = concat(a, toString(z)) WHERE z > 8, DELETE WHERE id = 1",
    )
    assert isinstance(outcome, MutateDone)
    assert written(outcome) == [(2, None, "-20", -1), (3, 9, "309", 9)]


def test_a_condition_on_a_column_that_the_part_lacks_is_on_its_default(
    old: SourcePart, tmp_path: Path
) -> None:
    now = NOW["a column more"]
    assert isinstance(mutate(old, now, tmp_path / "a", "DELETE WHERE c > 0"), Untouched)
    outcome = mutate(old, now, tmp_path / "b", "UPDATE c = 5 WHERE c = 0 AND id > 1")
    assert isinstance(outcome, MutateDone)
    assert [row[3] for row in written(outcome)] == [0, 5, 5]


@pytest.mark.parametrize(
    ("default", "expected"), [("", ["", "", ""]), ("toString(id)", ["1", "2", "3"])]
)
def test_a_cleared_column_has_its_default(
    default: str, expected: list[str], old: SourcePart, tmp_path: Path
) -> None:
    column = Column("a", "String", "DEFAULT" if default else "", default)
    now = altered(column, BEFORE.columns[2])
    outcome = mutate(old, now, tmp_path / "s", "CLEAR COLUMN a IN PARTITION ID 'all'")
    assert isinstance(outcome, MutateDone)
    assert written(outcome) == [
        (row["id"], a, row["b"]) for row, a in zip(ROWS, expected, strict=True)
    ]


def test_a_column_is_cleared_in_the_partition_that_was_named(
    old: SourcePart, tmp_path: Path
) -> None:
    text = "CLEAR COLUMN a IN PARTITION ID 'other'"
    assert isinstance(mutate(old, BEFORE, tmp_path / "s", text), Untouched)


def test_a_cleared_column_that_was_dropped_since_takes_no_row_with_it(
    old: SourcePart, tmp_path: Path
) -> None:
    outcome = mutate(old, NOW["a column less"], tmp_path / "s", "CLEAR COLUMN b, DROP COLUMN b")
    assert isinstance(outcome, MutateDone)
    assert written(outcome) == EXPECTED["a column less"]


def test_a_type_that_a_value_can_not_become_names_part_column_and_value(
    tmp_path: Path,
) -> None:
    """P35."""
    rows = [*ROWS[:2], {"id": 3, "a": "3 o'clock", "b": None}]
    part = part_of(tmp_path, "all_4_4_0", rows)
    files = [f"{part.directory}/{file.name}" for file in part.manifest.files]

    def attempt(column: Column) -> None:
        try_conversions(part.name, part.manifest, files, altered(column), [column.name])

    attempt(Column("a", "LowCardinality(String)"))
    attempt(Column("b", "Nullable(Int64)"))
    with pytest.raises(BadValue, match=r"all_4_4_0: column a has the value \"3 o'clock\""):
        attempt(Column("a", "Int64"))
    with pytest.raises(BadValue, match="all_4_4_0: column b has the value None"):
        attempt(Column("b", "Int64"))
