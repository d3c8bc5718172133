-- r1
CREATE TABLE mo (d Date, k Int32, v Float64, n Nullable(Int32)) ENGINE = ReplicatedMergeTree('{zk}/mo', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (k, d);
INSERT INTO mo SELECT toDate('2018-01-01') + number, number % 5, number / 4, if(number % 7 = 0, NULL, number * number) FROM numbers(25);
SELECT varPop(v), varSamp(v), stddevPop(v), stddevSamp(v), covarPop(v, k), covarSamp(v, k), corr(v, k) FROM mo;
SELECT k, varSamp(n), stddevPop(n), covarPop(n, v) FROM mo GROUP BY k ORDER BY k;
SELECT varPop(v), varSamp(v), stddevSamp(v) FROM mo WHERE v = 1;
SELECT varSampIf(v, k = 1), stddevPopIf(v, n > 100) FROM mo;
SELECT k, d, runningDifference(v), runningDifference(d) FROM (SELECT * FROM mo WHERE k < 2 ORDER BY k, d);
SELECT d, n, runningDifference(n) FROM (SELECT * FROM mo ORDER BY d LIMIT 9);
SELECT k, s, runningDifferenceStartingWithFirstValue(s) FROM (SELECT k, sum(v) AS s FROM mo GROUP BY k ORDER BY k);
-- set max_rows_to_read=5
-- expect error
SELECT count() FROM mo WHERE v > 1;
-- set totals_mode=after_having_exclusive
-- set join_use_nulls=0
-- set max_result_rows=0
SELECT count() FROM mo;
