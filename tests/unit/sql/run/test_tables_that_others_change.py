"""Statements about tables that are not there, that fail, or that others change meanwhile."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.sql.formats.rows import Done
from rmt_pipeline.sql.run import alter
from rmt_pipeline.sql.run.session import Session
from tests.support.local_session import rows, session_with_two_tables
from tests.support.scripts import script_session

WITH_TIME = "CREATE TABLE {0} (n UInt64, d DateTime) ENGINE = ReplicatedMergeTree ORDER BY n"


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Session]:
    with session_with_two_tables(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE TABLE IF EXISTS nosuch.t",
        "SYSTEM SYNC REPLICA IF EXISTS nosuch.t",
        "DROP TABLE IF EXISTS nosuch.t",
        "DETACH TABLE IF EXISTS nosuch.t",
        "RENAME TABLE IF EXISTS nosuch.t TO nosuch.u",
    ],
)
def test_if_exists_is_about_the_database_too(two: Session, statement: str) -> None:
    assert two.execute(statement) == Done()


def test_rename_if_exists_finds_what_it_has_renamed_before(two: Session) -> None:
    two.execute("RENAME TABLE IF EXISTS t TO a, a TO b, nosuch TO c, c TO d")
    assert rows(two, "SHOW TABLES") == [("b",), ("u",)]
    two.execute("INSERT INTO b VALUES (1)")
    two.execute("RENAME TABLE IF EXISTS b TO between, u TO b, between TO u")
    assert rows(two, "SHOW TABLES") == [("b",), ("u",)]
    assert rows(two, "SELECT n FROM u") == [(1,)]


def test_a_mutation_of_a_database_that_is_dropped_meanwhile_hides_no_other(
    two: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.execute("CREATE DATABASE a")
    two.execute("RENAME TABLE t TO a.t")
    for name in ("a.t", "u"):
        two.execute(f"DELETE FROM {name} WHERE n = 1 SETTINGS lightweight_deletes_sync = 0")
    chosen = alter._chosen

    def then_dropped(*asked: Any) -> object:
        found = chosen(*asked)
        two.context.server.drop_table("a", "t", sync=True)
        two.context.server.catalog.drop_database("a")
        return found

    monkeypatch.setattr(alter, "_chosen", then_dropped)
    found = rows(two, "KILL MUTATION WHERE 1 ASYNC")
    assert [(row[0], row[1]) for row in found] == [("not_found", "a"), ("finished", "default")]


@pytest.mark.parametrize("statement", ["RENAME TABLE t TO u", "EXCHANGE TABLES t AND other"])
def test_a_ttl_is_materialized_in_the_table_that_got_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """Which has another name when its new TTL is there; another table may have its old one."""
    with script_session(tmp_path) as session:
        for name in ("t", "other"):
            session.execute(WITH_TIME.format(name))
        request = alter.request_alter

        def then_renamed(*asked: Any) -> object:
            found = request(*asked)
            Session(session.context.server).execute(statement)
            return found

        monkeypatch.setattr(alter, "request_alter", then_renamed)
        session.execute("ALTER TABLE t MODIFY TTL d + INTERVAL 1 DAY")
        name = "u" if "RENAME" in statement else "other"
        found = rows(session, "SELECT DISTINCT table FROM system.mutations")
        assert found == [(name,)]


def test_merges_are_stopped_and_go_on_although_the_directory_of_a_table_fails(
    two: Session,
) -> None:
    server = two.context.server
    directory = server.catalog.table_directory(server.catalog.definition("default", "t"))
    shutil.rmtree(directory)
    directory.write_bytes(b"")  # every path below it is an error
    marks = server.table("u").store.marks
    with pytest.raises(NotADirectoryError):
        two.execute("SYSTEM STOP MERGES")
    assert marks.stopped() == {Background.MERGES}
    with pytest.raises(NotADirectoryError):
        two.execute("SYSTEM START MERGES")
    assert not marks.stopped()


def test_the_numbers_are_among_the_system_tables(two: Session) -> None:
    assert rows(two, "EXISTS TABLE system.numbers") == [(1,)]
    assert rows(two, "DESCRIBE system.numbers")[0][:2] == ("number", "UInt64")
    assert rows(two, "SELECT number FROM system.numbers LIMIT 2") == [(0,), (1,)]
