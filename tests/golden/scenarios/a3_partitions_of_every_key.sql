-- partitions of keys of every type, named in statements
-- r1
CREATE TABLE p1 (k Int32, s String) ENGINE = ReplicatedMergeTree('{zk}/p1', '{r}') PARTITION BY s ORDER BY k;
-- r2
CREATE TABLE p1 (k Int32, s String) ENGINE = ReplicatedMergeTree('{zk}/p1', '{r}') PARTITION BY s ORDER BY k;
-- r1
CREATE TABLE p2 (k Int32, d DateTime) ENGINE = ReplicatedMergeTree('{zk}/p2', '{r}') PARTITION BY toDate(d) ORDER BY k;
-- r2
CREATE TABLE p2 (k Int32, d DateTime) ENGINE = ReplicatedMergeTree('{zk}/p2', '{r}') PARTITION BY toDate(d) ORDER BY k;
-- r1
CREATE TABLE p3 (k Int32, d DateTime) ENGINE = ReplicatedMergeTree('{zk}/p3', '{r}') PARTITION BY d ORDER BY k;
-- r2
CREATE TABLE p3 (k Int32, d DateTime) ENGINE = ReplicatedMergeTree('{zk}/p3', '{r}') PARTITION BY d ORDER BY k;
-- r1
CREATE TABLE p4 (k Int32, e Enum8('a' = 1, 'b' = 2)) ENGINE = ReplicatedMergeTree('{zk}/p4', '{r}') PARTITION BY e ORDER BY k;
-- r2
CREATE TABLE p4 (k Int32, e Enum8('a' = 1, 'b' = 2)) ENGINE = ReplicatedMergeTree('{zk}/p4', '{r}') PARTITION BY e ORDER BY k;
-- r1
CREATE TABLE p5 (k Int64, u UUID) ENGINE = ReplicatedMergeTree('{zk}/p5', '{r}') PARTITION BY (k, u) ORDER BY tuple();
-- r2
CREATE TABLE p5 (k Int64, u UUID) ENGINE = ReplicatedMergeTree('{zk}/p5', '{r}') PARTITION BY (k, u) ORDER BY tuple();
-- r1
CREATE TABLE p7 (k Int32, d Date) ENGINE = ReplicatedMergeTree('{zk}/p7', '{r}') PARTITION BY toYear(d) ORDER BY k;
-- r2
CREATE TABLE p7 (k Int32, d Date) ENGINE = ReplicatedMergeTree('{zk}/p7', '{r}') PARTITION BY toYear(d) ORDER BY k;
-- r1
-- expect error
CREATE TABLE p8 (k Int32, n Nullable(Int32)) ENGINE = ReplicatedMergeTree('{zk}/p8', '{r}') PARTITION BY n ORDER BY k;
-- r2
-- expect error
CREATE TABLE p8 (k Int32, n Nullable(Int32)) ENGINE = ReplicatedMergeTree('{zk}/p8', '{r}') PARTITION BY n ORDER BY k;
-- r1
CREATE TABLE p9 (k Int32, d Date) ENGINE = ReplicatedMergeTree('{zk}/p9', '{r}') PARTITION BY toStartOfMonth(d) ORDER BY k;
-- r2
CREATE TABLE p9 (k Int32, d Date) ENGINE = ReplicatedMergeTree('{zk}/p9', '{r}') PARTITION BY toStartOfMonth(d) ORDER BY k;
-- r1
CREATE TABLE p0 (k Int32, d Date, a Array(UInt8)) ENGINE = ReplicatedMergeTree('{zk}/p0', '{r}') PARTITION BY a ORDER BY k;
-- r2
CREATE TABLE p0 (k Int32, d Date, a Array(UInt8)) ENGINE = ReplicatedMergeTree('{zk}/p0', '{r}') PARTITION BY a ORDER BY k;
-- r1
-- r1
CREATE TABLE pt (k Int32, d Date, c FixedString(2)) ENGINE = ReplicatedMergeTree('{zk}/pt', '{r}') PARTITION BY (d, c, k % 2) ORDER BY k;
-- r2
CREATE TABLE pt (k Int32, d Date, c FixedString(2)) ENGINE = ReplicatedMergeTree('{zk}/pt', '{r}') PARTITION BY (d, c, k % 2) ORDER BY k;
-- r1
INSERT INTO p1 VALUES (1, 'x'), (2, 'y y'), (3, ''), (4, 'it\'s');
INSERT INTO p2 VALUES (1, '2018-01-01 10:00:00'), (2, '2018-01-01 11:00:00'), (3, '2018-01-02 00:00:00');
INSERT INTO p3 VALUES (1, '2018-01-01 10:00:00'), (2, '2018-01-01 11:00:00');
INSERT INTO p4 VALUES (1, 'a'), (2, 'b'), (3, 'a');
INSERT INTO p5 VALUES (1, '61f0c404-5cb3-11e7-907b-a6006ad3dba0'), (-2, '00000000-0000-0000-0000-000000000000');
INSERT INTO p7 VALUES (1, '2018-01-01'), (2, '2019-12-31');
-- expect error
INSERT INTO p8 VALUES (1, 1), (2, NULL);
INSERT INTO p9 VALUES (1, '2018-01-11'), (2, '2018-02-22');
INSERT INTO p0 VALUES (1, '2018-01-11', [1, 2]);
INSERT INTO pt VALUES (1, '2018-01-11', 'ab'), (2, '2018-01-11', 'c');
ALTER TABLE p1 DROP PARTITION 'y y';
ALTER TABLE p1 DROP PARTITION '';
ALTER TABLE p1 DROP PARTITION 'it\'s';
SELECT * FROM p1;
ALTER TABLE p2 DROP PARTITION '2018-01-01';
SELECT * FROM p2;
ALTER TABLE p3 DROP PARTITION '2018-01-01 10:00:00';
SELECT * FROM p3;
ALTER TABLE p4 DROP PARTITION 'a';
SELECT * FROM p4;
ALTER TABLE p5 DROP PARTITION (1, '61f0c404-5cb3-11e7-907b-a6006ad3dba0');
SELECT * FROM p5;
ALTER TABLE p7 DROP PARTITION 2018;
-- expect error
ALTER TABLE p8 DROP PARTITION NULL;
ALTER TABLE p9 DROP PARTITION '2018-01-01';
SELECT * FROM p9;
ALTER TABLE pt DROP PARTITION ('2018-01-11', 'ab', 1);
SELECT * FROM pt;
-- expect error
ALTER TABLE pt OPTIMIZE;
OPTIMIZE TABLE pt PARTITION ('2018-01-11', 'c', 0) FINAL;
-- expect error
OPTIMIZE TABLE pt PARTITION 5;
SELECT partition, name FROM system.parts WHERE table = 'pt' AND active;
-- r2
SYSTEM SYNC REPLICA p1;
SELECT * FROM p1;
SELECT min_date, max_date FROM system.parts WHERE table = 'p9' AND active;
SELECT min_time, max_time FROM system.parts WHERE table = 'p3' AND active;
