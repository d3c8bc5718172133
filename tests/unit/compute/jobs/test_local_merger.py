"""Merges from files to files, in this process."""

import dataclasses
import datetime as dt
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.compute import units
from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.merge.job import MergeDone, MergeFailure, MergeJob, SourcePart
from rmt_pipeline.compute.rows.keys import KeyColumns
from rmt_pipeline.compute.rows.order import row_order
from rmt_pipeline.compute.rows.write import HashingFile
from rmt_pipeline.protocol.errors import Corruption, DiskFull, UserError
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.protocol.ttl import PartTtl, TtlTimes
from rmt_pipeline.store import parquet
from rmt_pipeline.store.hashes.checksums import hash_hex
from rmt_pipeline.store.hashes.rows import hash_table
from rmt_pipeline.store.manifest import KeyBound
from rmt_pipeline.syntax.types import arrow_schema
from rmt_pipeline.system import SystemClock
from tests.oracle.rows import merge_rows
from tests.support.merging import (
    CREATED_S,
    definition,
    job_of,
    read_result,
    rows_of,
    rules_of,
    sorted_table,
    write_part,
)

COLUMNS = [
    ("id", "Int64"),
    ("city", "String"),
    ("name", "String"),
    ("day", "Date"),
    ("f", "Float64"),
]
TABLE = definition(COLUMNS, ("id", "name"))

Merge = Callable[..., MergeDone | MergeFailure]


@pytest.fixture
def merge(tmp_path: Path) -> Merge:
    def run(sources: list[SourcePart], table: TableDefinition = TABLE, **options):
        staging = tmp_path / "staging"
        staging.mkdir(exist_ok=True)
        job = job_of(table, sources, staging, **options)
        (outcome,) = LocalMerger(SystemClock()).merge([job])
        assert outcome.job is job
        return outcome

    return run


def random_part(root: Path, number: int, rows: int, *, ids: int = 1000) -> SourcePart:
    random = np.random.default_rng(number)
    table = [
        {
            "id": int(random.integers(0, ids)),
            "city": f"city-{random.integers(0, 5)}",
            "name": f"name-{random.integers(0, 10**6)}",
            "day": dt.date(2024, 1, 1) + dt.timedelta(int(random.integers(0, 300))),
            "f": float(random.random()),
        }
        for _ in range(rows)
    ]
    return write_part(root, f"all_{number}_{number}_0", sorted_table(table, TABLE))


def done(outcome: MergeDone | MergeFailure) -> MergeDone:
    assert isinstance(outcome, MergeDone), outcome
    return outcome


def rows_in(source: SourcePart) -> list:
    path = Path(source.directory) / "data-00000.parquet"
    return rows_of(pq.ParquetFile(path).read(), TABLE)


def test_a_plain_merge_has_the_rows_of_its_sources_in_order(
    tmp_path, merge, monkeypatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 1000)  # so that there are some
    sources = [random_part(tmp_path, number, 3000) for number in range(4)]
    made = done(merge(sources))

    found = read_result(made)
    wanted = merge_rows([rows_in(source) for source in sources], rules_of(TABLE))
    assert rows_of(found, TABLE) == wanted

    manifest = made.manifest
    hashes = hash_table(found)
    assert (manifest.rows, manifest.row_hash) == (12_000, hashes.row_hash)
    assert manifest.row_hash == sum(source.manifest.row_hash for source in sources) % 2**128
    assert manifest.column_hashes == hashes.column_hashes
    assert manifest.content_hash == hashes.content_hash
    assert manifest.sources == tuple(source.name for source in sources)
    assert manifest.created_s == CREATED_S
    assert [column.name for column in manifest.columns] == [name for name, _ in COLUMNS]
    ids = [row["id"] for row in wanted]
    names = [row["name"] for row in wanted]
    assert manifest.key_bounds == (
        KeyBound("id", ids[0], ids[-1]),
        KeyBound("name", min(names), max(names)),
    )
    for file in manifest.files:
        written = (Path(made.job.staging) / file.name).read_bytes()
        assert (file.size, file.hash) == (len(written), hash_hex(written))


@pytest.mark.parametrize("unit_bytes", [units.UNIT_BYTES, 1], ids=["one unit", "units"])
@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        ("UInt32", [None, 7, None, 5], (5, 7)),
        ("UInt32", [7, None, 5, None], (5, 7)),
        ("UInt32", [None] * 4, (None, None)),
        ("Float64", [None, float("nan"), 0.5, float("nan")], (0.5, 0.5)),
        ("Float64", [float("nan")] * 4, (None, None)),
    ],
)
def test_pieces_without_a_value_say_nothing_of_the_bounds(
    tmp_path, merge, monkeypatch, *, kind, values, bounds, unit_bytes
) -> None:
    """What PARTITION BY is computed from may be NULL or NaN throughout a row group or a file."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 1)
    columns = definition([("id", "Int64"), ("n", f"Nullable({kind})")], ("id",))
    table = dataclasses.replace(columns, partition_by=("isNull(n) AND 0",))
    rows = [{"id": number, "n": value} for number, value in enumerate(values)]
    source = write_part(tmp_path, "0_0_0_0", sorted_table(rows, table), row_group_size=1)
    monkeypatch.setattr(units, "UNIT_BYTES", unit_bytes)
    made = done(merge([source], table))
    assert (len(made.manifest.files) > 1) is (unit_bytes == 1)
    assert made.manifest.key_bounds[-1] == KeyBound("n", *bounds)
    made.manifest.encode()


def test_a_large_merge_gives_several_files_in_key_order_and_no_key_twice(
    tmp_path, merge, monkeypatch
) -> None:
    sources = [random_part(tmp_path, number, 3000, ids=300) for number in range(4)]
    whole = done(merge(sources))
    wanted = rows_of(read_result(whole), TABLE)
    for file in whole.manifest.files:
        (Path(whole.job.staging) / file.name).unlink()

    total = sum(source.manifest.bytes_on_disk for source in sources)
    monkeypatch.setattr(units, "UNIT_BYTES", total // 4)
    cut = done(merge(sources))

    assert len(cut.manifest.files) >= 4
    assert rows_of(read_result(cut), TABLE) == wanted
    assert cut.manifest.row_hash == whole.manifest.row_hash
    ids = [
        set(pq.ParquetFile(Path(cut.job.staging) / file.name).read()["id"].to_pylist())
        for file in cut.manifest.files
    ]
    assert all(max(left) < min(right) for left, right in itertools.pairwise(ids))
    assert max(map(len, ids)) < 2 * min(map(len, ids))


KEYS = {
    "few leading values": ("city", "id"),
    "text": ("name",),
    "computed": ("toYYYYMM(day)", "name"),
    "computed, many values": ("reverse(name)", "id"),
    "nested": ("tuple(city, name)",),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_a_large_merge_is_cut_whatever_its_key(tmp_path, merge, monkeypatch, key) -> None:
    table = dataclasses.replace(TABLE, order_by=key)
    sources = []
    for number in range(3):
        unsorted = random_part(tmp_path / "unsorted", number, 4000)
        rows = ordered(pq.ParquetFile(f"{unsorted.directory}/data-00000.parquet").read(), table)
        sources.append(write_part(tmp_path, unsorted.name, rows, row_group_size=500))
    total = sum(source.manifest.bytes_on_disk for source in sources)
    monkeypatch.setattr(units, "UNIT_BYTES", total // 4)

    made = done(merge(sources, table))

    assert len(made.manifest.files) >= 4
    sizes = [file.size for file in made.manifest.files]
    assert max(sizes) < 2 * min(sizes)
    found = read_result(made)
    assert found.num_rows == 12_000
    assert ordered(found, table) == found


def ordered(rows: pa.Table, table: TableDefinition) -> pa.Table:
    keys = KeyColumns(table.order_by, table.columns).arrays(rows.combine_chunks())
    order = row_order(keys).rows
    return rows if order is None else rows.take(pa.array(order))


def test_the_same_sources_give_the_same_bytes(tmp_path) -> None:
    sources = [random_part(tmp_path, number, 3000) for number in range(3)]
    manifests = []
    for replica in ("r1", "r2"):
        staging = tmp_path / replica
        staging.mkdir()
        (outcome,) = LocalMerger(SystemClock()).merge([job_of(TABLE, sources, staging)])
        manifests.append(done(outcome).manifest)
    assert manifests[0] == manifests[1]


def test_columns_that_repeat_stay_small_and_are_read_back_as_text(tmp_path, merge) -> None:
    sources = [random_part(tmp_path, number, 5000) for number in range(2)]
    made = done(merge(sources))
    file = pq.ParquetFile(Path(made.job.staging) / "data-00000.parquet")
    group = file.metadata.row_group(0)
    coded = {
        group.column(at).path_in_schema
        for at in range(group.num_columns)
        if group.column(at).has_dictionary_page
    }
    assert coded == {"city", "day"}
    assert file.schema_arrow.field("city").type == pa.string()


def test_parts_without_rows_are_merged_to_a_part_without_rows(tmp_path, merge) -> None:
    sources = [
        write_part(tmp_path, f"all_{number}_{number}_0", sorted_table([], TABLE))
        for number in range(2)
    ]
    made = done(merge(sources))
    assert made.manifest.files == ()
    assert made.manifest.rows == made.manifest.row_hash == 0
    assert set(made.manifest.column_hashes) == {name for name, _ in COLUMNS}


def test_a_table_without_a_sorting_key_is_joined_in_order_of_its_parts(tmp_path, merge) -> None:
    table = definition([("n", "Int64")], ())
    parts = [[3, 1], [], [2, 1]]
    sources = [
        write_part(
            tmp_path,
            f"all_{number}_{number}_0",
            pa.table({"n": pa.array(values, pa.int64())}, sorted_table([], table).schema),
        )
        for number, values in enumerate(parts)
    ]
    assert read_result(done(merge(sources, table)))["n"].to_pylist() == [3, 1, 2, 1]


def test_a_column_that_a_source_lacks_has_its_default(tmp_path, merge) -> None:
    old = random_part(tmp_path, 1, 10)
    new_table = TABLE.with_columns((*TABLE.columns, Column("added", "UInt8")))
    new_rows = sorted_table([{**rows_in(old)[0], "added": 7}], new_table)
    new = write_part(tmp_path, "all_2_2_0", new_rows)
    made = done(merge([old, new], new_table))
    assert sorted(read_result(made)["added"].to_pylist()) == [0] * 10 + [7]


def test_a_column_that_a_source_lacks_has_the_value_of_its_expression(tmp_path, merge) -> None:
    old = random_part(tmp_path, 1, 10)
    added = (
        Column("after", "Date", "DEFAULT", "tomorrow + 1"),
        Column("tomorrow", "Date", "MATERIALIZED", "day + 1"),
        Column("half", "Float64", "DEFAULT", "f / 2"),
    )
    table = TABLE.with_columns((*TABLE.columns, *added))
    for row in read_result(done(merge([old], table))).to_pylist():
        assert row["tomorrow"] == row["day"] + dt.timedelta(1)
        assert row["after"] == row["day"] + dt.timedelta(2)
        assert row["half"] == row["f"] / 2


def test_keys_may_be_expressions(tmp_path, merge) -> None:
    columns = [("time", "DateTime"), ("n", "Int64"), ("v", "Int64")]
    table = dataclasses.replace(
        definition(columns, ("toDate(time)", "n % 3"), "SummingMergeTree"),
        partition_by=("toYYYYMM(time)",),
    )
    first = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    sources = []
    for number in range(3):
        rows = [
            {"time": first + dt.timedelta(hours=hour), "n": (hour + number) % 3, "v": 1}
            for hour in range(50)
        ]
        rows.sort(key=lambda row: (row["time"].date(), row["n"]))
        rows_table = pa.Table.from_pylist(rows, schema=arrow_schema(table.columns))
        sources.append(write_part(tmp_path, f"202405_{number}_{number}_0", rows_table))
    made = done(merge(sources, table))
    found = read_result(made).to_pylist()
    counted: dict[tuple[dt.date, int], int] = {}
    for row in found:
        counted[row["time"].date(), row["n"] % 3] = row["v"]
    assert len(found) == len(counted) == 9
    assert list(counted) == sorted(counted)
    assert sum(counted.values()) == 150
    assert [row["n"] for row in found] == [key[1] for key in counted], (
        "columns of keys are kept"
    )
    bounds = {bound.column: (bound.min, bound.max) for bound in made.manifest.key_bounds}
    assert bounds["toDate(time)"] == ("2024-05-01", "2024-05-03")


def test_nested_keys_have_an_order(tmp_path, merge) -> None:
    columns = [("k", "Array(Int64)"), ("v", "Int64")]
    table = definition(columns, ("k",))
    sources = [
        write_part(
            tmp_path,
            f"all_{number}_{number}_0",
            sorted_table([{"k": k, "v": 1} for k in keys], table),
        )
        for number, keys in enumerate([[[], [1, 2], [2]], [[1], [1, 2, 3], [3]]])
    ]
    found = read_result(done(merge(sources, table)))
    assert found["k"].to_pylist() == [[], [1], [1, 2], [1, 2, 3], [2], [3]]


# Sources that are not what their manifests say


def flip_a_byte(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize("place", [10, -10], ids=["rows", "footer"])
def test_a_flipped_bit_in_a_source_stops_the_merge_and_names_the_part(
    tmp_path, merge, place
) -> None:
    sources = [random_part(tmp_path, number, 500) for number in range(3)]
    flip_a_byte(Path(sources[1].directory) / "data-00000.parquet", place)
    outcome = merge(sources)
    assert isinstance(outcome, MergeFailure)
    assert isinstance(outcome.error, Corruption)
    assert outcome.part == "all_1_1_0"
    assert "all_1_1_0" in str(outcome.error)


def test_a_source_that_is_gone_stops_the_merge_and_names_the_part(tmp_path, merge) -> None:
    sources = [random_part(tmp_path, number, 5) for number in range(3)]
    (Path(sources[2].directory) / "data-00000.parquet").unlink()
    outcome = merge(sources)
    assert isinstance(outcome, MergeFailure)
    assert isinstance(outcome.error, Corruption)
    assert outcome.part == "all_2_2_0"


def with_manifest(source: SourcePart, **changes) -> SourcePart:
    manifest = dataclasses.replace(source.manifest, **changes)
    return dataclasses.replace(source, manifest=manifest)


@pytest.mark.parametrize(
    "changes",
    [{"row_hash": 1}, {"rows": 6}],
    ids=["hash", "rows"],
)
def test_rows_that_are_not_conserved_are_not_published(tmp_path, merge, changes) -> None:
    sources = [random_part(tmp_path, number, 5) for number in range(2)]
    outcome = merge([sources[0], with_manifest(sources[1], **changes)])
    assert isinstance(outcome, MergeFailure)
    assert isinstance(outcome.error, Corruption)
    assert "all_0_1_1" in str(outcome.error)
    assert not outcome.part


def test_rows_that_no_engine_may_lose_are_counted(tmp_path, merge) -> None:
    table = definition(COLUMNS, ("id",), "ReplacingMergeTree")
    source = random_part(tmp_path, 1, 5)
    outcome = merge([with_manifest(source, rows=6)], table)
    assert isinstance(outcome, MergeFailure)
    assert "5 rows were read" in str(outcome.error)


def test_a_column_is_conserved_also_where_another_was_added(tmp_path, merge) -> None:
    old = random_part(tmp_path, 1, 10)
    hashes = {**old.manifest.column_hashes, "city": 5}
    table = TABLE.with_columns((*TABLE.columns, Column("added", "UInt8")))
    outcome = merge([with_manifest(old, column_hashes=hashes)], table)
    assert isinstance(outcome, MergeFailure)
    assert "column city" in str(outcome.error)


def test_deduplicate_by_must_have_the_sorting_key(tmp_path, merge) -> None:
    sources = [random_part(tmp_path, number, 5) for number in range(2)]
    outcome = merge(sources, deduplicate=True, deduplicate_by=("id",))
    assert isinstance(outcome, MergeFailure)
    assert isinstance(outcome.error, UserError)
    assert "name" in str(outcome.error)


def test_a_broken_merge_does_not_stop_the_others(tmp_path) -> None:
    sources = [random_part(tmp_path, number, 50) for number in range(6)]
    flip_a_byte(Path(sources[2].directory) / "data-00000.parquet", 10)
    jobs: list[MergeJob] = []
    for number in range(3):
        staging = tmp_path / f"staging-{number}"
        staging.mkdir()
        jobs.append(job_of(TABLE, sources[2 * number : 2 * number + 2], staging))
    outcomes = {each.job.result: each for each in LocalMerger(SystemClock()).merge(jobs)}
    kinds = [type(outcomes[job.result]) for job in jobs]
    assert kinds == [MergeDone, MergeFailure, MergeDone]


def test_a_full_disk_is_said_to_be_full(tmp_path) -> None:
    file = HashingFile(str(tmp_path / "data-00000.parquet"))
    file._file.close()
    file._file = open("/dev/full", "wb", buffering=0)  # noqa: PTH123, SIM115
    with pytest.raises(DiskFull, match="data-00000"):
        pq.write_table(pa.table({"n": [1]}), pa.PythonFile(file, "w"))
    file.close()


@pytest.mark.parametrize("expired", [True, False])
def test_rows_that_wait_stay_when_a_manifest_says_that_all_have_expired(
    tmp_path, merge, *, expired: bool
) -> None:
    """P20. A part of a peer may say so; no hash is over it."""
    days = dt.timedelta(-2 if expired else 2)
    row = {"id": 1, "city": "", "name": "", "f": 0.0}
    day = dt.datetime.fromtimestamp(CREATED_S, dt.UTC).date()
    rows = sorted_table([row | {"day": day + days}, row | {"day": day - 2 * abs(days)}], TABLE)
    source = write_part(tmp_path, "all_0_0_0", rows)
    claims = PartTtl((TtlTimes("day", CREATED_S - 9, CREATED_S - 1, every=True),))
    source = dataclasses.replace(
        source, manifest=dataclasses.replace(source.manifest, ttl=claims)
    )
    made = done(merge([source], dataclasses.replace(TABLE, ttl="day")))
    # No row is read by a unit when there is none.
    assert (made.manifest.rows, made.rows_in) == ((0, 0) if expired else (1, 2))
