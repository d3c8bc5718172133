-- r1
CREATE TABLE dd (p Int64, k Int64) ENGINE = ReplicatedMergeTree('{zk}/dd', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE dd (p Int64, k Int64) ENGINE = ReplicatedMergeTree('{zk}/dd', '{r}') PARTITION BY p ORDER BY k;
-- r1
INSERT INTO dd VALUES (1,1),(2,1);
INSERT INTO dd VALUES (2,1),(1,1);
INSERT INTO dd VALUES (1,1);
INSERT INTO dd VALUES (1,1),(1,1);
INSERT INTO dd VALUES (2,1),(3,1);
-- r2
SYSTEM SYNC REPLICA dd;
SELECT p, k FROM dd ORDER BY p, k;
-- set insert_deduplicate=0
INSERT INTO dd VALUES (1,1);
-- set insert_deduplicate=0
INSERT INTO dd VALUES (1,1);
INSERT INTO dd VALUES (1,1);
SELECT p, k FROM dd ORDER BY p, k;
ALTER TABLE dd DROP PARTITION 1;
INSERT INTO dd VALUES (1,1),(2,1);
SELECT p, k FROM dd ORDER BY p, k;
INSERT INTO dd SELECT p + 10, k FROM dd;
INSERT INTO dd SELECT p + 10, k FROM dd WHERE p < 10;
-- r1
SYSTEM SYNC REPLICA dd;
SELECT p, k FROM dd ORDER BY p, k;
