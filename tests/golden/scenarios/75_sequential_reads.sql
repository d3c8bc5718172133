-- r1
CREATE TABLE sq (d Date, id UInt32) ENGINE = ReplicatedMergeTree('{zk}/sq', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- r2
CREATE TABLE sq (d Date, id UInt32) ENGINE = ReplicatedMergeTree('{zk}/sq', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id;
-- r1
-- set insert_quorum=2
-- set insert_quorum_parallel=0
INSERT INTO sq VALUES ('2018-01-01', 1);
INSERT INTO sq VALUES ('2018-01-01', 2);
INSERT INTO sq VALUES ('2018-02-01', 3);
-- r2
SYSTEM SYNC REPLICA sq;
-- set select_sequential_consistency=1
SELECT id FROM sq ORDER BY id;
SELECT id FROM sq ORDER BY id;
-- r1
-- set select_sequential_consistency=1
SELECT id FROM sq ORDER BY id;
-- set insert_quorum=2
-- set insert_quorum_parallel=0
INSERT INTO sq VALUES ('2018-01-01', 4);
-- set select_sequential_consistency=1
SELECT id FROM sq ORDER BY id;
