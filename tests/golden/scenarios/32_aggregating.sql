-- r1
CREATE TABLE ag (k Int64, c AggregateFunction(count), s AggregateFunction(sum, Int64), u AggregateFunction(uniqExact, String)) ENGINE = ReplicatedAggregatingMergeTree('{zk}/ag', '{r}') ORDER BY k;
-- r2
CREATE TABLE ag (k Int64, c AggregateFunction(count), s AggregateFunction(sum, Int64), u AggregateFunction(uniqExact, String)) ENGINE = ReplicatedAggregatingMergeTree('{zk}/ag', '{r}') ORDER BY k;
-- r1
INSERT INTO ag SELECT number % 2 AS k, countState(), sumState(toInt64(number)), uniqExactState(toString(number % 3)) FROM numbers(10) GROUP BY k;
INSERT INTO ag SELECT 1 AS k, countState(), sumState(toInt64(number)), uniqExactState(toString(number)) FROM numbers(4) GROUP BY k;
OPTIMIZE TABLE ag FINAL;
-- r2
SYSTEM SYNC REPLICA ag;
SELECT k, countMerge(c), sumMerge(s), uniqExactMerge(u) FROM ag GROUP BY k ORDER BY k;
SELECT count() FROM ag;
