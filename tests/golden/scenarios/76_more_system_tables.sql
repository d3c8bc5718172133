-- r1
CREATE TABLE sy (d Date, id UInt32) ENGINE = ReplicatedMergeTree('{zk}/sy', '{r}') PARTITION BY toYYYYMM(d) ORDER BY id SETTINGS index_granularity = 10;
INSERT INTO sy SELECT toDate('2018-01-01'), number FROM numbers(25);
INSERT INTO sy SELECT toDate('2018-02-01'), number FROM numbers(10);
SYSTEM SYNC REPLICA sy;
SELECT name, rows, marks, level, min_block_number, max_block_number, min_date, max_date, active FROM system.parts WHERE table = 'sy' ORDER BY name;
SELECT partition, partition_id, database, table, engine FROM system.parts WHERE table = 'sy' ORDER BY name;
SELECT database, name, engine, is_temporary FROM system.tables WHERE name = 'sy';
SELECT name FROM system.databases WHERE name IN ('default', 'system') ORDER BY name;
SELECT count() FROM system.tables WHERE database = 'system' AND name IN ('parts', 'tables', 'columns', 'replicas', 'mutations', 'replication_queue', 'zookeeper', 'databases', 'settings', 'functions', 'merges', 'one');
SELECT name, type FROM system.columns WHERE database = 'default' AND table = 'sy' ORDER BY name;
SELECT table, is_leader, is_readonly, is_session_expired, queue_size, inserts_in_queue, merges_in_queue, total_replicas, active_replicas FROM system.replicas WHERE table = 'sy';
SELECT count() FROM system.replication_queue WHERE table = 'sy';
SELECT count() FROM system.merges WHERE table = 'sy';
SELECT count() FROM system.one;
