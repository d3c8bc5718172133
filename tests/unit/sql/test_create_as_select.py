"""CREATE TABLE … AS SELECT makes a table with all rows, or none."""

import pytest

from rmt_pipeline.protocol.errors import RmtError, TableAlreadyExists
from rmt_pipeline.sql.run import insert as session_insert
from tests.support.local_session import rows
from tests.support.scripts import script_session

ENGINE = "ENGINE = ReplicatedMergeTree ORDER BY n"


def nodes_of(session, name: str) -> list[object]:
    text = "SELECT name FROM system.zookeeper WHERE path = '/clickhouse/tables/1/default'"
    return [found for (found,) in rows(session, text) if found == name]


def test_a_query_whose_rows_cannot_be_inserted_leaves_no_table(tmp_path):
    with script_session(tmp_path) as session:
        session.execute(f"CREATE TABLE other {ENGINE} AS SELECT 1 AS n")
        failing = (
            f"CREATE TABLE t {ENGINE} AS SELECT throwIf(number > 5) AS n FROM numbers(10)",
            f"CREATE TABLE t (n UInt8) {ENGINE} AS SELECT number * 100 AS n FROM numbers(5)",
            f"CREATE TABLE IF NOT EXISTS t (n UInt8) {ENGINE} AS SELECT 'x' AS n",
        )
        for text in failing:
            with pytest.raises(RmtError):
                session.execute(text)
            assert rows(session, "EXISTS t") == [(0,)], text
            assert nodes_of(session, "t") == [], text
        session.execute(
            f"CREATE TABLE t (n UInt8) {ENGINE} AS SELECT number AS n FROM numbers(5)"
        )
        assert rows(session, "SELECT count() FROM t") == [(5,)]
        with pytest.raises(TableAlreadyExists):
            session.execute(f"CREATE TABLE t {ENGINE} AS SELECT throwIf(1) AS n")
        assert rows(session, "SELECT count() FROM t") == [(5,)], "the table that was there"


def test_a_table_that_somebody_else_made_meanwhile_is_not_dropped(tmp_path, monkeypatch):
    with script_session(tmp_path) as session:

        def replaced(*_: object) -> None:
            session.execute("DROP TABLE t SYNC")
            session.execute(f"CREATE TABLE t (n UInt8) {ENGINE}")
            raise RmtError("the insert failed")

        monkeypatch.setattr(session_insert, "insert", replaced)
        with pytest.raises(RmtError, match="the insert failed"):
            session.execute(f"CREATE TABLE t {ENGINE} AS SELECT 1 AS n")
        assert rows(session, "EXISTS t") == [(1,)]
