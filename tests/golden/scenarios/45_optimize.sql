-- r1
CREATE TABLE op (p Int64, k Int64, v String) ENGINE = ReplicatedMergeTree('{zk}/op', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE op (p Int64, k Int64, v String) ENGINE = ReplicatedMergeTree('{zk}/op', '{r}') PARTITION BY p ORDER BY k;
-- r1
INSERT INTO op VALUES (1,1,'a'),(2,1,'b');
INSERT INTO op VALUES (1,1,'a'),(2,2,'b'),(3,1,'c');
OPTIMIZE TABLE op PARTITION 1 FINAL;
SELECT partition, name, rows, level FROM system.parts WHERE table = 'op' AND active ORDER BY name;
OPTIMIZE TABLE op FINAL;
SELECT partition, name, rows, level FROM system.parts WHERE table = 'op' AND active ORDER BY name;
-- r2
SYSTEM SYNC REPLICA op;
SELECT * FROM op ORDER BY p, k, v;
OPTIMIZE TABLE op PARTITION 1 FINAL DEDUPLICATE;
SELECT * FROM op ORDER BY p, k, v;
-- r1
SYSTEM SYNC REPLICA op;
SELECT * FROM op ORDER BY p, k, v;
