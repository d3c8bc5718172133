-- r1
CREATE TABLE i1 (d Date, k Int64, s String) ENGINE = ReplicatedMergeTree('{zk}/i1', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (s, k);
-- r2
CREATE TABLE i1 (d Date, k Int64, s String) ENGINE = ReplicatedMergeTree('{zk}/i1', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (s, k);
-- r1
-- r1
CREATE TABLE i2 (s String, c UInt64, m Int64) ENGINE = ReplicatedSummingMergeTree('{zk}/i2', '{r}') ORDER BY s;
-- r2
CREATE TABLE i2 (s String, c UInt64, m Int64) ENGINE = ReplicatedSummingMergeTree('{zk}/i2', '{r}') ORDER BY s;
-- r1
INSERT INTO i1 SELECT toDate('2018-01-20') + intDiv(number, 3), number, concat('s', toString(number % 4)) FROM system.numbers LIMIT 60;
INSERT INTO i2 SELECT s, count(), max(k) FROM i1 GROUP BY s;
INSERT INTO i2 SELECT s, count(), max(k) FROM i1 GROUP BY s;
INSERT INTO i2 (s, m) SELECT s, k FROM i1 WHERE k < 3;
INSERT INTO i1 (k, s) SELECT k + 1000, s FROM i1 WHERE s = 's1' AND k < 10;
-- set max_block_size=10
INSERT INTO i1 SELECT d, k + 2000, s FROM i1 WHERE k < 25;
-- r2
SYSTEM SYNC REPLICA i1;
SYSTEM SYNC REPLICA i2;
SELECT toYYYYMM(d) AS m, count(), sum(k) FROM i1 GROUP BY m ORDER BY m;
SELECT s, sum(c), sum(m) FROM i2 GROUP BY s ORDER BY s;
OPTIMIZE TABLE i2 FINAL;
SELECT * FROM i2 ORDER BY s;
SELECT s, k FROM i1 WHERE s > 's1' AND s < 's3' AND k < 30 ORDER BY k DESC LIMIT 4;
SELECT i1.s, k, c FROM i1 ANY LEFT JOIN i2 USING s WHERE k < 5 ORDER BY k;
SELECT s, groupArray(k) FROM (SELECT s, k FROM i1 WHERE k < 9 ORDER BY k) GROUP BY s ORDER BY s;
SELECT max(d) - min(d), uniqExact(s), topK(1)(s) != [] FROM i1;
SELECT s, quantileExact(0.5)(k), avg(k), max(s) FROM i1 WHERE k < 50 GROUP BY s ORDER BY s;
SELECT k FROM i1 WHERE (s, k) IN (('s1', 5), ('s2', 6), ('s2', 7)) ORDER BY k;
SELECT count() FROM i1 WHERE d = '2018-01-25' OR toDayOfWeek(d) = 1;
SELECT toMonday(d) AS w, count() AS c FROM i1 GROUP BY w HAVING c > 5 ORDER BY w;
