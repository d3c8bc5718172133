"""Scripts about what answers are made of: stars, indexes, settings. For
`test_scripts_against_chdb`.
"""

STARS = """
CREATE TABLE t (k UInt32, v Float64, s String, n Nullable(Int8)) ENGINE = ReplicatedMergeTree
    ORDER BY (k, s);
INSERT INTO t VALUES (1, 1.5, 'a', NULL), (2, 2.5, 'b', 3), (2, 0.5, 'a', 4);
SELECT * APPLY(max) FROM t FORMAT TSVWithNames;
SELECT * EXCEPT (s) APPLY(sum) APPLY(toString) FROM t FORMAT TSVWithNames;
SELECT * EXCEPT (s, n) APPLY quantileExact(0.5) FROM t FORMAT TSVWithNames;
SELECT * EXCEPT (s, n) APPLY (quantilesExact(0.1, 0.9)) FROM t FORMAT TSVWithNames;
SELECT COLUMNS('k|v') APPLY(x -> x + 1) FROM t ORDER BY k, v;
SELECT COLUMNS('^[kv]') EXCEPT (v) FROM t ORDER BY k FORMAT TSVWithNames;
SELECT COLUMNS('^[kv]') REPLACE (v * 2 AS v) APPLY(toString) FROM t ORDER BY k, v;
SELECT t.* APPLY(toString) FROM t ORDER BY t.k, t.v;
SELECT * REPLACE (v + 1 AS v) APPLY(toString) FROM t ORDER BY k, v;
SELECT s, COLUMNS('k|v') APPLY(sum) FROM t GROUP BY s ORDER BY s FORMAT TSVWithNames;
SELECT sum(k), * EXCEPT (k, v) FROM t GROUP BY s, n ORDER BY s, n;
SELECT * APPLY(nosuch) FROM t;
SELECT * APPLY(1) FROM t;
SELECT * APPLY(x -> (x, 1)) FROM t ORDER BY k, v;
SELECT * APPLY FROM t;
SELECT a.* EXCEPT (s) APPLY(max) FROM t AS a JOIN t AS b ON a.k = b.k;
"""
INDEXES_AND_SETTINGS = """
CREATE TABLE t (k UInt32, v Float64, s String) ENGINE = ReplicatedMergeTree PRIMARY KEY (k, s)
    ORDER BY (k, s, v);
CREATE TABLE e (k UInt32, s String) ENGINE = ReplicatedMergeTree ORDER BY (k % 8, s);
SHOW INDEX FROM t;
SHOW INDEXES IN t;
SHOW INDICES FROM script.t;
SHOW EXTENDED KEYS FROM t FROM script;
SHOW KEYS FROM t WHERE seq_in_index = 2;
SHOW INDEX FROM e;
SHOW INDEX FROM nosuch;
SHOW INDEX t;
SHOW SETTING alter_sync;
SHOW SETTING nosuch;
SET insert_quorum_timeout = 5000;
SHOW SETTING insert_quorum_timeout;
SHOW CHANGED SETTINGS LIKE 'insert_quorum%';
"""
FILLED = """
CREATE TABLE t (k UInt32, d Date, s String, n Nullable(Int8), a Array(UInt8))
    ENGINE = ReplicatedMergeTree ORDER BY k;
INSERT INTO t VALUES (1, '2024-01-01', 'a', 1, [1]), (4, '2024-01-04', 'b', NULL, []),
    (6, '2024-01-02', 'c', 3, [2]);
SELECT k FROM t ORDER BY k WITH FILL;
SELECT * FROM t ORDER BY k WITH FILL;
SELECT * FROM t ORDER BY d WITH FILL;
SELECT k, s FROM t ORDER BY k DESC WITH FILL;
SELECT k AS x, s FROM t ORDER BY x WITH FILL FROM 0 TO 9 STEP 2;
SELECT k, s FROM t ORDER BY k WITH FILL FROM 3;
SELECT k, s FROM t ORDER BY k DESC WITH FILL FROM 8 TO 0 STEP -3;
SELECT s, k FROM t ORDER BY 2 WITH FILL TO 8 LIMIT 7 OFFSET 1;
SELECT d, count() FROM t GROUP BY d ORDER BY d
    WITH FILL FROM toDate('2023-12-31') TO toDate('2024-01-07') STEP 3;
SELECT s FROM t ORDER BY k WITH FILL;
SELECT k, s FROM t WHERE k > 100 ORDER BY k WITH FILL FROM 1 TO 3;
SELECT k, s FROM t WHERE k > 100 ORDER BY k WITH FILL;
SELECT toDateTime('2024-01-01 00:00:00', 'UTC') + k AS x FROM t ORDER BY x WITH FILL STEP 2;
SELECT sum(k) FROM (SELECT k FROM t ORDER BY k WITH FILL TO 11);
SELECT n, s FROM t ORDER BY n WITH FILL;
SELECT k FROM t ORDER BY k WITH FILL STEP 0;
SELECT k FROM t ORDER BY k WITH FILL STEP -1;
SELECT s FROM t ORDER BY s WITH FILL;
SELECT k FROM t ORDER BY k WITH FILL FROM n;
"""
BINS = """
SELECT histogram(5)(number) FROM numbers(20);
SELECT histogram(3)(number * number) FROM numbers(1000) SETTINGS max_threads = 1;
SELECT histogram(2)(x) FROM (SELECT arrayJoin([1, 1, 1, 5, 5.5, 100]) AS x);
SELECT histogram(1)(number + 0.5) FROM numbers(3);
SELECT histogram(10)(number % 4) FROM numbers(100) SETTINGS max_threads = 1;
SELECT histogram(4)(cityHash64(number) % 1000) FROM numbers(500) SETTINGS max_threads = 1;
SELECT histogram(3)(number) FROM numbers(0);
SELECT histogramIf(3)(number, number % 2) FROM numbers(10);
SELECT number % 2 AS p, histogram(2)(number) FROM numbers(9) GROUP BY p ORDER BY p;
SELECT arrayMap(one -> round(one.3, 2), histogram(3)(number)) FROM numbers(10);
SELECT toTypeName(histogram(3)(number)) FROM numbers(10);
SELECT histogram(3)(nan);
SELECT histogram(0)(number) FROM numbers(3);
SELECT histogram(251)(number) FROM numbers(3);
SELECT histogram(number) FROM numbers(3);
SELECT histogram(3)('a');
SELECT histogram(3)(nullIf(number, 1)) FROM numbers(5);
"""
NULLS = """
CREATE TABLE t (k UInt32, v Nullable(Int8), w UInt8) ENGINE = ReplicatedMergeTree ORDER BY k;
INSERT INTO t VALUES (1, NULL, 1), (2, 2, 2), (3, NULL, 3), (4, 4, 4), (5, NULL, 5);
SELECT any(v) RESPECT NULLS, any(v) IGNORE NULLS, any(v), any_value(v) RESPECT NULLS FROM t;
SELECT anyLast(v) RESPECT NULLS, last_value(v) RESPECT NULLS, last_value(v) FROM t;
SELECT first_value(w) RESPECT NULLS, any_respect_nulls(v), anyLast_respect_nulls(w) FROM t;
SELECT k % 2 AS p, any(v) RESPECT NULLS FROM t GROUP BY p ORDER BY p;
SELECT anyIf(v, k > 1) RESPECT NULLS, any(v) RESPECT NULLS FROM t WHERE k < 4;
SELECT any(v) RESPECT NULLS, any(w) RESPECT NULLS FROM t WHERE k > 9;
SELECT k, first_value(v) RESPECT NULLS OVER (ORDER BY k), last_value(v) RESPECT NULLS OVER (
    ORDER BY k), last_value(v) IGNORE NULLS OVER (ORDER BY k) FROM t ORDER BY k;
SELECT toTypeName(any(v) RESPECT NULLS), toTypeName(any(w) RESPECT NULLS) FROM t;
SELECT sum(v) IGNORE NULLS FROM t;
SELECT sum(v) RESPECT NULLS FROM t;
SELECT groupArray(v) RESPECT NULLS FROM t;
"""
INDEXED = """
CREATE TABLE t (k UInt8, s String, v Float64, w UInt8, INDEX i (s, k) TYPE set(10))
    ENGINE = ReplicatedMergeTree ORDER BY k;
ALTER TABLE t DROP COLUMN s;
ALTER TABLE t DROP COLUMN s, DROP INDEX i;
ALTER TABLE t ADD INDEX j v TYPE minmax, DROP COLUMN v;
ALTER TABLE t ADD INDEX j v * 2 TYPE minmax;
ALTER TABLE t CLEAR COLUMN v;
ALTER TABLE t RENAME COLUMN v TO vv;
ALTER TABLE t DROP COLUMN vv;
ALTER TABLE t ADD INDEX z w TYPE nosuch;
ALTER TABLE t ADD INDEX z w TYPE BLOOM_filter;
CREATE TABLE u (k UInt8, INDEX i k TYPE nosuch(1)) ENGINE = ReplicatedMergeTree ORDER BY k;
SELECT name, type FROM system.columns WHERE database = 'script' AND table = 't' ORDER BY position;
"""
EMPTY_GROUPS = """
SELECT quantileExact(0.5)(x), medianExact(x), quantilesExact(0.1, 0.5)(x) FROM (
    SELECT 0.5 AS x WHERE 0);
SELECT medianExact(x), quantileExactIf(x, 0) FROM (SELECT toNullable(0.5) AS x WHERE 0);
SELECT quantileExact(x), quantileExactIf(0.5)(x, x > 5) FROM (SELECT number AS x FROM numbers(3));
SELECT quantileExact(nan), quantileExactOrNull(x) FROM (SELECT 0.5 AS x WHERE 0);
SELECT arrayReduce('avg', emptyArrayInt32()), arrayReduce('max', emptyArrayInt32()),
    arrayReduce('avg', [1, 2]);
SELECT quantileTDigest(number), quantileDeterministic(0.3)(number, number),
    quantilesTDigest(0.1, 0.9)(number), medianTDigest(number), medianDeterministic(number, 1),
    quantilesDeterministic(0.1, 0.9)(number, 1), toTypeName(quantilesTDigest(0.1)(number)),
    toTypeName(quantileTDigest(number)) FROM numbers(11);
"""
TOMBSTONES = """
CREATE TABLE r (p UInt8, k UInt32, ver UInt32, gone UInt8)
    ENGINE = ReplicatedReplacingMergeTree(ver, gone) PARTITION BY p ORDER BY k
    SETTINGS allow_experimental_replacing_merge_with_cleanup = 1;
INSERT INTO r VALUES (1, 1, 1, 0), (1, 2, 1, 0), (2, 3, 1, 0);
INSERT INTO r VALUES (1, 1, 2, 1), (2, 3, 2, 1), (2, 4, 1, 1);
OPTIMIZE TABLE r FINAL;
SELECT * FROM r ORDER BY k;
OPTIMIZE TABLE r PARTITION 1 FINAL CLEANUP;
SELECT * FROM r ORDER BY k;
OPTIMIZE TABLE r FINAL CLEANUP SETTINGS optimize_skip_merged_partitions = 1;
SELECT * FROM r ORDER BY k;
INSERT INTO r VALUES (1, 2, 5, 1);
SELECT k FROM r FINAL ORDER BY k;
OPTIMIZE TABLE r FINAL CLEANUP;
SELECT count() FROM r;
ALTER TABLE r RESET SETTING allow_experimental_replacing_merge_with_cleanup;
OPTIMIZE TABLE r FINAL CLEANUP;
CREATE TABLE plain (k UInt32) ENGINE = ReplicatedMergeTree ORDER BY k;
OPTIMIZE TABLE plain FINAL CLEANUP;
CREATE TABLE version (k UInt32, v UInt8) ENGINE = ReplicatedReplacingMergeTree(v) ORDER BY k
    SETTINGS allow_experimental_replacing_merge_with_cleanup = 1;
INSERT INTO version VALUES (1, 1);
OPTIMIZE TABLE version FINAL CLEANUP;
"""
ALIASED = """
CREATE TABLE t (k UInt32, v Int64) ENGINE = ReplicatedMergeTree ORDER BY k;
INSERT INTO t SELECT number, number * 10 FROM numbers(10);
ALTER TABLE t DELETE WHERE (k + 1 AS next) > 8 AND next != 10;
SELECT k FROM t ORDER BY k;
ALTER TABLE t UPDATE v = (k AS kk) * 2 + kk WHERE (k % 2 AS odd) = 1 AND odd + k > 4;
SELECT * FROM t ORDER BY k;
ALTER TABLE t UPDATE v = (v + 1 AS v) WHERE k = 0;
SELECT * FROM t WHERE k = 0;
"""
USED_BY_OTHERS = """
CREATE TABLE a (k Int64, v Int64, s String DEFAULT toString(v), al String ALIAS concat(s, 'x'),
    m String MATERIALIZED concat(s, 'm'), CONSTRAINT c CHECK v > 0) ENGINE = ReplicatedMergeTree
    ORDER BY k;
INSERT INTO a (k, v) VALUES (1, 1);
ALTER TABLE a ADD COLUMN later Int64 DEFAULT v + 1;
ALTER TABLE a CLEAR COLUMN s;
SELECT *, al, m FROM a;
ALTER TABLE a CLEAR COLUMN v;
SELECT *, al, m FROM a;
OPTIMIZE TABLE a FINAL;
SELECT *, al, m FROM a;
ALTER TABLE a DROP COLUMN s;
ALTER TABLE a CLEAR COLUMN k;
CREATE TABLE g (k Int64, n Nested(x UInt8, y String)) ENGINE = ReplicatedMergeTree ORDER BY k;
ALTER TABLE g ADD COLUMN n.z Array(Int16) DEFAULT arrayMap(i -> i * 2, n.x);
INSERT INTO g (k, n.x, n.y) VALUES (1, [1], ['a']);
ALTER TABLE g DROP COLUMN n.x;
ALTER TABLE g CLEAR COLUMN n.x;
SELECT * FROM g;
ALTER TABLE g DROP COLUMN n;
SELECT * FROM g;
"""
SUMS = """
CREATE TABLE s (k Int8, v Int8, w Int8) ENGINE = SummingMergeTree ORDER BY k;
INSERT INTO s VALUES (1, 1, 1), (2, 2, 0);
INSERT INTO s VALUES (1, 1, 1), (2, 2, 0), (3, 0, 4);
OPTIMIZE TABLE s FINAL;
SELECT * FROM s FINAL ORDER BY k;
ALTER TABLE s UPDATE v = 0 WHERE k = 2;
SELECT * FROM s FINAL ORDER BY k;
ALTER TABLE s DROP COLUMN w;
SELECT * FROM s FINAL ORDER BY k;
"""
SCRIPTS = {
    "columns that others use are cleared, and dropped with them": USED_BY_OTHERS,
    "what stars stand for": STARS,
    "missing rows are filled in": FILLED,
    "the bins of a histogram": BINS,
    "quantiles and averages of nothing": EMPTY_GROUPS,
    "columns of an index, and its type": INDEXED,
    "NULL as a value": NULLS,
    "indexes, and single settings": INDEXES_AND_SETTINGS,
    "tombstones that are taken away": TOMBSTONES,
    "aliases inside mutations": ALIASED,
    "sums that became zero": SUMS,
}
