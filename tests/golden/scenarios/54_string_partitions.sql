-- r1
CREATE TABLE pt (p String, k Int64) ENGINE = ReplicatedMergeTree('{zk}/pt', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE pt (p String, k Int64) ENGINE = ReplicatedMergeTree('{zk}/pt', '{r}') PARTITION BY p ORDER BY k;
-- r1
INSERT INTO pt VALUES ('a',1),('b',2),('c d',3);
INSERT INTO pt VALUES ('a',4);
SELECT partition, name, rows, active FROM system.parts WHERE table = 'pt' ORDER BY name;
SELECT partition_id, partition, min_block_number, max_block_number, level FROM system.parts WHERE table = 'pt' AND active ORDER BY name;
ALTER TABLE pt DROP PARTITION 'a';
SELECT * FROM pt ORDER BY k;
ALTER TABLE pt DETACH PARTITION 'b';
SELECT * FROM pt ORDER BY k;
-- r2
SYSTEM SYNC REPLICA pt;
SELECT * FROM pt ORDER BY k;
ALTER TABLE pt ATTACH PARTITION 'b';
SELECT * FROM pt ORDER BY k;
-- r1
SYSTEM SYNC REPLICA pt;
SELECT * FROM pt ORDER BY k;
ALTER TABLE pt DROP PARTITION ID 'nosuch';
ALTER TABLE pt DROP PARTITION 'nosuch';
INSERT INTO pt VALUES ('a',1),('b',2),('c d',3);
SELECT * FROM pt ORDER BY k;
ALTER TABLE pt FREEZE PARTITION 'b';
ALTER TABLE pt FREEZE;
OPTIMIZE TABLE pt PARTITION 'b' FINAL;
SELECT partition, rows FROM system.parts WHERE table = 'pt' AND active ORDER BY name;
DROP TABLE pt;
-- r2
SELECT * FROM pt ORDER BY k;
INSERT INTO pt VALUES ('z',9);
-- r1
CREATE TABLE pt (p String, k Int64) ENGINE = ReplicatedMergeTree('{zk}/pt', '{r}') PARTITION BY p ORDER BY k;
SYSTEM SYNC REPLICA pt;
SELECT * FROM pt ORDER BY k;
INSERT INTO pt VALUES ('z',9);
SELECT count() FROM pt;
