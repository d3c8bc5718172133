"""Whole scripts, statement by statement, through a session with a working server and through
ClickHouse itself: the same rows, the same definitions, the same refusals.
"""

from collections.abc import Iterator

import pytest

from rmt_pipeline.sql.run.session import Session
from tests.contract import answers, changed_tables
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
LACKING = """
CREATE TABLE a (k Int64, o String, o2 String) ENGINE = ReplicatedMergeTree ORDER BY k;
INSERT INTO a VALUES (1,'x','y'),(2,'z','w');
ALTER TABLE a ADD COLUMN v String DEFAULT '100';
ALTER TABLE a MODIFY COLUMN v UInt64;
SELECT k, v FROM a ORDER BY k;
ALTER TABLE a MODIFY COLUMN v UInt64 DEFAULT 7;
SELECT k, v FROM a ORDER BY k;
ALTER TABLE a UPDATE o = 'q' WHERE k = 1;
ALTER TABLE a MODIFY COLUMN v DEFAULT 8;
SELECT k, v FROM a ORDER BY k;
ALTER TABLE a DROP COLUMN o;
ALTER TABLE a MODIFY COLUMN v DEFAULT 9;
SELECT k, v FROM a ORDER BY k;
ALTER TABLE a RENAME COLUMN o2 TO o;
ALTER TABLE a MODIFY COLUMN v DEFAULT 10;
SELECT k, v FROM a ORDER BY k;
ALTER TABLE a CLEAR COLUMN o;
ALTER TABLE a MODIFY COLUMN v DEFAULT 11;
SELECT k, v FROM a ORDER BY k;
ALTER TABLE a RENAME COLUMN v TO w;
ALTER TABLE a MODIFY COLUMN w DEFAULT 12;
SELECT k, w FROM a ORDER BY k;
ALTER TABLE a CLEAR COLUMN w;
ALTER TABLE a MODIFY COLUMN w DEFAULT 13;
SELECT k, w FROM a ORDER BY k;
ALTER TABLE a UPDATE o = 'q' WHERE 0;
ALTER TABLE a MODIFY COLUMN w DEFAULT 14;
SELECT k, w FROM a ORDER BY k;
INSERT INTO a (k) VALUES (3);
ALTER TABLE a CLEAR COLUMN w;
SELECT k, w FROM a ORDER BY k;
ALTER TABLE a MODIFY COLUMN w DEFAULT 15;
SELECT k, w FROM a ORDER BY k;
ALTER TABLE a MODIFY COLUMN w DEFAULT 16;
SELECT k, w FROM a ORDER BY k;
ALTER TABLE a DELETE WHERE k = 2;
ALTER TABLE a MODIFY COLUMN w DEFAULT 17;
SELECT k, w FROM a ORDER BY k;
OPTIMIZE TABLE a FINAL;
ALTER TABLE a MODIFY COLUMN w DEFAULT 18;
SELECT k, w FROM a ORDER BY k;
CREATE TABLE b (k Int64, o String) ENGINE = ReplicatedMergeTree ORDER BY k;
INSERT INTO b VALUES (1,'x');
ALTER TABLE b ADD COLUMN v UInt8 DEFAULT 5, ADD COLUMN m UInt8 DEFAULT v + 1;
ALTER TABLE b UPDATE v = 9 WHERE 1;
SELECT * FROM b;
ALTER TABLE b MODIFY COLUMN m DEFAULT 50;
SELECT * FROM b;
ALTER TABLE b MODIFY COLUMN v DEFAULT 51;
SELECT * FROM b;
"""
KEYS = """
CREATE TABLE a (k Int64, d Date, o UInt8, `order` UInt8, t DateTime TTL d + INTERVAL 1 MONTH)
    ENGINE = ReplicatedMergeTree PRIMARY KEY k ORDER BY (k, d, o)
    TTL d + INTERVAL 10 YEAR DELETE WHERE o > 5;
INSERT INTO a VALUES (1, today(), 2, 3, now()), (1, today(), 1, 3, now());
ALTER TABLE a ADD COLUMN v2;
ALTER TABLE a MODIFY ORDER BY (k, d);
ALTER TABLE a MODIFY ORDER BY (k, o);
ALTER TABLE a MODIFY ORDER BY (d, k);
ALTER TABLE a ADD COLUMN x Int8, MODIFY ORDER BY (k, x, d);
ALTER TABLE a ADD COLUMN y Int8, MODIFY ORDER BY (k, d, x, y + 1);
ALTER TABLE a ADD COLUMN y2 Int8, MODIFY ORDER BY (k, x, d, y2);
INSERT INTO a (k, x, d, y2) VALUES (1, 5, today(), 1), (1, 0, today(), -1);
OPTIMIZE TABLE a FINAL;
SELECT k, x, y2, o FROM a ORDER BY k, x, y2, o;
ALTER TABLE a MODIFY ORDER BY tuple();
ALTER TABLE a MODIFY ORDER BY (k, order);
ALTER TABLE a MODIFY ORDER BY (k, nosuch);
ALTER TABLE a MODIFY ORDER BY k;
ALTER TABLE a RENAME COLUMN d TO dd;
ALTER TABLE a RENAME COLUMN o TO oo;
ALTER TABLE a RENAME COLUMN t TO tt;
DESCRIBE a;
ALTER TABLE a RENAME COLUMN k TO kk;
ALTER TABLE a ADD COLUMN `order2` Int8, ADD COLUMN `from` Int8, MODIFY ORDER BY (k, order2, from);
SELECT sorting_key, primary_key FROM system.tables WHERE name = 'a' AND database = 'script';
"""
KEY_TYPES = """
CREATE TABLE e (p Enum8('a' = 1, 'b' = 2), s Enum8('a' = 1, 'b' = 2), q Int8, lc String, dt UInt16,
    dd Date, v UInt8) ENGINE = ReplicatedReplacingMergeTree(v) PARTITION BY (p, q)
    ORDER BY (s, lc, dt, dd);
INSERT INTO e VALUES ('a', 'b', 1, 'x', 1, 1, 1), ('b', 'a', 2, 'y', 2, 2, 2);
ALTER TABLE e MODIFY COLUMN p Enum8('a' = 1, 'b' = 2, 'c' = 3);
ALTER TABLE e MODIFY COLUMN s Enum8('a' = 1, 'b' = 2, 'c' = 3);
ALTER TABLE e MODIFY COLUMN s Enum8('a' = 1, 'c' = 3);
ALTER TABLE e MODIFY COLUMN s Enum16('a' = 1, 'b' = 2, 'c' = 3);
ALTER TABLE e MODIFY COLUMN s String;
ALTER TABLE e MODIFY COLUMN q Int16;
ALTER TABLE e MODIFY COLUMN q UInt8;
ALTER TABLE e MODIFY COLUMN q Enum8('x' = 1, 'y' = 2);
ALTER TABLE e MODIFY COLUMN lc LowCardinality(String);
ALTER TABLE e MODIFY COLUMN lc String;
ALTER TABLE e MODIFY COLUMN lc Nullable(String);
ALTER TABLE e MODIFY COLUMN lc FixedString(5);
ALTER TABLE e MODIFY COLUMN dt Date;
ALTER TABLE e MODIFY COLUMN dt UInt32;
ALTER TABLE e MODIFY COLUMN dd UInt16;
ALTER TABLE e MODIFY COLUMN dd DateTime;
ALTER TABLE e MODIFY COLUMN v UInt16;
ALTER TABLE e MODIFY COLUMN v UInt8;
ALTER TABLE e MODIFY COLUMN v Int64;
ALTER TABLE e MODIFY COLUMN v UInt64;
ALTER TABLE e MODIFY COLUMN v String;
ALTER TABLE e MODIFY COLUMN v DateTime;
SELECT * FROM e ORDER BY v;
INSERT INTO e VALUES ('c', 'c', 1, 'x', 1, 1, 300), ('b', 'a', 2, 'y', 2, 2, 301);
SELECT * FROM e ORDER BY v;
OPTIMIZE TABLE e FINAL;
SELECT * FROM e ORDER BY v;
ALTER TABLE e MODIFY COLUMN p Int8;
ALTER TABLE e MODIFY COLUMN s Int8;
SELECT * FROM e ORDER BY v;
INSERT INTO e VALUES (3, 3, 1, 'x', 1, 1, 702), (2, 1, 2, 'y', 2, 2, 70);
OPTIMIZE TABLE e FINAL;
SELECT * FROM e ORDER BY v;
SELECT partition_id, rows FROM system.parts WHERE table = 'e' AND active AND database = 'script'
    ORDER BY 1, 2;
ALTER TABLE e MODIFY COLUMN p Int16;
CREATE TABLE f (d Date, s Enum8('a' = 1), sg Int8, v Date, tz DateTime('UTC'),
    n Array(Enum8('a' = 1))) ENGINE = ReplicatedVersionedCollapsingMergeTree(sg, v)
    PARTITION BY toYYYYMM(d) ORDER BY (toString(s), tz, n);
ALTER TABLE f MODIFY COLUMN s Enum8('a' = 1, 'b' = 2);
ALTER TABLE f MODIFY COLUMN d UInt16;
ALTER TABLE f MODIFY COLUMN sg Int16;
ALTER TABLE f MODIFY COLUMN v DateTime;
ALTER TABLE f MODIFY COLUMN v UInt32;
ALTER TABLE f MODIFY COLUMN tz DateTime('Europe/Berlin');
ALTER TABLE f MODIFY COLUMN n Array(Enum8('a' = 1, 'b' = 2));
"""
CASTS = {
    "Date": "toDateTime('2020-01-01 20:00:00', 'UTC')::DateTime('Asia/Tokyo')",
    "Date32": "toDateTime64('2020-01-01 20:00:00.123', 3, 'Asia/Tokyo')",
    "DateTime('Asia/Tokyo')": "toDate('2020-01-02')",
    "DateTime": "toUInt32(1577836800)",
    "UInt32": "toDateTime('2020-01-01 00:00:00')",
    "UInt16": "toDate('2020-01-02')",
    "Int8": "CAST('a', 'Enum8(\\'a\\' = 1)')",
    "Enum8('a' = 1)": "toInt8(1)",
    "Int64": "toInt128(5)",
    "Float64": "toDecimal64(1.25, 2)",
    "Array(String)": "[1, 2]",
    "Array(Nullable(Int64))": "[1, 2]",
    "Tuple(a Int64, b String)": "(1, 'a')",
    "LowCardinality(String)": "toIPv4('1.2.3.4')",
    "Nullable(String)": "true",
    "String": "toDateTime64('2020-01-01 20:00:00.123', 3, 'America/New_York')",
    "FixedString(3)": "'ab'",
    "Decimal(9, 2)": "1.5",
    "Decimal(18, 2)": "toDecimal64('1.005', 3)",
    "Decimal(18, 3)": "'1.0059'",
    "Int16": "'abc'",
    "Map(String, Int64)": "map('a', 1)",
}
SELECTED = "".join(
    f"CREATE TABLE c{place} (k Int8, v {kind}) ENGINE = ReplicatedMergeTree ORDER BY k;"
    f"INSERT INTO c{place} SELECT 1, {value}; SELECT * FROM c{place};"
    for place, (kind, value) in enumerate(CASTS.items())
)
SHOWN = """
CREATE TABLE a (k Int64, v String) ENGINE = ReplicatedMergeTree ORDER BY k
    SETTINGS merge_with_ttl_timeout = 5;
SHOW CREATE TABLE a;
CREATE TABLE b (k Int64 PRIMARY KEY, v String) ENGINE = ReplicatedMergeTree;
SELECT primary_key, sorting_key FROM system.tables WHERE name = 'b' AND database = 'script';
CREATE TABLE c (k Int64, v String) ENGINE = ReplicatedMergeTree PRIMARY KEY (k, v);
SHOW CREATE TABLE c;
CREATE TABLE d (k Int64, v String) ENGINE = ReplicatedMergeTree PRIMARY KEY k ORDER BY k;
SHOW CREATE TABLE d;
CREATE TABLE e (k Int64 COMMENT 'x', v String, d Date, INDEX i1 v TYPE minmax GRANULARITY 3,
    INDEX i2 (v, k) TYPE set(100)) ENGINE = ReplicatedMergeTree PARTITION BY toYYYYMM(d)
    ORDER BY (k, intHash32(k)) SAMPLE BY intHash32(k) TTL d + toIntervalDay(1000)
    SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 0 COMMENT 'tab';
SHOW CREATE TABLE e;
SHOW CREATE e;
SELECT engine, create_table_query FROM system.tables WHERE name = 'e' AND database = 'script'
    FORMAT Null;
CREATE TABLE e2 (k Int64, v String, PRIMARY KEY (k, v)) ENGINE = ReplicatedMergeTree
    ORDER BY (k, v, k % 3);
SHOW CREATE TABLE e2;
CREATE TABLE e3 (k Int64, v String, PRIMARY KEY (v)) ENGINE = ReplicatedMergeTree ORDER BY (k, v);
CREATE TABLE e4 (k Int64, v String, PRIMARY KEY k) ENGINE = ReplicatedMergeTree PRIMARY KEY k;
CREATE TABLE e5 (k Int64 PRIMARY KEY, v String PRIMARY KEY) ENGINE = ReplicatedMergeTree;
SHOW CREATE TABLE e5;
CREATE TABLE e6 (k Int64 PRIMARY KEY, PRIMARY KEY k) ENGINE = ReplicatedMergeTree;
CREATE TABLE e7 (k Int64, INDEX i k TYPE minmax, INDEX i k TYPE minmax)
    ENGINE = ReplicatedMergeTree ORDER BY k;
CREATE TABLE e8 (k Int64, INDEX i nosuch TYPE minmax) ENGINE = ReplicatedMergeTree ORDER BY k;
CREATE TABLE f (k Int64, s Int8, v UInt8) ENGINE = ReplicatedVersionedCollapsingMergeTree(s, v)
    ORDER BY tuple();
SHOW CREATE TABLE f;
CREATE TABLE g (k Int64 DEFAULT 1 + 2, m Int64 MATERIALIZED k * 2, al String ALIAS toString(k),
    n Nullable(Int8) CODEC(ZSTD(3)), e Int8 EPHEMERAL) ENGINE = ReplicatedSummingMergeTree((n))
    ORDER BY k;
SHOW CREATE TABLE g;
"""
PLAIN = """
CREATE TABLE p (k Int64, v String) ENGINE = MergeTree ORDER BY k;
SHOW CREATE TABLE p;
SELECT engine FROM system.tables WHERE name = 'p' AND database = 'script';
INSERT INTO p VALUES (1, 'a'), (2, 'b');
INSERT INTO p VALUES (3, 'c');
SELECT * FROM p ORDER BY k;
ALTER TABLE p UPDATE v = 'z' WHERE k = 2;
ALTER TABLE p DELETE WHERE k = 1;
OPTIMIZE TABLE p FINAL;
SELECT * FROM p ORDER BY k;
ALTER TABLE p ADD COLUMN n Int8 DEFAULT 4;
SELECT count() FROM system.replicas WHERE table = 'p';
SHOW CREATE TABLE p;
CREATE TABLE r (k Int64, v UInt8, d UInt8) ENGINE = ReplacingMergeTree(v) ORDER BY k;
INSERT INTO r VALUES (1, 1, 0), (1, 2, 0);
SELECT * FROM r FINAL;
SHOW CREATE TABLE r;
CREATE TABLE s (k Int64, v UInt8) ENGINE = SummingMergeTree() ORDER BY k;
INSERT INTO s VALUES (1, 1), (1, 2);
SELECT * FROM s FINAL;
SHOW CREATE TABLE s;
CREATE TABLE t (k Int64, s Int8) ENGINE = CollapsingMergeTree(s) ORDER BY k;
SHOW CREATE TABLE t;
CREATE TABLE u (k Int64, s Int8) ENGINE = CollapsingMergeTree(s, k, 1) ORDER BY k;
CREATE TABLE w (k Int64, s Int8) ORDER BY k;
SHOW CREATE TABLE w;
CREATE TABLE x (k Int64) ENGINE = NoSuchMergeTree ORDER BY k;
DROP TABLE p;
CREATE TABLE p (k Int64) ENGINE = MergeTree ORDER BY k;
SELECT count() FROM p;
"""
LIKE = """
CREATE TABLE a (k Int64, x Int8 DEFAULT 'abc') ENGINE = ReplicatedMergeTree ORDER BY k;
CREATE TABLE b (k Int64, x DateTime DEFAULT 'abc') ENGINE = ReplicatedMergeTree ORDER BY k;
CREATE TABLE c (k Int64, x Date DEFAULT 'abc') ENGINE = ReplicatedMergeTree ORDER BY k;
CREATE TABLE d (k Int64, x String DEFAULT 'abc', y Int8) ENGINE = ReplicatedMergeTree ORDER BY k;
ALTER TABLE d ADD COLUMN z Int8 DEFAULT 'abc';
ALTER TABLE d ADD COLUMN z DateTime DEFAULT 'abc';
ALTER TABLE d ADD COLUMN z Date DEFAULT 'abc';
ALTER TABLE d MODIFY COLUMN x UInt64;
ALTER TABLE d MODIFY COLUMN x DateTime;
ALTER TABLE d DROP COLUMN k;
CREATE TABLE d2 AS d;
DESCRIBE d2;
CREATE TABLE d3 AS d ENGINE = ReplicatedMergeTree ORDER BY x;
DESCRIBE d3;
CREATE TABLE d4 ENGINE = ReplicatedMergeTree ORDER BY number
    AS SELECT number, toString(number) AS s FROM numbers(3);
DESCRIBE d4;
SELECT * FROM d4 ORDER BY number;
CREATE TABLE d5 (a Int8, b String) ENGINE = ReplicatedMergeTree ORDER BY a
    AS SELECT number, toString(number) AS s FROM numbers(3);
SELECT * FROM d5 ORDER BY a;
CREATE TABLE d6 AS d5 ENGINE = MergeTree ORDER BY b AS SELECT a + 1, b FROM d5;
CREATE TABLE d4 ENGINE = ReplicatedMergeTree ORDER BY number AS SELECT 1 AS number;
CREATE TABLE IF NOT EXISTS d4 ENGINE = ReplicatedMergeTree ORDER BY number AS SELECT 1 AS number;
SELECT count() FROM d4;
CREATE TABLE d7 AS nosuch;
CREATE TABLE d8 ENGINE = ReplicatedMergeTree ORDER BY n AS SELECT nosuch AS n;
CREATE TABLE d9 ENGINE = ReplicatedMergeTree ORDER BY tuple() EMPTY AS SELECT 1 AS n;
SELECT count() FROM d9;
INSERT INTO d SELECT 1;
INSERT INTO d VALUES (1, 'a', 1), (1, 'a', 1), (1, 'b', 1);
OPTIMIZE TABLE d FINAL DEDUPLICATE BY * EXCEPT (k, x, y);
OPTIMIZE TABLE d FINAL DEDUPLICATE BY COLUMNS('nosuch');
OPTIMIZE TABLE d FINAL DEDUPLICATE BY COLUMNS('k|y|x');
SELECT count() FROM d;
OPTIMIZE TABLE d FINAL DEDUPLICATE BY * EXCEPT x;
SELECT count() FROM d;
"""
DETACHED = """
CREATE TABLE a (k Int64, v String) ENGINE = ReplicatedMergeTree ORDER BY k;
INSERT INTO a VALUES (1, 'x');
DETACH TABLE a SYNC;
SELECT * FROM a;
INSERT INTO a VALUES (2, 'y');
ALTER TABLE a ADD COLUMN n Int8;
EXISTS TABLE a;
SHOW TABLES;
SELECT database, table, is_permanently FROM system.detached_tables WHERE database = 'script';
CREATE TABLE a (k Int64) ENGINE = ReplicatedMergeTree ORDER BY k;
CREATE TABLE IF NOT EXISTS a (k Int64) ENGINE = ReplicatedMergeTree ORDER BY k;
DETACH TABLE a;
DETACH TABLE IF EXISTS a;
DETACH TABLE a PERMANENTLY;
DROP TABLE a;
DROP TABLE IF EXISTS a;
ATTACH TABLE a;
SELECT * FROM a;
ATTACH TABLE a;
ATTACH TABLE IF NOT EXISTS a;
ATTACH TABLE nosuch;
DETACH TABLE nosuch;
DETACH TABLE IF EXISTS nosuch;
DETACH TABLE a PERMANENTLY SYNC;
SELECT table, is_permanently FROM system.detached_tables WHERE database = 'script';
CREATE TABLE a (k Int64) ENGINE = ReplicatedMergeTree ORDER BY k;
CREATE TABLE IF NOT EXISTS a (k Int64) ENGINE = ReplicatedMergeTree ORDER BY k;
SHOW TABLES;
ATTACH TABLE a;
INSERT INTO a VALUES (3, 'z');
SELECT * FROM a ORDER BY k;
OPTIMIZE TABLE a FINAL;
SELECT count() FROM system.parts WHERE table = 'a' AND database = 'script' AND active;
SELECT count() FROM system.detached_tables WHERE database = 'script';
"""
INSERTED = """
CREATE TABLE one (k Int64, v String DEFAULT 'd', w Int8) ENGINE = MergeTree ORDER BY k;
INSERT INTO one VALUES (1, 'x', 1);
INSERT INTO one VALUES (1, 'x', 1);
INSERT INTO one SELECT 1, 'x', 1;
SELECT * FROM one;
CREATE TABLE known (k Int64) ENGINE = MergeTree ORDER BY k
    SETTINGS non_replicated_deduplication_window = 100;
INSERT INTO known VALUES (1);
INSERT INTO known VALUES (1);
SELECT * FROM known;
INSERT INTO one (* EXCEPT(v)) VALUES (2, 2);
INSERT INTO one (* EXCEPT v) VALUES (3, 3);
INSERT INTO one (* EXCEPT(v, w)) SELECT 4;
SELECT * FROM one ORDER BY ALL;
CREATE TABLE computed (k Int64, m Int64 MATERIALIZED k + 1, a Int64 ALIAS k) ENGINE = MergeTree
    ORDER BY k;
INSERT INTO computed (k, m) VALUES (1, 1);
INSERT INTO computed (k, a) VALUES (1, 1);
INSERT INTO computed (* EXCEPT k) VALUES (1);
OPTIMIZE TABLE one FINAL DEDUPLICATE BY nosuch;
OPTIMIZE TABLE one FINAL DEDUPLICATE BY v;
OPTIMIZE TABLE one FINAL DEDUPLICATE BY * EXCEPT k;
OPTIMIZE TABLE one FINAL DEDUPLICATE BY k, v;
SELECT * FROM one ORDER BY ALL;
SELECT * FROM system.one;
SELECT 1 FORMAT NoSuchFormat;
SYSTEM DROP MARK CACHE;
SYSTEM DROP UNCOMPRESSED CACHE;
SYSTEM DROP QUERY CACHE;
SELECT 1 SETTINGS async_insert = 1, wait_for_async_insert = 1, async_insert_busy_timeout_ms = 5;
"""
SHOWN_OF_TABLE = """
CREATE TABLE t (k UInt64, s String COMMENT 'hey', v Nullable(Int32) DEFAULT 5,
    e Enum8('a'=1,'b'=2), m Int8 MATERIALIZED 1)
    ENGINE = ReplicatedMergeTree ORDER BY (k, s) PRIMARY KEY k COMMENT 'tt';
SHOW COLUMNS FROM t;
SHOW FULL COLUMNS FROM t;
SHOW EXTENDED FULL FIELDS FROM t FROM script;
SHOW COLUMNS FROM t LIKE 's%';
SHOW COLUMNS FROM t NOT ILIKE 'S%';
SHOW FIELDS IN script.t WHERE field = 'k';
SHOW COLUMNS FROM t WHERE type LIKE 'U%' LIMIT 1;
SHOW COLUMNS FROM nosuch;
SHOW FUNCTIONS ILIKE 'nosuch%';
SHOW CLUSTERS LIKE 'zz';
SHOW TABLES WHERE name = 't';
SHOW TABLES FROM script WHERE name LIKE 'q%';
SHOW DICTIONARIES;
SHOW CREATE DATABASE script;
SHOW CREATE DATABASE nosuch;
SHOW TABLE t;
EXISTS TEMPORARY TABLE t;
EXISTS VIEW t;
EXISTS DICTIONARY t;
SHOW MERGES;
SHOW COLUMNS t;
"""
PARTS = """
CREATE TABLE a (k Int64, p Int8) ENGINE = MergeTree PARTITION BY p ORDER BY k;
INSERT INTO a VALUES (1, 1), (2, 2);
SELECT partition, part_type, active, visible, rows, level, engine, disk_name, is_frozen
    FROM system.parts WHERE table = 'a' AND database = 'script' ORDER BY partition;
ALTER TABLE a DETACH PARTITION 1;
SELECT table, partition_id, disk, reason, level FROM system.detached_parts
    WHERE database = 'script';
SELECT name FROM system.disks WHERE name = 'default';
"""
COMPUTED_WHEN_INSERTED = """
CREATE TABLE a (k Int64, c DateTime DEFAULT now(), d Date DEFAULT today(), y DEFAULT yesterday(),
    z DEFAULT now('Asia/Tokyo'), m DateTime64(3) MATERIALIZED now64(), r UInt32 DEFAULT rand(),
    s UInt64 DEFAULT rand64(), u UUID DEFAULT generateUUIDv4(), p Float64 DEFAULT randCanonical(),
    x UInt8 MATERIALIZED r % 10, a DateTime ALIAS now()) ENGINE = ReplicatedMergeTree ORDER BY k;
SHOW CREATE TABLE a;
DESCRIBE a;
INSERT INTO a (k) SELECT number FROM numbers(1000);
SELECT count(), uniqExact(c), uniqExact(d), uniqExact(y), uniqExact(z), uniqExact(m),
    uniqExact(r) > 990, uniqExact(s), uniqExact(u), uniqExact(p) > 990, uniqExact(x) FROM a;
SELECT count() FROM a WHERE now() - c < 3600 AND a - c < 3600 AND c = z AND c <= m AND d - y = 1
    AND x = r % 10 AND 0 <= p AND p < 1 AND substring(toString(u), 15, 1) = '4';
INSERT INTO a (k, c, r) VALUES (5000, DEFAULT, 7), (5001, '2020-01-01 00:00:00', DEFAULT);
SELECT k, c = z, year(c) = 2020, r = 7, x = r % 10 FROM a WHERE k >= 5000 ORDER BY k;
INSERT INTO a (k, r) FORMAT JSONEachRow {"k": 6000, "r": 3} {"k": 6001};
SELECT k, now() - c < 3600, r = 3 FROM a WHERE k >= 6000 ORDER BY k;
ALTER TABLE a ADD COLUMN later DateTime;
ALTER TABLE a MODIFY COLUMN later DEFAULT now();
INSERT INTO a (k) VALUES (7000);
SELECT now() - later < 3600 FROM a WHERE k = 7000;
ALTER TABLE a MODIFY COLUMN c DEFAULT toDateTime('2020-01-01 00:00:00');
INSERT INTO a (k) VALUES (8000);
SELECT c FROM a WHERE k = 8000;
CREATE TABLE b (k Int64) ENGINE = ReplicatedMergeTree ORDER BY rand();
CREATE TABLE b (k Int64, r Int64 DEFAULT nosuch()) ENGINE = ReplicatedMergeTree ORDER BY k;
"""
RENAMED = """
CREATE TABLE a (k Int64, v String) ENGINE = ReplicatedMergeTree ORDER BY k;
CREATE TABLE b (k Int64) ENGINE = MergeTree ORDER BY k;
INSERT INTO a VALUES (1, 'x');
INSERT INTO b VALUES (7);
RENAME TABLE a TO c;
SELECT * FROM a;
SELECT * FROM c;
SHOW TABLES;
RENAME TABLE c TO b;
RENAME TABLE b TO b;
RENAME TABLE nosuch TO d;
RENAME TABLE IF EXISTS nosuch TO d;
RENAME TABLE c TO nosuch.c;
INSERT INTO c VALUES (2, 'y');
ALTER TABLE c ADD COLUMN n Int8 DEFAULT 4;
OPTIMIZE TABLE c FINAL;
SELECT * FROM c ORDER BY k;
CREATE TABLE a (k Int64) ENGINE = MergeTree ORDER BY k;
INSERT INTO a VALUES (100);
SELECT * FROM a;
RENAME TABLE a TO t, b TO a, t TO b;
SELECT * FROM a;
SELECT * FROM b;
EXCHANGE TABLES a AND b;
SELECT * FROM a;
SELECT * FROM b;
EXCHANGE TABLES a AND nosuch;
EXCHANGE TABLES nosuch AND a;
INSERT INTO a VALUES (101);
SELECT count() FROM a;
DETACH TABLE a SYNC;
RENAME TABLE a TO q;
RENAME TABLE b TO a;
ATTACH TABLE a;
SELECT count() FROM a;
CREATE DATABASE IF NOT EXISTS script_other;
RENAME TABLE c TO script_other.c;
SELECT k FROM script_other.c ORDER BY k;
RENAME DATABASE script_other TO script_third;
SELECT k FROM script_third.c ORDER BY k;
INSERT INTO script_third.c (k, v) VALUES (9, 'z');
SELECT k FROM script_third.c ORDER BY k;
RENAME DATABASE nosuch TO script_fourth;
RENAME DATABASE script_third TO script;
SHOW TABLES FROM script_third;
DROP TABLE script_third.c;
DROP DATABASE script_third;
SHOW TABLES;
"""
SAMPLED = """
CREATE TABLE a (k UInt64, v String) ENGINE = ReplicatedMergeTree ORDER BY (intHash32(k), k)
    SAMPLE BY intHash32(k);
INSERT INTO a SELECT number, toString(number) FROM numbers(20000);
SELECT count(), sum(k) FROM a SAMPLE 0.1;
SELECT count(), sum(k) FROM a SAMPLE 1/10 OFFSET 1/2;
SELECT count(), sum(k) FROM a SAMPLE 0.1 OFFSET 0.95;
SELECT count() FROM a SAMPLE 1;
SELECT count() FROM a SAMPLE 0;
SELECT count() FROM a SAMPLE 1 OFFSET 0.5;
SELECT count() FROM a SAMPLE 0.5 OFFSET 1;
SELECT count(), sum(x.k) FROM a AS x SAMPLE 1e-2 WHERE k % 2 = 0;
SELECT count() FROM a AS s SAMPLE 0.3 JOIN a AS t SAMPLE 0.3 OFFSET 0.2 ON s.k = t.k;
SELECT count() FROM (SELECT k FROM a SAMPLE 0.2 UNION ALL SELECT k FROM a SAMPLE 0.2 OFFSET 0.2);
SELECT count() FROM a SAMPLE -0.1;
SELECT count() FROM a SAMPLE x;
SELECT count() FROM a SAMPLE 1000000;
SELECT DISTINCT _sample_factor FROM a SAMPLE 1/4;
SELECT any(_sample_factor) FROM a SAMPLE 1;
SELECT sum(_sample_factor * k) FROM a SAMPLE 0.1 OFFSET 0.3;
CREATE TABLE b (k UInt8, n Int8) ENGINE = ReplacingMergeTree ORDER BY k SAMPLE BY k;
INSERT INTO b SELECT number, 1 FROM numbers(256);
INSERT INTO b SELECT number, 2 FROM numbers(256);
SELECT count(), min(k), max(k) FROM b FINAL SAMPLE 1/4;
SELECT count(), min(k), max(k) FROM b FINAL SAMPLE 1/4 OFFSET 1/3;
CREATE TABLE c (k UInt64) ENGINE = MergeTree ORDER BY k SAMPLE BY k;
INSERT INTO c VALUES (0), (1844674407370955161), (1844674407370955162), (18446744073709551615);
SELECT k FROM c SAMPLE 0.1 ORDER BY k;
SELECT k FROM c SAMPLE 0.9 OFFSET 0.1 ORDER BY k;
CREATE TABLE d (k UInt64) ENGINE = MergeTree ORDER BY k;
SELECT k FROM d SAMPLE 0.1;
SELECT * FROM system.one SAMPLE 0.1;
"""
MATERIALIZED = """
CREATE TABLE a (k Int64, v Int64, d DateTime) ENGINE = ReplicatedMergeTree PARTITION BY k % 2
    ORDER BY k;
INSERT INTO a VALUES (1, 10, '2020-01-01 00:00:00'), (2, 20, '2099-01-01 00:00:00'),
    (3, 30, '2020-01-01 00:00:00'), (4, 40, '2020-01-01 00:00:00');
ALTER TABLE a ADD COLUMN m Int64 MATERIALIZED v + 1, ADD COLUMN n Int64 DEFAULT v + 2;
ALTER TABLE a MATERIALIZE COLUMN m;
ALTER TABLE a MODIFY COLUMN m Int64 MATERIALIZED v + 100;
SELECT k, m, n FROM a ORDER BY k;
ALTER TABLE a MATERIALIZE COLUMN m IN PARTITION 1;
SELECT k, m, n FROM a ORDER BY k;
ALTER TABLE a MATERIALIZE COLUMN m;
SELECT k, m, n FROM a ORDER BY k;
ALTER TABLE a MATERIALIZE COLUMN n;
ALTER TABLE a MODIFY COLUMN n Int64 DEFAULT v + 200;
SELECT k, m, n FROM a ORDER BY k;
ALTER TABLE a MATERIALIZE COLUMN v;
ALTER TABLE a MATERIALIZE COLUMN nosuch;
ALTER TABLE a MATERIALIZE TTL;
ALTER TABLE a ADD INDEX i v TYPE minmax GRANULARITY 3, ADD INDEX i0 (k, v) TYPE set(100) FIRST;
ALTER TABLE a ADD INDEX i v TYPE minmax;
ALTER TABLE a ADD INDEX IF NOT EXISTS i v TYPE minmax;
ALTER TABLE a ADD INDEX i2 k % 3 TYPE minmax GRANULARITY 1 AFTER i0;
ALTER TABLE a ADD INDEX i3 k TYPE minmax AFTER nosuch;
ALTER TABLE a ADD INDEX i3 nosuch TYPE minmax;
SHOW CREATE TABLE a;
ALTER TABLE a MATERIALIZE INDEX i;
ALTER TABLE a MATERIALIZE INDEX i IN PARTITION 1;
ALTER TABLE a CLEAR INDEX i;
ALTER TABLE a DROP INDEX i0, DROP INDEX IF EXISTS nosuch;
ALTER TABLE a DROP INDEX nosuch;
ALTER TABLE a ADD PROJECTION p (SELECT k, v ORDER BY v);
ALTER TABLE a ADD PROJECTION p (SELECT k, v ORDER BY v);
ALTER TABLE a ADD PROJECTION IF NOT EXISTS p (SELECT k, v ORDER BY v);
ALTER TABLE a MATERIALIZE PROJECTION p;
ALTER TABLE a CLEAR PROJECTION p;
ALTER TABLE a DROP PROJECTION nosuch;
ALTER TABLE a DROP PROJECTION IF EXISTS nosuch;
ALTER TABLE a DROP PROJECTION p;
ALTER TABLE a DROP INDEX i, DROP INDEX i2;
SHOW CREATE TABLE a;
SELECT k, v, m, n FROM a ORDER BY k;
"""
EXPIRED = """
CREATE TABLE a (k Int64, d DateTime, w Date, s String TTL w + INTERVAL 1 DAY,
    q Int64 DEFAULT k * 10 TTL w + INTERVAL 1 DAY, z Nullable(Int8) TTL w, y Array(String) TTL w)
    ENGINE = ReplicatedMergeTree PARTITION BY k % 2 ORDER BY k
    TTL d + INTERVAL 1 DAY, d + INTERVAL 100 YEAR DELETE WHERE k > 100
    SETTINGS merge_with_ttl_timeout = 1000000;
INSERT INTO a VALUES (1, '2020-01-01 00:00:00', '2099-01-01', 'a', 1, 1, ['x']),
    (2, '2020-01-01 00:00:00', '2020-01-01', 'b', 2, 2, ['x']),
    (3, '2099-01-01 00:00:00', '2020-01-01', 'c', 3, 3, ['x']),
    (4, '2099-01-01 00:00:00', '2099-01-01', 'd', 4, 4, ['x']),
    (5, '2099-01-01 00:00:00', '2020-01-01', 'e', 5, NULL, []);
ALTER TABLE a MATERIALIZE TTL IN PARTITION 0;
SELECT k, s, q, z, y FROM a WHERE k % 2 = 0 ORDER BY k;
ALTER TABLE a MATERIALIZE TTL;
SELECT k, s, q, z, y FROM a ORDER BY k;
ALTER TABLE a MATERIALIZE TTL;
SELECT k, s, q, z, y FROM a ORDER BY k;
"""
DROPPED = """
CREATE TABLE gone (k Int64) ENGINE = ReplicatedMergeTree ORDER BY k;
INSERT INTO gone VALUES (1);
DROP TABLE gone;
SELECT * FROM gone;
EXISTS TABLE gone;
SELECT database, table FROM system.dropped_tables WHERE database = 'script' AND table = 'gone';
UNDROP TABLE gone;
SELECT * FROM gone;
INSERT INTO gone VALUES (2);
SELECT * FROM gone ORDER BY k;
UNDROP TABLE gone;
UNDROP TABLE nosuch;
DROP TABLE gone;
CREATE TABLE gone (k Int64) ENGINE = MergeTree ORDER BY k;
INSERT INTO gone VALUES (3);
UNDROP TABLE gone;
SELECT * FROM gone;
RENAME TABLE gone TO kept;
UNDROP TABLE gone;
SELECT * FROM gone ORDER BY k;
SELECT * FROM kept;
DROP TABLE gone SYNC;
UNDROP TABLE gone;
"""
PARTITION_KEYS = """
CREATE TABLE a (p DateTime('UTC'), q DateTime64(3, 'UTC'), k Int8) ENGINE = ReplicatedMergeTree
    PARTITION BY (p, q) ORDER BY k;
INSERT INTO a VALUES ('2020-01-01 10:00:00', '2020-01-01 10:00:00.123', 1),
    ('2020-01-01 11:00:00', '2020-01-01 10:00:00.123', 2);
ALTER TABLE a DROP PARTITION ('2020-01-01 10:00:00', '2020-01-01 10:00:00.123');
ALTER TABLE a DROP PARTITION ('2020-01-01 11:00:00');
SELECT k FROM a;
CREATE TABLE b (p DateTime('UTC'), k Int8) ENGINE = ReplicatedMergeTree PARTITION BY p ORDER BY k;
INSERT INTO b VALUES ('2020-01-01 10:00:00', 1), ('2020-01-01 11:00:00', 2);
ALTER TABLE b DROP PARTITION '2020-01-01 10:00:00';
ALTER TABLE b DELETE IN PARTITION '2020-01-01 11:00:00' WHERE k < 0;
SELECT k FROM b;
CREATE TABLE c (p Nullable(Int32), k Int8) ENGINE = ReplicatedMergeTree PARTITION BY p ORDER BY k
    SETTINGS allow_nullable_key = 1;
ALTER TABLE c DROP PARTITION NULL;
CREATE TABLE d (k Int8) ENGINE = ReplicatedMergeTree ORDER BY k;
ALTER TABLE d DROP PARTITION 1;
CREATE TABLE e (k Int8, a Array(Int8), t Tuple(Int8, String)) ENGINE = ReplicatedMergeTree
    PARTITION BY (a, t) ORDER BY (k, a);
INSERT INTO e VALUES (1, [1, 2], (1, 'a')), (2, [1, 2], (1, 'a')), (3, [], (2, 'b'));
SELECT partition_id, partition, rows FROM system.parts
    WHERE table = 'e' AND database = 'script' AND active ORDER BY 1;
ALTER TABLE e DROP PARTITION ([1, 2], (1, 'a'));
SELECT k FROM e;
"""
DEDUPLICATED = """
CREATE TABLE o (p UInt8, k UInt8, v UInt8) ENGINE = ReplicatedMergeTree PARTITION BY p
    ORDER BY k % 10;
INSERT INTO o VALUES (1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 1), (1, 11, 1);
OPTIMIZE TABLE o FINAL DEDUPLICATE BY p;
OPTIMIZE TABLE o FINAL DEDUPLICATE BY k;
OPTIMIZE TABLE o FINAL DEDUPLICATE BY v;
SELECT count() FROM o;
OPTIMIZE TABLE o FINAL DEDUPLICATE BY k, p;
SELECT p, k, v FROM o ORDER BY p, k, v;
"""
OTHER_TYPES = """
CREATE TABLE e (k UInt8, e Enum8('a' = 1, 'b' = 2), n Nullable(Int8), d Date)
    ENGINE = ReplicatedMergeTree ORDER BY k;
ALTER TABLE e MODIFY COLUMN e Enum8('a' = 1, 'b' = 3);
ALTER TABLE e MODIFY COLUMN e Enum8('a' = 1, 'b' = 2, 'c' = 3);
INSERT INTO e VALUES (1, 'b', NULL, '2020-01-01');
ALTER TABLE e ALTER COLUMN d TYPE DateTime('UTC');
ALTER TABLE e ALTER COLUMN d TYPE String DEFAULT 'x' COMMENT 'c';
ALTER TABLE e MODIFY COLUMN d REMOVE CODEC;
ALTER TABLE e MODIFY COLUMN d REMOVE TTL;
ALTER TABLE e MODIFY COLUMN n REMOVE DEFAULT;
ALTER TABLE e MODIFY COLUMN d REMOVE MATERIALIZED;
ALTER TABLE e MODIFY COLUMN d REMOVE DEFAULT;
ALTER TABLE e REMOVE TTL;
DESCRIBE e;
SELECT * FROM e;
"""
CONSTRAINTS = """
CREATE TABLE c1 (k UInt64, s String, n Nullable(Int8), CONSTRAINT c CHECK k < 100,
    CONSTRAINT `a b` ASSUME k > 0) ENGINE = ReplicatedMergeTree ORDER BY k;
SHOW CREATE TABLE c1;
INSERT INTO c1 VALUES (1, 'a', 1), (0, 'b', 2);
INSERT INTO c1 VALUES (2, 'a', 1), (100, 'a', 1);
ALTER TABLE c1 ADD CONSTRAINT d CHECK length(s) < 3;
ALTER TABLE c1 ADD CONSTRAINT d CHECK length(s) < 4;
ALTER TABLE c1 ADD CONSTRAINT IF NOT EXISTS d CHECK length(s) < 4;
INSERT INTO c1 VALUES (2, 'aaaa', 1);
INSERT INTO c1 VALUES (2, 'aa', 1);
ALTER TABLE c1 ADD CONSTRAINT e CHECK nosuch < 3;
ALTER TABLE c1 ADD CONSTRAINT e CHECK n < 3;
INSERT INTO c1 VALUES (3, 'aa', NULL);
INSERT INTO c1 VALUES (3, 'aa', 5);
INSERT INTO c1 SELECT 3, 'aa', 2;
ALTER TABLE c1 RENAME COLUMN s TO t;
SHOW CREATE TABLE c1;
ALTER TABLE c1 DROP COLUMN t;
ALTER TABLE c1 DROP CONSTRAINT c;
ALTER TABLE c1 DROP CONSTRAINT nosuch;
ALTER TABLE c1 DROP CONSTRAINT IF EXISTS nosuch;
INSERT INTO c1 VALUES (100, 'a', 1);
INSERT INTO c1 SELECT 200, 'abcd', 1;
SELECT * FROM c1 ORDER BY k, t;
ALTER TABLE c1 UPDATE t = 'abcdef' WHERE k = 1;
CREATE TABLE c2 AS c1;
SHOW CREATE TABLE c2;
INSERT INTO c2 VALUES (1, 'abcdef', 1);
CREATE TABLE c4 (k UInt64, CONSTRAINT c CHECK nosuch) ENGINE = ReplicatedMergeTree ORDER BY k;
"""
SCRIPTS = (
    changed_tables.SCRIPTS
    | answers.SCRIPTS
    | {
        "constraints": CONSTRAINTS,
        "partitions by every kind of key": PARTITION_KEYS,
        "which rows are duplicates": DEDUPLICATED,
        "another type, and what is not there to remove": OTHER_TYPES,
        "dropped tables": DROPPED,
        "what is materialized": MATERIALIZED,
        "what has expired is taken away": EXPIRED,
        "samples": SAMPLED,
        "inserts": INSERTED,
        "computed when inserted": COMPUTED_WHEN_INSERTED,
        "parts": PARTS,
        "what is shown": SHOWN,
        "renamed tables": RENAMED,
        "detached tables": DETACHED,
        "tables like others, and what is equal": LIKE,
        "what is shown of a table": SHOWN_OF_TABLE,
        "engines of one copy": PLAIN,
        "columns that parts lack": LACKING,
        "the sorting key and TTL": KEYS,
        "types of key columns": KEY_TYPES,
        "what a query gives for another type": SELECTED,
        "nested columns have one length": NESTED,
        "groups of nested columns": GROUPS,
        "nested columns as a whole": WHOLE,
    }
)
OTHER_CODES = changed_tables.OTHER_CODES | {
    "the bins of a histogram": ("(nan)", "histogram(0)", "histogram(251)"),
    "constraints": ("DROP COLUMN t",),
    "detached tables": ("ATTACH TABLE nosuch",),
    "tables like others, and what is equal": ("AS nosuch",),
    "what is shown of a table": ("INDEX i nosuch", "e7", "e6 "),
    "the sorting key and TTL": ("nosuch",),
    "types of key columns": ("d UInt16",),
    "what a query gives for another type": ("'abc'",),
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
