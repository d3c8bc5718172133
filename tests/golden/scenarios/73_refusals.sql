-- r1
-- expect error
CREATE TABLE gr (d Date, Path String, Time DateTime, Value Float64, Timestamp UInt32) ENGINE = ReplicatedGraphiteMergeTree('{zk}/gr', '{r}', 'nosuch_rollup') PARTITION BY toYYYYMM(d) ORDER BY (Path, Time);
-- expect error
CREATE TABLE oc ON CLUSTER nosuch (d Date, id UInt32) ENGINE = ReplicatedMergeTree('{zk}/oc', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- expect error
DROP TABLE nosuch_table;
DROP TABLE IF EXISTS nosuch_table;
-- expect error
CREATE TABLE rf (d Date, id UInt32, id String) ENGINE = ReplicatedMergeTree('{zk}/rf', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- expect error
CREATE TABLE rf (d Date, id UInt32) ENGINE = ReplicatedMergeTree('{zk}/rf', '{r}') PARTITION BY toYYYYMM(x) ORDER BY id;
-- expect error
CREATE TABLE rf (d Date, id UInt32) ENGINE = ReplicatedMergeTree('{zk}/rf', '{r}') PARTITION BY toYYYYMM(d);
-- expect error
CREATE TABLE rf (d Date, id NoType) ENGINE = ReplicatedMergeTree('{zk}/rf', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- expect error
CREATE TABLE rf (d Date, id UInt32) ENGINE = ReplicatedCollapsingMergeTree('{zk}/rf', '{r}', nosuch) PARTITION BY toYYYYMM(d) ORDER BY id;
-- expect error
CREATE TABLE rf (d Date, id UInt32) ENGINE = ReplicatedReplacingMergeTree('{zk}/rf', '{r}', nosuch) PARTITION BY toYYYYMM(d) ORDER BY id;
-- expect error
CREATE TABLE rf (d Date, id UInt32) ENGINE = ReplicatedMergeTree('{zk}/rf', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id SAMPLE BY d;
-- expect error
CREATE TABLE rf (d Date, id Nullable(UInt32)) ENGINE = ReplicatedMergeTree('{zk}/rf', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
CREATE TABLE rf (d Date, id UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/rf', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- expect error
CREATE TABLE rf (d Date, id UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/rf2', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
CREATE TABLE IF NOT EXISTS rf (d Date, id UInt32) ENGINE = ReplicatedMergeTree('{zk}/rf2', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- r2
-- expect error
CREATE TABLE rf (d Date, id UInt64, v String) ENGINE = ReplicatedMergeTree('{zk}/rf', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- expect error
CREATE TABLE rf (d Date, id UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/rf', '{r}') PARTITION BY d ORDER BY id;
CREATE TABLE rf (d Date, id UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/rf', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- expect error
ALTER TABLE rf DROP COLUMN id;
-- expect error
ALTER TABLE rf DROP COLUMN nosuch;
-- expect error
ALTER TABLE rf ADD COLUMN v String;
-- expect error
ALTER TABLE rf MODIFY COLUMN nosuch String;
-- expect error
ALTER TABLE rf UPDATE id = 5 WHERE 1;
-- expect error
ALTER TABLE rf UPDATE nosuch = 5 WHERE 1;
-- expect error
ALTER TABLE rf DELETE WHERE nosuch = 1;
-- expect error
INSERT INTO rf (nosuch) VALUES (1);
-- expect error
INSERT INTO rf SELECT 1;
-- expect error
SELECT nosuch FROM rf;
-- expect error
SELECT * FROM rf SAMPLE 1/2;
SELECT count() FROM rf;
