-- rows that come after some that wait alone for their quorum are not read either
-- r1
CREATE TABLE t4 (p UInt8, k UInt64) ENGINE = ReplicatedMergeTree('{zk}/t4', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE t4 (p UInt8, k UInt64) ENGINE = ReplicatedMergeTree('{zk}/t4', '{r}') PARTITION BY p ORDER BY k;
-- r1
-- set insert_quorum=2
INSERT INTO t4 VALUES (1, 1);
INSERT INTO t4 VALUES (3, 0);
-- r2
SYSTEM SYNC REPLICA t4;
SYSTEM STOP FETCHES t4;
-- r1
-- set insert_quorum=2
-- set insert_quorum_timeout=300
-- expect error
INSERT INTO t4 VALUES (3, 1);
INSERT INTO t4 VALUES (3, 2), (4, 1);
-- set select_sequential_consistency=1
SELECT * FROM t4 ORDER BY p, k;
SELECT * FROM t4 ORDER BY p, k;
-- r2
-- set select_sequential_consistency=1
SELECT * FROM t4 ORDER BY p, k;
SYSTEM START FETCHES t4;
SYSTEM SYNC REPLICA t4;
-- set select_sequential_consistency=1
SELECT * FROM t4 ORDER BY p, k;
SELECT * FROM t4 ORDER BY p, k;
-- set insert_quorum=2
INSERT INTO t4 VALUES (3, 3);
-- set select_sequential_consistency=1
SELECT * FROM t4 ORDER BY p, k;
