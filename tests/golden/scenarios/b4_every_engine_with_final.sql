-- every engine with FINAL on parts that were never merged
-- r1
CREATE TABLE e1 (k UInt32, v UInt32, s String) ENGINE = ReplicatedReplacingMergeTree('{zk}/e1', '{r}', v) ORDER BY k;
-- r2
CREATE TABLE e1 (k UInt32, v UInt32, s String) ENGINE = ReplicatedReplacingMergeTree('{zk}/e1', '{r}', v) ORDER BY k;
-- r1
-- r1
CREATE TABLE e2 (k UInt32, v Int64, w Float64, s String) ENGINE = ReplicatedSummingMergeTree('{zk}/e2', '{r}') ORDER BY k;
-- r2
CREATE TABLE e2 (k UInt32, v Int64, w Float64, s String) ENGINE = ReplicatedSummingMergeTree('{zk}/e2', '{r}') ORDER BY k;
-- r1
-- r1
CREATE TABLE e3 (k UInt32, v UInt32, sign Int8) ENGINE = ReplicatedCollapsingMergeTree('{zk}/e3', '{r}', sign) ORDER BY k;
-- r2
CREATE TABLE e3 (k UInt32, v UInt32, sign Int8) ENGINE = ReplicatedCollapsingMergeTree('{zk}/e3', '{r}', sign) ORDER BY k;
-- r1
-- r1
CREATE TABLE e4 (k UInt32, v UInt32, sign Int8, ver UInt8) ENGINE = ReplicatedVersionedCollapsingMergeTree('{zk}/e4', '{r}', sign, ver) ORDER BY k;
-- r2
CREATE TABLE e4 (k UInt32, v UInt32, sign Int8, ver UInt8) ENGINE = ReplicatedVersionedCollapsingMergeTree('{zk}/e4', '{r}', sign, ver) ORDER BY k;
-- r1
-- r1
CREATE TABLE e5 (k UInt32, v AggregateFunction(sum, UInt32), u AggregateFunction(uniq, String)) ENGINE = ReplicatedAggregatingMergeTree('{zk}/e5', '{r}') ORDER BY k;
-- r2
CREATE TABLE e5 (k UInt32, v AggregateFunction(sum, UInt32), u AggregateFunction(uniq, String)) ENGINE = ReplicatedAggregatingMergeTree('{zk}/e5', '{r}') ORDER BY k;
-- r1
INSERT INTO e1 VALUES (1, 1, 'a'), (2, 5, 'b');
INSERT INTO e1 VALUES (1, 1, 'a2'), (2, 4, 'b2'), (3, 0, 'c');
INSERT INTO e1 VALUES (1, 0, 'a3');
SELECT * FROM e1 FINAL ORDER BY k;
SELECT count() FROM e1 FINAL WHERE s = 'a';
INSERT INTO e2 VALUES (1, 1, 0.5, 'x'), (2, -1, 1, 'y'), (3, 0, 0, 'z');
INSERT INTO e2 VALUES (1, 2, 0.25, 'xx'), (2, 1, -1, 'yy');
SELECT * FROM e2 FINAL ORDER BY k;
SELECT k, sum(v), sum(w) FROM e2 GROUP BY k ORDER BY k;
INSERT INTO e3 VALUES (1, 1, 1), (2, 1, 1), (3, 1, -1);
INSERT INTO e3 VALUES (1, 1, -1), (1, 2, 1), (2, 1, -1);
SELECT * FROM e3 FINAL ORDER BY k;
SELECT k, sum(v * sign), sum(sign) FROM e3 GROUP BY k HAVING sum(sign) > 0 ORDER BY k;
INSERT INTO e4 VALUES (1, 1, 1, 1), (2, 1, -1, 1);
INSERT INTO e4 VALUES (1, 1, -1, 1), (1, 2, 1, 2), (2, 1, 1, 1), (3, 3, -1, 3);
SELECT * FROM e4 FINAL ORDER BY k, ver;
INSERT INTO e5 SELECT number % 3, sumState(toUInt32(number)), uniqState(toString(number % 2)) FROM (SELECT number FROM system.numbers LIMIT 10) GROUP BY number % 3;
INSERT INTO e5 SELECT 1, sumState(toUInt32(1000)), uniqState('zz');
SELECT k, sumMerge(v), uniqMerge(u) FROM e5 GROUP BY k ORDER BY k;
SELECT k, sumMerge(v) FROM e5 FINAL GROUP BY k ORDER BY k;
-- r2
SYSTEM SYNC REPLICA e1;
SYSTEM SYNC REPLICA e2;
SYSTEM SYNC REPLICA e3;
SYSTEM SYNC REPLICA e4;
SYSTEM SYNC REPLICA e5;
OPTIMIZE TABLE e1 FINAL;
OPTIMIZE TABLE e2 FINAL;
OPTIMIZE TABLE e3 FINAL;
OPTIMIZE TABLE e4 FINAL;
OPTIMIZE TABLE e5 FINAL;
SELECT * FROM e1 ORDER BY k;
SELECT * FROM e2 ORDER BY k;
SELECT * FROM e3 ORDER BY k;
SELECT * FROM e4 ORDER BY k, ver;
SELECT k, finalizeAggregation(v), finalizeAggregation(u) FROM e5 ORDER BY k;
-- r1
SYSTEM SYNC REPLICA e1;
SYSTEM SYNC REPLICA e2;
SYSTEM SYNC REPLICA e3;
SYSTEM SYNC REPLICA e4;
SYSTEM SYNC REPLICA e5;
SELECT * FROM e1 ORDER BY k;
SELECT name, rows FROM system.parts WHERE table IN ('e1', 'e2', 'e3', 'e4', 'e5') AND active ORDER BY table, name;
-- expect error
SELECT * FROM e1 FINAL PREWHERE nosuch = 1;
