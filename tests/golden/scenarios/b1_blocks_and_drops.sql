-- several blocks of one insert, and which of them are known after drops
-- r1
CREATE TABLE bl (p UInt8, k UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/bl', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE bl (p UInt8, k UInt32, v String) ENGINE = ReplicatedMergeTree('{zk}/bl', '{r}') PARTITION BY p ORDER BY k;
-- r1
-- set max_block_size=4
-- set max_insert_block_size=4
-- set min_insert_block_size_rows=4
INSERT INTO bl SELECT number % 2, number, toString(number) FROM system.numbers LIMIT 16;
SELECT p, count(), sum(k) FROM bl GROUP BY p ORDER BY p;
-- set max_block_size=4
-- set max_insert_block_size=4
-- set min_insert_block_size_rows=4
INSERT INTO bl SELECT number % 2, number, toString(number) FROM system.numbers LIMIT 16;
SELECT count() FROM bl;
SELECT count() FROM system.zookeeper WHERE path = '{zk}/bl/blocks';
ALTER TABLE bl DROP PARTITION 1;
SELECT count() FROM system.zookeeper WHERE path = '{zk}/bl/blocks';
-- set max_block_size=4
-- set max_insert_block_size=4
-- set min_insert_block_size_rows=4
INSERT INTO bl SELECT number % 2, number, toString(number) FROM system.numbers LIMIT 16;
SELECT p, count(), sum(k) FROM bl GROUP BY p ORDER BY p;
-- r2
SYSTEM SYNC REPLICA bl;
ALTER TABLE bl DETACH PARTITION 0;
SELECT p, count(), sum(k) FROM bl GROUP BY p ORDER BY p;
INSERT INTO bl VALUES (0, 0, '0'), (0, 2, '2');
INSERT INTO bl VALUES (0, 0, '0'), (0, 2, '2');
ALTER TABLE bl ATTACH PARTITION 0;
SELECT p, count(), sum(k) FROM bl GROUP BY p ORDER BY p;
INSERT INTO bl VALUES (0, 0, '0'), (0, 2, '2');
-- r1
SYSTEM SYNC REPLICA bl;
SELECT p, count(), sum(k) FROM bl GROUP BY p ORDER BY p;
OPTIMIZE TABLE bl PARTITION 0 FINAL;
INSERT INTO bl VALUES (0, 0, '0'), (0, 2, '2');
SELECT p, count(), sum(k) FROM bl GROUP BY p ORDER BY p;
SELECT name, rows FROM system.parts WHERE table = 'bl' AND active AND partition = '0' ORDER BY name;
TRUNCATE TABLE bl;
SELECT count() FROM system.zookeeper WHERE path = '{zk}/bl/blocks';
INSERT INTO bl VALUES (0, 0, '0'), (0, 2, '2');
SELECT * FROM bl ORDER BY k;
