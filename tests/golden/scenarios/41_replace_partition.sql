-- r1
CREATE TABLE src (p Int64, k String, d Int64) ENGINE = ReplicatedMergeTree('{zk}/src', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE src (p Int64, k String, d Int64) ENGINE = ReplicatedMergeTree('{zk}/src', '{r}') PARTITION BY p ORDER BY k;
-- r1
CREATE TABLE dst (p Int64, k String, d Int64) ENGINE = ReplicatedMergeTree('{zk}/dst', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE dst (p Int64, k String, d Int64) ENGINE = ReplicatedMergeTree('{zk}/dst', '{r}') PARTITION BY p ORDER BY k;
-- r1
INSERT INTO src VALUES (0,'0',1);
INSERT INTO src VALUES (1,'0',1);
INSERT INTO src VALUES (1,'1',1);
INSERT INTO src VALUES (2,'0',1);
INSERT INTO src VALUES (3,'0',1);
INSERT INTO src VALUES (3,'1',1);
INSERT INTO dst VALUES (0,'1',2);
INSERT INTO dst VALUES (1,'1',2),(1,'2',2);
INSERT INTO dst VALUES (2,'1',2);
INSERT INTO dst VALUES (3,'1',2);
OPTIMIZE TABLE src PARTITION 3 FINAL;
-- r2
SYSTEM SYNC REPLICA dst;
SYSTEM SYNC REPLICA src;
SELECT count(), sum(d) FROM src;
SELECT count(), sum(d) FROM dst;
ALTER TABLE dst REPLACE PARTITION 1 FROM src;
SELECT p, k, d FROM dst ORDER BY p, k, d;
-- r1
SYSTEM SYNC REPLICA dst;
SELECT p, k, d FROM dst ORDER BY p, k, d;
ALTER TABLE dst ATTACH PARTITION 2 FROM src;
ALTER TABLE dst DROP PARTITION 3;
ALTER TABLE dst ATTACH PARTITION 3 FROM src;
SELECT p, k, d FROM dst ORDER BY p, k, d;
INSERT INTO dst VALUES (3,'0',1);
INSERT INTO dst VALUES (3,'1',2);
-- r2
SYSTEM SYNC REPLICA dst;
SELECT p, k, d FROM dst ORDER BY p, k, d;
SELECT p, k, d FROM src ORDER BY p, k, d;
