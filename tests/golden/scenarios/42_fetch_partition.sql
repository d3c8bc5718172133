-- r1
CREATE TABLE src (p Int64, k Int64) ENGINE = ReplicatedMergeTree('{zk}/src', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE src (p Int64, k Int64) ENGINE = ReplicatedMergeTree('{zk}/src', '{r}') PARTITION BY p ORDER BY k;
-- r1
CREATE TABLE dst (p Int64, k Int64) ENGINE = ReplicatedMergeTree('{zk}/dst', '{r}') PARTITION BY p ORDER BY k;
-- r2
CREATE TABLE dst (p Int64, k Int64) ENGINE = ReplicatedMergeTree('{zk}/dst', '{r}') PARTITION BY p ORDER BY k;
-- r1
INSERT INTO src VALUES (1,1),(1,2),(2,3);
INSERT INTO src VALUES (1,4);
-- r2
SYSTEM SYNC REPLICA src;
ALTER TABLE dst FETCH PARTITION 1 FROM '{zk}/src';
SELECT count() FROM dst;
ALTER TABLE dst ATTACH PARTITION 1;
SELECT p, k FROM dst ORDER BY p, k;
-- expect error
ALTER TABLE dst FETCH PARTITION 1 FROM '{zk}/nosuch';
-- r1
SYSTEM SYNC REPLICA dst;
SELECT p, k FROM dst ORDER BY p, k;
