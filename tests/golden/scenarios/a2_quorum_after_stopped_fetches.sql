-- a quorum that is not reached while fetches are stopped, and then is
-- r1
CREATE TABLE qq (k UInt64, v String) ENGINE = ReplicatedMergeTree('{zk}/qq', '{r}') ORDER BY k;
-- r2
CREATE TABLE qq (k UInt64, v String) ENGINE = ReplicatedMergeTree('{zk}/qq', '{r}') ORDER BY k;
SYSTEM STOP FETCHES qq;
-- r1
-- expect error
-- set insert_quorum=2
-- set insert_quorum_timeout=1500
INSERT INTO qq VALUES (1, 'a');
SELECT * FROM qq;
-- set select_sequential_consistency=1
SELECT * FROM qq;
-- expect error
-- set insert_quorum=2
-- set insert_quorum_timeout=1500
INSERT INTO qq VALUES (2, 'b');
INSERT INTO qq VALUES (3, 'c');
SELECT * FROM qq ORDER BY k;
-- r2
-- set select_sequential_consistency=1
SELECT * FROM qq;
SELECT count() FROM qq;
SYSTEM START FETCHES qq;
SYSTEM SYNC REPLICA qq;
SELECT * FROM qq ORDER BY k;
-- set select_sequential_consistency=1
SELECT * FROM qq ORDER BY k;
-- r1
-- set insert_quorum=2
INSERT INTO qq VALUES (2, 'b');
-- set insert_quorum=2
INSERT INTO qq VALUES (2, 'b');
-- set select_sequential_consistency=1
SELECT * FROM qq ORDER BY k;
-- set insert_quorum=1
INSERT INTO qq VALUES (4, 'd');
-- set insert_quorum=2
INSERT INTO qq VALUES (4, 'd');
-- expect error
-- set insert_quorum=10
INSERT INTO qq VALUES (5, 'e');
SELECT * FROM qq ORDER BY k;
-- r2
SYSTEM SYNC REPLICA qq;
SELECT name, rows FROM system.parts WHERE table = 'qq' AND active ORDER BY name;
