-- quorum
-- r1
CREATE TABLE c3 (k Int32, v String) ENGINE = ReplicatedMergeTree('{zk}/c3', '{r}') ORDER BY k;
-- r2
CREATE TABLE c3 (k Int32, v String) ENGINE = ReplicatedMergeTree('{zk}/c3', '{r}') ORDER BY k;
-- r1
-- set insert_quorum=2
INSERT INTO c3 VALUES (1, 'a');
-- set select_sequential_consistency=1
SELECT * FROM c3 ORDER BY k;
-- r2
-- set select_sequential_consistency=1
SELECT * FROM c3 ORDER BY k;
-- set insert_quorum=2
INSERT INTO c3 VALUES (1, 'a');
-- set insert_quorum=2
INSERT INTO c3 VALUES (2, 'b'), (3, 'c');
-- set insert_quorum=3
-- expect error
INSERT INTO c3 VALUES (4, 'd');
INSERT INTO c3 VALUES (5, 'e');
-- r1
SYSTEM SYNC REPLICA c3;
SELECT * FROM c3 ORDER BY k;
-- set select_sequential_consistency=1
SELECT * FROM c3 ORDER BY k;
-- r2
DETACH TABLE c3;
-- r1
-- set insert_quorum=2
-- expect error
INSERT INTO c3 VALUES (6, 'f');
SELECT * FROM c3 ORDER BY k;
-- r2
ATTACH TABLE c3;
SYSTEM SYNC REPLICA c3;
SELECT * FROM c3 ORDER BY k;
-- r1
-- set insert_quorum=2
INSERT INTO c3 VALUES (7, 'g');
-- r2
SYSTEM SYNC REPLICA c3;
SELECT * FROM c3 ORDER BY k;
SELECT name FROM system.parts WHERE table = 'c3' AND active ORDER BY name;
