-- a quorum that is not reached in time, what reads and inserts say meanwhile, and after
-- r1
CREATE TABLE m1 (k Int32) ENGINE = ReplicatedMergeTree('{zk}/m1', '{r}') ORDER BY k;
-- r2
CREATE TABLE m1 (k Int32) ENGINE = ReplicatedMergeTree('{zk}/m1', '{r}') ORDER BY k;
SYSTEM STOP FETCHES;
-- r1
INSERT INTO m1 VALUES (0);
-- set insert_quorum=2
-- set insert_quorum_timeout=500
-- expect error
INSERT INTO m1 VALUES (1);
SELECT * FROM m1 ORDER BY k;
-- set select_sequential_consistency=1
SELECT * FROM m1 ORDER BY k;
-- set insert_quorum=2
-- set insert_quorum_timeout=500
-- expect error
INSERT INTO m1 VALUES (2);
INSERT INTO m1 VALUES (3);
-- r2
SELECT * FROM m1 ORDER BY k;
-- set select_sequential_consistency=1
SELECT count() FROM m1;
SYSTEM START FETCHES;
SYSTEM SYNC REPLICA m1;
SELECT * FROM m1 ORDER BY k;
-- r1
-- set insert_quorum=2
INSERT INTO m1 VALUES (1);
-- set insert_quorum=2
INSERT INTO m1 VALUES (4);
-- set select_sequential_consistency=1
SELECT * FROM m1 ORDER BY k;
-- r2
-- set select_sequential_consistency=1
SELECT * FROM m1 ORDER BY k;
SELECT name, rows FROM system.parts WHERE table = 'm1' AND active ORDER BY name;
