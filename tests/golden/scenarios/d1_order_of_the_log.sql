-- in which order one OPTIMIZE and one TRUNCATE of many partitions write to the log
-- r1
CREATE TABLE ol (p UInt32, k UInt32) ENGINE = ReplicatedMergeTree('{zk}/ol', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE ol (p UInt32, k UInt32) ENGINE = ReplicatedMergeTree('{zk}/ol', '{r}') PARTITION BY p ORDER BY k;
-- r1
SYSTEM STOP MERGES;
INSERT INTO ol SELECT number, number FROM numbers(16);
INSERT INTO ol SELECT number, number + 100 FROM numbers(16);
SYSTEM START MERGES;
SYSTEM SYNC REPLICA ol;
OPTIMIZE TABLE ol FINAL;
SYSTEM SYNC REPLICA ol;
SELECT splitByChar('\n', value)[6] FROM system.zookeeper WHERE path = '{zk}/ol/log' AND value LIKE '%merge%' ORDER BY name;
TRUNCATE TABLE ol;
SELECT extract(value, 'drop\n([0-9]+)_') FROM system.zookeeper WHERE path = '{zk}/ol/log' AND value LIKE '%drop%' ORDER BY name;
