-- replacing forms
-- r1
CREATE TABLE g1a (d Date, k Int32, v String) ENGINE = ReplicatedReplacingMergeTree('{zk}/g1a', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (k, d);
CREATE TABLE g1b (k Int32, ver DateTime, v String) ENGINE = ReplicatedReplacingMergeTree('{zk}/g1b', '{r}', ver) ORDER BY k;
CREATE TABLE g1c (k String, ver UInt8, v Nullable(Int32)) ENGINE = ReplicatedReplacingMergeTree('{zk}/g1c', '{r}', ver) PARTITION BY ver % 2 ORDER BY k;
-- r2
CREATE TABLE g1a (d Date, k Int32, v String) ENGINE = ReplicatedReplacingMergeTree('{zk}/g1a', '{r}') PARTITION BY toYYYYMM(d) ORDER BY (k, d);
CREATE TABLE g1b (k Int32, ver DateTime, v String) ENGINE = ReplicatedReplacingMergeTree('{zk}/g1b', '{r}', ver) ORDER BY k;
CREATE TABLE g1c (k String, ver UInt8, v Nullable(Int32)) ENGINE = ReplicatedReplacingMergeTree('{zk}/g1c', '{r}', ver) PARTITION BY ver % 2 ORDER BY k;
INSERT INTO g1a VALUES ('2018-01-01', 1, 'a'), ('2018-01-01', 1, 'b'), ('2018-02-01', 1, 'c');
INSERT INTO g1a VALUES ('2018-01-01', 1, 'd'), ('2018-02-01', 1, 'e'), ('2018-02-02', 1, 'f');
INSERT INTO g1b VALUES (1, '2018-01-01 00:00:00', 'old'), (1, '2018-01-02 00:00:00', 'new'), (2, '2018-01-01 00:00:00', 'x');
INSERT INTO g1b VALUES (1, '2018-01-01 12:00:00', 'mid'), (2, '2018-01-01 00:00:00', 'y');
INSERT INTO g1c VALUES ('a', 1, 1), ('a', 2, 2), ('a', 3, NULL), ('b', 2, 1);
INSERT INTO g1c VALUES ('a', 4, 5), ('a', 1, 7), ('b', 2, NULL);
SELECT * FROM g1a FINAL ORDER BY d, v;
SELECT * FROM g1b FINAL ORDER BY k;
SELECT * FROM g1c FINAL ORDER BY k, ver;
SELECT k FROM g1b FINAL WHERE v = 'old';
SELECT k, v FROM g1b FINAL PREWHERE k = 1;
OPTIMIZE TABLE g1a FINAL;
OPTIMIZE TABLE g1b FINAL;
OPTIMIZE TABLE g1c FINAL;
-- r1
SYSTEM SYNC REPLICA g1a;
SYSTEM SYNC REPLICA g1b;
SYSTEM SYNC REPLICA g1c;
SELECT * FROM g1a ORDER BY d, v;
SELECT * FROM g1b ORDER BY k;
SELECT * FROM g1c ORDER BY k, ver;
SELECT name, rows FROM system.parts WHERE table = 'g1c' AND active ORDER BY name;
-- expect error
CREATE TABLE g1x (k Int32, ver String) ENGINE = ReplicatedReplacingMergeTree('{zk}/g1x', '{r}', ver) ORDER BY k;
-- expect error
CREATE TABLE g1x (k Int32, ver Nullable(Int32)) ENGINE = ReplicatedReplacingMergeTree('{zk}/g1x', '{r}', ver) ORDER BY k;
-- expect error
ALTER TABLE g1b UPDATE ver = '2019-01-01 00:00:00' WHERE k = 1;
ALTER TABLE g1b UPDATE v = 'upd' WHERE k = 1;
SYSTEM SYNC REPLICA g1b;
-- wait mutations
SELECT * FROM g1b ORDER BY k;
