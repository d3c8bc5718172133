"""What is read before an ALTER is decided, and while it is applied (spec §8). What it writes is in
test_multis.py.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from rmt_pipeline.protocol.alter.history import AlterRecord
from rmt_pipeline.protocol.errors import ReplicaDropped
from rmt_pipeline.zookeeper import alter_transactions as altering
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.alter_transactions import AlterVersions, LogEnd
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, SetData, Stat
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.fake_keeper import FakeKeeper, FakeZooKeeper

T = TablePaths("/t")
R = T.replica("r1")


class Clock:
    def now_s(self) -> float:
        return 1e9

    monotonic_s = now_s

    def sleep_s(self, seconds: float) -> None:
        raise NotImplementedError


def record(name: str) -> AlterRecord:
    return AlterRecord(1_000_000_000, "r1", name, "DROP COLUMN x", ())


@pytest.fixture
def keeper() -> FakeKeeper:
    """A table with one replica. ALTERs 1 to 3, of which it has applied two; two log entries."""
    found = FakeZooKeeper(Clock()).connect()
    found.multi(transactions.create_table(T, "r1", b"", b""))
    found.multi(
        transactions.create_replica(
            R,
            is_lost=False,
            metadata=b"",
            columns=b"",
            metadata_version=2,
            creator=b"",
            creation="",
        )
    )
    for path, count in ((T.metadata, 3), (T.columns, 4), (T.alters, 5), (T.mutations, 6)):
        found.multi([SetData(path, str(n).encode()) for n in range(count)])
    for number in (1, 2, 3):
        found.multi([Create(T.alter(number), record(f"{number}").encode())])
    found.multi([Create(T.log_prefix, b"", sequence=True) for _ in range(2)])
    found.multi([SetData(R.log_pointer, b"1")])
    return found


class Between:
    """A session that reads node by node, and others write behind one of the reads."""

    def __init__(self, keeper: FakeKeeper, after: int, ops: Sequence[Op]) -> None:
        self._keeper = keeper
        self._left, self._ops = after, ops

    def _then(self, answer: Any) -> Any:
        self._left -= 1
        if not self._left:
            self._keeper.multi(self._ops)
        return answer

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return [self._then(self._keeper.get_many([path])[0]) for path in paths]

    def exists_many(self, paths: Sequence[str]) -> list[Stat | None]:
        return [self._then(self._keeper.exists_many([path])[0]) for path in paths]

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return [self._then(self._keeper.children_many([path])[0]) for path in paths]


def drop_tree(keeper: FakeKeeper, path: str) -> None:
    for child in keeper.children(path):
        drop_tree(keeper, f"{path}/{child}")
    keeper.multi([Delete(path)])


def test_the_versions_that_guard_an_alter(keeper: FakeKeeper) -> None:
    read = AlterVersions(metadata=3, columns=4, alters=5, mutations=6, applied=2)
    assert altering.alter_versions(keeper, T, R) == read
    keeper.multi([SetData(R.metadata_version, b"")])
    assert altering.alter_versions(keeper, T, R).applied == 0, (
        "as a version of long ago left it"
    )


def test_a_table_of_an_older_version_gets_the_node_that_numbers_its_alters(
    keeper: FakeKeeper,
) -> None:
    drop_tree(keeper, T.alters)
    assert altering.alter_versions(keeper, T, R).alters is None
    assert altering.alter_records(keeper, T, 9) == []
    keeper.multi(altering.create_alters(T))
    assert altering.alter_versions(keeper, T, R).alters == 0


@pytest.mark.parametrize("path", [T.metadata, T.columns, T.mutations, R.metadata_version])
def test_a_table_that_is_being_dropped_is_not_altered(keeper: FakeKeeper, path: str) -> None:
    keeper.multi([Delete(path)])
    with pytest.raises(ReplicaDropped, match="SYSTEM RESTORE REPLICA"):
        altering.alter_versions(keeper, T, R)


def test_the_end_of_the_log_is_read_behind_the_pointer(keeper: FakeKeeper) -> None:
    """An entry that is pulled between the reads changes the pointer, so its version is an old one:
    the multi that asserts it is refused.
    """
    assert altering.log_end(keeper, T, R) == LogEnd(2, 1)
    ops = [Create(T.log_prefix, b"", sequence=True), SetData(R.log_pointer, b"3")]
    assert altering.log_end(Between(keeper, 1, ops), T, R) == LogEnd(3, 1)


@pytest.mark.parametrize("path", [T.log, R.log_pointer])
def test_a_log_that_is_gone_has_no_end(keeper: FakeKeeper, path: str) -> None:
    drop_tree(keeper, path)
    with pytest.raises(ReplicaDropped):
        altering.log_end(keeper, T, R)


def test_records_of_alters_up_to_a_version(keeper: FakeKeeper) -> None:
    """In their order. Those of a table that goes meanwhile are not missed."""

    def read(session: Any, version: int) -> list[str]:
        return [one.request_id for one in altering.alter_records(session, T, version)]

    assert [read(keeper, version) for version in (0, 1, 2, 9)] == [
        [],
        ["1"],
        ["1", "2"],
        ["1", "2", "3"],
    ]
    assert read(Between(keeper, 1, [Delete(T.alter(2))]), 3) == ["1", "3"]


ALTERED = (SetData(T.metadata, b"new"), SetData(T.columns, b"new"))


@pytest.mark.parametrize(
    ("after", "ops", "read"),
    [
        (9, (), [b"2", b"3"]),
        (1, ALTERED, [b"new", b"new"]),
        (2, ALTERED, [b"new", b"new"]),
        (3, ALTERED, [b"2", b"3"]),
        (2, (Delete(T.metadata), Delete(T.columns)), None),
        (1, (Delete(T.columns),), None),
    ],
)
def test_nodes_are_read_as_of_one_moment(
    keeper: FakeKeeper, after: int, ops: Sequence[Op], read: list[bytes] | None
) -> None:
    found = altering.read_at_once(Between(keeper, after, ops), [T.metadata, T.columns])
    assert (None if found is None else [data for data, _ in found]) == read


def test_a_node_that_is_missing_is_told_from_those_that_are_there(keeper: FakeKeeper) -> None:
    keeper.multi([Delete(T.columns)])
    first, second = altering.as_of_one_moment(keeper, [T.metadata, T.columns])
    assert first is not None
    assert (first[0], second) == (b"2", None)
