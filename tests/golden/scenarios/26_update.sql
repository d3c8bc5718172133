-- r1
CREATE TABLE up (id Int64, v Int64, s String, n Nullable(Int64), p Int64) ENGINE = ReplicatedMergeTree('{zk}/up', '{r}') PARTITION BY p ORDER BY id;
-- r2
CREATE TABLE up (id Int64, v Int64, s String, n Nullable(Int64), p Int64) ENGINE = ReplicatedMergeTree('{zk}/up', '{r}') PARTITION BY p ORDER BY id;
-- r1
INSERT INTO up VALUES (1,1,'a',NULL,1),(2,2,'b',2,1),(3,3,'c',3,2),(4,4,'d',NULL,2);
ALTER TABLE up UPDATE v = v * 10, s = concat(s, '!') WHERE id % 2 = 0;
-- wait mutations
SELECT * FROM up ORDER BY id;
-- r2
ALTER TABLE up UPDATE n = id WHERE isNull(n), DELETE WHERE v = 1;
-- wait mutations
SYSTEM SYNC REPLICA up;
SELECT * FROM up ORDER BY id;
-- r1
-- expect error
ALTER TABLE up UPDATE id = 5 WHERE 1;
-- expect error
ALTER TABLE up UPDATE p = 5 WHERE 1;
-- expect error
ALTER TABLE up DELETE WHERE nosuch = 1;
-- expect error
ALTER TABLE up UPDATE nosuch = 1 WHERE 1;
SYSTEM SYNC REPLICA up;
SELECT command, is_done, parts_to_do FROM system.mutations WHERE table = 'up' ORDER BY mutation_id;
SELECT * FROM up ORDER BY id;
