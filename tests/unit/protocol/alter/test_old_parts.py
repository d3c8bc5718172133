"""Parts that were written before an ALTER: read, merged and mutated as the table is now."""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.compute.merge.job import MergeDone, MergeJob, SourcePart
from rmt_pipeline.compute.mutate.job import MutateDone, MutateJob, MutateOutcome, Untouched
from rmt_pipeline.compute.read import convert
from rmt_pipeline.compute.read.convert import convert_all, try_conversions
from rmt_pipeline.compute.read.parts import dataset_of, part_files
from rmt_pipeline.compute.rows import conform
from rmt_pipeline.protocol.errors import BadValue
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.sql.run.table_relation import TableFiles, relation_over
from rmt_pipeline.store.manifest import PartColumn
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.system import SystemClock
from rmt_pipeline.translate.connection import open_connection
from rmt_pipeline.translate.select.query import translate_query
from tests.support.merging import CREATED_S, definition, sorted_table, write_part
from tests.support.old_parts import BEFORE, EXPECTED, NOW, ROWS, Parts, altered, part_of
from tests.support.queries import parse_query


@pytest.fixture
def old(tmp_path: Path) -> SourcePart:
    return part_of(tmp_path, "all_0_0_0", ROWS)


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


EVERYTHING = ("DROP COLUMN zz", "DELETE WHERE id = 99")
"""After which a part has all columns: a DELETE writes every row anew."""


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
    store = Parts(old)
    assert tuples(dataset_of(store, store.all, NOW[case]).to_table()) == EXPECTED[case]


def test_a_part_from_before_an_enum_grew_is_read_and_merged_as_it_is(tmp_path: Path) -> None:
    """Spec §8.1. Nothing rewrites it, so it must not be held in memory for each dataset."""
    tables = [
        definition([("id", "Int64"), ("e", f"Enum8({elements})")], ("e", "id"))
        for elements in ("'a' = 1, 'b' = 2", "'z' = -5, 'a' = 1, 'b' = 2")
    ]
    tables[1] = replace(tables[1], metadata_version=5)
    parts = [
        write_part(
            tmp_path, name, sorted_table([{"id": 1, "e": e}, {"id": 2, "e": "b"}], table)
        )
        for name, e, table in zip(("all_0_0_0", "all_1_1_0"), "az", tables, strict=True)
    ]
    for at, version in enumerate((1, 5)):
        columns = tuple(PartColumn(each.name, each.type) for each in tables[at].columns)
        told = replace(parts[at].manifest, columns=columns, metadata_version=version)
        parts[at] = replace(parts[at], manifest=told)
    store = Parts(*parts)
    assert [part.constants for part in part_files(store, store.all, tables[1])] == [(), ()]
    assert (
        len(dataset_of(store, store.all, tables[1]).to_table(filter=ds.field("e") == "b")) == 2
    )
    more = tables[1].with_columns((*tables[1].columns, Column("more", "Int8")))
    assert all(part.constants for part in part_files(store, store.all, more))
    (tmp_path / "staging").mkdir()
    job = MergeJob("all_0_1_1", tuple(parts), str(tmp_path / "staging"), tables[1], CREATED_S)
    [merged] = LocalMerger(SystemClock()).merge([job])
    assert isinstance(merged, MergeDone)
    assert written(merged) == [(1, "z"), (1, "a"), (2, "b"), (2, "b")]


@pytest.mark.parametrize("case", NOW)
def test_a_query_sees_the_columns_of_now(case: str, old: SourcePart) -> None:
    """P33."""
    files = [f"{old.directory}/{file.name}" for file in old.manifest.files]
    relation = relation_over([TableFiles(old.manifest.columns, files, 1)], NOW[case])
    translated = translate_query(
        parse_query("SELECT * FROM t ORDER BY id"), lambda *_: relation
    )
    with open_connection(directories=[Path(old.directory)]) as connection:
        found = connection.sql(translated.sql).to_arrow_table()
    assert tuples(found) == EXPECTED[case]


@pytest.mark.parametrize("case", NOW)
def test_a_delete_rewrites_the_part_with_the_columns_of_now(
    case: str, old: SourcePart, tmp_path: Path
) -> None:
    """P31."""
    outcome = mutate(old, NOW[case], tmp_path / "staging", *EVERYTHING)
    assert isinstance(outcome, MutateDone)
    assert written(outcome) == EXPECTED[case]
    names = [(column.name, column.type) for column in NOW[case].columns]
    assert list(map(tuple, outcome.manifest.columns)) == names
    assert outcome.manifest.metadata_version == 5


@pytest.mark.parametrize("case", NOW)
def test_parts_of_several_versions_merge(case: str, old: SourcePart, tmp_path: Path) -> None:
    """P33."""
    outcome = mutate(old, NOW[case], tmp_path / "new", *EVERYTHING)
    assert isinstance(outcome, MutateDone)
    new = SourcePart("all_1_1_0", outcome.job.staging, outcome.manifest)
    staging = tmp_path / "merged"
    staging.mkdir()
    job = MergeJob("all_0_1_1", (old, new), str(staging), NOW[case], CREATED_S)
    [merged] = LocalMerger(SystemClock()).merge([job])
    assert isinstance(merged, MergeDone), merged
    assert written(merged) == [row for row in EXPECTED[case] for _ in range(2)]


def test_integers_do_not_wrap_when_their_type_changes(tmp_path: Path) -> None:
    """P35."""
    part = part_of(tmp_path, "all_4_4_0", [{"id": 1, "a": "", "b": n} for n in (5, None, 300)])
    files = [f"{part.directory}/{file.name}" for file in part.manifest.files]

    def attempt(kind: str) -> None:
        table = altered(BEFORE.columns[1], Column("b", kind))
        try_conversions(part.name, part.manifest, files, table, ["b"])

    attempt("Nullable(Int16)")
    with pytest.raises(BadValue, match=r"b has the value 300, .* it would become 44"):
        attempt("Nullable(UInt8)")


DAY = dt.date(1960, 1, 1)
LATER = dt.date(2020, 1, 1)
MOMENT = dt.datetime(1969, 12, 31, 10, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("before", "value", "after", "became"),
    [
        ("String", "300", "Int8", "44"),
        ("Nullable(String)", "300", "Nullable(Int8)", "44"),
        ("Float64", 300.5, "Int8", "44"),
        ("Float32", -1.0, "UInt8", "255"),
        ("Int64", -1, "UInt64", "18446744073709551615"),
        ("Int128", parse_type("Int128").wide_to_bytes(-1), "Int64", None),
        ("Int128", parse_type("Int128").wide_to_bytes(2**64 + 1), "Int64", "1"),
        ("Array(Int64)", [1, 300], "Array(Int8)", r"\[1, 44\]"),
        ("Array(Date32)", [DAY], "Array(Date)", r"\[.*2139"),
        ("Array(Float64)", [1.5, 300.5], "Array(Int8)", r"\[1, 44\]"),
        ("Array(String)", ["300"], "Array(Int8)", r"\[44\]"),
        ("Array(String)", [str(2**64 + 5)], "Array(UInt64)", r"\[5\]"),
        ("Array(Date)", [LATER], "Array(UInt8)", r"\["),
        ("Array(Float64)", [1.5, None], "Array(Nullable(Int8))", None),
        ("Array(String)", ["007"], "Array(UInt64)", None),
        ("Enum16('a' = 300)", "a", "Int8", "44"),
        ("Enum16('a' = 127)", "a", "Int8", None),
        ("Date", LATER, "UInt8", ""),
        ("Date", LATER, "UInt16", None),
        ("Date32", DAY, "UInt64", ""),
        ("DateTime", MOMENT.replace(year=2000), "UInt16", ""),
        ("Nullable(DateTime)", None, "Nullable(UInt16)", None),
        ("Int64", -1, "IPv4", ""),
        ("Int64", 2**32, "IPv4", ""),
        ("Int64", 2**32 - 1, "IPv4", None),
        ("Array(Int64)", [5 * 10**9], "Array(DateTime)", r"\["),
        ("Array(Int64)", [-1], "Array(DateTime)", r"\["),
        ("Array(Nullable(UInt32))", [2**32 - 1, None], "Array(Nullable(DateTime))", None),
        ("Array(Int64)", [-1, 5 * 10**9], "Array(DateTime64(3))", None),
        ("Tuple(DateTime64(3), Int8)", {"1": MOMENT, "2": 1}, "Tuple(Date, Int8)", "{.*2149"),
        (
            "Tuple(Date, Int64)",
            {"1": LATER, "2": 1},
            "Tuple(DateTime, Int32)",
            None,
        ),
        (
            "Tuple(Date, Int64)",
            {"1": LATER, "2": 300},
            "Tuple(DateTime, Int8)",
            ".*44",
        ),
        ("Tuple(Float64, Int64)", {"1": 0.123456789, "2": 1}, "Tuple(Float32, Int32)", None),
        ("Array(Tuple(UInt8, Int64))", [{"1": 1, "2": 1}], "Array(Tuple(Bool, Int8))", None),
        ("Array(Nullable(Int64))", [1, None], "Array(Nullable(Int8))", None),
        ("Array(DateTime64(3))", [MOMENT], "Array(DateTime)", r"\[.*2106"),
        ("Array(Date)", [LATER], "Array(DateTime('Asia/Tokyo'))", None),
        (
            "Tuple(Int64, String)",
            {"1": -1, "2": ""},
            "Tuple(UInt64, String)",
            ".*: 18446744073",
        ),
        ("Date32", DAY, "Date", "2139-06-07"),
        ("DateTime64(3)", MOMENT, "DateTime", ""),
        ("DateTime64(3)", MOMENT, "Date", "2149-06-06"),
        ("Int64", 5_000_000_000, "DateTime", ""),
        ("Float64", 5e9, "DateTime", ""),
        ("Decimal(18, 0)", Decimal(5 * 10**9), "DateTime", ""),
        ("Decimal(9, 1)", Decimal("1.5"), "DateTime", None),
        ("Nullable(Float64)", 1.5, "Nullable(DateTime)", None),
        ("Float64", -0.5, "DateTime64(3)", None),
        ("Int64", -5, "Date", ""),
        ("Int64", 10**12, "Date", ""),
        ("Int64", 1_700_000_000, "Date", None),
        ("Float64", 1.5, "Int8", None),
        ("Nullable(String)", None, "Nullable(Int8)", None),
        ("DateTime64(3)", MOMENT.replace(year=2000), "DateTime('Asia/Tokyo')", None),
        ("DateTime('Asia/Tokyo')", MOMENT.replace(year=2000), "Date", None),
        ("DateTime64(9)", 123_456_789, "DateTime64(3)", None),
        ("Nullable(Int64)", 7, "Nullable(DateTime)", None),
        ("Array(Nullable(Int64))", [1, None], "Array(Nullable(UInt64))", None),
    ],
)
def test_no_value_wraps_around_when_its_type_changes(
    before: str, value: object, after: str, became: str | None
) -> None:
    """P35. What CAST makes of it quietly would be all that is left of it."""
    array = pa.array([value], parse_type(before).arrow)
    if became is None:
        convert_all(array, Column("a", before), after, "all_0_0_0")
        return
    with pytest.raises(BadValue, match=f"column a has the value .*it would become {became}"):
        convert_all(array, Column("a", before), after, "all_0_0_0")


@pytest.mark.parametrize(
    ("before", "values", "after"),
    [
        ("Int64", [-5, None, 7], "Nullable(Int8)"),
        ("UInt64", [2**64 - 1], "UInt64"),
        ("Float64", [-0.9, 2.0**64 - 2048, None], "Nullable(UInt64)"),
        ("Float32", [-(2.0**63)], "Int64"),
        ("String", ["5", str(2**64 - 1), None], "Nullable(UInt64)"),
    ],
)
def test_every_value_is_tried_without_being_read_as_128_bits(
    before: str, values: list[Any], after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a million rows that takes 14 s."""
    kinds: list[str] = []

    def converted(array: pa.Array, stored: Column, kind: str, part: str) -> pa.Array:
        kinds.append(kind)
        assert "Int128" not in kind or not len(array)
        return conform.converted(array, stored, kind, part)

    monkeypatch.setattr(convert, "converted", converted)
    kind = f"Nullable({before})" if None in values else before
    array = pa.array(values, parse_type(kind).arrow)
    convert_all(array, Column("a", kind), after, "all_0_0_0")
    assert kinds[0] == after
    if before != "String":
        assert len(kinds) == 1


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("Float64", 2.0**63, "Int64"),
        ("Float64", 2.0**64, "UInt64"),
        ("Float64", -1.0, "UInt64"),
        ("Float64", -1e30, "Int8"),
        ("UInt64", 2**63, "Int64"),
        ("String", str(2**64 + 5), "Int8"),
        ("String", "0300", "UInt8"),
    ],
)
def test_nor_is_one_at_the_ends_of_a_type_let_through(
    before: str, value: Any, after: str
) -> None:
    array = pa.array([7 if before != "String" else "7", value], parse_type(before).arrow)
    with pytest.raises(BadValue, match="would become"):
        convert_all(array, Column("a", before), after, "all_0_0_0")


def test_parts_without_a_new_column_of_the_sorting_key_merge_in_its_order(
    old: SourcePart, tmp_path: Path
) -> None:
    columns = (*BEFORE.columns[1:], Column("o", "Int32"))
    now = replace(altered(*columns), order_by=("id", "o"), primary_key=("id",))
    rows = [{"id": number, "a": "new", "b": None, "o": 2 - number} for number in (1, 2, 3)]
    new = write_part(tmp_path, "all_1_1_0", sorted_table(rows, now))
    kinds = tuple(PartColumn(column.name, column.type) for column in now.columns)
    new = replace(new, manifest=replace(new.manifest, columns=kinds, metadata_version=5))
    staging = tmp_path / "merged"
    staging.mkdir()
    job = MergeJob("all_0_1_1", (old, new), str(staging), now, CREATED_S)
    [merged] = LocalMerger(SystemClock()).merge([job])
    assert isinstance(merged, MergeDone), merged
    found = [(row[0], row[1], row[3]) for row in written(merged)]
    assert found == [
        *((1, "10", 0), (1, "new", 1), (2, "-20", 0), (2, "new", 0)),
        *((3, "new", -1), (3, "30", 0)),
    ]


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


def test_a_condition_on_a_column_that_is_computed_from_others(
    old: SourcePart, tmp_path: Path
) -> None:
    now = NOW["defaults in a chain"]
    assert isinstance(mutate(old, now, tmp_path / "a", "DELETE WHERE y > 77"), Untouched)
    outcome = mutate(old, now, tmp_path / "b", "DELETE WHERE y = 50 AND id < 3")
    assert isinstance(outcome, MutateDone)
    assert [row[0] for row in written(outcome)] == [1, 3]


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
    assert [column.name for column in outcome.manifest.columns] == ["id", "b"]
    cleared = SourcePart("all_0_0_0_5", outcome.job.staging, outcome.manifest)
    store = Parts(cleared)
    assert tuples(dataset_of(store, store.all, now).to_table()) == [
        (row["id"], a, row["b"]) for row, a in zip(ROWS, expected, strict=True)
    ]


def test_a_column_is_cleared_in_the_partition_that_was_named(
    old: SourcePart, tmp_path: Path
) -> None:
    text = "CLEAR COLUMN a IN PARTITION ID 'other'"
    assert isinstance(mutate(old, BEFORE, tmp_path / "s", text), Untouched)


def test_what_a_part_lacks_stays_lacking_until_it_is_set(
    old: SourcePart, tmp_path: Path
) -> None:
    columns = (*BEFORE.columns[1:], Column("c", "Int32", "DEFAULT", "7"), Column("d", "Int32"))
    outcome = mutate(old, altered(*columns), tmp_path / "a", "UPDATE d = c + 1 WHERE id = 1")
    assert isinstance(outcome, MutateDone)
    assert [column.name for column in outcome.manifest.columns] == ["id", "a", "b", "d"]
    columns = (*BEFORE.columns[1:], Column("c", "Int32", "DEFAULT", "9"), Column("d", "Int32"))
    store = Parts(SourcePart("all_0_0_0_5", outcome.job.staging, outcome.manifest))
    found = tuples(dataset_of(store, store.all, altered(*columns)).to_table())
    assert [row[3:] for row in found] == [(9, 8), (9, 0), (9, 0)]


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
