-- keys of dates, enums, strings, tuples, hashes and negative numbers
-- r1
CREATE TABLE o1 (k Int64) ENGINE = ReplicatedMergeTree('{zk}/o1', '{r}') PARTITION BY intDiv(k, 10) ORDER BY k;
-- r2
CREATE TABLE o1 (k Int64) ENGINE = ReplicatedMergeTree('{zk}/o1', '{r}') PARTITION BY intDiv(k, 10) ORDER BY k;
-- r1
-- r1
CREATE TABLE o2 (k UInt32, f Float64) ENGINE = ReplicatedMergeTree('{zk}/o2', '{r}') PARTITION BY toUInt32(f) ORDER BY k;
-- r2
CREATE TABLE o2 (k UInt32, f Float64) ENGINE = ReplicatedMergeTree('{zk}/o2', '{r}') PARTITION BY toUInt32(f) ORDER BY k;
-- r1
-- r1
CREATE TABLE o3 (d DateTime, k UInt32) ENGINE = ReplicatedMergeTree('{zk}/o3', '{r}') PARTITION BY toStartOfHour(d) ORDER BY k;
-- r2
CREATE TABLE o3 (d DateTime, k UInt32) ENGINE = ReplicatedMergeTree('{zk}/o3', '{r}') PARTITION BY toStartOfHour(d) ORDER BY k;
-- r1
-- r1
CREATE TABLE o4 (e Enum16('one' = 1, 'minus' = -1), k UInt32) ENGINE = ReplicatedMergeTree('{zk}/o4', '{r}') PARTITION BY (e, k % 2) ORDER BY k;
-- r2
CREATE TABLE o4 (e Enum16('one' = 1, 'minus' = -1), k UInt32) ENGINE = ReplicatedMergeTree('{zk}/o4', '{r}') PARTITION BY (e, k % 2) ORDER BY k;
-- r1
-- r1
CREATE TABLE o5 (s FixedString(3), k UInt8) ENGINE = ReplicatedMergeTree('{zk}/o5', '{r}') PARTITION BY s ORDER BY k;
-- r2
CREATE TABLE o5 (s FixedString(3), k UInt8) ENGINE = ReplicatedMergeTree('{zk}/o5', '{r}') PARTITION BY s ORDER BY k;
-- r1
-- r1
-- r2
-- r1
-- r1
CREATE TABLE o7 (d Date, k UInt32) ENGINE = ReplicatedMergeTree('{zk}/o7', '{r}') PARTITION BY toRelativeWeekNum(d) ORDER BY k;
-- r2
CREATE TABLE o7 (d Date, k UInt32) ENGINE = ReplicatedMergeTree('{zk}/o7', '{r}') PARTITION BY toRelativeWeekNum(d) ORDER BY k;
-- r1
INSERT INTO o1 VALUES (-15), (-1), (5), (95);
INSERT INTO o2 VALUES (1, 1.9), (2, 2.1), (3, 1.1);
INSERT INTO o3 VALUES ('2018-01-01 00:59:59', 1), ('2018-01-01 01:00:00', 2);
INSERT INTO o4 VALUES ('one', 1), ('minus', 2), ('minus', 3);
INSERT INTO o5 VALUES ('a', 1), ('abc', 2), ('', 3);
INSERT INTO o7 VALUES ('2018-01-01', 1), ('2018-01-07', 2), ('2018-01-08', 3);
SELECT table, partition, name, rows FROM system.parts WHERE active AND table IN ('o1', 'o2', 'o3', 'o4', 'o5', 'o6', 'o7') ORDER BY table, partition;
-- r2
SYSTEM SYNC REPLICA o1;
SYSTEM SYNC REPLICA o2;
SYSTEM SYNC REPLICA o3;
SYSTEM SYNC REPLICA o4;
SYSTEM SYNC REPLICA o5;
SYSTEM SYNC REPLICA o7;
ALTER TABLE o1 DROP PARTITION -1;
SELECT * FROM o1 ORDER BY k;
ALTER TABLE o2 DROP PARTITION 1;
SELECT * FROM o2;
ALTER TABLE o3 DROP PARTITION '2018-01-01 00:00:00';
SELECT * FROM o3;
ALTER TABLE o4 DROP PARTITION ('minus', 0);
SELECT * FROM o4 ORDER BY k;
ALTER TABLE o5 DROP PARTITION 'abc';
SELECT k FROM o5 ORDER BY k;
-- expect error
ALTER TABLE o7 DROP PARTITION '2018-01-01';
ALTER TABLE o1 DETACH PARTITION 9;
ALTER TABLE o1 ATTACH PARTITION 9;
SELECT * FROM o1 ORDER BY k;
-- r1
SYSTEM SYNC REPLICA o1;
SYSTEM SYNC REPLICA o2;
SYSTEM SYNC REPLICA o3;
SYSTEM SYNC REPLICA o4;
SYSTEM SYNC REPLICA o5;
SYSTEM SYNC REPLICA o7;
SELECT table, count() FROM system.parts WHERE active AND rows > 0 AND table IN ('o1', 'o2', 'o3', 'o4', 'o5', 'o6', 'o7') GROUP BY table ORDER BY table;
SELECT * FROM o1 WHERE _partition_id = '0';
SELECT min_date, max_date FROM system.parts WHERE active AND table = 'o7' ORDER BY name;
