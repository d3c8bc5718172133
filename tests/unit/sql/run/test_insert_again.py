"""Whether rows that are inserted again are there again: as the engine and the settings say."""

import pytest

from rmt_pipeline.zookeeper.keeper import Delete, Op
from tests.support.local_session import create, rows
from tests.support.lost_answers import allocates, faulty


@pytest.mark.parametrize(
    ("engine", "settings", "is_known"),
    [
        ("ReplicatedMergeTree", "", True),
        ("ReplicatedMergeTree", " SETTINGS non_replicated_deduplication_window = 0", True),
        ("MergeTree", "", False),
        ("MergeTree", " SETTINGS non_replicated_deduplication_window = 1", True),
    ],
)
def test_the_same_rows_said_twice(session, engine, settings, is_known):
    create(session, f"CREATE TABLE t (n UInt8) ENGINE = {engine} ORDER BY n{settings}")
    for _ in range(2):
        session.execute("INSERT INTO t VALUES (1)")
    assert rows(session, "SELECT count() FROM t") == [(1 if is_known else 2,)]


@pytest.mark.parametrize("engine", ["ReplicatedMergeTree", "MergeTree"])
def test_who_names_an_insert_means_it(session, engine):
    create(session, f"CREATE TABLE t (n UInt8) ENGINE = {engine} ORDER BY n")
    for number in range(2):
        named = "INSERT INTO t SETTINGS insert_deduplication_token = 'a' VALUES ({})"
        session.execute(named.format(number))
    assert rows(session, "SELECT n FROM t") == [(0,)]


@pytest.mark.parametrize(("deduplicate", "count"), [(0, 2), (1, 1)])
def test_an_async_insert_is_known_again_when_its_own_setting_says_so(
    session, deduplicate, count
):
    create(session, "CREATE TABLE t (n UInt8) ENGINE = ReplicatedMergeTree ORDER BY n")
    session.execute(f"SET async_insert = 1, async_insert_deduplicate = {deduplicate}")
    for _ in range(2):
        session.execute("INSERT INTO t VALUES (1)")
        session.execute("INSERT INTO t SELECT 2")  # is never one
    assert rows(session, "SELECT n, count() FROM t GROUP BY n ORDER BY n") == [
        (1, count),
        (2, 1),
    ]


@pytest.mark.parametrize("landed", [False, True])
def test_ids_that_are_forgotten_without_an_answer_stop_no_insert(session, landed):
    """It was told that nobody knows whether it has landed, though it had not been sent."""
    window = " SETTINGS non_replicated_deduplication_window = 1"
    create(session, f"CREATE TABLE t (n UInt8) ENGINE = MergeTree ORDER BY n{window}")
    for number in (1, 2):
        session.execute(f"INSERT INTO t VALUES ({number})")
    with faulty(session.context.server.keeper(), forgets, but=allocates, landed=landed):
        session.execute("INSERT INTO t VALUES (1)")
    session.execute("INSERT INTO t VALUES (1)")
    assert rows(session, "SELECT n FROM t ORDER BY n") == [(1,), (1,), (2,)]


def forgets(op: Op) -> bool:
    return isinstance(op, Delete) and "/blocks/" in op.path
