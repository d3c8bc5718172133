"""Whole scripts, statement by statement, through a session with a working server and through
ClickHouse itself: the same rows, the same definitions, the same refusals.
"""

from collections.abc import Iterator

import pytest

from rmt_pipeline.sql.run.session import Session
from tests.support.scripts import script_session, told_apart

NESTED = """
CREATE TABLE n (k Int64, n Nested(a UInt8, b String), `m.x` Array(Int8))
    ENGINE = ReplicatedMergeTree ORDER BY k;
DESCRIBE n;
INSERT INTO n VALUES (1, [1, 2], ['a'], [1]);
INSERT INTO n VALUES (1, [1, 2], ['a', 'b'], [1]);
INSERT INTO n (k, `m.x`) VALUES (3, [1, 2, 3]);
SELECT * FROM n ORDER BY k;
ALTER TABLE n ADD COLUMN `n.c` Array(String), ADD COLUMN `n.d` Array(Int8) DEFAULT [7];
ALTER TABLE n ADD COLUMN `n.e` Array(Nullable(Int8)) AFTER k, ADD COLUMN `n.i` Int8;
ALTER TABLE n ADD COLUMN `n.f` Array(Int8) DEFAULT arrayMap(x -> x + 1, n.a);
ALTER TABLE n ADD COLUMN `m.y` Array(Array(String)), ADD COLUMN `o.z` Array(Int8);
SELECT * FROM n ORDER BY k;
SELECT n.c, m.y FROM n ORDER BY k;
OPTIMIZE TABLE n FINAL;
SELECT * FROM n ORDER BY k;
"""
GROUPS = """
CREATE TABLE bad (k Int64, n Nested(a UInt8, b String) DEFAULT [1]) ENGINE = ReplicatedMergeTree
    ORDER BY k;
CREATE TABLE twice (k Int64, n Nested(a UInt8), n Int8) ENGINE = ReplicatedMergeTree ORDER BY k;
CREATE TABLE d2 (k Int64, n Nested(a UInt8, b String) COMMENT 'hey' CODEC(ZSTD(1)))
    ENGINE = ReplicatedMergeTree ORDER BY k;
DESCRIBE d2;
CREATE TABLE d3 (k Int64, n Nested(a UInt8, b Nested(c Int8, d String), e Array(Int8),
    `f g` Nullable(Int8))) ENGINE = ReplicatedMergeTree ORDER BY k;
DESCRIBE d3;
INSERT INTO d3 VALUES (1, [1], [[(1, 'x')]], [[1, 2]], [NULL]);
SELECT * FROM d3;
SELECT n FROM d3;
SELECT k, n.a, n.e FROM d3 ARRAY JOIN n;
SELECT k, m.a FROM d3 ARRAY JOIN n AS m;
SELECT k, n.a, x FROM d3 ARRAY JOIN n.a AS x;
SELECT k, n.a FROM d3 ARRAY JOIN n.a;
SELECT k, n.a FROM d3 LEFT ARRAY JOIN n;
INSERT INTO d3 (k, n.a, n.b) VALUES (2, [1, 2], [[], []]);
SELECT * FROM d3 ORDER BY k;
INSERT INTO d3 (k, n) VALUES (3, [(1, [], [], NULL)]);
ALTER TABLE d3 DROP COLUMN n.b;
ALTER TABLE d3 ADD COLUMN x Nested(y UInt8, z String) AFTER k;
ALTER TABLE d3 ADD COLUMN IF NOT EXISTS x Nested(y UInt8, w String) AFTER k;
ALTER TABLE d3 ADD COLUMN x Int8;
DESCRIBE d3;
ALTER TABLE d3 CLEAR COLUMN n.e;
SELECT * FROM d3 ORDER BY k;
ALTER TABLE d3 CLEAR COLUMN n;
SELECT * FROM d3 ORDER BY k;
ALTER TABLE d3 COMMENT COLUMN n 'x';
ALTER TABLE d3 MODIFY COLUMN n Nested(a Int8);
ALTER TABLE d3 RENAME COLUMN n TO o;
ALTER TABLE d3 RENAME COLUMN x.y TO x.yy;
ALTER TABLE d3 RENAME COLUMN x.yy TO y;
ALTER TABLE d3 RENAME COLUMN k TO x.k;
ALTER TABLE d3 RENAME COLUMN x.yy TO n.yy;
DESCRIBE d3;
ALTER TABLE d3 DROP COLUMN x;
DESCRIBE d3;
ALTER TABLE d3 DROP COLUMN x;
ALTER TABLE d3 DROP COLUMN IF EXISTS x;
ALTER TABLE d3 UPDATE `n.a` = [1], `n.e` = [[1]], `n.f g` = [2] WHERE 1;
SELECT * FROM d3 ORDER BY k;
ALTER TABLE d3 UPDATE `n.a` = [1, 2, 3] WHERE 1;
"""
WHOLE = """
SET flatten_nested = 0;
CREATE TABLE d7 (k Int64, n Nested(a UInt8, b String)) ENGINE = ReplicatedMergeTree ORDER BY k;
DESCRIBE d7;
INSERT INTO d7 VALUES (1, [(1, 'a'), (2, 'b')]);
SELECT * FROM d7;
SELECT n.a, n.b FROM d7;
SELECT k, n.a FROM d7 ARRAY JOIN n;
ALTER TABLE d7 ADD COLUMN m Nested(x Int8);
DESCRIBE d7;
ALTER TABLE d7 ADD COLUMN `n.c` Array(Int8);
SELECT * FROM d7;
"""
SCRIPTS = {
    "nested columns have one length": NESTED,
    "groups of nested columns": GROUPS,
    "nested columns as a whole": WHOLE,
}
OTHER_CODES = {
    "groups of nested columns": ("bad (k", "twice (k", "ADD COLUMN x Int8", "[1, 2, 3] WHERE"),
    "nested columns as a whole": ("`n.c`",),
}
"""Statements that both refuse, each with a code of its own."""


@pytest.fixture
def session(tmp_path) -> Iterator[Session]:
    with script_session(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_answered_as_by_clickhouse(session, name):
    assert told_apart(session, SCRIPTS[name], OTHER_CODES.get(name, ())) == []
