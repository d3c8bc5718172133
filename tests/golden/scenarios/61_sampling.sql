-- r1
CREATE TABLE sa (d Date, k UInt32, v Int64) ENGINE = ReplicatedMergeTree('{zk}/sa', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (d, intHash32(k)) SAMPLE BY intHash32(k) SETTINGS index_granularity = 64;
-- r2
CREATE TABLE sa (d Date, k UInt32, v Int64) ENGINE = ReplicatedMergeTree('{zk}/sa', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (d, intHash32(k)) SAMPLE BY intHash32(k) SETTINGS index_granularity = 64;
-- r1
INSERT INTO sa SELECT toDate('2018-01-01') + number % 40, number, number * 2 FROM numbers(1000);
-- r2
SYSTEM SYNC REPLICA sa;
SELECT count(), sum(v) FROM sa SAMPLE 0.1;
SELECT count(), sum(v) FROM sa SAMPLE 1/2;
SELECT count(), sum(v) FROM sa SAMPLE 1/10 OFFSET 1/10;
SELECT count() FROM sa PREWHERE v > 100 WHERE k % 2 = 0;
SELECT d, count() FROM sa WHERE d < '2018-01-04' GROUP BY d ORDER BY d;
SELECT sum(v) FROM sa WHERE d = '2018-01-05' AND intHash32(k) > 1000000;
OPTIMIZE TABLE sa FINAL;
SELECT count(), sum(v) FROM sa SAMPLE 0.1;
SELECT partition, rows FROM system.parts WHERE table = 'sa' AND active ORDER BY name;
