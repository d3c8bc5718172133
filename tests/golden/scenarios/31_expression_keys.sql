-- r1
CREATE TABLE ke (s String, d Date, x Int64) ENGINE = ReplicatedMergeTree('{zk}/ke', '{r}') PARTITION BY (toYYYYMM(d), x % 2) ORDER BY (lower(s), -x);
-- r2
CREATE TABLE ke (s String, d Date, x Int64) ENGINE = ReplicatedMergeTree('{zk}/ke', '{r}') PARTITION BY (toYYYYMM(d), x % 2) ORDER BY (lower(s), -x);
-- r1
INSERT INTO ke SELECT toString(number % 3), toDate('2020-01-30') + number, number FROM numbers(6);
INSERT INTO ke VALUES ('Ab','2020-01-31',1),('aB','2020-01-31',3);
OPTIMIZE TABLE ke FINAL;
-- r2
SYSTEM SYNC REPLICA ke;
SELECT * FROM ke ORDER BY s, d, x;
SELECT s, x FROM ke WHERE d = '2020-01-31' ORDER BY x;
SELECT toYYYYMM(d) AS m, count(), sum(x) FROM ke GROUP BY m ORDER BY m;
