-- r1
CREATE TABLE ch (s String, d Date, n UInt32) ENGINE = ReplicatedMergeTree('{zk}/ch', '{r}') PARTITION BY cityHash64(s) % 3 ORDER BY (d, cityHash64(s, n)) SAMPLE BY cityHash64(s, n);
-- r2
CREATE TABLE ch (s String, d Date, n UInt32) ENGINE = ReplicatedMergeTree('{zk}/ch', '{r}') PARTITION BY cityHash64(s) % 3 ORDER BY (d, cityHash64(s, n)) SAMPLE BY cityHash64(s, n);
-- r1
INSERT INTO ch SELECT toString(number), toDate('2018-01-01') + number % 3, number FROM numbers(100);
INSERT INTO ch SELECT concat('a long text of more than sixty-four bytes, and then some more of it: ', toString(number)), toDate('2018-01-01'), number FROM numbers(20);
-- r2
SYSTEM SYNC REPLICA ch;
SELECT s, n, cityHash64(s), cityHash64(s, n), cityHash64(n, s, d), cityHash64((s, n)) FROM ch WHERE n < 4 ORDER BY s, n;
SELECT cityHash64(s) % 3 AS p, count(), sum(n) FROM ch GROUP BY p ORDER BY p;
SELECT count(), sum(n) FROM ch SAMPLE 1/2;
SELECT count(), sum(n) FROM ch SAMPLE 1/4 OFFSET 1/4;
SELECT s, n FROM ch WHERE d = '2018-01-01' AND cityHash64(s) % 3 = 1 ORDER BY s, n LIMIT 5;
ALTER TABLE ch DROP PARTITION 1;
-- expect error
ALTER TABLE ch DROP PARTITION 'x';
SELECT count(), sum(n) FROM ch;
OPTIMIZE TABLE ch FINAL;
CREATE TABLE pt (s String, n Int64) ENGINE = ReplicatedMergeTree('{zk}/pt', '{r}') PARTITION BY s ORDER BY n;
INSERT INTO pt VALUES ('5', 1), ('6', 2);
-- expect error
ALTER TABLE pt DROP PARTITION 5;
-- expect error
ALTER TABLE pt DROP PARTITION -5;
ALTER TABLE pt DROP PARTITION '5';
SELECT s, n FROM pt ORDER BY s;
