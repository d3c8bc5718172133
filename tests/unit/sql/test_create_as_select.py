"""CREATE TABLE … AS SELECT makes a table with all rows, or none."""

import re

import pytest

from rmt_pipeline.protocol.errors import (
    NotOnCluster,
    ReplicaAlreadyExists,
    RmtError,
    TableAlreadyExists,
    ZooKeeperUnreachable,
)
from rmt_pipeline.sql.run import insert as session_insert
from rmt_pipeline.sql.run import tables
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


def test_a_table_that_can_not_be_replaced_stays(tmp_path):
    with script_session(tmp_path) as session:
        session.execute(f"CREATE TABLE t {ENGINE} AS SELECT 1 AS n")
        with pytest.raises(ReplicaAlreadyExists, match="give it another path, or DROP the old"):
            session.execute(f"CREATE OR REPLACE TABLE t {ENGINE} AS SELECT 2 AS n")
        with pytest.raises(RmtError, match="throwIf"):
            session.execute(
                "CREATE OR REPLACE TABLE t ORDER BY n AS SELECT throwIf(number > 5) AS n "
                "FROM numbers(10)"
            )
        assert rows(session, "SELECT n FROM t") == [(1,)]
        other = "ENGINE = ReplicatedMergeTree('/other', 'r1') ORDER BY n"
        session.execute(f"CREATE OR REPLACE TABLE t {other} AS SELECT 2 AS n")
        assert rows(session, "SELECT n FROM t") == [(2,)]
        assert rows(session, "SHOW TABLES") == [("t",)]
        assert rows(session, "SELECT table FROM system.dropped_tables") != []


OTHER = "ENGINE = ReplicatedMergeTree('/other', 'r1') ORDER BY n"


def test_the_old_table_is_not_destroyed_by_a_replacement_that_is_cut_off(tmp_path, monkeypatch):
    """The tables have exchanged their names, and nobody says so: what has the name of meanwhile is
    not what was made for nothing.
    """
    with script_session(tmp_path) as session:
        session.execute(f"CREATE TABLE t {ENGINE} AS SELECT 1 AS n")
        server = session.context.server
        exchange = server.exchange_tables

        def cut_off(*names: tuple[str, str]) -> None:
            exchange(*names)
            raise KeyboardInterrupt

        monkeypatch.setattr(server, "exchange_tables", cut_off)
        with pytest.raises(KeyboardInterrupt):
            session.execute(f"CREATE OR REPLACE TABLE t {OTHER} AS SELECT 2 AS n")
        [other] = {name for (name,) in rows(session, "SHOW TABLES")} - {"t"}
        assert rows(session, "SELECT n FROM t") == [(2,)]
        assert rows(session, f"SELECT n FROM {other}") == [(1,)]


def test_what_is_replaced_has_not_failed_when_the_old_one_stays(tmp_path, monkeypatch):
    """Said again it would be made of what it has made."""
    with script_session(tmp_path) as session:
        session.execute(f"CREATE TABLE t {ENGINE} AS SELECT 1 AS n")

        def away(*_: object, **__: object) -> None:
            raise ZooKeeperUnreachable("no answer")

        monkeypatch.setattr(tables, "_drop", away)
        done = session.execute(f"CREATE OR REPLACE TABLE t {OTHER} AS SELECT n + 1 AS n FROM t")
        assert re.fullmatch(
            r"default\.t is replaced\. The old table, which is default\._tmp_replace_\w+ until "
            r"it is dropped, could not be dropped yet: no answer",
            done.note,
        )
        assert rows(session, "SELECT n FROM t") == [(2,)]


def test_a_table_of_the_longest_name_is_replaced(tmp_path):
    """A directory of its own has the longest name of a file then."""
    name = "t" * 245
    with script_session(tmp_path) as session:
        session.execute(f"CREATE TABLE {name} {ENGINE} AS SELECT 1 AS n")
        session.execute(f"CREATE OR REPLACE TABLE {name} {OTHER} AS SELECT 2 AS n")
        assert rows(session, f"SELECT n FROM {name}") == [(2,)]


def test_a_table_is_replaced_on_one_server_alone(tmp_path):
    with script_session(tmp_path) as session, pytest.raises(NotOnCluster, match="OR REPLACE"):
        session.execute(f"CREATE OR REPLACE TABLE t ON CLUSTER c (n UInt8) {ENGINE}")
