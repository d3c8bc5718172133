-- how keys of one and of several expressions are shown, and partitions named in statements
-- r1
CREATE TABLE g4b (k Int32, v Int32) ENGINE = ReplicatedMergeTree('{zk}/g4b', '{r}') PARTITION BY (k % 2, v) ORDER BY (k, -v) PRIMARY KEY k SETTINGS index_granularity = 16;
SELECT partition_key, sorting_key, primary_key FROM system.tables WHERE name = 'g4b';
INSERT INTO g4b VALUES (1, 5), (2, 6), (3, -5);
SELECT partition, name FROM system.parts WHERE table = 'g4b' AND active ORDER BY name;
ALTER TABLE g4b DROP PARTITION (1, 5);
SELECT * FROM g4b ORDER BY k;
CREATE TABLE g4c (d Date, s String, k Int32) ENGINE = ReplicatedMergeTree('{zk}/g4c', '{r}') PARTITION BY (toMonday(d), s) ORDER BY k;
INSERT INTO g4c VALUES ('2018-01-03', 'a b', 1), ('2018-01-10', 'it''s', 2), ('2018-01-04', 'a b', 3);
SELECT partition, rows FROM system.parts WHERE table = 'g4c' AND active ORDER BY partition;
SELECT partition_id, name FROM system.parts WHERE table = 'g4c' AND active ORDER BY name;
ALTER TABLE g4c DROP PARTITION ('2018-01-01', 'a b');
ALTER TABLE g4c DETACH PARTITION (toDate('2018-01-08'), 'it''s');
SELECT * FROM g4c;
ALTER TABLE g4c ATTACH PARTITION ('2018-01-08', 'it''s');
SELECT * FROM g4c;
CREATE TABLE g4d (d DateTime, u UInt64, i Int8) ENGINE = ReplicatedMergeTree('{zk}/g4d', '{r}') PARTITION BY (d, i) ORDER BY u;
INSERT INTO g4d VALUES ('2018-01-01 10:00:00', 1, -5);
SELECT partition, name FROM system.parts WHERE table = 'g4d' AND active;
CREATE TABLE g4e (d DateTime, u UInt64) ENGINE = ReplicatedMergeTree('{zk}/g4e', '{r}') PARTITION BY toDate(d) ORDER BY u;
INSERT INTO g4e VALUES ('2018-01-01 10:00:00', 1);
ALTER TABLE g4e DROP PARTITION '2018-01-01';
SELECT count() FROM g4e;
CREATE TABLE g4f (d DateTime, e Enum8('a' = 1, 'b' = 2), u UInt64) ENGINE = ReplicatedMergeTree('{zk}/g4f', '{r}') PARTITION BY e ORDER BY u;
INSERT INTO g4f VALUES ('2018-01-01 10:00:00', 'b', 1), ('2018-01-01 10:00:00', 'a', 2);
SELECT partition, name FROM system.parts WHERE table = 'g4f' AND active ORDER BY name;
ALTER TABLE g4f DROP PARTITION 'b';
SELECT * FROM g4f;
-- expect error
CREATE TABLE g4x (k Int32) ENGINE = ReplicatedMergeTree('{zk}/g4x', '{r}') ORDER BY k PRIMARY KEY nosuch;
-- expect error
CREATE TABLE g4x (k Int32, v Int32) ENGINE = ReplicatedMergeTree('{zk}/g4x', '{r}') ORDER BY (k, v) PRIMARY KEY v;
-- expect error
CREATE TABLE g4x (k Int32) ENGINE = ReplicatedMergeTree('{zk}/g4x') ORDER BY k;
-- expect error
CREATE TABLE g4x (k Int32) ENGINE = ReplicatedMergeTree('{zk}/g4x', '{r}', 1, 2, 3, 4, 5) ORDER BY k;
-- expect error
CREATE TABLE g4x (k Int32) ENGINE = ReplicatedMergeTree('{zk}/g4x', '{r}') ORDER BY k SETTINGS nosuch = 1;
-- expect error
CREATE TABLE g4x (k Int32) ENGINE = NoSuchEngine ORDER BY k;
-- expect error
CREATE TABLE g4x (k Int32 DEFAULT nosuch) ENGINE = ReplicatedMergeTree('{zk}/g4x', '{r}') ORDER BY k;
-- expect error
CREATE TABLE g4x () ENGINE = ReplicatedMergeTree('{zk}/g4x', '{r}') ORDER BY tuple();
-- expect error
CREATE TABLE g4x (k Int32, s Int32) ENGINE = ReplicatedSummingMergeTree('{zk}/g4x', '{r}', nosuch) ORDER BY k;
CREATE TABLE g4s (k Int32, s Int32) ENGINE = ReplicatedSummingMergeTree('{zk}/g4s', '{r}') ORDER BY tuple();
INSERT INTO g4s VALUES (1, 2), (3, 4);
OPTIMIZE TABLE g4s FINAL;
SELECT * FROM g4s;
CREATE TABLE g4v (k UInt32, v String, sign Int8, ver UInt8) ENGINE = ReplicatedVersionedCollapsingMergeTree('{zk}/g4v', '{r}', sign, ver) PARTITION BY (k % 2, v) ORDER BY k;
SELECT sorting_key, primary_key, partition_key, sampling_key FROM system.tables WHERE name = 'g4v';
