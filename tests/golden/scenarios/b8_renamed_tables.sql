-- RENAME of replicated tables, and what they are then
-- r1
CREATE TABLE rn (k UInt32) ENGINE = ReplicatedMergeTree('{zk}/rn', '{r}') ORDER BY k;
-- r2
CREATE TABLE rn (k UInt32) ENGINE = ReplicatedMergeTree('{zk}/rn', '{r}') ORDER BY k;
-- r1
INSERT INTO rn VALUES (1);
RENAME TABLE rn TO rn2;
SELECT name FROM system.tables WHERE name LIKE 'rn%' ORDER BY name;
INSERT INTO rn2 VALUES (2);
INSERT INTO rn2 VALUES (1);
SELECT zookeeper_path = '{zk}/rn', table FROM system.replicas WHERE table LIKE 'rn%';
-- r2
SYSTEM SYNC REPLICA rn;
SELECT * FROM rn ORDER BY k;
CREATE TABLE rn2 (k UInt32) ENGINE = ReplicatedMergeTree('{zk}/rn2', '{r}') ORDER BY k;
INSERT INTO rn2 VALUES (100);
RENAME TABLE rn TO rn3, rn2 TO rn, rn3 TO rn2;
SELECT * FROM rn ORDER BY k;
SELECT * FROM rn2 ORDER BY k;
-- expect error
RENAME TABLE rn TO rn2;
-- r1
ALTER TABLE rn2 ADD COLUMN s String DEFAULT 'x';
OPTIMIZE TABLE rn2 FINAL;
-- r2
SYSTEM SYNC REPLICA rn2;
SELECT * FROM rn2 ORDER BY k;
ALTER TABLE rn2 DELETE WHERE k = 1;
-- wait mutations
SELECT table, name, rows FROM system.parts WHERE table LIKE 'rn%' AND active ORDER BY table, name;
SELECT table, mutation_id, is_done FROM system.mutations WHERE table LIKE 'rn%';
-- r1
RENAME TABLE rn2 TO rn;
-- r2
DROP TABLE rn;
RENAME TABLE rn2 TO rn;
SELECT * FROM rn;
