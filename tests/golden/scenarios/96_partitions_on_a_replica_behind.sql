-- partitions are dropped, detached and attached while a replica's queue stands or it is away
-- merges stopped, mutation waits, replica behind, partition ops on a lagging replica
-- r1
CREATE TABLE m2 (p Int32, k Int32, v String) ENGINE = ReplicatedMergeTree('{zk}/m2', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE m2 (p Int32, k Int32, v String) ENGINE = ReplicatedMergeTree('{zk}/m2', '{r}') PARTITION BY p ORDER BY k;
SYSTEM STOP REPLICATION QUEUES m2;
-- r1
INSERT INTO m2 VALUES (1, 1, 'a'), (2, 2, 'b');
INSERT INTO m2 VALUES (1, 3, 'c');
-- set replication_alter_partitions_sync=1
ALTER TABLE m2 DROP PARTITION 2;
INSERT INTO m2 VALUES (2, 4, 'd');
-- r2
SELECT count() FROM m2;
SYSTEM START REPLICATION QUEUES m2;
SYSTEM SYNC REPLICA m2;
SELECT * FROM m2 ORDER BY p, k;
DETACH TABLE m2;
-- r1
INSERT INTO m2 VALUES (1, 5, 'e'), (3, 6, 'f');
ALTER TABLE m2 DETACH PARTITION 1;
ALTER TABLE m2 ATTACH PARTITION 1;
SELECT * FROM m2 ORDER BY p, k;
-- r2
ATTACH TABLE m2;
SYSTEM SYNC REPLICA m2;
SELECT * FROM m2 ORDER BY p, k;
SELECT name FROM system.parts WHERE table = 'm2' AND active ORDER BY name;
INSERT INTO m2 VALUES (1, 5, 'e');
SELECT * FROM m2 ORDER BY p, k;
ALTER TABLE m2 DETACH PARTITION 3;
INSERT INTO m2 VALUES (3, 6, 'f');
ALTER TABLE m2 ATTACH PARTITION 3;
SELECT * FROM m2 ORDER BY p, k;
-- r1
SYSTEM SYNC REPLICA m2;
SELECT * FROM m2 ORDER BY p, k;
-- expect error
ALTER TABLE m2 ATTACH PART 'nosuch';
ALTER TABLE m2 DROP PARTITION 1, DROP PARTITION 2;
SELECT * FROM m2 ORDER BY p, k;
