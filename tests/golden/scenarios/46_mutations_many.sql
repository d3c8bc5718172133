-- r1
CREATE TABLE mu (p Int64, id Int64, v Int64) ENGINE = ReplicatedMergeTree('{zk}/mu', '{r}') PARTITION BY p ORDER BY id;
-- r2
CREATE TABLE mu (p Int64, id Int64, v Int64) ENGINE = ReplicatedMergeTree('{zk}/mu', '{r}') PARTITION BY p ORDER BY id;
-- r1
INSERT INTO mu VALUES (1,1,1),(1,2,2),(2,1,10),(2,2,20),(3,5,5);
INSERT INTO mu VALUES (1,3,3),(2,3,30);
ALTER TABLE mu UPDATE v = v + id WHERE p = 1;
ALTER TABLE mu DELETE WHERE v IN (20, 5);
ALTER TABLE mu UPDATE v = -v WHERE id = 3, DELETE WHERE v = -30;
-- wait mutations
SELECT * FROM mu ORDER BY p, id;
SELECT command, is_done, parts_to_do FROM system.mutations WHERE table = 'mu' ORDER BY mutation_id, command;
INSERT INTO mu VALUES (3,5,5),(2,3,30);
-- r2
SYSTEM SYNC REPLICA mu;
SELECT * FROM mu ORDER BY p, id;
OPTIMIZE TABLE mu FINAL;
SELECT * FROM mu ORDER BY p, id;
-- expect error
ALTER TABLE mu UPDATE id = 1 WHERE 1;
-- expect error
ALTER TABLE mu UPDATE p = 1 WHERE 1;
-- expect error
ALTER TABLE mu DELETE WHERE nosuch = 1;
-- expect error
ALTER TABLE mu UPDATE nosuch = 1 WHERE 1;
ALTER TABLE mu DELETE WHERE id > 0;
-- wait mutations
SELECT count() FROM mu;
-- r1
SELECT count() FROM mu;
