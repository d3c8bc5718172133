-- r1
CREATE TABLE fa (d Date, k String, n Int64) ENGINE = ReplicatedMergeTree('{zk}/fa', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (d, n);
-- r2
CREATE TABLE fa (d Date, k String, n Int64) ENGINE = ReplicatedMergeTree('{zk}/fa', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (d, n);
-- r1
INSERT INTO fa SELECT toDate('2018-01-01'), toString(number % 3), number * number FROM numbers(10);
SELECT k, count(), sum(n) FROM fa GROUP BY k WITH TOTALS ORDER BY k;
SELECT k, count() AS c, max(d) FROM fa GROUP BY k WITH TOTALS HAVING c > 3 ORDER BY k;
SELECT k, count() AS c FROM fa GROUP BY k WITH TOTALS ORDER BY k LIMIT 1;
SELECT n % 2 AS p, k, count() FROM fa GROUP BY p, k WITH ROLLUP ORDER BY p, k, count();
SELECT n % 2 AS p, k, count() FROM fa GROUP BY p, k WITH CUBE ORDER BY p, k, count();
SELECT count(), sum(n) FROM fa WITH TOTALS;
SELECT k, count() FROM fa WHERE n > 1000 GROUP BY k WITH TOTALS;
