-- a DROP or DETACH of a partition without a row takes a number in it; so does a mutation
-- r1
CREATE TABLE e (p UInt8, k UInt32) ENGINE = ReplicatedMergeTree('{zk}/e', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE e (p UInt8, k UInt32) ENGINE = ReplicatedMergeTree('{zk}/e', '{r}') PARTITION BY p ORDER BY k;
-- r1
INSERT INTO e VALUES (1, 1);
ALTER TABLE e DROP PARTITION 2;
SELECT name FROM system.zookeeper WHERE path = '{zk}/e/block_numbers' ORDER BY name;
INSERT INTO e VALUES (2, 1);
ALTER TABLE e DROP PARTITION 3;
ALTER TABLE e DROP PARTITION 3;
INSERT INTO e VALUES (3, 1);
ALTER TABLE e DETACH PARTITION 4;
INSERT INTO e VALUES (4, 1);
ALTER TABLE e ATTACH PARTITION 5;
INSERT INTO e VALUES (5, 1);
OPTIMIZE TABLE e PARTITION 7 FINAL;
INSERT INTO e VALUES (7, 1);
ALTER TABLE e FREEZE PARTITION 8;
INSERT INTO e VALUES (8, 1);
ALTER TABLE e DELETE WHERE p = 9;
-- wait mutations
INSERT INTO e VALUES (9, 1);
SELECT name, rows FROM system.parts WHERE table = 'e' AND active ORDER BY name;
SELECT block_numbers.partition_id, block_numbers.number FROM system.mutations WHERE table = 'e';
