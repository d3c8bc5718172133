-- OPTIMIZE with nothing to do, and DEDUPLICATE
-- r1
CREATE TABLE op (p UInt8, k UInt32, v UInt32) ENGINE = ReplicatedMergeTree('{zk}/op', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE op (p UInt8, k UInt32, v UInt32) ENGINE = ReplicatedMergeTree('{zk}/op', '{r}') PARTITION BY p ORDER BY k;
-- r1
OPTIMIZE TABLE op;
INSERT INTO op VALUES (1, 1, 1);
OPTIMIZE TABLE op FINAL;
SELECT name FROM system.parts WHERE table = 'op' AND active;
INSERT INTO op VALUES (1, 1, 1), (1, 2, 2);
INSERT INTO op VALUES (2, 1, 1), (2, 1, 1);
OPTIMIZE TABLE op FINAL DEDUPLICATE;
-- r2
SYSTEM SYNC REPLICA op;
SELECT * FROM op ORDER BY p, k, v;
SELECT name, rows FROM system.parts WHERE table = 'op' AND active ORDER BY name;
INSERT INTO op VALUES (3, 1, 1), (3, 1, 1), (3, 1, 2);
-- r1
SYSTEM SYNC REPLICA op;
OPTIMIZE TABLE op PARTITION 3 FINAL DEDUPLICATE;
-- r2
SYSTEM SYNC REPLICA op;
SELECT * FROM op WHERE p = 3 ORDER BY p, k, v;
OPTIMIZE TABLE op PARTITION 77 FINAL;
-- expect error
-- set optimize_throw_if_noop=1
OPTIMIZE TABLE op PARTITION 77 FINAL;
-- expect error
-- set optimize_throw_if_noop=1
OPTIMIZE TABLE op;
-- expect error
-- set optimize_throw_if_noop=1
OPTIMIZE TABLE op PARTITION 3;
OPTIMIZE TABLE op DEDUPLICATE;
-- r1
SYSTEM SYNC REPLICA op;
SELECT table, active, count() > 0 FROM system.parts WHERE table = 'op' GROUP BY table, active ORDER BY active;
