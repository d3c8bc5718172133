-- OPTIMIZE in every form, and the levels of parts
-- r1
CREATE TABLE ov (p UInt8, k UInt32, v String) ENGINE = ReplicatedReplacingMergeTree('{zk}/ov', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE ov (p UInt8, k UInt32, v String) ENGINE = ReplicatedReplacingMergeTree('{zk}/ov', '{r}') PARTITION BY p ORDER BY k;
-- r1
SYSTEM STOP MERGES;
INSERT INTO ov VALUES (1, 1, 'a'), (2, 1, 'a');
INSERT INTO ov VALUES (1, 1, 'b'), (2, 2, 'b');
INSERT INTO ov VALUES (1, 2, 'c');
SYSTEM START MERGES;
OPTIMIZE TABLE ov PARTITION 1 FINAL;
SELECT name, level, rows, min_block_number, max_block_number FROM system.parts WHERE table = 'ov' AND active AND partition = '1' ORDER BY name;
OPTIMIZE TABLE ov PARTITION 1 FINAL;
OPTIMIZE TABLE ov PARTITION ID '1' FINAL;
OPTIMIZE TABLE ov FINAL;
SELECT name, level, rows FROM system.parts WHERE table = 'ov' AND active ORDER BY name;
-- r2
SYSTEM SYNC REPLICA ov;
OPTIMIZE TABLE ov FINAL;
OPTIMIZE TABLE ov PARTITION 2 FINAL DEDUPLICATE;
SELECT name, level, rows FROM system.parts WHERE table = 'ov' AND active ORDER BY name;
-- expect error
OPTIMIZE TABLE ov PARTITION;
-- expect error
OPTIMIZE ov;
-- expect error
OPTIMIZE TABLE ov PARTITION 'abc' FINAL;
-- expect error
-- set optimize_throw_if_noop=1
OPTIMIZE TABLE ov PARTITION 9 FINAL;
-- set replication_alter_partitions_sync=2
OPTIMIZE TABLE ov PARTITION 1 FINAL;
SELECT * FROM ov ORDER BY p, k;
-- r1
SYSTEM SYNC REPLICA ov;
SELECT * FROM ov ORDER BY p, k;
SELECT name, level, rows FROM system.parts WHERE table = 'ov' AND active ORDER BY name;
