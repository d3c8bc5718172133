-- r1
CREATE TABLE st (id Int64) ENGINE = ReplicatedMergeTree('{zk}/st', '{r}') ORDER BY id;
-- r2
CREATE TABLE st (id Int64) ENGINE = ReplicatedMergeTree('{zk}/st', '{r}') ORDER BY id;
-- r1
INSERT INTO st VALUES (1);
INSERT INTO st VALUES (2);
-- r2
SYSTEM SYNC REPLICA st;
SELECT database, table, engine, is_readonly, is_session_expired, parts_to_check, replica_name, columns_version, queue_size, inserts_in_queue, merges_in_queue, log_max_index, log_pointer, total_replicas, active_replicas FROM system.replicas WHERE table = 'st';
SELECT count() FROM system.replication_queue WHERE table = 'st';
SELECT name, engine, partition_key, sorting_key, primary_key FROM system.tables WHERE name = 'st' AND database = 'default';
SELECT name, type, position FROM (SELECT name, type, 1 AS position FROM system.columns WHERE table = 'st' AND database = 'default');
SELECT name FROM system.zookeeper WHERE path = '{zk}/st/replicas' ORDER BY name;
SELECT name FROM system.zookeeper WHERE path = '{zk}/st/replicas/r1/parts' ORDER BY name;
SELECT value FROM system.zookeeper WHERE path = '{zk}/st/replicas/r1' AND name = 'is_lost';
SELECT table, partition, name, rows, level, active FROM system.parts WHERE table = 'st' ORDER BY name;
