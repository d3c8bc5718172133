"""Backfill by replacement beside Delta's `replaceWhere`: each row of the table in docs/sql.md, by a
run of both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.partitions.from_table import EmptySource
from rmt_pipeline.replica.partitions.overwrite import ReplaceResult, RowsOutside
from tests.support.local_replicas import Replicas, partitioned
from tests.support.lost_answers import allocates, before
from tests.support.partitioned import Pair, dicts, insert, rows, work

deltalake = pytest.importorskip("deltalake", reason="rmt-pipeline[export] is not installed")

FIRST: tuple[Pair, ...] = ((1, 1), (1, 2), (2, 3), (3, 4))
SETTINGS = QuerySettings(alter_sync=0, receive_timeout=10)


@dataclass(frozen=True)
class Delta:
    """Another writer has a table of his own, as it was when he opened it."""

    place: str

    def table(self) -> Any:
        return deltalake.DeltaTable(self.place)

    def put(self, *pairs: Pair, where: str = "", table: Any = None) -> None:
        schema = pa.schema([("p", pa.int32()), ("n", pa.int64())])
        data = pa.Table.from_pylist(dicts(pairs), schema=schema)
        to = self.place if table is None else table
        if where:
            deltalake.write_deltalake(to, data, mode="overwrite", predicate=where)
        else:
            deltalake.write_deltalake(to, data, mode="append", partition_by=["p"])

    def rows(self, table: Any = None) -> list[Pair]:
        found = (table or self.table()).to_pyarrow_table().to_pylist()
        return sorted((row["p"], row["n"]) for row in found)


@dataclass(frozen=True)
class Both:
    ours: Replicas
    delta: Delta

    def put(self, *pairs: Pair, at: str = "r1", **target: Any) -> ReplaceResult:
        return self.ours.table(at).replace(dicts(pairs), settings=SETTINGS, **target)

    def rows(self) -> list[Pair]:
        """Of all three: the replicas and Delta's."""
        work(self.ours)
        found = rows(self.ours, "r1")
        assert found == rows(self.ours, "r2") == self.delta.rows()
        return found

    def unchanged(self) -> None:
        assert self.rows() == sorted(FIRST)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    delta = Delta(str(tmp_path / "delta"))
    delta.put(*FIRST)
    with Replicas(tmp_path / "ours", define=partitioned) as ours:
        insert(ours, *FIRST)
        work(ours)
        yield Both(ours, delta)


@pytest.mark.parametrize(
    ("pairs", "target", "where", "left"),
    [
        ([(1, 7)], {"partition": "1"}, "p = 1", [(1, 7), (2, 3), (3, 4)]),
        (
            [(1, 7), (3, 8)],
            {"partition": ["1", "3"]},
            "p IN (1, 3)",
            [(1, 7), (2, 3), (3, 8)],
        ),
        ([(2, 9)], {"where": "n > 1"}, "n > 1", [(1, 1), (2, 9)]),
    ],
    ids=["one partition", "several, in one commit", "a condition"],
)
def test_the_same_rows_are_left(
    both: Both, pairs: Sequence[Pair], target: dict[str, Any], where: str, left: list[Pair]
) -> None:
    both.put(*pairs, **target)
    both.delta.put(*pairs, where=where)
    assert both.rows() == left


def test_rows_outside_are_refused_and_nothing_is_changed(both: Both) -> None:
    for target in ({"partition": "1"}, {"where": "p = 1"}):
        with pytest.raises(RowsOutside):
            both.put((1, 7), (2, 7), **target)
    with pytest.raises(deltalake.exceptions.DeltaError, match="failed validation"):
        both.delta.put((1, 7), (2, 7), where="p = 1")
    both.unchanged()


def test_the_same_again_changes_nothing_here_and_is_another_version_there(both: Both) -> None:
    both.put((1, 7), partition="1")
    both.delta.put((1, 7), where="p = 1")
    parts, before_it = both.ours.parts("r1"), both.delta.table()
    assert both.put((1, 7), partition="1").is_duplicate
    both.delta.put((1, 7), where="p = 1")
    assert both.ours.parts("r1") == parts
    assert both.delta.table().version() == before_it.version() + 1
    assert set(both.delta.table().file_uris()) != set(before_it.file_uris())
    assert both.rows() == [(1, 7), (2, 3), (3, 4)]


def test_no_rows_are_refused_here_unless_that_is_meant_and_delete_there(both: Both) -> None:
    with pytest.raises(EmptySource):
        both.put(partition="1")
    both.delta.put(where="p = 1")
    assert rows(both.ours) == sorted(FIRST)
    allowed = replace(SETTINGS, allow_replace_partition_from_empty_source=True)
    both.ours.table("r1").replace([], partition="1", settings=allowed)
    assert both.rows() == [(2, 3), (3, 4)]


@pytest.mark.parametrize("is_insert", [False, True], ids=["a replacement", "an insert"])
def test_of_two_at_once_one_comes_after_the_other_here_and_one_fails_there(
    both: Both, *, is_insert: bool
) -> None:
    def other() -> None:
        if is_insert:
            insert(both.ours, (1, 8), at="r2")
        else:
            both.put((1, 8), partition="1", at="r2")
        work(both.ours)

    with before(both.ours["r1"].keeper, allocates, other):
        both.put((1, 7), partition="1")
    opened = both.delta.table()
    both.delta.put((1, 8), where="" if is_insert else "p = 1")
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        both.delta.put((1, 7), where="p = 1", table=opened)
    both.delta.put((1, 7), where="p = 1")  # he has to say it again
    assert both.rows() == [(1, 7), (2, 3), (3, 4)]


def test_who_reads_meanwhile_has_the_old_rows(both: Both) -> None:
    opened = both.delta.table()
    with both.ours.table("r1").snapshot() as snapshot:
        both.put((1, 7), partition="1")
        both.delta.put((1, 7), where="p = 1")
        held = pa.concat_tables([pq.read_table(file) for file in snapshot.files])
    assert sorted((row["p"], row["n"]) for row in held.to_pylist()) == sorted(FIRST)
    assert both.delta.rows(opened) == sorted(FIRST)
    assert both.rows() == [(1, 7), (2, 3), (3, 4)]
