"""FINAL reads the columns that a query may mean, however it calls them."""

import errno

import pytest

from rmt_pipeline.protocol.errors import DiskFull, IllegalFinal
from rmt_pipeline.sql.run import final_relation
from tests.support.local_session import create, rows

TABLE = """CREATE TABLE t (k Int64, n Nested(a UInt8, b String), `x.y` Int8, `p.q.r` Int8, z Int8,
    `n.both` String ALIAS concat(n.b[1], toString(`x.y`)))
    ENGINE = ReplicatedReplacingMergeTree('/tables/t', 'r1') ORDER BY k"""


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("SELECT n FROM t FINAL", [{"a": 3, "b": "c"}]),
        ("SELECT `n.a` FROM t FINAL", [3]),
        ("SELECT n.a FROM t FINAL", [3]),
        ("SELECT u.`n.a` FROM t AS u FINAL", [3]),
        ("SELECT x FROM t FINAL ARRAY JOIN `n.b` AS x", "c"),
        ("SELECT m.b FROM t FINAL ARRAY JOIN n AS m", "c"),
        ("SELECT n.both FROM t FINAL", "c7"),
        ("SELECT `n.both` FROM t FINAL", "c7"),
        ("SELECT `x.y` FROM t FINAL", 7),
        ("SELECT x.y FROM t FINAL", 7),
        ("SELECT t.`x.y` FROM t FINAL", 7),
        ("SELECT `p.q.r` FROM t FINAL", 9),
        ("SELECT p.q.r FROM t FINAL", 9),
        ("SELECT count() FROM t FINAL WHERE `x.y` = 7", 1),
        ("SELECT sum(a.z) FROM t AS a FINAL JOIN (SELECT 7 AS `x.y`) AS b USING (`x.y`)", 8),
    ],
)
def test_a_column_whose_name_has_a_dot_is_read(session, query, answer) -> None:
    create(session, TABLE)
    session.execute("INSERT INTO t VALUES (1, [1, 2], ['a', 'b'], 5, 6, 6)")
    session.execute("INSERT INTO t VALUES (1, [3], ['c'], 7, 9, 8)")
    assert rows(session, query) == [(answer,)]


def test_a_table_whose_merges_leave_all_rows_has_no_final(session) -> None:
    """As in the original; with `final = 1`, which is said of all tables, it is read as it is."""
    create(session, "CREATE TABLE p (k Int8) ENGINE = ReplicatedMergeTree ORDER BY k")
    session.execute("INSERT INTO p VALUES (1)")
    with pytest.raises(IllegalFinal, match="p is of the engine ReplicatedMergeTree"):
        session.execute("SELECT * FROM p FINAL")
    with pytest.raises(IllegalFinal):
        session.execute("SELECT k FROM (SELECT * FROM p AS q FINAL)")
    assert rows(session, "SELECT * FROM p SETTINGS final = 1") == [(1,)]


def test_a_full_disk_is_named(session, monkeypatch) -> None:
    def full(**_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    create(session, TABLE)
    monkeypatch.setattr(final_relation.tempfile, "mkdtemp", full)
    with pytest.raises(DiskFull, match="no space left to write"):
        rows(session, "SELECT k FROM t FINAL")
