"""Tables that change under a script's hands: what expires, what is mutated, dropped and brought
back, renamed and computed anew. For `test_scripts_against_chdb`.
"""

EXPIRING = """
CREATE TABLE rows (d Date, a Int32, s String) ENGINE = ReplicatedMergeTree ORDER BY a;
INSERT INTO rows VALUES ('2000-01-01', 1, 'x'), ('2100-01-01', 2, 'y');
ALTER TABLE rows MODIFY TTL d + INTERVAL 1 DAY;
SELECT * FROM rows;
SELECT count() FROM system.mutations WHERE table = 'rows' AND database = 'script';
ALTER TABLE rows MODIFY TTL d + INTERVAL 1 DAY;
ALTER TABLE rows REMOVE TTL;
SELECT count() FROM system.mutations WHERE table = 'rows' AND database = 'script';
ALTER TABLE rows MODIFY COLUMN s String TTL d - INTERVAL 100 YEAR;
SELECT * FROM rows;
ALTER TABLE rows MODIFY COLUMN s COMMENT 'why';
SELECT count() FROM system.mutations WHERE table = 'rows' AND database = 'script';
CREATE TABLE later (d Date, a Int32) ENGINE = ReplicatedMergeTree ORDER BY a;
SYSTEM STOP TTL MERGES later;
INSERT INTO later VALUES ('2000-01-01', 1), ('2100-01-01', 2);
SET materialize_ttl_after_modify = 0;
ALTER TABLE later MODIFY TTL d + INTERVAL 1 DAY;
SELECT * FROM later ORDER BY a;
SELECT count() FROM system.mutations WHERE table = 'later' AND database = 'script';
ALTER TABLE later MATERIALIZE TTL;
SELECT * FROM later ORDER BY a;
SET materialize_ttl_after_modify = 1;
CREATE TABLE computed (d DateTime, a Int32 TTL d + INTERVAL 1 DAY,
    b Int32 DEFAULT a * 2 + 1 TTL d + INTERVAL 1 DAY) ENGINE = ReplicatedMergeTree ORDER BY tuple();
INSERT INTO computed VALUES ('2000-01-01 00:00:00', 1, 5), ('2100-01-01 00:00:00', 1, 5);
OPTIMIZE TABLE computed FINAL;
SELECT a, b FROM computed ORDER BY d;
ALTER TABLE computed RENAME COLUMN d TO moment;
SHOW CREATE TABLE computed;
INSERT INTO computed (moment) VALUES ('2000-01-02 00:00:00');
OPTIMIZE TABLE computed FINAL;
SELECT a, b FROM computed ORDER BY moment;
"""
# A mutation's text is 18.16's: newer versions put parentheses around it and around a NOT in it.
TOLD = """
CREATE TABLE m (a Int32, b Int32, n Int32, k Int32) ENGINE = ReplicatedMergeTree ORDER BY k;
INSERT INTO m VALUES (1, 1, 1, 1), (2, 2, 2, 2);
ALTER TABLE m UPDATE a = 2 WHERE n = 1, DELETE WHERE n = 5;
ALTER TABLE m RENAME COLUMN a TO c;
ALTER TABLE m DROP COLUMN c, DROP COLUMN b;
ALTER TABLE m UPDATE n = n * (n + 1) WHERE n IN (1, 2) AND NOT (k = 7 OR k = 8);
ALTER TABLE m DELETE WHERE n BETWEEN 3 AND 4;
SELECT replaceOne(if(startsWith(command, '('), substring(command, 2, length(command) - 2), command),
    '(NOT ((k = 7) OR (k = 8)))', 'NOT ((k = 7) OR (k = 8))') AS what,
    is_done, parts_to_do FROM system.mutations
    WHERE table = 'm' AND database = 'script' ORDER BY mutation_id, what;
SELECT * FROM m ORDER BY k;
ALTER TABLE m UPDATE k = 1 WHERE 1;
ALTER TABLE m UPDATE nosuch = 1 WHERE 1;
ALTER TABLE m UPDATE n = nosuch WHERE 1;
ALTER TABLE m DELETE WHERE nosuch;
ALTER TABLE m UPDATE n = 1;
ALTER TABLE m UPDATE n = 1, n = 2 WHERE 1;
ALTER TABLE m DELETE WHERE 'abc' = n;
SELECT count() FROM system.mutations WHERE table = 'm' AND database = 'script' AND NOT is_done;
CREATE TABLE u (k UInt64, s String, n Nullable(Int32), a Array(Int8), d Date DEFAULT '2020-01-01',
    m UInt64 MATERIALIZED k * 10, l String ALIAS upper(s)) ENGINE = ReplicatedMergeTree ORDER BY k;
INSERT INTO u (k, s, n, a) SELECT number, toString(number), if(number % 2, NULL, number), [number]
    FROM numbers(5);
ALTER TABLE u UPDATE n = NULL, s = concat(s, '!'), a = arrayPushBack(a, 7) WHERE k % 2 = 0;
SELECT *, m, l FROM u ORDER BY k;
ALTER TABLE u UPDATE n = k + 1 WHERE n IS NULL;
SELECT k, n FROM u ORDER BY k;
ALTER TABLE u UPDATE d = d + k WHERE d = '2020-01-01';
SELECT k, d FROM u ORDER BY k;
ALTER TABLE u DELETE WHERE s LIKE '%!' AND k > 0;
SELECT k, s FROM u ORDER BY k;
ALTER TABLE u UPDATE l = 'x' WHERE 1;
DELETE FROM u WHERE k = 1;
SELECT k FROM u ORDER BY k;
DELETE FROM u WHERE 1;
SELECT count() FROM u;
"""
BROUGHT_BACK = """
CREATE TABLE p (d Date, k Int32) ENGINE = ReplicatedMergeTree PARTITION BY toYYYYMM(d) ORDER BY k;
INSERT INTO p VALUES ('2020-01-01', 1), ('2020-02-01', 2), ('2020-03-01', 3);
ALTER TABLE p DETACH PARTITION 202001;
ALTER TABLE p DETACH PARTITION ID '202002';
SELECT k FROM p ORDER BY k;
SELECT partition_id, reason FROM system.detached_parts WHERE table = 'p' AND database = 'script'
    ORDER BY partition_id;
ALTER TABLE p ATTACH PARTITION 202001;
SELECT k FROM p ORDER BY k;
ALTER TABLE p ADD COLUMN s String DEFAULT toString(k);
ALTER TABLE p ATTACH PARTITION 202002;
SELECT * FROM p ORDER BY k;
ALTER TABLE p DROP DETACHED PARTITION 202001;
SET allow_drop_detached = 1;
ALTER TABLE p DROP DETACHED PARTITION 202001;
ALTER TABLE p DROP PARTITION 202002, DROP PARTITION ID '209901';
SELECT k FROM p ORDER BY k;
ALTER TABLE p DROP PARTITION 'nonsense';
ALTER TABLE p ATTACH PART 'nonsense';
ALTER TABLE p DETACH PART '202003_7_7_0';
CREATE TABLE q AS p;
INSERT INTO q VALUES ('2020-03-05', 30, 'q'), ('2020-04-05', 40, 'q');
ALTER TABLE p REPLACE PARTITION 202003 FROM q;
SELECT * FROM p ORDER BY k;
ALTER TABLE p ATTACH PARTITION 202004 FROM q;
ALTER TABLE p MOVE PARTITION 202004 TO TABLE q;
SELECT * FROM p ORDER BY k;
SELECT * FROM q ORDER BY k;
CREATE TABLE r (d Date, k Int32) ENGINE = ReplicatedMergeTree PARTITION BY toYYYYMM(d) ORDER BY k;
ALTER TABLE r ATTACH PARTITION 202003 FROM q;
CREATE TABLE s (d Date, k Int32, s String DEFAULT toString(k)) ENGINE = ReplicatedMergeTree
    PARTITION BY d ORDER BY k;
ALTER TABLE s ATTACH PARTITION '2020-03-05' FROM q;
ALTER TABLE p REPLACE PARTITION 202003 FROM nosuch;
TRUNCATE TABLE p;
SELECT count() FROM p;
TRUNCATE TABLE IF EXISTS nosuch;
TRUNCATE TABLE nosuch;
"""
RENAMED = """
CREATE TABLE n (k Int32, v1 Int32, v2 Int32, v3 String DEFAULT concat('h', toString(v1)),
    v4 String ALIAS concat('w', v3)) ENGINE = ReplicatedMergeTree ORDER BY k;
INSERT INTO n (k, v1, v2) VALUES (1, 2, 3);
ALTER TABLE n RENAME COLUMN v1 TO old, RENAME COLUMN v2 TO v1;
SHOW CREATE TABLE n;
SELECT *, v4 FROM n;
INSERT INTO n (k, old, v1) VALUES (4, 5, 6);
ALTER TABLE n RENAME COLUMN old TO a, RENAME COLUMN v1 TO b;
SELECT *, v4 FROM n ORDER BY k;
ALTER TABLE n RENAME COLUMN a TO b;
ALTER TABLE n RENAME COLUMN nosuch TO c;
ALTER TABLE n RENAME COLUMN IF EXISTS nosuch TO c;
ALTER TABLE n RENAME COLUMN k TO key;
ALTER TABLE n RENAME COLUMN b TO b_old, ADD COLUMN b Int64 DEFAULT 7;
SELECT k, a, b_old, b FROM n ORDER BY k;
INSERT INTO n (k, a, b_old, b) VALUES (7, 8, 9, 10);
ALTER TABLE n DROP COLUMN b_old, RENAME COLUMN b TO b_old;
SELECT k, a, b_old FROM n ORDER BY k;
ALTER TABLE n DROP COLUMN v3;
ALTER TABLE n DROP COLUMN v4, DROP COLUMN v3;
SELECT * FROM n ORDER BY k;
DESCRIBE n;
CREATE TABLE kept (k UInt64, a String, b String, CONSTRAINT less CHECK toInt64(a) < toInt64(b))
    ENGINE = ReplicatedMergeTree ORDER BY k;
INSERT INTO kept VALUES (1, '1', '2');
INSERT INTO kept VALUES (1, '2', '1');
ALTER TABLE kept RENAME COLUMN a TO c;
SHOW CREATE TABLE kept;
INSERT INTO kept VALUES (2, '2', '1');
INSERT INTO kept VALUES (2, '2', '3');
SELECT * FROM kept ORDER BY k;
"""
MERGED = """
SET optimize_on_insert = 0;
CREATE TABLE su (k UInt8, z UInt8, v UInt32, n Nullable(Int32), s String, f Float64)
    ENGINE = ReplicatedSummingMergeTree ORDER BY (k, -z);
INSERT INTO su VALUES (1, 0, 1, NULL, 'a', 0.5), (1, 2, 1, 1, 'b', 0.5);
INSERT INTO su VALUES (1, 2, 10, NULL, 'c', 1), (2, 0, 0, NULL, 'd', 0);
SELECT * FROM su FINAL ORDER BY k, z;
OPTIMIZE TABLE su FINAL;
SELECT * FROM su ORDER BY k, z;
CREATE TABLE re (k UInt8, v UInt32, s String) ENGINE = ReplicatedReplacingMergeTree(v) ORDER BY k;
INSERT INTO re VALUES (1, 2, 'two'), (1, 1, 'one'), (2, 0, 'zero');
INSERT INTO re VALUES (1, 2, 'two again'), (2, 5, 'five'), (3, 1, 'x');
SELECT * FROM re FINAL ORDER BY k;
SELECT count() FROM re;
OPTIMIZE TABLE re FINAL;
SELECT * FROM re ORDER BY k;
CREATE TABLE co (k UInt8, v String, g Int8) ENGINE = ReplicatedCollapsingMergeTree(g) ORDER BY k;
INSERT INTO co VALUES (1, 'a', 1), (2, 'b', 1);
INSERT INTO co VALUES (1, 'a', -1), (1, 'c', 1), (3, 'd', -1);
SELECT * FROM co FINAL ORDER BY k, v;
SELECT sum(g) FROM co;
OPTIMIZE TABLE co FINAL;
SELECT * FROM co ORDER BY k, v;
CREATE TABLE ve (k UInt8, v UInt8, g Int8) ENGINE = ReplicatedVersionedCollapsingMergeTree(g, v)
    ORDER BY k;
INSERT INTO ve VALUES (1, 2, -1), (1, 1, 1);
INSERT INTO ve VALUES (1, 2, 1), (1, 1, -1), (2, 1, 1);
SELECT * FROM ve FINAL ORDER BY k;
OPTIMIZE TABLE ve FINAL;
SELECT * FROM ve ORDER BY k;
CREATE TABLE ag (k UInt8, c SimpleAggregateFunction(sum, UInt64),
    m SimpleAggregateFunction(max, String), x AggregateFunction(uniqExact, UInt8))
    ENGINE = ReplicatedAggregatingMergeTree ORDER BY k;
INSERT INTO ag SELECT 1, 5, 'a', uniqExactState(toUInt8(number)) FROM numbers(3);
INSERT INTO ag SELECT 1, 6, 'b', uniqExactState(toUInt8(number)) FROM numbers(4);
SELECT k, c, m, uniqExactMerge(x) FROM ag GROUP BY k, c, m ORDER BY c;
OPTIMIZE TABLE ag FINAL;
SELECT k, c, m, finalizeAggregation(x) FROM ag;
"""
SIZED = """
CREATE TABLE z (k Int8, s String, a Array(Int8), `n.x` Array(Int8), `n.y` Array(String))
    ENGINE = ReplicatedMergeTree ORDER BY k
    SETTINGS min_bytes_for_wide_part = 0, remove_empty_parts = 1,
    allow_remote_fs_zero_copy_replication = 0;
SELECT name, data_compressed_bytes, data_uncompressed_bytes FROM system.columns
    WHERE table = 'z' AND database = 'script' ORDER BY position;
INSERT INTO z VALUES (1, 'a', [1], [1], ['b']);
SELECT name, data_compressed_bytes > 0, data_uncompressed_bytes > 0 FROM system.columns
    WHERE table = 'z' AND database = 'script' ORDER BY position;
SELECT column, type, column_position, default_kind, active, rows, column_bytes_on_disk > 0,
    column_data_uncompressed_bytes > 0 FROM system.parts_columns WHERE table = 'z'
    AND database = 'script' ORDER BY column_position;
ALTER TABLE z CLEAR COLUMN s;
SELECT name, data_compressed_bytes > 0, data_uncompressed_bytes > 0 FROM system.columns
    WHERE table = 'z' AND database = 'script' ORDER BY position;
"""
PLACED = """
CREATE TABLE g (k Int32, g Nested(a Int8, b Int8), z Int8) ENGINE = ReplicatedMergeTree ORDER BY k;
INSERT INTO g VALUES (1, [1], [2], 3);
ALTER TABLE g ADD COLUMN x Int8 AFTER g;
ALTER TABLE g ADD COLUMN h Nested(a Int8, b Int8) AFTER g;
ALTER TABLE g MODIFY COLUMN z Int8 FIRST;
ALTER TABLE g MODIFY COLUMN z Int8 AFTER h;
ALTER TABLE g ADD COLUMN y Int8 AFTER nosuch;
DESCRIBE g;
SELECT * FROM g;
CREATE TABLE i (k Int32, a Int32, b String, INDEX j length(b) + a TYPE set(3) GRANULARITY 2,
    INDEX l (a, b) TYPE minmax, INDEX `q TYPE` b TYPE minmax)
    ENGINE = ReplicatedMergeTree ORDER BY k;
ALTER TABLE i RENAME COLUMN b TO c;
ALTER TABLE i RENAME COLUMN a TO `a b`;
SHOW CREATE TABLE i;
ALTER TABLE i ADD INDEX m nosuch TYPE minmax;
"""
NUMBERED = """
CREATE TABLE several (p Enum8('a' = 1, 'b''c,' = -2), q String, n Enum16('5' = 7), k Int8)
    ENGINE = ReplicatedMergeTree PARTITION BY (q, p, n) ORDER BY k;
CREATE TABLE one (p Enum8('a' = 1, '1' = -2), k Int8) ENGINE = ReplicatedMergeTree
    PARTITION BY p ORDER BY k;
INSERT INTO several VALUES ('a', '(x,''', '5', 1), ('b''c,', '', '5', 2), ('a', '(x,''', '5', 3);
INSERT INTO several VALUES ('a', '(x,''', '5', 1);
INSERT INTO one VALUES ('a', 1), ('1', 2);
SELECT partition, partition_id FROM system.parts WHERE table = 'several' AND database = 'script'
    AND active ORDER BY 1;
SELECT partition, partition_id FROM system.parts WHERE table = 'one' AND database = 'script'
    AND active ORDER BY 1;
ALTER TABLE several MODIFY COLUMN p Int8, MODIFY COLUMN n Int16;
ALTER TABLE one MODIFY COLUMN p Int8;
SELECT partition, partition_id FROM system.parts WHERE table = 'several' AND database = 'script'
    AND active ORDER BY 1;
SELECT partition, partition_id FROM system.parts WHERE table = 'one' AND database = 'script'
    AND active ORDER BY 1;
OPTIMIZE TABLE several FINAL;
OPTIMIZE TABLE one FINAL;
INSERT INTO one VALUES (111, 1);
ALTER TABLE one DROP PARTITION 1;
SELECT partition, partition_id FROM system.parts WHERE table = 'several' AND database = 'script'
    AND active ORDER BY 1;
SELECT partition, partition_id FROM system.parts WHERE table = 'one' AND database = 'script'
    AND active ORDER BY 1;
"""
REMEMBERED = """
CREATE TABLE w (k Int8) ENGINE = MergeTree ORDER BY k
    SETTINGS non_replicated_deduplication_window = 3;
INSERT INTO w VALUES (1);
INSERT INTO w VALUES (1);
INSERT INTO w VALUES (2);
INSERT INTO w VALUES (3);
INSERT INTO w VALUES (4);
INSERT INTO w VALUES (2);
INSERT INTO w VALUES (1);
SELECT k FROM w ORDER BY k;
INSERT INTO w VALUES (4);
INSERT INTO w VALUES (3);
INSERT INTO w VALUES (2);
SELECT k FROM w ORDER BY k;
INSERT INTO w SETTINGS insert_deduplication_token = 'a' VALUES (5);
INSERT INTO w SETTINGS insert_deduplication_token = 'a' VALUES (6);
INSERT INTO w VALUES (7);
INSERT INTO w VALUES (8);
INSERT INTO w VALUES (9);
INSERT INTO w SETTINGS insert_deduplication_token = 'a' VALUES (10);
SELECT k FROM w ORDER BY k;
ALTER TABLE w MODIFY SETTING non_replicated_deduplication_window = 1;
INSERT INTO w VALUES (9);
INSERT INTO w VALUES (9);
SELECT k FROM w ORDER BY k;
TRUNCATE TABLE w;
INSERT INTO w VALUES (9);
SELECT k FROM w ORDER BY k;
CREATE TABLE later (k Int8, p Int8) ENGINE = MergeTree PARTITION BY p ORDER BY k;
INSERT INTO later VALUES (1, 1);
INSERT INTO later VALUES (1, 1);
ALTER TABLE later MODIFY SETTING non_replicated_deduplication_window = 3;
INSERT INTO later VALUES (2, 1);
INSERT INTO later VALUES (2, 1);
ALTER TABLE later DROP PARTITION 1;
INSERT INTO later VALUES (2, 1);
SELECT * FROM later ORDER BY ALL;
"""
REPLACED = """
CREATE OR REPLACE TABLE r (k Int8) ENGINE = MergeTree ORDER BY k;
INSERT INTO r VALUES (1);
CREATE OR REPLACE TABLE r (k Int64, s String) ENGINE = MergeTree ORDER BY s COMMENT 'new';
SELECT * FROM r;
SHOW CREATE TABLE r;
CREATE OR REPLACE TABLE r ENGINE = MergeTree ORDER BY number AS SELECT number FROM numbers(3);
SELECT * FROM r ORDER BY number;
CREATE OR REPLACE TABLE r ENGINE = MergeTree ORDER BY number AS SELECT number + 1 AS number FROM r;
SELECT * FROM r ORDER BY number;
CREATE OR REPLACE TABLE r (n UInt8) ENGINE = MergeTree ORDER BY n
    AS SELECT throwIf(number = 2) FROM numbers(3);
SELECT * FROM r ORDER BY number;
CREATE OR REPLACE TABLE r (k nosuch) ENGINE = MergeTree ORDER BY k;
CREATE OR REPLACE TABLE IF NOT EXISTS r (k Int8) ENGINE = MergeTree ORDER BY k;
CREATE OR REPLACE TABLE other AS r;
SHOW TABLES;
INSERT INTO other VALUES (7);
OPTIMIZE TABLE other FINAL;
SELECT * FROM other;
"""
LIMITED = """
DESCRIBE (SELECT 1 AS x, 'a' AS y, [toNullable(1)] AS z);
DESC SELECT number, toString(number) FROM numbers(1);
DESCRIBE TABLE (SELECT * FROM system.one);
DESCRIBE (SELECT nosuch);
SELECT topK(2)(if(number < 6, 1, number)) AS k FROM numbers(7);
SELECT topK(1)(toString(if(number < 4, 0, number))) FROM numbers(9);
SELECT topK(3)(if(number < 4, NULL, 7)) FROM numbers(9);
SELECT topK(1)(number) FROM numbers(0);
SELECT rowNumberInAllBlocks() AS n, number FROM numbers(3) ORDER BY n;
SELECT 1 SETTINGS max_execution_time = 10;
SELECT name, value FROM system.settings WHERE name = 'max_execution_time';
SELECT count() FROM numbers(100000000000) WHERE sqrt(number) < 5 SETTINGS max_execution_time = 0.5;
SELECT sleep(2) SETTINGS max_execution_time = 0.5;
SELECT number FROM numbers(100000000000) FORMAT Null SETTINGS max_execution_time = 0.5;
CREATE TABLE q (n UInt64) ENGINE = MergeTree ORDER BY n;
SET max_execution_time = 1;
INSERT INTO q SELECT number FROM numbers(100000000000) WHERE sqrt(number) > 100000000000;
SET max_execution_time = 0;
SELECT count() FROM q;
"""
SCRIPTS = {
    "tables in the place of others": REPLACED,
    "what a query is asked, and for how long": LIMITED,
    "what a partition is called": NUMBERED,
    "how many inserts are remembered": REMEMBERED,
    "where columns stand, and what names them": PLACED,
    "what expires": EXPIRING,
    "mutations": TOLD,
    "partitions that go and come back": BROUGHT_BACK,
    "columns under other names": RENAMED,
    "what merges leave": MERGED,
    "how large columns are": SIZED,
}
OTHER_CODES = {
    "where columns stand, and what names them": ("AFTER nosuch", "m nosuch"),
    "mutations": ("'abc'", "l = 'x'"),
    "partitions that go and come back": ("'nonsense'",),
}
"""Statements that both refuse, each with a code of its own."""
