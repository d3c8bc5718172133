-- r1
CREATE TABLE ag (d Date, k String, c AggregateFunction(count), s AggregateFunction(sum, Int64), u AggregateFunction(uniqExact, Int64), q AggregateFunction(avg, Float64), mn AggregateFunction(min, Int64), mx AggregateFunction(max, String), ga AggregateFunction(groupArray, Int64), am AggregateFunction(argMax, String, Int64), v Int64) ENGINE = ReplicatedAggregatingMergeTree('{zk}/ag', '{r}') PARTITION BY toYYYYMM(d) ORDER BY k;
-- r2
CREATE TABLE ag (d Date, k String, c AggregateFunction(count), s AggregateFunction(sum, Int64), u AggregateFunction(uniqExact, Int64), q AggregateFunction(avg, Float64), mn AggregateFunction(min, Int64), mx AggregateFunction(max, String), ga AggregateFunction(groupArray, Int64), am AggregateFunction(argMax, String, Int64), v Int64) ENGINE = ReplicatedAggregatingMergeTree('{zk}/ag', '{r}') PARTITION BY toYYYYMM(d) ORDER BY k;
-- r1
INSERT INTO ag SELECT toDate('2018-01-01') AS d, toString(number % 2) AS k, countState(), sumState(toInt64(number)), uniqExactState(toInt64(number % 5)), avgState(toFloat64(number)), minState(toInt64(number)), maxState(toString(number)), groupArrayState(toInt64(number)), argMaxState(toString(number), toInt64(number)), 7 FROM numbers(10) GROUP BY d, k;
INSERT INTO ag SELECT toDate('2018-01-01') AS d, '1' AS k, countState(), sumState(toInt64(number)), uniqExactState(toInt64(number)), avgState(toFloat64(number)), minState(toInt64(number) - 100), maxState(toString(number)), groupArrayState(toInt64(number)), argMaxState(toString(number), toInt64(number)), 8 FROM numbers(4) GROUP BY d, k;
SELECT k, countMerge(c), sumMerge(s), uniqExactMerge(u), avgMerge(q), minMerge(mn), maxMerge(mx), arraySort(groupArrayMerge(ga)), argMaxMerge(am) FROM ag GROUP BY k ORDER BY k;
OPTIMIZE TABLE ag FINAL;
-- r2
SYSTEM SYNC REPLICA ag;
SELECT k, countMerge(c), sumMerge(s), uniqExactMerge(u), avgMerge(q), minMerge(mn), maxMerge(mx), arraySort(groupArrayMerge(ga)), argMaxMerge(am) FROM ag GROUP BY k ORDER BY k;
SELECT count(), sum(v) FROM ag;
SELECT k, v FROM ag FINAL ORDER BY k;
SELECT sumMerge(s) FROM ag;
SELECT k, finalizeAggregation(s) FROM ag ORDER BY k;
