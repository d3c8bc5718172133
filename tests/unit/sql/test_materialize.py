"""MATERIALIZE, ADD and DROP INDEX and PROJECTION: what is not there, and what is not built."""

from unittest.mock import Mock

import pytest

from rmt_pipeline.protocol.errors import Unavailable, UserError
from rmt_pipeline.sql.formats.rows import Done
from rmt_pipeline.table import Table
from tests.support.local_session import create, local_session, rows
from tests.support.local_work import working
from tests.support.scripts import script_session

TABLE = """CREATE TABLE t (n UInt64, d DateTime, v UInt8, m UInt8 MATERIALIZED v + 1,
    e UInt8 DEFAULT 7, a UInt8 ALIAS v)
    ENGINE = ReplicatedMergeTree PARTITION BY n % 2 ORDER BY (n, m)
    TTL d + INTERVAL 1 DAY"""


@pytest.fixture
def session(tmp_path):
    with script_session(tmp_path) as opened:
        opened.execute(TABLE)
        yield opened


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("MATERIALIZE COLUMN nosuch", "has no column nosuch"),
        ("MATERIALIZE COLUMN v", "has no DEFAULT or MATERIALIZED expression"),
        ("MATERIALIZE COLUMN a", "has no DEFAULT or MATERIALIZED expression"),
        ("MATERIALIZE COLUMN m", "says where or how a row is kept"),
        ("MATERIALIZE COLUMN e IN PARTITION 'x'", "x"),
        ("UPDATE m = v + 2 WHERE 1", "it is always v \\+ 1"),
        ("MATERIALIZE INDEX nosuch", "has no index nosuch; there are: none"),
        ("CLEAR PROJECTION nosuch", "has no projection nosuch"),
        ("DROP INDEX nosuch", "has no index nosuch"),
        ("ADD INDEX i nosuch TYPE minmax", "nosuch"),
    ],
)
def test_it_is_refused_before_anything_is_changed(session, command, words):
    with pytest.raises(UserError, match=words):
        session.execute(f"ALTER TABLE t {command}")
    assert rows(session, "SELECT count() FROM system.mutations") == [(0,)]


def test_what_is_kept_and_not_built_is_said(session):
    for command in (
        "ADD INDEX i v TYPE minmax, ADD PROJECTION `p q` (SELECT v ORDER BY v)",
        "MATERIALIZE INDEX i",
        "CLEAR PROJECTION `p q` IN PARTITION 1",
    ):
        said = session.execute(f"ALTER TABLE t {command}")
        assert isinstance(said, Done)
        assert "is kept and shown, and not built" in said.note
    [(shown,)] = rows(session, "SELECT create_table_query FROM system.tables WHERE name = 't'")
    assert "INDEX i v TYPE minmax GRANULARITY 1" in shown
    assert "PROJECTION `p q` (SELECT v ORDER BY v)" in shown
    session.execute("ALTER TABLE t DROP INDEX i, DROP PROJECTION `p q`")
    [(shown,)] = rows(session, "SELECT create_table_query FROM system.tables WHERE name = 't'")
    assert "INDEX" not in shown
    assert "PROJECTION" not in shown


def test_a_table_without_ttl_has_nothing_that_expires(session):
    session.execute("ALTER TABLE t REMOVE TTL")
    with pytest.raises(UserError, match="has no TTL by which rows or values expire") as refused:
        session.execute("ALTER TABLE t MATERIALIZE TTL")
    assert refused.value.code == "INCORRECT_QUERY"


def test_what_is_in_the_log_has_the_time_at_which_it_was_asked_for(session):
    session.execute("INSERT INTO t (n, d, v) VALUES (1, '2020-01-01 00:00:00', 1)")
    session.execute("ALTER TABLE t MATERIALIZE TTL")
    [(command,)] = rows(session, "SELECT command FROM system.mutations")
    assert "toDateTime('2" in command
    assert "now" not in command


REFUSED = {
    "(n UInt64, d DateTime, v UInt8, m UInt8 MATERIALIZED v + 1) "
    "ENGINE = ReplicatedMergeTree('/t', 'r1') ORDER BY (n, m)": (
        "MODIFY COLUMN v UInt8 TTL d + INTERVAL 1 DAY",
        "m is computed from v, and is in the sorting key",
    ),
    "(n UInt64, d DateTime) ENGINE = ReplicatedMergeTree('/t', 'r1') ORDER BY n "
    "SETTINGS number_of_mutations_to_throw = 1": (
        "MODIFY TTL d + INTERVAL 1 DAY",
        "has 1 unfinished mutations",
    ),
}


@pytest.mark.parametrize("table", REFUSED, ids=["computed key", "too many mutations"])
def test_a_ttl_that_is_not_materialized_at_once_is_no_failed_alter(tmp_path, table):
    """The table has its TTL by then: an error would say that nothing was changed."""
    alter, reason = REFUSED[table]
    with local_session(tmp_path) as session:
        create(session, f"CREATE TABLE t {table}")
        session.execute("INSERT INTO t (n) VALUES (1)")
        session.execute("ALTER TABLE t DELETE WHERE n = 5 SETTINGS mutations_sync = 0")
        server = session.context.server
        with working(server, server.table("t").definition, select=False):
            said = session.execute(f"ALTER TABLE t {alter} SETTINGS alter_sync = 1")
        assert isinstance(said, Done)
        assert "what has expired is left to merges" in said.note
        assert reason in said.note
        [(shown,)] = rows(
            session, "SELECT create_table_query FROM system.tables WHERE name = 't'"
        )
        assert "TTL d + toIntervalDay(1)" in shown


def test_an_expired_default_is_computed_from_what_the_row_becomes(tmp_path):
    """As in a merge, however the columns are ordered."""
    with local_session(tmp_path) as session:
        create(
            session,
            "CREATE TABLE t (n UInt64, d DateTime, b UInt8 DEFAULT a + 1 TTL d + INTERVAL 1 DAY, "
            "a UInt8 DEFAULT 7 TTL d + INTERVAL 1 DAY) "
            "ENGINE = ReplicatedMergeTree('/t', 'r1') ORDER BY n",
        )
        session.execute("SYSTEM STOP TTL MERGES t")
        session.execute("INSERT INTO t VALUES (1, '2020-01-01 00:00:00', 1, 2)")
        server = session.context.server
        with working(server, server.table("t").definition):
            session.execute("ALTER TABLE t MATERIALIZE TTL SETTINGS mutations_sync = 1")
        assert rows(session, "SELECT b, a FROM t") == [(8, 7)]


def test_nor_is_one_of_which_zookeeper_does_not_answer_in_time(tmp_path, monkeypatch):
    with local_session(tmp_path) as session:
        create(session, f"CREATE TABLE t {next(iter(REFUSED))}")
        silent = Unavailable("no answer; try again")
        monkeypatch.setattr(Table, "mutate", Mock(side_effect=silent))
        alter = "ALTER TABLE t MODIFY TTL d + INTERVAL 1 DAY SETTINGS alter_sync = 1"
        server = session.context.server
        with working(server, server.table("t").definition, select=False):
            said = session.execute(alter)
        assert isinstance(said, Done)
        assert said.note == "what has expired is left to merges: no answer; try again"
