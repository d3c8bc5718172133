-- drop and re-create a replica, drop of the last one, same path again
-- r1
CREATE TABLE e2 (k Int32, v String) ENGINE = ReplicatedMergeTree('{zk}/e2', '{r}') ORDER BY k;
-- r2
CREATE TABLE e2 (k Int32, v String) ENGINE = ReplicatedMergeTree('{zk}/e2', '{r}') ORDER BY k;
-- r1
INSERT INTO e2 VALUES (1, 'a');
INSERT INTO e2 VALUES (2, 'b');
-- r2
SYSTEM SYNC REPLICA e2;
DROP TABLE e2;
-- expect error
SELECT * FROM e2;
SELECT name FROM system.tables WHERE database = 'default' AND name = 'e2';
-- r1
INSERT INTO e2 VALUES (3, 'c');
ALTER TABLE e2 DELETE WHERE k = 1;
SYSTEM SYNC REPLICA e2;
-- wait mutations
-- r2
CREATE TABLE e2 (k Int32, v String) ENGINE = ReplicatedMergeTree('{zk}/e2', '{r}') ORDER BY k;
SYSTEM SYNC REPLICA e2;
SELECT * FROM e2 ORDER BY k;
INSERT INTO e2 VALUES (2, 'b');
SELECT * FROM e2 ORDER BY k;
SELECT name, value FROM system.zookeeper WHERE path = '{zk}/e2/replicas/r2' AND name = 'mutation_pointer';
-- r1
DROP TABLE e2;
-- r2
INSERT INTO e2 VALUES (5, 'e');
SELECT * FROM e2 ORDER BY k;
ALTER TABLE e2 UPDATE v = 'z' WHERE k = 5;
SYSTEM SYNC REPLICA e2;
-- wait mutations
OPTIMIZE TABLE e2 FINAL;
SELECT * FROM e2 ORDER BY k;
DROP TABLE e2;
-- r1
CREATE TABLE e2 (k Int64, other String, p Int32) ENGINE = ReplicatedMergeTree('{zk}/e2', '{r}') PARTITION BY p ORDER BY k;
INSERT INTO e2 VALUES (2, 'b', 1);
SELECT * FROM e2;
SELECT name FROM system.parts WHERE table = 'e2' AND active;
RENAME TABLE e2 TO e2n;
SELECT * FROM e2n;
-- expect error
SELECT * FROM e2;
INSERT INTO e2n VALUES (3, 'c', 1);
SELECT * FROM e2n ORDER BY k;
DETACH TABLE e2n;
-- expect error
SELECT * FROM e2n;
-- expect error
INSERT INTO e2n VALUES (4, 'd', 1);
ATTACH TABLE e2n;
SELECT * FROM e2n ORDER BY k;
EXISTS TABLE e2n;
SHOW TABLES LIKE 'e2%';
DROP TABLE e2n;
