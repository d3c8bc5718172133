-- r1
CREATE TABLE k1 (d Date, s String, n Int64) ENGINE = ReplicatedMergeTree('{zk}/k1', '{r}') PARTITION BY (toMonday(d), s) ORDER BY n;
-- r2
CREATE TABLE k1 (d Date, s String, n Int64) ENGINE = ReplicatedMergeTree('{zk}/k1', '{r}') PARTITION BY (toMonday(d), s) ORDER BY n;
-- r1
CREATE TABLE k2 (n Nullable(Int64), x Int64) ENGINE = ReplicatedMergeTree('{zk}/k2', '{r}') ORDER BY tuple();
-- r2
CREATE TABLE k2 (n Nullable(Int64), x Int64) ENGINE = ReplicatedMergeTree('{zk}/k2', '{r}') ORDER BY tuple();
-- r1
CREATE TABLE k3 (s String, x Float64) ENGINE = ReplicatedMergeTree('{zk}/k3', '{r}') PARTITION BY s ORDER BY (x, s);
-- r2
CREATE TABLE k3 (s String, x Float64) ENGINE = ReplicatedMergeTree('{zk}/k3', '{r}') PARTITION BY s ORDER BY (x, s);
-- r1
INSERT INTO k1 VALUES ('2018-12-31','a',1),('2019-01-06','a',2),('2019-01-07','b',3),('2019-01-01','b',4);
SELECT partition, rows FROM system.parts WHERE table = 'k1' AND active ORDER BY partition;
ALTER TABLE k1 DROP PARTITION ('2018-12-31','b');
SELECT * FROM k1 ORDER BY n;
INSERT INTO k2 VALUES (NULL,1),(1,2);
INSERT INTO k2 VALUES (NULL,3);
SELECT * FROM k2 ORDER BY x;
SELECT * FROM k2 ORDER BY n, x;
SELECT * FROM k2 ORDER BY n DESC, x DESC;
INSERT INTO k3 VALUES ('a b',1.5),('ü',-inf),('\'',inf);
SELECT * FROM k3 ORDER BY s, x;
SELECT partition, rows FROM system.parts WHERE table = 'k3' AND active ORDER BY partition;
ALTER TABLE k3 DETACH PARTITION 'a b';
ALTER TABLE k3 DROP PARTITION '';
SELECT * FROM k3 ORDER BY s, x;
ALTER TABLE k3 ATTACH PARTITION 'a b';
-- r2
SYSTEM SYNC REPLICA k1;
SYSTEM SYNC REPLICA k2;
SYSTEM SYNC REPLICA k3;
OPTIMIZE TABLE k2 FINAL;
SELECT * FROM k1 ORDER BY n;
SELECT * FROM k2 ORDER BY x;
SELECT * FROM k3 ORDER BY s, x;
