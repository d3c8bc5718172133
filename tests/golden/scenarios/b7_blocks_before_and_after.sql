-- the same block before and after merges, mutations, moves of partitions, on the other replica
-- r1
CREATE TABLE da (p UInt8, k UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/da', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE da (p UInt8, k UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/da', '{r}') PARTITION BY p ORDER BY k;
-- r1
-- r1
CREATE TABLE db (p UInt8, k UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/db', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE db (p UInt8, k UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/db', '{r}') PARTITION BY p ORDER BY k;
-- r1
INSERT INTO da VALUES (1, 1, 'a');
INSERT INTO da VALUES (1, 2, 'b');
INSERT INTO da VALUES (2, 1, 'a');
-- r2
SYSTEM SYNC REPLICA da;
ALTER TABLE da UPDATE v = 'changed' WHERE 1;
-- wait mutations
INSERT INTO da VALUES (1, 1, 'a');
INSERT INTO da VALUES (1, 1, 'changed');
SELECT * FROM da ORDER BY p, k, v;
OPTIMIZE TABLE da FINAL;
INSERT INTO da VALUES (1, 1, 'changed');
SELECT count() FROM da;
ALTER TABLE da DROP PARTITION 1;
INSERT INTO da VALUES (1, 1, 'changed');
INSERT INTO da VALUES (2, 1, 'a');
SELECT * FROM da ORDER BY p, k, v;
INSERT INTO db VALUES (1, 1, 'a');
ALTER TABLE db REPLACE PARTITION 1 FROM da;
INSERT INTO db VALUES (1, 1, 'a');
INSERT INTO db VALUES (1, 1, 'changed');
SELECT * FROM db ORDER BY p, k, v;
-- r1
SYSTEM SYNC REPLICA da;
SYSTEM SYNC REPLICA db;
SELECT * FROM da ORDER BY p, k, v;
SELECT * FROM db ORDER BY p, k, v;
ALTER TABLE db ATTACH PARTITION 2 FROM da;
INSERT INTO db VALUES (2, 1, 'a');
SELECT * FROM db ORDER BY p, k, v;
ALTER TABLE db DROP PARTITION 2;
ALTER TABLE db ATTACH PARTITION 2 FROM da;
ALTER TABLE db ATTACH PARTITION 2 FROM da;
SELECT * FROM db ORDER BY p, k, v;
TRUNCATE TABLE da;
INSERT INTO da VALUES (1, 1, 'a'), (2, 1, 'a');
SELECT * FROM da ORDER BY p, k, v;
