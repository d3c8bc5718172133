-- partitions and tables that are detached and attached
-- r1
CREATE TABLE de (k UInt32, d Date, v String) ENGINE = ReplicatedMergeTree('{zk}/de', '{r}') PARTITION BY toMonday(d) ORDER BY k;
-- r2
CREATE TABLE de (k UInt32, d Date, v String) ENGINE = ReplicatedMergeTree('{zk}/de', '{r}') PARTITION BY toMonday(d) ORDER BY k;
-- r1
INSERT INTO de VALUES (1, '2018-01-01', 'a'), (2, '2018-01-08', 'b'), (3, '2018-01-15', 'c');
INSERT INTO de VALUES (4, '2018-01-02', 'd');
SELECT partition, name, partition_id FROM system.parts WHERE table = 'de' AND active ORDER BY name;
ALTER TABLE de DETACH PARTITION '2018-01-01';
ALTER TABLE de DROP PARTITION '2018-01-08';
ALTER TABLE de DROP PARTITION '2018-01-09';
ALTER TABLE de DROP PARTITION ID '20180115';
SELECT * FROM de;
ALTER TABLE de ATTACH PART '20180101_1_1_0';
SELECT * FROM de;
ALTER TABLE de ATTACH PARTITION '2018-01-01';
SELECT * FROM de ORDER BY k;
INSERT INTO de VALUES (2, '2018-01-08', 'b');
INSERT INTO de VALUES (4, '2018-01-02', 'd');
INSERT INTO de VALUES (1, '2018-01-01', 'a'), (2, '2018-01-08', 'b'), (3, '2018-01-15', 'c');
SELECT * FROM de ORDER BY k;
-- r2
SYSTEM SYNC REPLICA de;
SELECT * FROM de ORDER BY k;
DETACH TABLE de;
-- expect error
SELECT * FROM de;
-- r1
INSERT INTO de VALUES (9, '2018-01-01', 'z');
SELECT active_replicas, total_replicas FROM system.replicas WHERE table = 'de';
-- r2
ATTACH TABLE de;
SYSTEM SYNC REPLICA de;
SELECT * FROM de ORDER BY k;
-- expect error
ATTACH TABLE de;
-- expect error
DETACH TABLE nosuch;
-- expect error
ATTACH TABLE nosuch;
DETACH TABLE IF EXISTS nosuch;
